"""The system calls that a run needs, and no others: a filter of the kernel's that a process puts on and never off.

What is not listed is refused as "not permitted"; calls that are newer than all libraries know are "not implemented",
as on an older kernel, so that libraries do it the old way. No process is made, no program started, no socket opened,
nobody but oneself is signalled, traced or read, nothing is mounted, and no namespace entered. No file gets other rights
or times, and none is emptied by its name: Landlock, or an older one, lets that pass for all files of the same user.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from typing import Final, NamedTuple

from lib.suite.grade.isolation.kernel import no_new_privileges, prctl

__all__ = ["Filter", "forbid", "prepared"]

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
