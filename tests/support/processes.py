"""The processes that a process has started, as /proc knows them."""

import os
from pathlib import Path

__all__ = ["descendants"]


def descendants(ancestor: int) -> dict[int, bytes]:
    """The command lines, by number, of a process and of all that it and those have started, but for zombies."""
    parents, words = dict[int, int](), dict[int, bytes]()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()[:2]
            words[int(name)] = Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        if state != b"Z":
            parents[int(name)] = int(parent)
    found = added = {ancestor}
    while added:
        added = {child for child, parent in parents.items() if parent in added}
        found = found | added
    return {process: words[process] for process in sorted(found & parents.keys())}
