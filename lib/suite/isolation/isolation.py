"""Has students' functions run in limited processes, and reads what they send as data.

A fresh Python serves wherever there is no better way. There is a limit on the time by the clock on the wall; on Linux
and macOS on processor time, on memory (Linux), and on the size of files, too. What it starts ends with it, unless it
leaves its session. On Linux, Isolation has children of a server run what is graded.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from types import TracebackType
from typing import BinaryIO, Final

from lib.checker.table import Given, encode
from lib.cluster.mesh import Mesh
from lib.errors import fixes
from lib.files import ROOT, child_environment, write_whole
from lib.suite.isolation.messages import MAX_PRINTED, QUESTIONS, AtSize, Limits, Request, Sent, asked_for, read
from lib.suite.isolation.running import GRACE, endless, schedules_below
from lib.suite.submissions.function_check import sources_below
from lib.suite.submissions.source import Source

__all__ = [
    "FEATURES",
    "LIMIT",
    "OWN",
    "Isolation",
    "Limits",
    "answered",
    "answers_of",
    "ask",
    "deaf",
    "run_of",
    "vanished",
]

# -- asking --------------------------------------------------------------------------------------------------------


LIMIT = 10.0
"""Seconds that a function may run."""
OWN = Limits(memory=4 * 2**30, written=512 * 2**20, sent=32 * 2**20, processes=4096, files=4096)
"""What somebody's own function may use on their machine, at the size of a puzzle, where a run has a budget: so much
that only what goes on without end is stopped."""


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
    at_own_size = (ranks, layers, batches, mesh) == (None, None, None, None)
    request = Request(
        puzzle,
        replace(OWN, seconds=limit, sent=OWN.sent if at_own_size else OWN.written),
        str(file),
        ranks=ranks,
        layers=layers,
        batches=batches,
        mesh=None if mesh is None else mesh.to_json(),
        lines=fixes.are_shown(),
    )
    return ask(request)


def answers_of(file: Path, puzzle: str, inputs: Sequence[Given], limit: float = LIMIT) -> Sent:
    """Has the function `puzzle` of a notebook or .py answer inputs. Nothing is raised for anything that it does."""
    request = Request(puzzle, replace(OWN, seconds=limit), str(file), inputs=[encode(given) for given in inputs])
    return answered(ask(request), request)


def answered(sent: Sent, request: Request) -> Sent:
    """What was sent by a process that was to answer inputs: to all of them, or it failed."""
    if sent.outcome == "answers" and len(sent.answers) != len(request.inputs):
        text = f"{request.puzzle} gave {len(sent.answers)} answers to {len(request.inputs)} inputs"
        return Sent("failed", text, sent.printed)
    return sent


def ask(request: Request, **environment: str) -> Sent:
    """Starts a Python for a request, with more variables in its environment, and reads what it leaves."""
    with _folder() as name:
        folder = Path(name)
        write_whole(folder / "request.json", request.to_bytes().decode())
        # -P: a file of the student's called random.py is not to take the place of Python's own.
        program = [sys.executable, "-P", "-m", "lib.suite.isolation.running", name]
        # It has no name there, or one would open what the student's code has put in its place: a pipe waits for ever.
        with tempfile.TemporaryFile() as noise:
            process = Popen(
                program,
                env=child_environment(PYTHONDONTWRITEBYTECODE="1", PUZZLES_PROGRESS="off", **environment),
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=noise,
                start_new_session=True,
            )
            try:
                status = process.wait(request.limits.seconds + GRACE)
            except TimeoutExpired:
                return endless(request, None)
            finally:
                _end(process)
            return _read(folder / "result.json", request) or vanished(request, status, noise)


@contextmanager
def _folder() -> Generator[str]:
    """A folder for a while. What was left in it goes as far as it can: folders a thousand deep stay."""
    name = tempfile.mkdtemp(prefix="puzzles")
    try:
        yield name
    finally:
        with suppress(RecursionError):
            shutil.rmtree(name, ignore_errors=True)


def _end(process: Popen[bytes]) -> None:
    """Ends a process, and what it has started."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):  # nobody is left
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def vanished(request: Request, status: int, noise: BinaryIO) -> Sent:
    """A process that left no result: it was ended by somebody, or it ended itself."""
    said = _said(noise)
    if "Timeout (" in said and status == 1:
        return deaf(request, noise)
    if -status in (getattr(signal, name, 0) for name in ("SIGXCPU", "SIGALRM")):
        return endless(request, None)
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


def deaf(request: Request, noise: BinaryIO) -> Sent:
    """A process that did not end in time and was too busy to say so: what faulthandler wrote has the line."""
    said = _said(noise).rpartition("Timeout (")[2]
    name = Path(request.file if request.source is None else request.source[2]).name
    found = re.search(rf'File "[^"\n]*{re.escape(name)}([^"\n]*)", line (\d+) in (\w+)', said)
    return endless(request, None if found is None else f"{name}{found[1]}, line {found[2]}, in {found[3]}")


def _said(noise: BinaryIO) -> str:
    noise.seek(max(0, noise.seek(0, os.SEEK_END) - MAX_PRINTED))
    return noise.read(MAX_PRINTED).decode("utf-8", "replace").strip()


def _read(result: Path, request: Request) -> Sent | None:
    """What the other process wrote, if it is whole."""
    try:
        return read(_content(result, request.limits.sent), request)
    except (OSError, ValueError):
        return None


def _content(result: Path, most: int) -> bytes:
    """The bytes of a plain file, if it is one: who reads a pipe may wait for ever, and a link may lead anywhere."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(result, flags), "rb") as file:
        size = os.fstat(file.fileno())
        if not stat.S_ISREG(size.st_mode) or size.st_size > most:
            raise ValueError("this is no result")
        return file.read(most)


# -- isolation -----------------------------------------------------------------------------------------------------


FEATURES: Final = {
    "server": "a new process for each run",
    "processes": "no other process in sight",
    "network": "no network",
    "files": "a file system of its own",
    "landlock": "no file but its own (Landlock)",
    "seccomp": "a list of system calls (seccomp)",
}
"""What may keep a run apart, in words. Each is used where the system has it."""
PROGRAM: Final = (sys.executable, "-P", "-m", "lib.suite.isolation.server")
START = 60.0
"""Seconds for the server to start."""
ANSWER = 10.0
"""Seconds for the server to end what a child has left, and to say so."""
LINES: Final = 2
"""Lines of an answer."""
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONHOME", "SYSTEMROOT", "TZ")
"""Variables of the environment that a run may know. Others may hold what is nobody's business."""


class Isolation:
    """Runs functions in limited children. Its server starts when it is first needed, and ends with this process,
    however that ends, or at `close`. `without` names keys of FEATURES that are not to be used: tests need it.

    One run at a time: threads wait for each other. A process that was forked from this one needs one of its own.
    """

    def __init__(self, without: Collection[str] = ()) -> None:
        self._without = frozenset(without)
        self._server: _Server | None = None
        self._failed = "server" in self._without or sys.platform != "linux"
        self._lock = threading.Lock()
        self._keeps = False

    def __enter__(self) -> Isolation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the server, and all that runs there. The next run starts another one."""
        with self._lock:
            self._end()

    @contextmanager
    def one_after_another(self) -> Generator[None]:
        """While several things are asked of one function, one child answers them, and is there until the end of this.
        The function is loaded anew for each. Otherwise nothing is left of a run."""
        self._keeps = True
        try:
            yield
        finally:
            self._keeps = False
            with self._lock:
                self._leave()

    def _leave(self) -> None:
        """Ends the child that has answered last."""
        if self._server is not None and self._server.owner == os.getpid():
            try:
                self._server.leave()
            except OSError:
                self._end()
            except BaseException:  # such as Ctrl-C: what the server says next is no answer to another question
                self._end()
                raise

    @property
    def features(self) -> tuple[str, ...]:
        """What keeps the runs apart on this system, in words."""
        with self._lock:
            server = self._started()
            return ("a new Python for each run",) if server is None else tuple(FEATURES[one] for one in server.features)

    def run(self, source: Source, puzzle: str, size: AtSize | None = None, limits: Limits | None = None) -> Sent:
        """Simulates the function of a puzzle in a source, at the puzzle's size or at another one.

        A Trace comes back only if it is of the run that was asked for. Nothing is raised for anything that the source
        does.
        """
        request = _request(source, puzzle, size, limits)
        sent = self._ask(request)
        if sent.trace is None or (why := asked_for(sent.trace, puzzle, size)) is None:
            return sent
        return Sent("failed", why if sent.outcome == "trace" else sent.text, sent.printed)

    def answers(self, source: Source, puzzle: str, inputs: Sequence[Given], limits: Limits | None = None) -> Sent:
        """Has the plain function of a puzzle in a source answer inputs: as many answers, or it failed."""
        request = _request(source, puzzle, None, limits, [encode(given) for given in inputs])
        return answered(self._ask(request), request)

    def _ask(self, request: Request) -> Sent:
        with self._lock:
            for _ in range(2):  # a server that is killed, by the system or by a person, is no student's fault
                server = self._started()
                if server is None:
                    return ask(request, PYTHONHASHSEED="0")
                try:
                    sent = server.ask(request)
                except OSError:
                    self._end()
                    continue
                except BaseException:  # as in `_leave`
                    self._end()
                    raise
                if not self._keeps:
                    self._leave()
                return sent
            return Sent("failed", f"{request.puzzle} ended the process that ran it, twice")

    def _started(self) -> _Server | None:
        if self._server is not None and self._server.owner != os.getpid():
            self._server = None  # that of the process that this one was forked from
        if self._server is None and not self._failed:
            try:
                self._server = _Server(self._without)
                weakref.finalize(self, self._server.close)
            except OSError:
                self._failed = True
        return self._server

    def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = None


def _request(
    source: Source, puzzle: str, size: AtSize | None, limits: Limits | None, inputs: list[object] | None = None
) -> Request:
    request = Request(
        puzzle,
        limits or Limits(),
        source=[source.cells, source.modules, source.name, source.needs and [sorted(names) for names in source.needs]],
        solutions=sources_below(puzzle),
        schedules=schedules_below(puzzle),
        inputs=inputs,
    )
    if size is None:
        return request
    return replace(
        request,
        ranks=size.ranks,
        layers=size.layers,
        batches=size.batches,
        mesh=None if size.mesh is None else size.mesh.to_json(),
        costs=None if size.costs is None else size.costs.to_json(),
    )


class _Server:
    """The server as this process sees it: a Unix socket. OSError where it cannot be had, or is gone."""

    def __init__(self, without: frozenset[str]) -> None:
        self.owner = os.getpid()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # What a child says that Python itself has to say: it has no name, and begins anew for each child.
        self._noise = open(os.memfd_create("noise"), "r+b")  # noqa: SIM115  # `close` closes it
        self._child: _Child | None = None
        known = {name: os.environ[name] for name in KEPT if name in os.environ}
        with theirs:
            self._process = subprocess.Popen(
                [*PROGRAM, str(theirs.fileno()), str(self.owner), ",".join(without)],
                env=known
                | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
                | {"PUZZLES_PROGRESS": "off", "PYTHONUTF8": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd="/",
            )
        try:
            self.features = tuple(self._heard(START).split(","))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the server, and it all that it has started; but not that of the process this one was forked from."""
        if self.owner != os.getpid():
            return
        if self._child is not None:
            self._child.link.close()
        self._control.close()
        self._noise.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ANSWER)
        self._process.kill()
        self._process.wait()

    def ask(self, request: Request) -> Sent:
        """Has a child answer a request: the one that has answered the last, if it was asked of the same function."""
        child = self._child
        if child is None or not child.may_answer(request, self._control):
            self.leave()
            child = self._child = self._enter(request)
        content, status, late = self._exchange(child, request)
        if content is None:
            return _too_much(request)
        sent = read(content, request)
        if late and (sent is None or sent.outcome in ("trace", "answers")):
            return deaf(request, self._noise)
        if sent is None and status is None:
            status = self.leave()
        elif sent is not None and sent.outcome not in ("trace", "answers"):
            self.leave()
        return sent or vanished(request, status or 0, self._noise)

    def _enter(self, request: Request) -> _Child:
        """Has a child begin."""
        self._noise.truncate(0)
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [request.limits.to_bytes()], [theirs.fileno(), self._noise.fileno()])
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        return _Child(ours, request)

    def leave(self) -> int:
        """Ends the child that has answered last, if it is still there. Its exit status, or 0."""
        if self._child is None:
            return 0
        self._child.link.close()
        self._child = None
        self._control.send(b"stop")
        return int(self._heard(ANSWER))

    def _exchange(self, child: _Child, request: Request) -> tuple[bytes | None, int | None, bool]:
        """Sends the request, and takes what comes: None for more than may be sent. And the exit status, None for a
        child that is still there, and whether it had to be told that it is late."""
        job = child.link
        left, most = memoryview(request.to_bytes() + b"\n"), request.limits.sent
        parts, size, lines, late = list[bytes](), 0, 0, False
        child.asked += 1
        deadline = time.monotonic() + request.limits.seconds
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(job, select.POLLIN | select.POLLOUT)
        while True:
            ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not ready:
                if late:
                    raise TimeoutError("the server of the isolation does not answer")
                self._control.send(b"late")
                late, deadline = True, time.monotonic() + ANSWER
            for number, events in ready:
                if number == self._control.fileno():
                    status = int(self._heard(ANSWER))
                    content = _rest(job, parts, most - size)
                    job.close()
                    self._child = None
                    return (content if content is None else _whole(content)), status, late
                if events & select.POLLOUT and left:
                    left = _sent_on(job, left)
                    if not left:
                        poll.modify(job, select.POLLIN)
                if events & (select.POLLIN | select.POLLHUP):
                    part = _received(job)
                    parts.append(part)
                    size += len(part)
                    lines += part.count(b"\n")
                    if lines == LINES and part.endswith(b"\n") and not late:
                        return _whole(b"".join(parts)), None, False
                    if not part or size > most or lines > LINES:
                        poll.unregister(job)  # who has closed it sends no more; the server says the rest
                    if size > most or lines > LINES:
                        self._control.send(b"stop")

    def _heard(self, seconds: float) -> str:
        """The next message of the server."""
        self._control.settimeout(seconds)
        message = self._control.recv(4096)
        if not message:
            raise ConnectionResetError("the server of the isolation has ended")
        return message.decode()


@dataclass(slots=True)
class _Child:
    """A child that is there: the socket on which it is asked, what it was asked first, and how often."""

    link: socket.socket
    first: Request
    asked: int = 0

    def may_answer(self, request: Request, control: socket.socket) -> bool:
        """Whether it can be asked this, too: about the same function, and nothing has come of it since it answered."""
        first = self.first
        if (request.puzzle, request.limits, request.source) != (first.puzzle, first.limits, first.source):
            return False
        if self.asked == QUESTIONS:
            return False
        poll = select.poll()
        poll.register(control, select.POLLIN)
        poll.register(self.link, select.POLLIN)
        return not poll.poll(0)


def _whole(content: bytes) -> bytes:
    """An answer without the end of its last line; nothing, where it does not end."""
    return content[:-1] if content.count(b"\n") == LINES and content.endswith(b"\n") else b""


def _sent_on(job: socket.socket, left: memoryview) -> memoryview:
    """Sends what the other side takes now, and says what is left; nobody may be there to take it."""
    try:
        return left[job.send(left) :]
    except BlockingIOError:
        return left
    except OSError:
        return left[:0]


def _received(job: socket.socket) -> bytes:
    try:
        return job.recv(2**16)
    except BlockingIOError:
        raise AssertionError("poll said that there is something to read") from None
    except OSError:
        return b""


def _rest(job: socket.socket, parts: list[bytes], room: int) -> bytes | None:
    """All that was sent, after nobody is left who could send more."""
    while True:
        try:
            part = job.recv(2**16)
        except OSError:
            break
        room -= len(part)
        if not part or room < 0:
            break
        parts.append(part)
    return None if room < 0 else b"".join(parts)


def _too_much(request: Request) -> Sent:
    text = (
        f"{request.puzzle} sends back more than {request.limits.sent // 2**20} MiB\n"
        "  fix:      look for a loop that records far too many operations"
    )
    return Sent("failed", text)
