"""Runs students' functions in limited processes, and reads what they send as data.

Real time is limited everywhere; on Linux and macOS, so are processor time, memory (Linux only) and the size of files.
Processes that a fresh Python starts end with it, unless they leave its session.
"""

from __future__ import annotations

import os
import pickle
import re
import select
import signal
import socket
import sys
import time
import weakref
from collections.abc import Collection, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final

from lib.errors import fixes
from lib.files import ROOT, child_environment
from lib.puzzles.puzzle import AtSize
from lib.suite.isolation.messages import MAX_PRINTED, QUESTIONS, Limits, Request, Sent, asked_for, read
from lib.suite.isolation.running import DEAF, FEATURES, GRACE, endless, schedules_below
from lib.suite.submissions.function_check import sources_below
from lib.suite.submissions.load import extract
from lib.suite.submissions.source import Source, SourceError
from lib.suite.submissions.table import Given

LIMIT = 10.0  # seconds that a function may run
OWN = Limits(memory=4 * 2**30, written=512 * 2**20, sent=32 * 2**20, files=4096)
"""Limits for your own function on your machine, at the size of a puzzle, where a run has a budget: so generous that
they only stop what never ends."""


def run_of(file: Path, puzzle: str, *, limit: float = LIMIT, **size: Any) -> Sent:
    """Simulate the function `puzzle` of a notebook or .py; `size` are ranks, layers, batches and a mesh, if they are
    not the puzzle's. Nothing that the function does makes this raise."""
    limits = replace(OWN, seconds=limit, sent=OWN.written if size else OWN.sent)
    return ask(Request(puzzle, limits, str(file), lines=fixes.are_shown(), size=size))


def answers_of(file: Path, puzzle: str, inputs: Sequence[Given], limit: float = LIMIT) -> Sent:
    """Have the function `puzzle` of a notebook or .py answer inputs. Nothing that it does makes this raise."""
    return ask(Request(puzzle, replace(OWN, seconds=limit), str(file), inputs=inputs))


def ask(request: Request, **environment: str) -> Sent:
    """Start a Python for a request, with more variables in its environment, and read its result."""
    # The files have no names, so the student's code cannot replace them, such as with a pipe that never ends.
    with TemporaryFile() as asked, TemporaryFile() as told, TemporaryFile() as noise:
        pickle.dump(request, asked)
        asked.seek(0)
        process = Popen(
            # -P: a student's random.py must not replace Python's own.
            [sys.executable, "-P", "-c", "from lib.suite.isolation.running import main; main()"],
            env=child_environment(PYTHONDONTWRITEBYTECODE="1", PUZZLES_PROGRESS="off", **environment),
            stdin=asked,
            stdout=told,
            stderr=noise,
            start_new_session=True,
        )
        try:
            status = process.wait(request.limits.seconds + GRACE)
        except TimeoutExpired:
            return endless(request, None)
        finally:
            if hasattr(os, "killpg"):
                with suppress(ProcessLookupError, PermissionError):  # no process is left
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()
        told.seek(0)
        return read(told.read(request.limits.sent + 1), request) or _vanished(request, status, noise)


def _vanished(request: Request, status: int, noise: BinaryIO) -> Sent:
    """Say how a process without a result ended: it was killed, or it exited."""
    noise.seek(max(0, noise.seek(0, os.SEEK_END) - MAX_PRINTED))
    said = noise.read(MAX_PRINTED).decode("utf-8", "replace").strip()
    if "Timeout (" in said and status == 1:  # it was too busy to say so itself; faulthandler wrote where it was
        name = Path(request.file if request.extract is None else request.extract.file).name
        trace = said.rpartition("Timeout (")[2]
        found = re.search(rf'File "[^"\n]*{re.escape(name)}([^"\n]*)", line (\d+) in (\w+)', trace)
        return endless(request, None if found is None else f"{name}{found[1]}, line {found[2]}, in {found[3]}")
    if -status in (getattr(signal, name, 0) for name in ("SIGXCPU", "SIGALRM")):
        return endless(request, None)
    if status < 0:
        known = {one.value: one.name for one in signal.Signals}
        how = f"ended by the system ({known.get(-status, f'signal {-status}')})"
        why = "as it does with what asks for too much memory or breaks Python"
        return Sent("failed", f"{request.puzzle} was {how}, {why}")
    last = f": {said.splitlines()[-1]}" if said else ""
    return Sent("failed", f"{request.puzzle} ended Python itself (exit status {status}){last}")


# -- children of a server ------------------------------------------------------------------------------------------

START = 60.0  # seconds for the server to start
ANSWER = 10.0  # seconds for the server to end a child's leftovers, and to confirm it
SHORT = 0.5  # seconds for a child to start, and to write down where it is
LINES: Final = 2  # lines of an answer
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONHOME", "SYSTEMROOT", "TZ")
"""Environment variables that a run may see. Others may hold secrets."""


class Isolation(AbstractContextManager["Isolation"]):
    """Runs functions in limited children. Its server starts when first needed, and ends at `close` or with this
    process, however that ends. `without` names keys of FEATURES not to be used, for tests. It is for one thread; a
    process forked from this one needs its own."""

    def __init__(self, without: Collection[str] = ()) -> None:
        self._without = frozenset(without)
        self._server: _Server | None = None
        self._failed = "server" in self._without or sys.platform != "linux"
        self._keeps = False

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server, and all that runs there. The next run starts a new one."""
        if self._server is not None:
            self._server.close()
        self._server = None

    @contextmanager
    def one_after_another(self) -> Generator[None]:
        """Keep one child for all requests to the same function, until the block ends. It loads the function anew for
        each. Outside such a block a child ends after one run."""
        self._keeps = True
        try:
            yield
        finally:
            self._keeps = False
            if self._server is not None and self._server.owner == os.getpid():
                with suppress(OSError), self._or_end():
                    self._server.leave()

    @contextmanager
    def _or_end(self) -> Generator[None]:
        """End the server on an exception, such as Ctrl-C: its next message would not answer the next question."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    @property
    def features(self) -> tuple[str, ...]:
        """Return what isolates runs on this system, in words."""
        server = self._started()
        return ("a new Python for each run",) if server is None else tuple(FEATURES[one] for one in server.features)

    def run(self, source: Source, puzzle: str, size: AtSize | None = None, limits: Limits | None = None) -> Sent:
        """Simulate the function of a puzzle in a source, at the puzzle's size or another. A Trace comes back only if it
        is of the requested run. Nothing that the source does makes this raise."""
        sent = self._ask(source, puzzle, limits, size={} if size is None else size.given())
        if sent.trace is None or (why := asked_for(sent.trace, puzzle, size)) is None:
            return sent
        return Sent("failed", why if sent.outcome == "trace" else sent.text, sent.printed)

    def answers(self, source: Source, puzzle: str, inputs: Sequence[Given], limits: Limits | None = None) -> Sent:
        """Have the plain function of a puzzle in a source answer inputs: it gives as many answers, or it failed."""
        return self._ask(source, puzzle, limits, inputs=inputs)

    def _ask(self, source: Source, puzzle: str, limits: Limits | None, **asked: Any) -> Sent:
        try:
            found = extract(source, puzzle)
        except SourceError as error:
            return Sent("source", str(error))
        ours: dict[str, Any] = {"solutions": sources_below(puzzle), "schedules": schedules_below(puzzle)}
        request = Request(puzzle, limits or Limits(), extract=found, **ours, **asked)
        for _ in range(2):  # if the server is killed, that is no student's fault
            server = self._started()
            if server is None:
                return ask(request, PYTHONHASHSEED="0")
            with suppress(OSError), self._or_end():
                sent = server.ask(request)
                if not self._keeps:
                    server.leave()
                return sent
        return Sent("failed", f"{request.puzzle} ended the process that ran it, twice")

    def _started(self) -> _Server | None:
        if self._server is not None and self._server.owner != os.getpid():
            self._server = None  # it belongs to the process that this one was forked from
        if self._server is None and not self._failed:
            try:
                self._server = _Server(self._without)
                weakref.finalize(self, self._server.close)
            except OSError:
                self._failed = True
        return self._server


class _Server:
    """The server as this process sees it: a Unix socket. OSError if it cannot be started, or is gone."""

    def __init__(self, without: frozenset[str]) -> None:
        from lib.suite.isolation.walls import bubblewrap

        self.owner = os.getpid()
        self._child: _Child | None = None
        around = [] if "bwrap" in without else bubblewrap()
        try:
            self._start(around, without)
        except OSError:
            if not around:
                raise
            self._start([], without)  # a system, or a container, may forbid what bubblewrap needs

    def _start(self, around: Sequence[str], without: frozenset[str]) -> None:
        # A child's stderr, for what Python itself reports: a file without a name, emptied for each child.
        self._noise = open(os.memfd_create("noise"), "r+b")  # noqa: SIM115  # `close` closes it
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        known = {name: os.environ[name] for name in KEPT if name in os.environ}
        known |= {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        known |= {"PUZZLES_PROGRESS": "off", "PYTHONUTF8": "1"}
        without = without if around else without | {"bwrap"}
        program = [*around, sys.executable, "-P", "-c", "from lib.suite.isolation.running import serve; serve()"]
        with theirs, open(os.pidfd_open(self.owner), "rb", buffering=0) as asker:
            ends = [theirs.fileno(), asker.fileno()]
            command = [*program, *map(str, ends), ",".join(without)]
            quiet: dict[str, Any] = {"stdin": DEVNULL, "stdout": DEVNULL, "stderr": DEVNULL}
            self._process = Popen(command, env=known, pass_fds=ends, cwd="/", start_new_session=True, **quiet)
        with suppress(OSError):  # if memory runs out, this is killed, not the grading
            Path(f"/proc/{self._process.pid}/oom_score_adj").write_text("500")
        try:
            self.features = tuple(self._heard(START).split(","))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the server and all that it has started, unless it belongs to the process this one was forked from."""
        if self.owner != os.getpid():
            return
        if self._child is not None:
            self._child.link.close()
        self._control.close()
        self._noise.close()
        with suppress(TimeoutExpired):
            self._process.wait(ANSWER)
        self._process.kill()
        self._process.wait()

    def ask(self, request: Request) -> Sent:
        """Have a child answer a request: the last one again, if the request is for the same function."""
        child = self._child
        if child is None or not child.may_answer(request):
            self.leave()
            child = self._child = self._fork(request)
        content, in_time = child.answer(request)
        if len(content) > request.limits.sent:
            self.leave()
            text = (
                f"{request.puzzle} sends back more than {request.limits.sent // 2**20} MiB\n"
                "  fix:      look for a loop that records far too many operations"
            )
            return Sent("failed", text)
        sent = read(content, request)
        if sent is not None and sent.outcome in ("trace", "answers"):
            if in_time:
                return sent  # the child stays for the next request
            sent = None
        status = self.leave()
        if sent is None and not in_time and status <= 0:  # it did not say itself that it was late
            return endless(request, None)
        return sent or _vanished(request, status, self._noise)

    def _fork(self, request: Request) -> _Child:
        self._noise.truncate(0)
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"fork"], [theirs.fileno(), self._noise.fileno()])
            except OSError:
                ours.close()
                raise
        return _Child(ours, request)

    def leave(self) -> int:
        """End the last child, if it is still there. Return its exit status, or 0."""
        if self._child is None:
            return 0
        self._child.link.close()
        self._child = None
        self._control.send(b"end")
        return int(self._heard(ANSWER))

    def _heard(self, seconds: float) -> str:
        self._control.settimeout(seconds)
        message = self._control.recv(4096)
        if not message:
            raise ConnectionResetError("the server of the isolation has ended")
        return message.decode()


class _Child:
    """A running child: its socket, its first request, and the number of its requests."""

    def __init__(self, link: socket.socket, first: Request) -> None:
        self.link, self._first, self._asked = link, first, 0

    def may_answer(self, request: Request) -> bool:
        """Tell whether it can answer this, too: the function is the same, and nothing has come since its answer. One
        function's leftovers must not reach another, as results are shared by all who have the same source."""
        first = self._first
        same = (request.puzzle, request.limits, request.extract) == (first.puzzle, first.limits, first.extract)
        return same and self._asked < QUESTIONS and not select.select([self.link], [], [], 0)[0]

    def answer(self, request: Request) -> tuple[bytes, bool]:
        """Send a request, and return what came until the answer was complete, the child had closed its end, had sent
        too much, or should have ended itself for being late; and whether it was in time."""
        self._asked += 1
        said, seconds, most = bytearray(), request.limits.seconds, request.limits.sent
        begun, lines = time.monotonic(), 0
        self.link.settimeout(seconds)
        with suppress(OSError):  # it may have ended, or read the request too slowly
            self.link.sendall(pickle.dumps(request))
        while lines < LINES and len(said) <= most:
            left = begun + seconds + min(DEAF, seconds) + SHORT - time.monotonic()
            if left <= 0:  # even if an answer keeps trickling in
                break
            self.link.settimeout(left)
            part = b""
            with suppress(OSError):
                part = self.link.recv(2**16)
            if not part:
                break
            said += part
            lines += part.count(b"\n")
        in_time = time.monotonic() - begun <= seconds
        # An answer that stops in the middle of a line, or goes on after its end, is invalid.
        whole = len(said) > most or (lines == LINES and said.endswith(b"\n"))
        return bytes(said).removesuffix(b"\n") if whole else b"", in_time
