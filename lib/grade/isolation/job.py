"""What a child of the server does: it puts on its limits, reads the request, and runs what it asks."""

from __future__ import annotations

import os
import socket
import tempfile
from importlib import import_module
from typing import Final, NoReturn

from lib.course.child.messages import Limits, request_from
from lib.course.child.running import answer, limit

__all__ = ["prepare", "run"]

NEEDED: Final = (
    "lib",
    "lib.checker.table",
    "lib.diagnosis",
    "lib.simulator.asyncio_support.event_loop",
    "lib.simulator.asyncio_support.uses",
    "lib.simulator.simulator",
    "lib.schedules.written",
    "lib.submissions.function_check",
    "lib.submissions.source",
    "lib.trace.json_format",
)
"""What a run may need. Nobody imports it again."""


def prepare() -> None:
    """Imports what runs need, and reads the records."""
    for name in NEEDED:
        import_module(name)
    from lib.puzzles.records import PUZZLES

    len(PUZZLES)


def run(sock: int, noise: int, limits: Limits) -> NoReturn:
    """Answers the request that comes on a socket, and ends."""
    os.setsid()
    os.dup2(noise, 2)
    os.close(noise)
    limit(limits)
    os.chdir(tempfile.mkdtemp())
    with socket.socket(fileno=sock) as link:
        content = b"".join(iter(lambda: link.recv(2**20), b""))
        answer(request_from(content), link.sendall)
