"""Has students' functions run in limited children of a server, and reads what they send as data."""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
import time
import weakref
from collections.abc import Collection, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from typing import Final

from lib.files import ROOT
from lib.suite.isolation.asking import answered, ask, deaf, vanished
from lib.suite.isolation.messages import QUESTIONS, AtSize, Limits, Request, Sent, asked_for, read
from lib.suite.isolation.running import DEAF, DEAF_SIGNAL, LATE, schedules_below
from lib.suite.submissions.function_check import sources_below
from lib.suite.submissions.source import Source
from lib.suite.submissions.table import Given, encode

__all__ = ["FEATURES", "Isolation"]

FEATURES: Final = {
    "server": "a new process for each run",
    "bwrap": "no other process in sight, no network, a file system of its own (bubblewrap)",
    "landlock": "no file but its own (Landlock)",
    "seccomp": "a list of system calls (seccomp)",
}
"""What may keep a run apart, in words. Each is used where the system has it."""
START = 60.0
"""Seconds for the server to start."""
ANSWER = 10.0
"""Seconds for the server to end what a child has left, and to say so."""
SHORT = 0.1
"""Seconds for Python to write down where it is."""
LINES: Final = 2
"""Lines of an answer."""
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONHOME", "SYSTEMROOT", "TZ")
"""Variables of the environment that a run may know. Others may hold what is nobody's business."""


class Isolation(AbstractContextManager["Isolation"]):
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server, and all that runs there. The next run starts another one."""
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
        """End the child that has answered last."""
        if self._server is not None and self._server.owner == os.getpid():
            with suppress(OSError), self._or_end():
                self._server.leave()

    @contextmanager
    def _or_end(self) -> Generator[None]:
        """End the server where something is raised, such as by Ctrl-C: what it says next answers no other question."""
        try:
            yield
        except BaseException:
            self._end()
            raise

    @property
    def features(self) -> tuple[str, ...]:
        """Return what keeps the runs apart on this system, in words."""
        with self._lock:
            server = self._started()
            return ("a new Python for each run",) if server is None else tuple(FEATURES[one] for one in server.features)

    def run(self, source: Source, puzzle: str, size: AtSize | None = None, limits: Limits | None = None) -> Sent:
        """Simulate the function of a puzzle in a source, at the puzzle's size or at another one.

        A Trace comes back only if it is of the run that was asked for. Nothing is raised for anything that the source
        does.
        """
        request = _request(source, puzzle, size, limits)
        sent = self._ask(request)
        if sent.trace is None or (why := asked_for(sent.trace, puzzle, size)) is None:
            return sent
        return Sent("failed", why if sent.outcome == "trace" else sent.text, sent.printed)

    def answers(self, source: Source, puzzle: str, inputs: Sequence[Given], limits: Limits | None = None) -> Sent:
        """Have the plain function of a puzzle in a source answer inputs: as many answers, or it failed."""
        request = _request(source, puzzle, None, limits, [encode(given) for given in inputs])
        return answered(self._ask(request), request)

    def _ask(self, request: Request) -> Sent:
        with self._lock:
            for _ in range(2):  # a server that is killed, by the system or by a person, is no student's fault
                server = self._started()
                if server is None:
                    return ask(request, PYTHONHASHSEED="0")
                with suppress(OSError), self._or_end():
                    sent = server.ask(request)
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
        # What a child says that Python itself has to say: it has no name, and begins anew for each child.
        self._noise = open(os.memfd_create("noise"), "r+b")  # noqa: SIM115  # `close` closes it
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        known = {name: os.environ[name] for name in KEPT if name in os.environ}
        without = without if around else without | {"bwrap"}
        program = [sys.executable, "-P", "-c", "from lib.suite.isolation.server import main; main()"]
        with theirs, open(os.pidfd_open(self.owner), "rb", buffering=0) as asker:
            self._process = Popen(
                [*around, *program, str(theirs.fileno()), str(asker.fileno()), ",".join(without)],
                env=known
                | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
                | {"PUZZLES_PROGRESS": "off", "PYTHONUTF8": "1"},
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=DEVNULL,
                pass_fds=[theirs.fileno(), asker.fileno()],
                start_new_session=True,
                cwd="/",
            )
        with suppress(OSError):  # where memory runs out, it is not the grading that ends
            Path(f"/proc/{self._process.pid}/oom_score_adj").write_text("500")
        try:
            self.features = tuple(self._heard(START).split(","))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the server, and with it all that it has started; but not that of the process this one was forked from."""
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
        """Have a child answer a request: the one that has answered the last, if it was asked of the same function."""
        child = self._child
        if child is None or not child.may_answer(request):
            self.leave()
            child = self._child = self._fork(request)
        content, late = self._exchange(child, request)
        if len(content) > request.limits.sent:
            self.leave()
            text = (
                f"{request.puzzle} sends back more than {request.limits.sent // 2**20} MiB\n"
                "  fix:      look for a loop that records far too many operations"
            )
            return Sent("failed", text)
        sent = read(content, request)
        if sent is not None and sent.outcome in ("trace", "answers") and not late:
            return sent  # the child is there for the next question
        status = self.leave()
        if late and (sent is None or sent.outcome in ("trace", "answers")):
            return deaf(request, self._noise)
        return sent or vanished(request, status, self._noise)

    def _fork(self, request: Request) -> _Child:
        """Have the server begin a child."""
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
        """End the child that has answered last, if it is still there. Its exit status, or 0."""
        if self._child is None:
            return 0
        self._child.link.close()
        self._child = None
        self._control.send(b"end")
        return int(self._heard(ANSWER))

    def _exchange(self, child: _Child, request: Request) -> tuple[bytes, bool]:
        """Send a request, and take what comes; and whether the child had to be told that it is late.

        It is told twice, first so that it can say itself where it is, then so that Python itself does.
        """
        try:
            return child.answer(request), False
        except TimeoutError:
            pass
        for number, seconds in ((LATE, DEAF), (DEAF_SIGNAL, SHORT)):
            self._control.send(str(int(number)).encode())
            with suppress(TimeoutError):
                return child.rest(time.monotonic() + seconds), True
        return b"", True

    def _heard(self, seconds: float) -> str:
        """Wait for the next message of the server."""
        self._control.settimeout(seconds)
        message = self._control.recv(4096)
        if not message:
            raise ConnectionResetError("the server of the isolation has ended")
        return message.decode()


class _Child:
    """A child that is there: the socket on which it is asked, what it was asked first, and how often."""

    def __init__(self, link: socket.socket, first: Request) -> None:
        self.link, self._first, self._asked = link, first, 0
        self._said, self._most = bytearray(), 0

    def may_answer(self, request: Request) -> bool:
        """Return whether it can be asked this, too: of the same function, and nothing has come since it answered."""
        first = self._first
        same = (request.puzzle, request.limits, request.source) == (first.puzzle, first.limits, first.source)
        return same and self._asked < QUESTIONS and not select.select([self.link], [], [], 0)[0]

    def answer(self, request: Request) -> bytes:
        """Ask a request, and return the answer, or what came until the child had closed its end, or had said too much.

        TimeoutError where it is late.
        """
        self._asked += 1
        self._said.clear()
        self._most = request.limits.sent
        deadline = time.monotonic() + request.limits.seconds
        self.link.settimeout(request.limits.seconds)
        with suppress(ConnectionError):  # it may have ended
            self.link.sendall(request.to_bytes() + b"\n")
        return self.rest(deadline)

    def rest(self, deadline: float) -> bytes:
        """Go on to receive an answer until a time by the clock."""
        lines = self._said.count(b"\n")
        while lines < LINES and len(self._said) <= self._most:
            left = deadline - time.monotonic()
            if left <= 0:  # however much of what comes by and by is there already
                raise TimeoutError
            self.link.settimeout(left)
            try:
                part = self.link.recv(2**16)
            except ConnectionError:
                break
            if not part:
                break
            self._said += part
            lines += part.count(b"\n")
        if len(self._said) > self._most:
            return bytes(self._said)
        # One that ends in the middle of a line, or goes on after its end, is none.
        return bytes(self._said[:-1]) if lines == LINES and self._said.endswith(b"\n") else b""
