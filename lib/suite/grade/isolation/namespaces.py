"""Namespaces: no other process in sight, no network, and a file system in which little lies and nothing can be written.

A user who is nobody special gets them by way of a user namespace, where the system allows it.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from lib.files import ROOT
from lib.suite.grade.isolation import kernel

__all__ = ["DEVICES", "FOLDER", "LISTED", "NOBODY", "clean", "own_files", "readable", "separate"]

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
        if user == 0 and _as_root(lambda: kernel.unshare(USER | flags)):
            return wanted | {"user", "nobody"}
        if user != 0:
            kernel.unshare(USER | flags)
            _map("self", "setgroups", "deny")
            _map("self", "uid_map", f"0 {user} 1")
            _map("self", "gid_map", f"0 {group} 1")
            return wanted | {"user"}
    if user == 0:
        with suppress(OSError):
            kernel.unshare(flags)
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
    kernel.private_mounts()
    kernel.mount_tmpfs(FOLDER, "mode=0755,size=1m")
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
        kernel.bind_mount(path, here)
    os.makedirs(f".{FOLDER}", exist_ok=True)
    kernel.call(PIVOT_ROOT[os.uname().machine], b".", b".")
    kernel.unmount(".")
    os.chdir("/")
    kernel.read_only("/", below=True)
    kernel.mount_tmpfs(FOLDER, _options(size))


def _options(size: int) -> str:
    return f"mode=0777,size={size},nr_inodes=2000"


def clean(size: int) -> None:
    """An empty FOLDER, whatever was in it."""
    with os.scandir(FOLDER) as entries:
        if next(entries, None) is None:
            return
    kernel.unmount(FOLDER)
    kernel.mount_tmpfs(FOLDER, _options(size))
