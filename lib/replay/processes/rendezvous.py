"""Where the processes of a replay find each other."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from lib.replay.errors import InUse
from lib.replay.options import ReplayOptions

__all__ = ["Rendezvous", "loopback", "rendezvous_of"]

LEFT = 3.0
"""Timeouts of torch.distributed are this much longer than ours, so that it is we who say what happened."""


class Rendezvous(NamedTuple):
    """Where processes meet, as torch's init_method; the network interface for it; how many seconds torch waits there
    and for every communication; whether all are on one machine; and how many replays have met there before."""

    address: str
    timeout: float
    interface: str | None = None
    one_machine: bool = True
    before: int = 0


def rendezvous_of(options: ReplayOptions, folder: Path) -> Rendezvous:
    """Where the ranks of this machine meet: a fresh file, or what was asked for. InUse where that is taken."""
    where, timeout = options.rendezvous, options.timeout * LEFT
    if where is None:
        return Rendezvous(f"file://{folder / 'store'}", timeout, loopback())
    _check_free(where)
    return Rendezvous(where, timeout)


def loopback() -> str | None:
    """The interface that ranks of one machine talk over: no name has to be resolved, and no packet leaves."""
    names = {name for _, name in socket.if_nameindex()}
    return next((name for name in ("lo", "lo0") if name in names), None)


def _check_free(where: str) -> None:
    parts = urlsplit(where)
    if parts.scheme == "file":
        if os.path.exists(parts.path):
            raise InUse(f"the file {parts.path} is there already: a rendezvous needs a fresh one")
        return
    host, port = parts.hostname or "localhost", parts.port or 0
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise InUse(f"the ranks cannot meet at {host}:{port}: {error.strerror}") from None
            raise InUse(f"port {port} of {host} is in use: name another, or none to need no port") from None
