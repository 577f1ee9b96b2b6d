"""What Linux has to keep a process apart: namespaces, Landlock, and seccomp, a list of system calls.

Namespaces leave no other process in sight, no network, and a file system in which little lies and nothing can be
written; a user who is nobody special gets them by way of a user namespace, where the system allows it. Landlock says
which files a process may read and write, and that it reaches no process and no network outside.

What is not in the list of system calls is refused as "not permitted"; calls that are newer than all libraries know are
"not implemented", as on an older kernel, so that libraries do it the old way. No process is made, no program started,
no socket opened, nobody but oneself is signalled, traced or read, nothing is mounted, and no namespace entered. No file
gets other rights or times, and none is emptied by its name: Landlock, or an older one, lets that pass for all files of
the same user.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import site
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from lib.files import ROOT

__all__ = [
    "DEVICES",
    "FOLDER",
    "LISTED",
    "NOBODY",
    "Filter",
    "bind_mount",
    "call",
    "clean",
    "drop_capabilities",
    "forbid",
    "mount_tmpfs",
    "no_new_privileges",
    "own_files",
    "prctl",
    "prepared",
    "private_mounts",
    "read_only",
    "readable",
    "restrict",
    "rules",
    "separate",
    "unmount",
    "unshare",
]

# -- kernel --------------------------------------------------------------------------------------------------------


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


# -- namespaces ----------------------------------------------------------------------------------------------------


FLAGS: Final = {"files": 0x20000, "network": 0x40000000, "processes": 0x20000000}
BESIDES: Final = 0x08000000 | 0x04000000
"""Shared memory and queues; the name of the machine."""
USER: Final = 0x10000000
NOBODY: Final = 65534
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
SYSTEM: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/etc/localtime")
SYSTEM_FILES: Final = ("/etc/ld.so.cache",)
WITHHELD: Final = (ROOT / "lib" / "_notebooks", ROOT / "lib" / "schedules", ROOT / "lib" / "analysis" / "bounds")
"""All that answers a puzzle: the solutions, where a wheel brings them; schedules of ours; orders that were proved to be
the best. What a written schedule needs is loaded before."""
LISTED: Final = (str(ROOT / "lib" / "analysis"),)
"""The folders from which modules are imported in a run, and in which something is withheld."""
FOLDERS: Final = ("/tmp", "/var/tmp", "/mnt")
PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}


def separate(without: Iterable[str]) -> set[str]:
    """Takes this process, or its next child where it comes to processes, into namespaces of its own. Which these are:
    keys of FLAGS; "user"; and "nobody", where a child can become NOBODY. None where the system does not allow it."""
    wanted = set(FLAGS) - set(without)
    if not wanted:
        return set()
    flags = BESIDES
    for name in wanted:
        flags |= FLAGS[name]
    user, group = os.geteuid(), os.getegid()
    with suppress(OSError):
        if user == 0 and _as_root(lambda: unshare(USER | flags)):
            return wanted | {"user", "nobody"}
        if user != 0:
            unshare(USER | flags)
            _map("self", "setgroups", "deny")
            _map("self", "uid_map", f"0 {user} 1")
            _map("self", "gid_map", f"0 {group} 1")
            return wanted | {"user"}
    if user == 0:
        with suppress(OSError):
            unshare(flags)
            return wanted
    return set()


def _as_root(unshare: Callable[[], None]) -> bool:
    """Leaves for a user namespace that knows root and NOBODY. Only who stays outside may say so: a child does."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(OSError):
            os.close(writing)
            if os.read(reading, 1):
                for name in ("uid_map", "gid_map"):
                    _map(str(os.getppid()), name, f"0 0 1\n{NOBODY} {NOBODY} 1")
                status = 0
        os._exit(status)
    os.close(reading)
    try:
        unshare()
        os.write(writing, b".")
    finally:
        os.close(writing)
        _, status = os.waitpid(child, 0)
    return status == 0


def _map(process: str, name: str, text: str) -> None:
    with open(f"/proc/{process}/{name}", "w") as file:
        file.write(text)


def readable() -> list[str]:
    """What a run may read: Python, what is installed, and our packages without what is withheld."""
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [os.path.join(sys.base_prefix, "lib"), *SYSTEM]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    folders += [str(ROOT / "lib"), str(ROOT / "drawing"), *SYSTEM_FILES]
    every = dict.fromkeys(path for folder in folders for path in (folder, os.path.realpath(folder)))
    return [path for folder in every if os.path.exists(folder) for path in _without(Path(folder))]


def _without(path: Path) -> Iterator[str]:
    """A folder, or what lies in it, so that nothing that is withheld lies below."""
    if path in WITHHELD:
        return
    if any(one.is_relative_to(path) for one in WITHHELD):
        for entry in sorted(path.iterdir()):
            yield from _without(entry)
    else:
        yield str(path)


def _folder() -> str:
    """One of FOLDERS below which nothing lies that a run needs: it is hidden by what is put there."""
    needed = [Path(path) for path in readable()]
    free = (one for one in FOLDERS if os.path.isdir(one) and not any(path.is_relative_to(one) for path in needed))
    return next(free, FOLDERS[0])


FOLDER: Final = _folder()
"""The only folder that can be written, in a file system of our own."""


def own_files(paths: Iterable[str], size: int) -> None:
    """Makes a file system of its own the root: the paths where they were, for reading alone, and an empty FOLDER for
    so many bytes. OSError where it cannot be made."""
    os.umask(0o022)  # whatever the grader's is: a run without rights of its own has to find what lies below the folders
    private_mounts()
    mount_tmpfs(FOLDER, "mode=0755,size=1m")
    os.chdir(FOLDER)
    for path in sorted({*paths, *DEVICES}, key=len):
        here = f".{path}"
        if os.path.exists(here):  # below another one
            continue
        if os.path.isdir(path):
            os.makedirs(here)
        else:
            os.makedirs(os.path.dirname(here), exist_ok=True)
            open(here, "x").close()
        bind_mount(path, here)
    os.makedirs(f".{FOLDER}", exist_ok=True)
    call(PIVOT_ROOT[os.uname().machine], b".", b".")
    unmount(".")
    os.chdir("/")
    read_only("/", below=True)
    mount_tmpfs(FOLDER, _options(size))


def _options(size: int) -> str:
    return f"mode=0777,size={size},nr_inodes=2000"


def clean(size: int) -> None:
    """An empty FOLDER, whatever was in it."""
    with os.scandir(FOLDER) as entries:
        if next(entries, None) is None:
            return
    unmount(FOLDER)
    mount_tmpfs(FOLDER, _options(size))


# -- landlock ------------------------------------------------------------------------------------------------------


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


# -- seccomp -------------------------------------------------------------------------------------------------------


ALLOWED: Final = """
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69, pwritev 296 70,
preadv2 327 286, pwritev2 328 287, lseek 8 62, close 3 57, close_range 436 436, dup 32 23, dup2 33 -, dup3 292 24,
stat 4 -, fstat 5 80, lstat 6 -, newfstatat 262 79, statx 332 291, statfs 137 43, fstatfs 138 44, access 21 -,
faccessat 269 48, faccessat2 439 439, creat 85 -, getdents64 217 61, getcwd 79 17, chdir 80 49, fchdir 81 50,
mkdir 83 -, mkdirat 258 34, rmdir 84 -, unlink 87 -, unlinkat 263 35, rename 82 -, renameat 264 38, renameat2 316 276,
readlink 89 -, readlinkat 267 78, symlink 88 -, symlinkat 266 36, link 86 -, linkat 265 37, ftruncate 77 46,
fallocate 285 47, fadvise64 221 223, fsync 74 82, fdatasync 75 83, sendfile 40 71, copy_file_range 326 285,
umask 95 166, getxattr 191 8, lgetxattr 192 9, fgetxattr 193 10, listxattr 194 11, llistxattr 195 12,
flistxattr 196 13, mmap 9 222, munmap 11 215, mprotect 10 226, mremap 25 216, madvise 28 233, brk 12 214,
msync 26 227, mincore 27 232, mlock 149 228, munlock 150 229, membarrier 324 283, rseq 334 293, poll 7 -,
ppoll 271 73, select 23 -, pselect6 270 72, epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21,
epoll_wait 232 -, epoll_pwait 281 22, eventfd2 290 19, pipe 22 -, pipe2 293 59, sendto 44 206, recvfrom 45 207,
shutdown 48 210, getsockopt 55 209, setsockopt 54 208, getsockname 51 204, getpeername 52 205, futex 202 98,
set_robust_list 273 99, get_robust_list 274 100, set_tid_address 218 96, sched_yield 24 124,
sched_getaffinity 204 123, sched_getparam 143 121, sched_getscheduler 145 120, sched_get_priority_max 146 125,
sched_get_priority_min 147 126, getpriority 140 141, gettid 186 178, getpid 39 172, getppid 110 173, getpgrp 111 -,
getpgid 121 155, getsid 124 156, getuid 102 174, geteuid 107 175, getgid 104 176, getegid 108 177, getgroups 115 158,
getresuid 118 148, getresgid 120 150, capget 125 90, nanosleep 35 101, clock_nanosleep 230 115, clock_gettime 228 113,
clock_getres 229 114, gettimeofday 96 169, time 201 -, times 100 153, getrusage 98 165, getitimer 36 102,
setitimer 38 103, alarm 37 -, pause 34 -, getrlimit 97 163, setrlimit 160 164, uname 63 160, sysinfo 99 179,
getrandom 318 278, getcpu 309 168, arch_prctl 158 -, restart_syscall 219 128, rt_sigaction 13 134,
rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136, rt_sigsuspend 130 133, rt_sigtimedwait 128 137,
sigaltstack 131 132, wait4 61 260, waitid 247 95, exit 60 93, exit_group 231 94
"""
"""Name, and number on x86_64 and on aarch64, which has some by another name only."""
NEW: Final = 424
"""From here on calls have the same number everywhere, and are newer than what libraries count on."""
MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Which of the numbers is theirs, and what the kernel calls them."""
CLONE, KILL, TGKILL, PRCTL, PRLIMIT, IOCTL, SOCKETPAIR, FCNTL, AFFINITY, OPEN, OPENAT = (
    (56, 220),
    (62, 129),
    (234, 131),
    (157, 167),
    (302, 261),
    (16, 29),
    (53, 199),
    (72, 25),
    (203, 122),
    (2, -1),
    (257, 56),
)
THREAD: Final = 0x10000
SET_NAME, SET_VMA = 15, 0x53564D41
TERMINAL: Final = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""Whether it is a terminal and how large, how much can be read, whether to wait, whether to hand it on."""
DESCRIPTORS: Final = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1031, 1032)
"""What is asked of a file with fcntl: to copy it, its flags, its locks, the size of a pipe. Not who gets its signals,
which may be anybody's process (F_SETOWN), nor a lease, for which others wait."""
WRITING, OPENED = 0x203, (0, 1, 2, 0x201, 0x202)
"""To open a file for reading, writing or both, and to empty it if it is for writing: one that is opened for reading can
be emptied, too, and an older Landlock lets that pass."""
STREAM, KIND = 1, 0xF
"""Of a pair of sockets: one that goes nowhere but to the other."""

LOAD, AND, JUMP, EQUAL, MORE, SET, RETURN = 0x20, 0x54, 0x05, 0x15, 0x35, 0x45, 0x06
ALLOW, ERROR, KILL_PROCESS = 0x7FFF0000, 0x50000, 0x80000000
NUMBER, ARCHITECTURE, FIRST, SECOND, THIRD = 0, 4, 16, 24, 32
"""Where they stand in what a filter is given: of an argument the lower half, on machines that have it first."""
SET_SECCOMP, FILTER = 22, 2

Rule = tuple[int, int, int, int]
RULE: Final = struct.Struct("=HBBI")
VALUE: Final = 4
"""Where in a rule its value stands."""
_GO: Final[list[Rule]] = [(RETURN, 0, 0, ALLOW)]


class Filter(NamedTuple):
    """A filter as the kernel takes it, and where in it the number of the process has to stand that puts it on."""

    rules: bytes
    own: tuple[int, ...]


def prepared() -> Filter | None:
    """The filter for this machine, for any process; None for a machine that we have no numbers of."""
    if platform.machine() not in MACHINES or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    column, architecture = MACHINES[platform.machine()]
    rows = [row.split() for row in ALLOWED.split(",")]
    actions: dict[int, list[Rule]] = {int(row[1 + column]): _GO for row in rows if row[1 + column] != "-"}
    actions |= {
        CLONE[column]: _where(FIRST, [(SET, THREAD)]),
        KILL[column]: _where(FIRST, [(EQUAL, OWN)]),
        TGKILL[column]: _where(FIRST, [(EQUAL, OWN)]),
        PRLIMIT[column]: _where(FIRST, [(EQUAL, OWN), (EQUAL, 0)]),
        PRCTL[column]: _where(FIRST, [(EQUAL, SET_NAME), (EQUAL, SET_VMA)]),
        IOCTL[column]: _where(SECOND, [(EQUAL, kind) for kind in TERMINAL]),
        SOCKETPAIR[column]: _where(SECOND, [(EQUAL, STREAM)], mask=KIND),
        FCNTL[column]: _where(SECOND, [(EQUAL, command) for command in DESCRIPTORS]),
        OPENAT[column]: _where(THIRD, [(EQUAL, how) for how in OPENED], mask=WRITING),
        AFFINITY[column]: _where(FIRST, [(EQUAL, OWN), (EQUAL, 0)]),
    }
    if OPEN[column] >= 0:
        actions[OPEN[column]] = _where(SECOND, [(EQUAL, how) for how in OPENED], mask=WRITING)
    rules = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, NUMBER),
        *_tree(_ranges(actions)),
    ]
    own = tuple(place * RULE.size + VALUE for place, rule in enumerate(rules) if rule[3] == OWN)
    return Filter(b"".join(RULE.pack(*rule[:3], max(rule[3], 0)) for rule in rules), own)


def _ranges(actions: dict[int, list[Rule]]) -> list[tuple[int, list[Rule]]]:
    """From which number on what is done, until the next one."""
    found: list[tuple[int, list[Rule]]] = []
    edges = {0, NEW} | {edge for number in actions for edge in (number, number + 1)}
    for edge in sorted(edges):
        action = actions.get(edge, [(RETURN, 0, 0, ERROR | (errno.EPERM if edge < NEW else errno.ENOSYS))])
        if not found or found[-1][1] != action:
            found.append((edge, action))
    return found


def _tree(ranges: list[tuple[int, list[Rule]]]) -> list[Rule]:
    """A search by halves: the kernel tries a filter on every call that there is when it is put on."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    low, high = _tree(ranges[:middle]), _tree(ranges[middle:])
    if len(low) < 256:
        return [(MORE, len(low), 0, ranges[middle][0]), *low, *high]
    return [(MORE, 0, 1, ranges[middle][0]), (JUMP, 0, 0, len(low)), *low, *high]


OWN: Final = -1
"""Stands for the number of the process that puts on the filter."""


def _where(argument: int, conditions: list[tuple[int, int]], mask: int | None = None) -> list[Rule]:
    """A call that is allowed where its argument meets one of some conditions."""
    return [
        (LOAD, 0, 0, argument),
        *([] if mask is None else [(AND, 0, 0, mask)]),
        *((kind, len(conditions) - place, 0, value) for place, (kind, value) in enumerate(conditions)),
        (RETURN, 0, 0, ERROR | errno.EPERM),
        *_GO,
    ]


def forbid(filter_: Filter) -> None:
    """Puts a filter on this process and all threads that it will have. OSError where the system has none."""
    rules = ctypes.create_string_buffer(filter_.rules, len(filter_.rules))
    for place in filter_.own:
        struct.pack_into("=I", rules, place, os.getpid())
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(rules) // RULE.size, ctypes.addressof(rules)))
    no_new_privileges()
    prctl(SET_SECCOMP, FILTER, ctypes.c_void_p(ctypes.addressof(program)))
