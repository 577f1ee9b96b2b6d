"""ZB-1p and ZB-2p: zero bubble where passes do not take equally long, searched for (Qi et al. 2023, arXiv 2401.10241).

All ranks go through the microbatches together. In a round each may do the next forward, then each does the next input
half; weight halves fill the waiting, and make room. What is open is tried: eight ways, of which the best is taken.
"""

from __future__ import annotations

from itertools import product
from math import ceil
from typing import Final, NamedTuple

from lib.schedules.pipelines.action import Action, Order
from lib.schedules.pipelines.timing import Number, in_ticks

__all__ = ["EVEN", "Passes", "zb_1p", "zb_2p"]


class Passes(NamedTuple):
    """How long the passes of a microbatch over a stage take, and a message, which costs no rank any time."""

    forward: Number = 1
    input_half: Number = 1
    weight_half: Number = 1
    message: Number = 0


EVEN: Final = Passes()


def zb_1p(ranks: int, batches: int, costs: Passes = EVEN, *, limit: float | None = None) -> Order:
    """With the memory of 1F1B, if half of an activation is given back by the input half, as in the paper. With `limit`,
    which is in microbatches of activations, they are there until the weight half, as everywhere here."""
    return _best(ranks, batches, costs, limit, ranks)


def zb_2p(ranks: int, batches: int, costs: Passes = EVEN, *, limit: float | None = None) -> Order:
    """The same with twice the memory of 1F1B."""
    return _best(ranks, batches, costs, limit, 2 * ranks)


class _Choice(NamedTuple):
    """What is open."""

    fit: bool
    """Whether forwards before the first backward have to be over when its gradient comes, or only begun."""
    backward_first: bool
    """Whether a forward is left out of a round where it would keep a backward waiting."""
    fill: bool
    """Whether a weight half goes into a gap that is too short for it also where another rank has longer gaps."""


def _best(ranks: int, batches: int, costs: Passes, limit: float | None, usual: int) -> Order:
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit:g} microbatches of activations are too few: a forward makes 1")
    room = _Room(usual, 0.5) if limit is None else _Room(limit, 0)
    ticks = _Ticks(*in_ticks(costs)[0])
    found = [_Search(ranks, batches, ticks, room, _Choice(*choice)) for choice in product((True, False), repeat=3)]
    for search in found:
        search.run()
    best = min(found, key=lambda search: search.span)
    return tuple(tuple(rank.actions) for rank in best.ranks)


class _Room(NamedTuple):
    """How many activations a rank may have, and which part of one the input half gives back."""

    limit: float
    back: float


class _Ticks(NamedTuple):
    """The costs as whole numbers."""

    forward: int
    input_half: int
    weight_half: int
    message: int


class _Rank:
    """What a rank has done so far."""

    def __init__(self, stage: int, ticks: _Ticks) -> None:
        self.stage = stage
        self.cost = {"F": ticks.forward, "I": ticks.input_half, "W": ticks.weight_half}
        self.actions: list[Action] = []
        self.ends: dict[str, list[int]] = {"F": [], "I": [], "W": []}
        self.now = 0
        self.gap = 0
        """How long it waited since its first forward."""
        self.begun = 0

    def count(self, kind: str) -> int:
        return len(self.ends[kind])

    def short(self, room: _Room) -> int:
        """How many weight halves have to be done before there is room for one more forward."""
        limit, back = room
        held = self.count("F") - back * self.count("I") - (1 - back) * self.count("W")
        return max(0, ceil((held + 1 - limit) / (1 - back)))

    @property
    def halves(self) -> int:
        """Weight halves that can be done."""
        return self.count("I") - self.count("W")

    def do(self, kind: str, ready: int = 0) -> None:
        start = max(self.now, ready)
        if self.actions:
            self.gap += start - self.now
        else:
            self.begun = start
        self.now = start + self.cost[kind]
        self.actions.append(Action(self.stage, kind, self.count(kind)))
        self.ends[kind].append(self.now)

    def do_halves(self, count: int | None = None) -> None:
        """So many weight halves, or all that can be done."""
        for _ in range(self.halves if count is None else count):
            self.do("W")


class _Search:
    """One way through all microbatches."""

    def __init__(self, ranks: int, batches: int, ticks: _Ticks, room: _Room, choice: _Choice) -> None:
        self.batches, self.ticks, self.room, self.choice = batches, ticks, room, choice
        self.ranks = [_Rank(stage, ticks) for stage in range(ranks)]

    @property
    def span(self) -> int:
        """The longest time that a rank has between its first forward and its end."""
        return max(rank.now - rank.begun for rank in self.ranks)

    def run(self) -> None:
        """All rounds."""
        self.begin()
        for _ in range(1, self.batches):
            for rank in self.forwards():
                rank.do_halves(rank.short(self.room))
                ready = self.forward_ready(rank)
                self.fill(rank, ready)
                rank.do("F", ready)
            self.backwards()
        for rank in self.ranks:
            rank.do_halves()

    def begin(self) -> None:
        """The forwards before the first backward: as many as there is time for until its gradient comes, and fewer than
        on the rank before, unless that is all there are."""
        for rank in self.ranks:
            rank.do("F", self.forward_ready(rank))
        most = min(self.batches, int(self.room.limit)) - 1
        more = [0] * len(self.ranks)
        gradient = self.ranks[-1].now + self.ticks.input_half
        for rank in reversed(self.ranks[:-1]):
            there, now = gradient + self.ticks.message, rank.now
            while more[rank.stage] < most and (now + self.ticks.forward <= there if self.choice.fit else now < there):
                more[rank.stage] += 1
                now += self.ticks.forward
            gradient = max(now, there) + self.ticks.input_half
        for stage in range(1, len(more)):
            if more[stage] < self.batches - 1:
                more[stage] = max(0, min(more[stage], more[stage - 1] - 1))
        for rank in self.ranks:
            for _ in range(more[rank.stage]):
                rank.do("F", self.forward_ready(rank))
        self.backwards()

    def forward_ready(self, rank: _Rank) -> int:
        """When the input of the next forward is there."""
        if rank.stage == 0:
            return 0
        return self.ranks[rank.stage - 1].ends["F"][rank.count("F")] + self.ticks.message

    def backwards(self) -> None:
        """The next input half, from the last rank to the first."""
        ready = 0
        for rank in reversed(self.ranks):
            self.fill(rank, ready)
            if rank.stage == 0 and rank.count("F") == self.batches:
                rank.do_halves()
            rank.do("I", ready)
            ready = rank.now + self.ticks.message

    def forwards(self) -> list[_Rank]:
        """The ranks that do a forward in this round: the last ones, up to the first that does none."""
        found: list[_Rank] = []
        after: _Rank | None = None
        for rank in reversed(self.ranks):
            if rank.count("F") == self.batches or (after is not None and self.leave_out(rank, after)):
                break
            found.append(rank)
            after = rank
        return found[::-1]

    def leave_out(self, rank: _Rank, after: _Rank) -> bool:
        """Whether a forward would keep a backward waiting, where the next rank has forwards enough: unless the wait
        makes this rank worse than the worst."""
        if not self.choice.backward_first or rank.count("F") < after.count("F") + 2:
            return False
        gradient = after.now + self.ticks.forward + self.ticks.input_half + self.ticks.message
        halves = min(rank.halves, rank.short(self.room))
        if rank.now + self.ticks.forward + halves * self.ticks.weight_half <= gradient:
            return False
        return gradient - rank.now <= max(0, self.longest - rank.gap)

    def fill(self, rank: _Rank, ready: int) -> None:
        """Weight halves while a rank waits."""
        while rank.halves and rank.now + self.ticks.weight_half <= ready:
            rank.do("W")
        if rank.halves and rank.now < ready and (self.choice.fill or ready - rank.now > self.longest - rank.gap):
            rank.do("W")

    @property
    def longest(self) -> int:
        """How long the rank has waited that has waited longest."""
        return max(rank.gap for rank in self.ranks)
