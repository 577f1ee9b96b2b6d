"""Watches the processes of a replay until all have reported, or until one is known to have failed."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lib.errors.wording import these
from lib.replay.errors import NotEnoughMemory, RankDied, RankStalled, ReplayError
from lib.replay.plan.plan import describe_event, raised, stalled
from lib.replay.processes.play import FINISHED, STARTING, WAITING
from lib.replay.rank.context import Job
from lib.replay.rank.interpreter import Report

__all__ = ["Child", "SharedState", "watch"]

WORDS = 3
"""For each rank: its state, the number of its event, and how often it moved."""


class SharedState:
    """One file, mapped by the forked ranks and their parent: how far each rank is, and the tensors to be compared.

    So a rank that dies has still said where it was, nothing is pickled, and results cost one copy. `state(rank)` and
    the like are read by the parent; `say` and `results` belong to the ranks. `counts` says how many numbers each rank
    keeps to be compared: `results[rank]` is the room for them.
    """

    def __init__(self, path: Path, counts: Sequence[int], dtype: torch.dtype, create: bool) -> None:
        head, numbers = len(counts) * WORDS * 8, sum(counts)
        size = head + numbers * dtype.itemsize
        handle = os.open(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0), 0o600)
        try:
            if create:
                _reserve(handle, size, path)
            room = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        self.words = memoryview(room)[:head].cast("q")
        kept = torch.frombuffer(room, dtype=dtype, offset=head) if numbers else torch.empty(0, dtype=dtype)
        self.results: Sequence[Tensor] = kept.split(list(counts))

    def say(self, rank: int, state: int, event: int) -> None:
        """Note what a rank does (see play)."""
        at = rank * WORDS
        words = self.words
        words[at] = state
        words[at + 1] = event
        words[at + 2] += 1

    def state(self, rank: int) -> int:
        """Return what a rank does."""
        return self.words[rank * WORDS]

    def event(self, rank: int) -> int:
        """Return the number of the event that a rank is in; -1 before the first."""
        return self.words[rank * WORDS + 1]

    def moves(self) -> list[int]:
        """Return how often each rank has moved."""
        return self.words[2::WORDS].tolist()


def _reserve(handle: int, size: int, path: Path) -> None:
    """Take the room on the disk now: a full disk would otherwise kill a rank in the middle."""
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


GRACE = 1.0
"""Seconds that others have to say what they saw, once one rank has failed."""
GOODBYE = 5.0
"""Seconds for a rank to end after it has reported."""


class Child:
    """A forked process, as its parent sees it."""

    def __init__(self, ranks: Sequence[int], number: int, pipe: int) -> None:
        self.ranks = ranks
        self.number = number
        self.pipe = pipe
        self.said = b""
        self.status: int | None = None

    @property
    def outcome(self) -> dict[str, Any] | None:
        """Return what it reported, None if it died before it could."""
        try:
            return json.loads(self.said)
        except ValueError:
            return None

    def reap(self, seconds: float = 0) -> bool:
        """Tell whether it has ended, within so many seconds."""
        over = time.monotonic() + seconds
        while self.status is None:
            try:
                number, status = os.waitpid(self.number, os.WNOHANG)
            except ChildProcessError:  # somebody else reaped it
                number, status = self.number, 0
            if number:
                self.status = status
            elif time.monotonic() >= over:
                return False
            else:
                time.sleep(0.002)
        return True

    @property
    def stopped(self) -> bool:
        """Tell whether the system holds it where it is, as SIGSTOP does: it has not ended, and does not get on."""
        with contextlib.suppress(ChildProcessError):
            number, status = os.waitpid(self.number, os.WNOHANG | os.WUNTRACED)
            if number and os.WIFSTOPPED(status):
                return True
            if number:
                self.status = status
        return False

    def end(self) -> None:
        """Make sure that it is gone, whatever it was doing."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1
        if not self.reap():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.number, signal.SIGKILL)
            self.reap(GOODBYE)


def watch(job: Job, state: SharedState, children: Sequence[Child], ready: Callable[[], None]) -> list[Report]:
    """Return the reports of all ranks; `ready` is called once all have begun. ReplayError: who failed, and in what."""
    timeout = job.options.timeout
    left = len(children)
    moves, moved = state.moves(), time.monotonic()
    deadline: float | None = None
    told = False
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.pipe, selectors.EVENT_READ, child)
        while left and (deadline is None or time.monotonic() < deadline):
            pause = min(timeout / 4, 0.05 if not told else 1.0)
            if deadline is not None:
                pause = max(0.0, min(pause, deadline - time.monotonic()))
            for key, _ in selector.select(pause):
                child: Child = key.data
                child.said += (said := os.read(child.pipe, 1 << 20))
                if not said:
                    selector.unregister(child.pipe)
                    left -= 1
                    if "reports" not in (child.outcome or {}) and deadline is None:
                        deadline = time.monotonic() + GRACE
            if not told and all(state.state(rank) != STARTING for rank in range(job.plan.ranks)):
                told = True
                ready()
            if state.moves() != moves:
                moves, moved = state.moves(), time.monotonic()
            elif time.monotonic() - moved > timeout:
                raise _stalled(job, state, children)
    if deadline is not None:
        raise _blame(job, state, children)
    reports: dict[int, Report] = {}
    for child in children:
        child.reap(GOODBYE)
        reports |= zip(child.ranks, (child.outcome or {})["reports"], strict=True)
    return [reports[rank] for rank in range(job.plan.ranks)]


def _blame(job: Job, state: SharedState, children: Sequence[Child]) -> ReplayError:
    """Name the first to fail: one that is gone, one whose own operation failed, only then one that waited for them."""
    silent = [child for child in children if child.pipe >= 0 and child.outcome is None and child.reap(0.1)]
    if silent:
        return _died(job, state, silent[0])
    spoken = [outcome for child in children if (outcome := child.outcome) is not None and "error" in outcome]
    outcome = min(spoken, key=lambda outcome: (outcome["echo"], outcome["when"]))
    return raised(job.plan, outcome["rank"], outcome["event"], outcome["error"])


def _died(job: Job, state: SharedState, child: Child) -> RankDied:
    # Of several ranks in a process, one that was not waiting for others.
    rank = min(child.ranks, key=lambda rank: state.state(rank) in (WAITING, FINISHED))
    operation = describe_event(job.plan, rank, state.event(rank))
    status = child.status or 0
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        how = f"was killed by {name}"
        if name == "SIGKILL":
            how += ", which is what the system does when memory runs out"
    else:
        how = f"ended with exit status {os.WEXITSTATUS(status)}"
    others = [other for other in child.ranks if other != rank]
    also = f"; {these('rank', others)} had the same process" if others else ""
    return RankDied(f"rank {rank} {how}, in {operation}{also}", rank=rank, operation=operation)


def _stalled(job: Job, state: SharedState, children: Sequence[Child]) -> RankStalled:
    """Nobody has moved for the whole timeout. To blame is one whose process is stopped, or else one who does not wait
    for others, if there is one."""
    left = [rank for rank in range(job.plan.ranks) if state.state(rank) != FINISHED]
    stopped = [rank for child in children if child.status is None and child.stopped for rank in child.ranks]
    blamed = stopped or [rank for rank in left if state.state(rank) != WAITING] or left or [0]
    hint = "its process was stopped, as SIGSTOP does" if stopped else "if it is only slow, allow more time"
    waiting = [rank for rank in left if rank not in blamed and state.state(rank) == WAITING]
    if waiting:
        hint += f"; rank {waiting[0]} waited in {describe_event(job.plan, waiting[0], state.event(waiting[0]))}"
    started = state.state(blamed[0]) != STARTING
    return stalled(job.plan, blamed, state.event(blamed[0]), job.options.timeout, hint, started)
