"""Watches the processes of a replay until all have reported, or until one is known to have failed."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence

from lib.replay.errors import RankDied, RankRaised, RankStalled, ReplayError
from lib.replay.plan.plan import Plan, describe_event
from lib.replay.processes.board import FINISHED, STARTING, WAITING, Board
from lib.replay.rank.worker import Report

__all__ = ["Child", "watch"]

GRACE = 1.0
"""Seconds that others have to say what they saw, once one rank has failed."""
GOODBYE = 5.0
"""Seconds for a rank to end after it has reported."""


class Child:
    """A forked rank, as its parent sees it."""

    def __init__(self, rank: int, number: int, pipe: int) -> None:
        self.rank = rank
        self.number = number
        self.pipe = pipe
        self.said = b""
        self.status: int | None = None

    @property
    def outcome(self) -> Report | None:
        """What it reported; None if it died before it could."""
        try:
            return json.loads(self.said)
        except ValueError:
            return None

    def reap(self, seconds: float = 0) -> bool:
        """Whether it has ended, within so many seconds."""
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

    def end(self) -> None:
        """Makes sure that it is gone, whatever it was doing."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1
        if not self.reap():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.number, signal.SIGKILL)
            self.reap(GOODBYE)


def watch(
    plan: Plan, board: Board, children: Sequence[Child], timeout: float, ready: Callable[[], None]
) -> list[Report]:
    """The reports of all ranks. `ready` is called once all have begun. ReplayError names who failed, and in what."""
    open_ = {child.pipe: child for child in children}
    moves, moved = board.moves(), time.monotonic()
    deadline: float | None = None
    told = False
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.pipe, selectors.EVENT_READ, child)
        while open_:
            pause = min(timeout / 4, 0.05 if not told else 1.0)
            if deadline is not None:
                pause = max(0.0, min(pause, deadline - time.monotonic()))
            for key, _ in selector.select(pause):
                child: Child = key.data
                part = os.read(child.pipe, 1 << 20)
                child.said += part
                if part:
                    continue
                selector.unregister(child.pipe)
                del open_[child.pipe]
                if _failed(child) and deadline is None:
                    deadline = time.monotonic() + GRACE
            if not told and all(board.state(child.rank) != STARTING for child in children):
                told = True
                ready()
            if deadline is not None and time.monotonic() >= deadline:
                break
            if board.moves() != moves:
                moves, moved = board.moves(), time.monotonic()
            elif time.monotonic() - moved > timeout:
                raise _stalled(plan, board, children, timeout)
    if deadline is not None:
        raise _blame(plan, board, children)
    for child in children:
        child.reap(GOODBYE)
    return [child.outcome or {} for child in children]


def _failed(child: Child) -> bool:
    outcome = child.outcome
    return outcome is None or "error" in outcome


def _blame(plan: Plan, board: Board, children: Sequence[Child]) -> ReplayError:
    """Who failed first: one that is gone, one whose own operation failed, and only then one who waited for them."""
    silent = [child for child in children if child.pipe >= 0 and child.outcome is None and child.reap(0.1)]
    if silent:
        return _died(plan, board, silent[0])
    spoken = [(child, outcome) for child in children if (outcome := child.outcome) is not None and "error" in outcome]
    child, outcome = min(spoken, key=lambda item: (item[1]["echo"], item[1]["when"]))
    operation = describe_event(plan, child.rank, outcome["event"])
    what = f"rank {child.rank} failed in {operation}: {outcome['error']}"
    return RankRaised(what, rank=child.rank, operation=operation)


def _died(plan: Plan, board: Board, child: Child) -> RankDied:
    operation = describe_event(plan, child.rank, board.event(child.rank))
    status = child.status or 0
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name
        how = f"was killed by {name}"
        if name == "SIGKILL":
            how += ", which is what the system does when memory runs out"
    else:
        how = f"ended with exit status {os.WEXITSTATUS(status)}"
    return RankDied(f"rank {child.rank} {how}, in {operation}", rank=child.rank, operation=operation)


def _stalled(plan: Plan, board: Board, children: Sequence[Child], timeout: float) -> RankStalled:
    """Nobody has moved for the whole timeout. To blame is one who does not wait for others, if there is one."""
    left = [child.rank for child in children if board.state(child.rank) != FINISHED]
    busy = [rank for rank in left if board.state(rank) != WAITING] or left
    rank = busy[0]
    operation = describe_event(plan, rank, board.event(rank))
    others = f"; ranks {', '.join(map(str, busy[1:]))} neither" if len(busy) > 1 else ""
    if board.state(rank) == STARTING:
        operation = "the start, before it had met the others"
    return RankStalled(
        f"rank {rank} did not move for {timeout:g} s, in {operation}{others}; if it is only slow, allow more time",
        rank=rank,
        operation=operation,
    )
