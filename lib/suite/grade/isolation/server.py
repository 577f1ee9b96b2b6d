"""The server: it forks a child for each run, ends what the child leaves, and says how it ended. It reads no source.

    python -P -m lib.suite.grade.isolation.server SOCKET ASKER WITHOUT

Its memory is that of every child, so it must never hold anything of a student's: the child itself reads the request
and sends the result, on a socket of its own that comes with the order to fork. The server ends when the other end of
SOCKET is closed or the process ASKER has ended, however it did, and all that it has started ends with it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import NoReturn

from lib.suite.course.child.messages import Limits
from lib.suite.course.child.running import DEAF, DEAF_SIGNAL, LATE
from lib.suite.grade.isolation import namespaces
from lib.suite.grade.isolation.isolation import FEATURES
from lib.suite.grade.isolation.job import Walls, prepare, run
from lib.suite.grade.isolation.kernel import prctl

__all__ = ["main"]

DEATH_SIGNAL, DUMPABLE, SUBREAPER = 1, 4, 36
SHORT = 0.1
"""Seconds for Python to write down where it is."""


def main(number: int, asker: int, without: frozenset[str]) -> None:
    """What the process does."""
    control = socket.socket(fileno=number)
    watch = os.pidfd_open(asker)
    if os.getppid() != asker:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for who asks to end
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")  # where memory runs out, it is not the grading that ends
    apart = namespaces.separate(without)
    if "processes" in apart and (child := os.fork()):
        control.close()
        os.waitpid(child, 0)  # the first process of its namespace: with it all others end
        return
    prctl(DEATH_SIGNAL if "processes" in apart else SUBREAPER, signal.SIGKILL if "processes" in apart else 1)
    walls = prepare(apart, without)
    prctl(DUMPABLE, 0)
    control.send(",".join(one for one in FEATURES if one in walls.features).encode())
    try:
        _Server(control, watch, walls).serve()
    finally:
        walls.remove()


class _Server:
    """The loop: one child after the other. `watch` is ready to be read when the asker has ended."""

    def __init__(self, control: socket.socket, watch: int, walls: Walls) -> None:
        self._control, self._watch, self._walls = control, watch, walls
        self._alone = "processes" in walls.features

    def serve(self) -> None:
        """Forks a child for each message, until nobody is left to send one."""
        while self._wait() is not None:
            message, fds, _, _ = socket.recv_fds(self._control, 4096, 2)
            if not message:
                return
            if len(fds) != 2:  # an order to end a child that has ended by itself
                continue
            child = os.fork()
            if child == 0:
                self._begin(message, fds)
            for fd in fds:
                os.close(fd)
            with open(os.pidfd_open(child)) as ended:
                gone = self._watched(child, ended.fileno())
            status = self._end(child)
            self._walls.clean()
            if gone:
                return
            self._control.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _watched(self, child: int, ended: int) -> bool:
        """Waits for a child to end, or for the order to end it. Whether the asker has ended."""
        order = self._wait(ended)
        # To one that is late it is said twice, first so that it can say itself where it is.
        for number, seconds in ((LATE, DEAF), (DEAF_SIGNAL, SHORT)) if order == b"late" else ():
            os.kill(child, number)
            if (order := self._wait(ended, seconds)) != b"":
                break
        return order is None

    def _wait(self, ended: int | None = None, seconds: float | None = None) -> bytes | None:
        """Waits for a message, or for a child to end. An order that came while it ran; None where the asker has ended;
        b"" where nothing was said, though the time was over, and b"ended" where the child has ended."""
        poll = select.poll()
        for number in (self._control.fileno(), self._watch, ended):
            if number is not None:
                poll.register(number, select.POLLIN)
        ready = {number for number, _ in poll.poll(None if seconds is None else seconds * 1000)}
        if self._watch in ready:
            return None
        if ended is None:
            return b""
        if self._control.fileno() in ready:
            return self._control.recv(4096) or None  # nothing is said where the socket was closed
        return b"ended" if ended in ready else b""

    def _begin(self, message: bytes, fds: list[int]) -> NoReturn:
        """What a child does first."""
        try:
            self._control.close()
            os.close(self._watch)
            run(fds[0], fds[1], Limits.from_bytes(message), self._walls)
        finally:
            os._exit(70)

    def _end(self, child: int) -> int:
        """Ends a child and all that it has started. Its status."""
        found = 0
        while True:
            for process in [-1] if self._alone else [child, *_children()]:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            try:
                ended, status = os.waitpid(-1, 0)
            except ChildProcessError:
                return found
            if ended == child:
                found = status


def _children() -> list[int]:
    """The processes whose parent this one is, or has become."""
    own, found = str(os.getpid()), list[int]()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[1].decode() == own:
                    found.append(int(name))
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), frozenset(sys.argv[3].split(",")))
