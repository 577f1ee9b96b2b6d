"""Runs a student's function in a limited process of its own, which sends back data and nothing else.

The process runs the function at a size, or has it answer inputs, and writes JSON: the Trace, the answers, or the text
of an error with the Trace up to there, and what was printed. It judges nothing and records nothing. The student's code
runs in it and can do as it likes with all that it writes, so the process that asked takes that as what a stranger
sends: it is read as data, field by field, and judged here. Who forges a Trace has to forge a correct training step.

Wherever it runs there is a limit on the time by the clock on the wall; on Linux and macOS on processor time, on memory
(Linux), and on the size of files, too. What it starts ends with it, unless it leaves its session.
"""

from __future__ import annotations

import faulthandler
import io
import json
import math
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from lib.checker.table import Answer, Given, decode, encode
from lib.cluster.mesh import Mesh, mesh_from
from lib.errors import fixes
from lib.errors.exceptions import NotSolved, PuzzleError, TraceError
from lib.errors.source_lines import Place, raised_at, resolve, student_frame
from lib.errors.wording import message_of
from lib.files import child_environment, write_whole
from lib.simulator.printing import Printed
from lib.submissions.gap import BuildError
from lib.submissions.load import SourceError
from lib.trace.trace import Trace

__all__ = ["LIMIT", "OUTCOMES", "Sent", "answers_of", "run_of"]

OUTCOMES = ("trace", "answers", "unsolved", "source", "failed")
"""It ran; it answered; it is still the stub; the file will not do; anything else."""
LIMIT = 10.0
"""Seconds that a function may run."""
GRACE = 10.0
"""Seconds more, to start Python and to end by itself, before a process is ended from outside."""
DEAF = 1.0
"""Seconds more for one long operation of Python's own, which lets no other thread run, before it is ended."""
MEMORY = 4 * 2**30
"""Bytes of memory that it may have."""
WRITTEN = 512 * 2**20
"""Bytes that a file which it writes may have; so what it sends back has no more."""
SENT = 32 * 2**20
"""Bytes that it may send back at the size of a puzzle, where a run has a budget."""
PROCESSES = 4096
"""Processes and threads that its user may have at once, so that one which starts others without end is stopped."""
MAX_TEXT = 20_000
MAX_PRINTED = 4000
"""Characters of what a function prints that are kept."""
MORE = "\n(and more)"


@dataclass(frozen=True, slots=True)
class Sent:
    """What came back, validated. `text` says why it failed; a run that failed has the Trace up to there, if any."""

    outcome: str
    text: str = ""
    printed: str = ""
    trace: Trace | None = None
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What a process is asked: to run the function at a size (None: the puzzle's), or to answer inputs."""

    file: str
    puzzle: str
    seconds: float
    ranks: int | None = None
    layers: int | None = None
    batches: int | None = None
    mesh: Any = None
    """In the form of `Mesh.to_json`."""
    inputs: Any = None
    lines: bool = False
    """Whether the message of a mistake shows the line that mends it, where it would name only the idea."""

    def at_own_size(self) -> bool:
        """Whether a schedule is run at the size of its puzzle, or a plain function asked."""
        return (self.ranks, self.layers, self.batches, self.mesh) == (None, None, None, None)


def run_of(
    file: Path,
    puzzle: str,
    *,
    ranks: int | None = None,
    layers: int | None = None,
    batches: int | None = None,
    mesh: Mesh | None = None,
    limit: float = LIMIT,
) -> Sent:
    """Simulates the function `puzzle` of a notebook or .py, at the puzzle's size where none is said.

    Nothing is raised for anything that the function does.
    """
    arranged = None if mesh is None else mesh.to_json()
    return _ask(Request(str(file), puzzle, limit, ranks, layers, batches, arranged, lines=fixes.are_shown()))


def answers_of(file: Path, puzzle: str, inputs: Sequence[Given], limit: float = LIMIT) -> Sent:
    """Has the function `puzzle` of a notebook or .py answer inputs. Nothing is raised for anything that it does."""
    sent = _ask(Request(str(file), puzzle, limit, inputs=[encode(given) for given in inputs]))
    if sent.outcome == "answers" and len(sent.answers) != len(inputs):
        return Sent("failed", f"{puzzle} gave {len(sent.answers)} answers to {len(inputs)} inputs", sent.printed)
    return sent


def _ask(request: Request) -> Sent:
    with _folder() as name:
        folder = Path(name)
        write_whole(folder / "request.json", json.dumps(asdict(request)))
        # -P: a file of the student's called random.py is not to take the place of Python's own.
        program = [sys.executable, "-P", "-m", "lib.course.child", name]
        # It has no name there, or one would open what the student's code has put in its place: a pipe waits for ever.
        with tempfile.TemporaryFile() as noise:
            process = subprocess.Popen(
                program,
                env=child_environment(PYTHONDONTWRITEBYTECODE="1", PUZZLES_PROGRESS="off"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=noise,
                start_new_session=True,
            )
            try:
                status = process.wait(request.seconds + GRACE)
            except subprocess.TimeoutExpired:
                return _endless(request, None)
            finally:
                _end(process)
            return _read(folder / "result.json", request) or _vanished(request, status, noise)


@contextmanager
def _folder() -> Generator[str]:
    """A folder for a while. What was left in it goes as far as it can: folders a thousand deep stay."""
    name = tempfile.mkdtemp(prefix="puzzles")
    try:
        yield name
    finally:
        with suppress(RecursionError):
            shutil.rmtree(name, ignore_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process, and what it has started."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):  # nobody is left
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _endless(request: Request, place: Place | str | None) -> Sent:
    where = "" if place is None else f"\n  where:    {place}"
    text = (
        f"{request.puzzle} did not end within {request.seconds:g} seconds, so it was stopped{where}\n"
        "  fix:      look for a loop that never ends, or one that is far too long"
    )
    return Sent("failed", text)


def _vanished(request: Request, status: int, noise: BinaryIO) -> Sent:
    """A process that left no result: it was ended by somebody, or it ended itself."""
    noise.seek(max(0, noise.seek(0, os.SEEK_END) - MAX_PRINTED))
    said = noise.read(MAX_PRINTED).decode("utf-8", "replace").strip()
    if "Timeout (" in said and status == 1:
        return _endless(request, _deaf_at(said, request))
    if -status in (getattr(signal, name, 0) for name in ("SIGXCPU", "SIGALRM")):
        return _endless(request, None)
    if status < 0:
        how = (
            f"ended by the system ({_signal(-status)}), as it does with what asks for too much memory or breaks Python"
        )
        return Sent("failed", f"{request.puzzle} was {how}")
    last = f": {said.splitlines()[-1]}" if said else ""
    return Sent("failed", f"{request.puzzle} ended Python itself (exit status {status}){last}")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _deaf_at(said: str, request: Request) -> str | None:
    """The student's line in what faulthandler wrote of a process that was too busy to say it."""
    name = re.escape(Path(request.file).name)
    found = re.search(rf'File "[^"\n]*{name}([^"\n]*)", line (\d+) in (\w+)', said.rpartition("Timeout (")[2])
    return None if found is None else f"{Path(request.file).name}{found[1]}, line {found[2]}, in {found[3]}"


# -- what comes back ------------------------------------------------------------------------------------------------


def _read(result: Path, request: Request) -> Sent | None:
    """What the other process wrote, if it is whole. Its code was the student's: it may have written anything."""
    try:
        data = json.loads(_content(result, SENT if request.at_own_size() else WRITTEN))
        if not isinstance(data, dict) or set(cast("dict[str, Any]", data)) != set(Sent.__slots__):
            return None
        return _sent(cast("dict[str, Any]", data), request)
    except (OSError, ValueError, TypeError, RecursionError):  # a TraceError is a ValueError
        return None


def _content(result: Path, most: int) -> bytes:
    """The bytes of a plain file, if it is one: who reads a pipe may wait for ever, and a link may lead anywhere."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(result, flags), "rb") as file:
        size = os.fstat(file.fileno())
        if not stat.S_ISREG(size.st_mode) or size.st_size > most:
            raise ValueError("this is no result")
        return file.read(most)


def _sent(data: dict[str, Any], request: Request) -> Sent | None:
    outcome, text, printed = data["outcome"], data["text"], data["printed"]
    texts = ((text, MAX_TEXT), (printed, MAX_PRINTED + len(MORE)))
    if outcome not in OUTCOMES or any(not isinstance(one, str) or len(one) > most for one, most in texts):
        return None
    if (outcome == "trace") != (request.inputs is None) and outcome in ("trace", "answers"):
        return None
    trace = None
    if data["trace"] is not None:
        from lib.trace.validation import decode as trace_from  # here and not above: only a schedule has one

        trace = trace_from(data["trace"])
    answers = tuple(_answer(row) for row in data["answers"])
    if outcome == "trace" and (trace is None or trace.error is not None):
        return None
    return Sent(outcome, _writable(text), _writable(printed), trace, answers)


def _writable(text: str) -> str:
    """A text that every terminal and file takes: half a character, which Python has and UTF-8 has not, becomes ?."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _answer(row: Any) -> Answer:
    value, *texts = cast("list[Any]", row)
    if len(texts) != len(Answer._fields) - 1 or any(
        not isinstance(text, str) or len(text) > MAX_TEXT for text in texts
    ):
        raise ValueError("this is no answer")
    return Answer(decode(value), *map(_writable, texts))


# -- in the other process -------------------------------------------------------------------------------------------


class _Kept(io.TextIOBase):
    """Keeps the beginning of what is printed, and forgets the rest."""

    def __init__(self) -> None:
        self.text = ""
        self.more = False

    def write(self, text: str, /) -> int:
        room = MAX_PRINTED - len(self.text)
        self.more |= len(text) > room
        self.text += text[:room]
        return len(text)

    def writable(self) -> bool:
        return True

    def all(self) -> str:
        return self.text + (MORE if self.more else "")


def main(folder: str) -> None:
    """What the other process does. The folder holds the request, and gets the result."""
    result = Path(folder, "result.json")
    request = Request(**json.loads(Path(folder, "request.json").read_text("utf-8")))
    printed, main_thread = _Kept(), threading.get_ident()

    def late() -> None:
        if isinstance(sys.stdout, Printed):
            sys.stdout.release()
        _write(_endless(request, _theirs(main_thread)), printed, result)
        os._exit(0)

    timer = threading.Timer(request.seconds, late)
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(request.seconds + DEAF, exit=True)
    _limit(request.seconds)
    with redirect_stdout(printed), redirect_stderr(printed), fixes.shown() if request.lines else nullcontext():
        sent = _run(request)
    timer.cancel()
    _write(sent, printed, result)
    os._exit(0)  # nobody waits for threads that the function has started, nor for what it wanted done at the end


def _limit(seconds: float) -> None:
    """Sets the limits that this system has. Each is one that is not set yet, or lower than the one that is."""
    try:
        import resource
    except ImportError:  # Windows
        return
    most = {
        "RLIMIT_CPU": math.ceil(seconds + GRACE),
        "RLIMIT_AS": MEMORY,
        "RLIMIT_FSIZE": WRITTEN,
        "RLIMIT_NPROC": PROCESSES,
        "RLIMIT_CORE": 0,
    }
    for name, value in most.items():
        number = getattr(resource, name, None)
        if number is None:
            continue
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with suppress(OSError, ValueError):  # macOS knows RLIMIT_AS and does not let it be set
            resource.setrlimit(number, (value, value))


def _run(request: Request) -> Sent:
    # Here and not above: whoever only asks needs no simulator.
    from lib.checker.table import ask_here
    from lib.simulator.simulator import Unsolved, simulate
    from lib.submissions.function_check import answering, where
    from lib.submissions.load import load_function

    try:
        function = load_function(request.file, request.puzzle)
        if request.inputs is not None:
            inputs = [tuple(decode(given)) for given in request.inputs]
            with answering(request.puzzle):
                return Sent("answers", answers=tuple(ask_here(function, where)(inputs)))
        size = {name: getattr(request, name) for name in ("ranks", "layers", "batches")}
        mesh = None if request.mesh is None else mesh_from(request.mesh)
        models = simulate(function, puzzle=request.puzzle, mesh=mesh, **size)
        return Sent("unsolved") if isinstance(models, Unsolved) else Sent("trace", trace=Trace.of(models))
    except NotSolved:
        return Sent("unsolved")
    except (SourceError, BuildError) as error:
        return Sent("source", str(error))
    except PuzzleError as error:
        return Sent("failed", str(error), trace=error.trace)
    except TraceError as error:
        return Sent("failed", str(error))
    except BaseException as error:
        place = raised_at(error)
        where_raised = "" if place is None else f"\n  where:    {place}"
        return Sent("failed", f"{type(error).__name__}: {message_of(error)}{where_raised}".replace(": \n", "\n"))


def _theirs(thread: int) -> Place | None:
    """The line of the student's at which a thread is."""
    frame = student_frame(sys._current_frames().get(thread))  # pyright: ignore[reportPrivateUsage]
    return None if frame is None else resolve(frame.f_code, frame.f_lasti)


def _write(sent: Sent, printed: _Kept, result: Path) -> None:
    from lib.trace.json_format import encode as json_of

    data = {
        "outcome": sent.outcome,
        "text": sent.text[:MAX_TEXT],
        "printed": "" if sent.outcome == "unsolved" else printed.all(),
        "trace": None if sent.trace is None else json_of(sent.trace),
        "answers": [[encode(answer.value), *(text[:MAX_TEXT] for text in answer[1:])] for answer in sent.answers],
    }
    write_whole(result, json.dumps(data, separators=(",", ":")))


if __name__ == "__main__":
    main(sys.argv[1])
