"""The server: it forks a child for each run, ends what the child leaves, and says how it ended. It reads no source.

    python -P -m lib.grade.isolation.server SOCKET WITHOUT

Its memory is that of every child, so it must never hold anything of a student's: the child itself reads the request
and sends the result, on a socket of its own that comes with the order to fork. The server ends when the other end of
SOCKET is closed, and all that it has started ends with it.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from typing import NoReturn

from lib.course.child.messages import Limits
from lib.grade.isolation import job

__all__ = ["serve"]


def main(number: int, without: frozenset[str]) -> None:
    """What the process does."""
    control = socket.socket(fileno=number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job.prepare()
    features = ["server"]
    gc.collect()
    gc.freeze()
    control.send(",".join(features).encode())
    serve(control)


def serve(control: socket.socket) -> None:
    """Forks a child for each message, until nobody is left to send one."""
    while True:
        message, fds, _, _ = socket.recv_fds(control, 4096, 2)
        if not message:
            return
        if len(fds) != 2:  # an order to stop a child that has ended by itself
            continue
        child = os.fork()
        if child == 0:
            _begin(control, message, fds)
        for fd in fds:
            os.close(fd)
        gone, status = _watched(control, child)
        if gone:
            return
        control.send(str(status).encode())


def _begin(control: socket.socket, message: bytes, fds: list[int]) -> NoReturn:
    """What a child does first."""
    try:
        control.close()
        seconds, memory, written, processes = message.split()
        limits = Limits(float(seconds), int(memory), int(written), processes=int(processes))
        job.run(fds[0], fds[1], limits)
    finally:
        os._exit(70)


def _watched(control: socket.socket, child: int) -> tuple[bool, int]:
    """Waits for a child, and ends it and all that it has started. Whether our asker is gone, and the exit status."""
    with open(os.pidfd_open(child)) as ended:
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.register(control, select.POLLIN)
        ready = {number for number, _ in poll.poll()}
        gone = control.fileno() in ready and not control.recv(4096)
        os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    return gone, os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    main(int(sys.argv[1]), frozenset(sys.argv[2].split(",")))
