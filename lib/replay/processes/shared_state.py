"""What forked ranks and their parent share: how far each rank is, and the tensors that are compared.

One file, mapped by all: so a rank that dies has still said where it was, nothing is pickled, and results cost one copy.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from lib.replay.errors import NotEnoughMemory

__all__ = ["SharedState"]

WORDS = 3
"""For each rank: its state, the number of its event, and how often it moved."""
ALIGN = 64


class SharedState:
    """The file. `state(rank)` and the like are read by the parent; `say` and `results` belong to the ranks.

    `counts` says how many numbers each rank keeps.
    """

    def __init__(self, path: Path, counts: Sequence[int], dtype: torch.dtype, create: bool) -> None:
        self.counts = counts
        self.dtype = dtype
        self.starts: list[int] = []
        at = len(counts) * WORDS * 8
        for count in counts:
            at = -(-at // ALIGN) * ALIGN
            self.starts.append(at)
            at += count * dtype.itemsize
        self.size = -(-at // mmap.PAGESIZE) * mmap.PAGESIZE
        handle = os.open(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0), 0o600)
        try:
            if create:
                _reserve(handle, self.size, path)
            self.map = mmap.mmap(handle, self.size)
        finally:
            os.close(handle)
        self.words = memoryview(self.map).cast("q")

    def say(self, rank: int, state: int, event: int) -> None:
        """A rank says what it does (see play)."""
        at = rank * WORDS
        words = self.words
        words[at] = state
        words[at + 1] = event
        words[at + 2] += 1

    def state(self, rank: int) -> int:
        """What a rank does."""
        return self.words[rank * WORDS]

    def event(self, rank: int) -> int:
        """The number of the event that a rank is in; -1 before the first."""
        return self.words[rank * WORDS + 1]

    def moves(self) -> tuple[int, ...]:
        """How often each rank has moved."""
        return tuple(self.words[rank * WORDS + 2] for rank in range(len(self.counts)))

    def results(self, rank: int) -> Tensor:
        """The room for what a rank keeps to be compared; a copy of nothing."""
        count = self.counts[rank]
        if count == 0:
            return torch.empty(0, dtype=self.dtype)
        return torch.frombuffer(self.map, dtype=self.dtype, count=count, offset=self.starts[rank])


def _reserve(handle: int, size: int, path: Path) -> None:
    """Takes the room on the disk now: a full disk would otherwise kill a rank in the middle."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)
        else:
            os.ftruncate(handle, size)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            os.ftruncate(handle, size)  # a file system that cannot reserve
            return
        raise NotEnoughMemory(f"{path.parent} has no room for the {size:,} bytes that are compared") from None
