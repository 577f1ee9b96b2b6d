"""Linux's means to isolate processes: bubblewrap around all of them, and Landlock and seccomp in each.

bubblewrap, if installed, hides all other processes and the network, and leaves a sparse file system in which only one
small folder is writable. It needs namespaces, which a system or a container may forbid. Landlock limits which files a
process may read and write, and cuts it off from outside processes and the network. seccomp refuses all system calls
except those in calls.toml; calls too new for libraries to rely on are "not implemented", as on an older kernel.
Changing a file's mode or times and truncating by path are refused, too: (older) Landlock allows these on all files
of the same user.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import site
import struct
import sys
import sysconfig
import tempfile
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lib.files import ROOT, table

FOLDER: Final = "/tmp"
ROOM: Final = 32 * 2**20
"""The only writable folder inside bubblewrap, and how many bytes all files in it may have together."""
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
SYSTEM: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/etc/localtime")
LDCONFIG: Final = "/sbin/ldconfig"
WITHHELD: Final = (ROOT / "lib" / "_notebooks", ROOT / "lib" / "schedules", ROOT / "lib" / "analysis" / "bounds")
"""Everything that answers a puzzle: the solutions in a wheel; our schedules; orders proved to be the best. What a
written schedule needs is loaded before."""
LISTED: Final = str(ROOT / "lib" / "analysis")
"""A folder with modules that runs import, and others that are withheld: Python can only import from a folder that it
can list."""


def readable() -> list[str]:
    """Return the paths that a run may read: Python, installed packages, and ours without what is withheld."""
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [os.path.join(sys.base_prefix, "lib"), *SYSTEM, "/etc/ld.so.cache"]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    folders += [str(ROOT / "lib"), str(ROOT / "drawing")]
    todo = [Path(one) for folder in reversed(folders) for one in (os.path.realpath(folder), folder)]
    found: dict[str, None] = {}
    while todo:
        path = todo.pop()
        if any(one != path and one.is_relative_to(path) for one in WITHHELD):
            todo += sorted(path.iterdir(), reverse=True)
        elif path not in WITHHELD and path.exists():
            found[str(path)] = None
    return [*found]


def bubblewrap() -> list[str]:
    """Return a command prefix that runs the rest inside bubblewrap; [] if that is not installed. The folder comes
    first, as what a run needs may be below it. The server imports schedules before a run begins, so only Landlock
    withholds them."""
    program = shutil.which("bwrap")
    if program is None:
        return []
    # Python finds libseccomp with ldconfig.
    programs = (sys.executable, os.path.realpath(sys.executable), os.path.join(sys.prefix, "pyvenv.cfg"), LDCONFIG)
    paths = [*filter(os.path.exists, programs), *sorted([*readable(), str(ROOT / "lib" / "schedules")], key=len)]
    return [
        *(program, "--unshare-all", "--cap-drop", "ALL", "--as-pid-1", "--size", str(ROOM), "--tmpfs", FOLDER),
        *(word for path in paths for word in ("--ro-bind", path, path)),
        *(word for path in DEVICES for word in ("--dev-bind", path, path)),
        *("--remount-ro", "/", "--chdir", "/", "--"),
    ]


@dataclass(frozen=True, slots=True)
class Walls:
    """The walls around each run on this system: `features`, which are keys of `running.FEATURES`; the `folder` for the
    runs' own folders, the paths that they may read, and the filter of their system calls."""

    features: frozenset[str]
    folder: str
    readable: tuple[str, ...]
    calls: bytes = b""

    @classmethod
    def here(cls, without: Collection[str]) -> Walls:
        """Find out what this system has, except `without`, which includes "bwrap" outside bubblewrap."""
        features = {"server", "bwrap", "landlock", "seccomp"}.difference(without)
        try:
            _call(LANDLOCK_CREATE, None, 0, LANDLOCK_VERSION)
        except OSError:
            features.discard("landlock")
        calls = b""
        try:
            calls = _filter_of_calls() if "seccomp" in features else b""
        except (ImportError, RuntimeError, AttributeError):  # libseccomp is missing, or too old
            features.discard("seccomp")
        folder = FOLDER if "bwrap" in features else tempfile.mkdtemp(prefix="puzzles")
        return cls(frozenset(features), folder, (*readable(), *DEVICES), calls)

    def enter(self, folder: str) -> None:
        """Put them up for good around this process and its future threads; it may write only in `folder`."""
        os.chdir(folder)
        tempfile.tempdir = folder  # the server cached one that is not writable here
        prctl(NO_NEW_PRIVILEGES, 1)  # the kernel requires this for the rest
        if "landlock" in self.features:
            _restrict_files(self.readable, folder)
        # Drop root's capabilities, if any: a header, with the version of the structure, and three empty sets.
        _done(_libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()))
        if "seccomp" in self.features:
            code = self.calls.replace(struct.pack("=I", OWN), struct.pack("=I", os.getpid()))
            program = struct.pack("@HP", len(code) // 8, ctypes.cast(ctypes.c_char_p(code), ctypes.c_void_p).value)
            _done(_libc.prctl(SECCOMP, ctypes.c_ulong(FILTER), ctypes.c_char_p(program), 0, 0))


# -- calls that Python has no name for: each raises OSError if the system refuses it ------------------------------

DEATH_SIGNAL, DUMPABLE, NO_NEW_PRIVILEGES = 1, 4, 38
SECCOMP, FILTER = 22, 2

_libc: Any = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> int:
    """Set an option of this process."""
    return _done(_libc.prctl(ctypes.c_int(option), *map(ctypes.c_ulong, (value, 0, 0, 0))))


def _call(number: int, *arguments: Any) -> int:
    """Make a system call by its number; from 424 on they are the same on all machines."""
    plain = (ctypes.c_long(value) if isinstance(value, int) else value for value in arguments)
    return _done(_libc.syscall(ctypes.c_long(number), *plain))


def _done(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


# -- Landlock -----------------------------------------------------------------------------------------------------

LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_VERSION: Final = 1
PATH_BENEATH: Final = 1
WRITE_FILE, READ_FILE, READ_DIR = 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG, TRUNCATE = 1 << 4, 1 << 5, 1 << 7, 1 << 8, 1 << 14
CHANGE: Final = WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | TRUNCATE
RIGHTS: Final = (13, 13, 14, 15, 15, 16)
"""The number of file rights in each version, from the first; later versions have as many as the last."""


def _restrict_files(paths: Collection[str], folder: str) -> None:
    version = _call(LANDLOCK_CREATE, None, 0, LANDLOCK_VERSION)
    handled = (1 << RIGHTS[min(version, len(RIGHTS)) - 1]) - 1
    # From version 4 on it also forbids binding and connecting TCP, from 6 on abstract sockets and signals to others.
    network, scoped = (0b11 if version >= since else 0 for since in (4, 6))
    attributes = struct.pack("=QQQ", handled, network, scoped)
    size = 8 if version < 4 else 16 if version < 6 else 24
    rules = _call(LANDLOCK_CREATE, ctypes.c_char_p(attributes), size, 0)
    allowed = dict.fromkeys(paths, READ_FILE | READ_DIR)
    for path, rights in {**allowed, LISTED: READ_DIR, folder: READ_FILE | READ_DIR | CHANGE}.items():
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            if not os.path.isdir(path):
                rights &= WRITE_FILE | READ_FILE | TRUNCATE
            rule = ctypes.c_char_p(struct.pack("=Qi", rights & handled, fd))
            _call(LANDLOCK_ADD, rules, PATH_BENEATH, rule, 0)
            os.close(fd)
    _call(LANDLOCK_RESTRICT, rules, 0)
    os.close(rules)


# -- seccomp ------------------------------------------------------------------------------------------------------

CALLS: Final[dict[str, Any]] = table("lib.suite.isolation", "calls")
ALLOWED: Final[str] = CALLS["allowed"]
NEW: Final = sorted({*range(424, 512)} - {436, 439})
"""Numbers of calls too new for libraries to rely on, except close_range and faccessat2, which are allowed: the first of
two rules for a call wins."""
OWN: Final = 0x7EEDBEEF
"""A placeholder in the filter for the process's own id, which no process has: the filter is built once for all
children, as that takes longer than the rest of a child's start."""


def _filter_of_calls() -> bytes:
    """Return the filter in the kernel's format: operations of 8 bytes."""
    import pyseccomp  # pyright: ignore

    system: Any = pyseccomp
    calls = system.SyscallFilter(system.ERRNO(errno.EPERM))
    for number in NEW:
        calls.add_rule(system.ERRNO(errno.ENOSYS), number)
    for name in ALLOWED.split():
        with suppress(OSError):  # a call that this machine does not have
            calls.add_rule(system.ALLOW, name)
    for rule in CALLS["only"]:
        for value in rule["values"]:
            compared = system.Arg(rule["argument"], system.MASKED_EQ, rule["mask"], OWN if value == "own" else value)
            with suppress(OSError):
                calls.add_rule(system.ALLOW, rule["call"], compared)
    with tempfile.TemporaryFile() as file:
        calls.export_bpf(file)
        file.seek(0)
        return file.read()
