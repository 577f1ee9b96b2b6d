"""Landlock: which files a process may read and write, and that it reaches no process and no network outside."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from lib.suite.grade.isolation.kernel import call, no_new_privileges

__all__ = ["restrict", "rules"]

CREATE, ADD, RESTRICT = 444, 445, 446
VERSION: Final = 1
PATH_BENEATH: Final = 1
WRITE_FILE, READ_FILE, READ_DIR = 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG, TRUNCATE = 1 << 4, 1 << 5, 1 << 7, 1 << 8, 1 << 14
RIGHTS: Final = (13, 13, 14, 15, 15, 16)
"""How many rights on files each version knows, from the first; later ones know as many as the last."""
NETWORK: Final = (4, 0b11)
SCOPED: Final = (6, 0b11)
"""Versions from which it can forbid to bind and to connect; and sockets without a file, and signals, of others."""


def rules(readable: Iterable[str], writable: Iterable[str], listed: Iterable[str] = ()) -> int:
    """A set of rules as a file descriptor. OSError where this system has no Landlock. Of folders that are `listed` the
    names below them may be read: Python imports nothing from a folder that it cannot list."""
    version = call(CREATE, None, 0, VERSION)
    handled = (1 << RIGHTS[min(version, len(RIGHTS)) - 1]) - 1
    network, scoped = (bits if version >= since else 0 for since, bits in (NETWORK, SCOPED))
    attributes = struct.pack("=QQQ", handled, network, scoped)
    size = 8 if version < NETWORK[0] else 16 if version < SCOPED[0] else 24
    made = call(CREATE, ctypes.c_char_p(attributes), size, 0)
    for path in readable:
        _allow(made, path, handled & (READ_FILE | READ_DIR))
    for path in listed:
        _allow(made, path, handled & READ_DIR)
    change = WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | TRUNCATE
    for path in writable:
        _allow(made, path, handled & (READ_FILE | READ_DIR | change))
    return made


def _allow(made: int, path: str, rights: int) -> None:
    with suppress(FileNotFoundError):
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.isdir(path):
                rights &= WRITE_FILE | READ_FILE | TRUNCATE
            call(ADD, made, PATH_BENEATH, ctypes.c_char_p(struct.pack("=Qi", rights, fd)), 0)
        finally:
            os.close(fd)


def restrict(made: int) -> None:
    """Puts the rules on this process, and on all threads that it will have."""
    no_new_privileges()
    call(RESTRICT, made, 0)
