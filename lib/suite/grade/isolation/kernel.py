"""Linux's own calls that Python has no name for, by ctypes. Each raises OSError where the system refuses it."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Final

__all__ = [
    "bind_mount",
    "call",
    "drop_capabilities",
    "mount_tmpfs",
    "no_new_privileges",
    "prctl",
    "private_mounts",
    "read_only",
    "unmount",
    "unshare",
]

PRIVATE: Final = 0x40000 | 0x4000
"""What happens in one namespace shows in no other: MS_PRIVATE, MS_REC."""
BIND: Final = 0x1000 | 0x4000
NOSUID_NODEV: Final = 0x2 | 0x4
DETACH: Final = 2
MOUNT_SETATTR: Final = 442
NO_NEW_PRIVS: Final = 38
AT_FDCWD: Final = -100
AT_RECURSIVE: Final = 0x8000
CAPABILITIES: Final = 0x20080522
"""The version of the structure that capset takes: two words of 32 capabilities."""

_libc: Any = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: Any) -> int:
    """A system call by its number, of the machine or of all machines (from 424 on they are the same)."""
    return _done(_libc.syscall(ctypes.c_long(number), *map(_argument, arguments)))


def _argument(value: Any) -> Any:
    return ctypes.c_long(value) if isinstance(value, int) else value


def _done(result: int, path: str | None = None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result


def prctl(option: int, *arguments: Any) -> int:
    """What a process says of itself. Arguments that are left out are 0, as many options ask."""
    full = [*map(_argument, arguments), *[ctypes.c_ulong(0)] * (4 - len(arguments))]
    return _done(_libc.prctl(ctypes.c_int(option), *full))


def no_new_privileges() -> None:
    """Nothing that this process starts may do more than it may: the kernel asks for it before it takes a filter."""
    prctl(NO_NEW_PRIVS, 1)


def unshare(flags: int) -> None:
    """Leaves namespaces for new ones."""
    _done(_libc.unshare(ctypes.c_int(flags)))


def drop_capabilities() -> None:
    """Gives up what the superuser may do."""
    header = (ctypes.c_uint32 * 2)(CAPABILITIES, 0)
    none = (ctypes.c_uint32 * 6)()
    _done(_libc.capset(header, none))


def mount_tmpfs(path: str, options: str) -> None:
    """A new file system in memory, with options such as its size."""
    _mount("tmpfs", path, "tmpfs", NOSUID_NODEV, options)


def private_mounts() -> None:
    """Nothing that is mounted from now on is seen elsewhere, nor the other way round."""
    _mount("none", "/", None, PRIVATE, None)


def bind_mount(path: str, at: str) -> None:
    """The same file or folder at another place, too."""
    _mount(path, at, None, BIND, None)


def _mount(source: str, path: str, kind: str | None, flags: int, options: str | None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, path, kind, options)]
    _done(_libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]), path)


def read_only(path: str, *, below: bool) -> None:
    """Nobody writes to what is mounted at a path, and, if it is to be so, below it."""
    attributes = (ctypes.c_uint64 * 4)(0x1 | 0x2, 0, 0, 0)  # read-only, and no file of another user's rights
    flags = AT_RECURSIVE if below else 0
    call(MOUNT_SETATTR, AT_FDCWD, os.fsencode(path), flags, attributes, ctypes.sizeof(attributes))


def unmount(path: str) -> None:
    """Takes a mount away at once; who still uses it keeps it until then."""
    _done(_libc.umount2(os.fsencode(path), DETACH), path)
