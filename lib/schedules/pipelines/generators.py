"""Pipelines as orders: one loop with seven famous names, and a search that goes on where no loop is best.

Rank r of R has the stages r, r + R, r + 2R and so on. It does some forwards ahead, then forwards and backwards in turn,
then the backwards that are left. How many ahead, how many microbatches take one stage before the rank turns to its
next, and how far the weight halves lag behind are sliders; the schedules that everybody knows are places of them.

ZB-1p and ZB-2p are zero bubble where passes do not take equally long, searched for (Qi et al. 2023, arXiv 2401.10241).
All ranks go through the microbatches together. In a round each may do the next forward, then each does the next input
half; weight halves fill the waiting, and make room. What is not decided is tried: eight ways, of which the best is
taken.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from itertools import islice, product
from math import ceil
from typing import Any, NamedTuple

from lib.analysis.bounds.optima import Optimum
from lib.errors.wording import counted
from lib.schedules.pipelines.action import Action, Order, parse
from lib.schedules.pipelines.program import program_of
from lib.schedules.pipelines.timing import EVEN, Passes, in_ticks
from lib.simulator.model import Model

__all__ = [
    "breadth_first",
    "gpipe",
    "in_turn",
    "interleaved",
    "interleaved_zero_bubble",
    "one_f_one_b",
    "witness",
    "zb_1p",
    "zb_2p",
    "zb_h1",
    "zb_h2",
]


def in_turn(
    ranks: int,
    batches: int,
    *,
    chunks: int = 1,
    group: int | None = None,
    ahead: int | None = 1,
    late: int | None = None,
    limit: float | None = None,
) -> Order:
    """Make the order of the one loop, for all ranks.

    `chunks` stages a rank, of which it takes `group` microbatches or a few more through one before it turns to the next
    (None: as many as there are ranks; with fewer some ranks may wait for one another in a circle). Before its first
    backward a rank is to have all but the last of its stages behind it for a group, and `ahead` microbatches more for
    every rank that comes after it; None: everything. With `late` the backward is split, and the weight halves of rank r
    are `late * r` passes behind the input halves.

    `limit` is how many microbatches of activations a rank may have, of all its stages: then it lags less, and does
    less ahead. ValueError where that is not enough.
    """
    _sizes(ranks, batches, chunks)
    rounds = _rounds(batches, ranks if group is None else group)
    need = (chunks - 1) * len(rounds[0]) + 1
    if limit is not None and limit * chunks < need:
        raise ValueError(
            f"limit={limit:g} microbatches of activations are too few: with {counted(chunks, 'stage')} a rank and "
            f"{counted(len(rounds[0]), 'microbatch')} at a time a rank needs {need / chunks:g}"
        )
    everything = batches * chunks
    found: list[tuple[Action, ...]] = []
    for rank in range(ranks):
        more = everything if ahead is None else ahead * (ranks - 1 - rank)
        lag = (late or 0) * rank
        if limit is not None and more + lag > (room := int(limit * chunks) - need):
            more = -(-more * room // (more + lag))  # each as much less as the other
            lag = room - more
        stages = [rank + turn * ranks for turn in range(chunks)]
        found.append(_one_rank(stages, rounds, min(need - 1 + more, everything), None if late is None else lag))
    return tuple(found)


def _rounds(batches: int, group: int) -> list[range]:
    """Return the microbatches that take a stage one after the other before a rank turns to its next, the longest first.

    What is left over is shared out. A short group at the end would be short of work for the ranks in between: some
    would wait for others in a circle (5 ranks, 2 stages each, 7 microbatches).
    """
    if group < 1:
        raise ValueError(f"group is how many microbatches take one stage in a row, so at least 1; got {group}")
    count = max(1, batches // group)
    sizes = [(batches + count - 1 - turn) // count for turn in range(count)]
    return [range(sum(sizes[:turn]), sum(sizes[: turn + 1])) for turn in range(count)]


def _one_rank(stages: Sequence[int], rounds: Sequence[range], warm_up: int, lag: int | None) -> tuple[Action, ...]:
    """Do so many forwards, then forwards and backwards in turn, then the rest. With a lag, backwards in halves."""
    forwards = (Action(stage, "F", m) for batches in rounds for stage in stages for m in batches)
    backward = "B" if lag is None else "I"
    backwards = [Action(stage, backward, m) for batches in rounds for stage in reversed(stages) for m in batches]
    found = [*islice(forwards, warm_up)]
    for number, action in enumerate(backwards):
        found.extend(islice(forwards, 1))
        found.append(action)
        if lag is not None and number >= lag:
            found.append(backwards[number - lag]._replace(kind="W"))
    if lag:
        found.extend(action._replace(kind="W") for action in backwards[-lag:])
    return tuple(found)


def _sizes(ranks: int, batches: int, chunks: int) -> None:
    for name, size in (("ranks", ranks), ("batches", batches), ("chunks", chunks)):
        if size < 1:
            raise ValueError(f"a pipeline has at least one of each; got {name}={size}")


def gpipe(ranks: int, batches: int) -> Order:
    """Do all forwards, then all backwards (Huang et al. 2019, arXiv 1811.06965)."""
    return in_turn(ranks, batches, group=batches, ahead=None)


def breadth_first(ranks: int, batches: int, chunks: int = 2) -> Order:
    """Take all microbatches through a stage before a rank turns to its next, all forwards before the backwards
    (Lamy-Poirier 2022, arXiv 2211.05953): what a stage needs, such as gathered weights, it needs once a direction."""
    return in_turn(ranks, batches, chunks=chunks, group=batches, ahead=None)


def one_f_one_b(ranks: int, batches: int, *, limit: float | None = None) -> Order:
    """Do as many forwards as there are stages from here to the end, then one backward and one forward in turn: a
    rank has no more microbatches open than that (Narayanan et al. 2021, arXiv 2104.04473, section 2.2)."""
    return in_turn(ranks, batches, limit=limit)


def interleaved(ranks: int, batches: int, chunks: int = 2, *, limit: float | None = None) -> Order:
    """1F1B with several stages a rank: the pipeline fills and drains in smaller steps (Narayanan et al. 2021, arXiv
    2104.04473, section 2.2). Two forwards ahead for every rank that follows, so that a message has time to travel."""
    return in_turn(ranks, batches, chunks=chunks, ahead=2, limit=limit)


def interleaved_zero_bubble(ranks: int, batches: int, chunks: int = 2, *, limit: float | None = None) -> Order:
    """Interleaved with the backward in halves: what the later ranks have not done ahead they let lie as weight halves,
    until there is nothing else to do."""
    return in_turn(ranks, batches, chunks=chunks, late=1, limit=limit)


def zb_h1(ranks: int, batches: int, *, limit: float | None = None) -> Order:
    """1F1B with the backward in halves: no more memory than its first rank has (Qi et al. 2023, arXiv 2401.10241)."""
    return in_turn(ranks, batches, late=1, limit=limit)


def zb_h2(ranks: int, batches: int, *, limit: float | None = None) -> Order:
    """With twice as much ahead there is no gap left where the halves take equally long (Qi et al. 2023, arXiv
    2401.10241), for almost twice the memory."""
    return in_turn(ranks, batches, ahead=2, late=2, limit=limit)


def witness(optimum: Optimum) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """Return the schedule that reaches a proved optimum: each of its stages is one layer."""
    return program_of(tuple(map(parse, optimum.orders)))


def zb_1p(ranks: int, batches: int, costs: Passes = EVEN, *, limit: float | None = None) -> Order:
    """With the memory of 1F1B, if half of an activation is given back by the input half, as in the paper. With `limit`,
    which is in microbatches of activations, they are there until the weight half, as everywhere here."""
    return _best(ranks, batches, costs, limit, ranks)


def zb_2p(ranks: int, batches: int, costs: Passes = EVEN, *, limit: float | None = None) -> Order:
    """Return the same with twice the memory of 1F1B."""
    return _best(ranks, batches, costs, limit, 2 * ranks)


class _Choice(NamedTuple):
    """The questions that are open."""

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
    """The room of a rank: how many activations it may have, and which part of one the input half gives back."""

    limit: float
    back: float


class _Ticks(NamedTuple):
    """The costs as whole numbers."""

    forward: int
    input_half: int
    weight_half: int
    message: int


class _Rank:
    """A rank, with all that it has done so far."""

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
        """Return how many weight halves have to be done before there is room for one more forward."""
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
        """Do so many weight halves, or all that can be done."""
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
        """Return when the input of the next forward is there."""
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
        """Return the ranks that do a forward in this round: the last ones, up to the first that does none."""
        found: list[_Rank] = []
        after: _Rank | None = None
        for rank in reversed(self.ranks):
            if rank.count("F") == self.batches or (after is not None and self.leave_out(rank, after)):
                break
            found.append(rank)
            after = rank
        return found[::-1]

    def leave_out(self, rank: _Rank, after: _Rank) -> bool:
        """Tell whether a forward would keep a backward waiting, where the next rank has forwards enough: unless the
        wait makes this rank worse than the worst."""
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
        """Return how long the rank has waited that has waited longest."""
        return max(rank.gap for rank in self.ranks)
