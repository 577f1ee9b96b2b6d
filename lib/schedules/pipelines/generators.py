"""Pipelines as orders: one loop with seven famous names, and a search that goes on where no loop is best.

Rank r of R has the stages r, r + R, r + 2R and so on. It does some forwards ahead, then forwards and backwards in turn,
then the backwards that are left. How many ahead, how many microbatches take one stage before the rank turns to its
next, and how far the weight halves lag behind are sliders; the famous schedules are places of them.

ZB-1p and ZB-2p are zero bubble where passes do not take equally long, searched for (Qi et al. 2023, arXiv 2401.10241).
All ranks go through the microbatches together. In a round each may do the next forward, then each does the next input
half; weight halves fill the waiting, and make room. What is not decided is tried: eight ways, of which the best is
taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from itertools import accumulate, islice, pairwise, product
from math import ceil
from typing import Any

from lib.analysis.bounds.optima import Optimum
from lib.errors.wording import counted
from lib.schedules.pipelines.action import Action, Order, parse
from lib.schedules.pipelines.program import program_of
from lib.schedules.pipelines.timing import EVEN, Passes, in_ticks
from lib.simulator.model import Model


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
    for name, size in (("ranks", ranks), ("batches", batches), ("chunks", chunks)):
        if size < 1:
            raise ValueError(f"a pipeline has at least one of each; got {name}={size}")
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
        stages = range(rank, chunks * ranks, ranks)
        forwards = (Action(stage, "F", m) for some in rounds for stage in stages for m in some)
        backward = "B" if late is None else "I"
        backwards = [Action(stage, backward, m) for some in rounds for stage in reversed(stages) for m in some]
        actions = [*islice(forwards, min(need - 1 + more, everything))]
        halves = (action._replace(kind="W") for action in backwards)
        for number, action in enumerate(backwards):
            actions += *islice(forwards, 1), action
            if late is not None and number >= lag:
                actions.append(next(halves))
        found.append((*actions, *(halves if late is not None else ())))
    return tuple(found)


def _rounds(batches: int, group: int) -> list[range]:
    """Return the microbatches that take a stage one after the other before a rank turns to its next, the longest first.

    What is left over is shared out. A short group at the end would be short of work for the ranks in between: some
    would wait for others in a circle (5 ranks, 2 stages each, 7 microbatches).
    """
    if group < 1:
        raise ValueError(f"group is how many microbatches take one stage in a row, so at least 1; got {group}")
    count = max(1, batches // group)
    ends = [0, *accumulate((batches + count - 1 - turn) // count for turn in range(count))]
    return [range(*pair) for pair in pairwise(ends)]


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
    """Do 1F1B with several stages a rank: the pipeline fills and drains in smaller steps (Narayanan et al. 2021, arXiv
    2104.04473, section 2.2). Two forwards ahead for every rank that follows, so that a message has time to travel."""
    return in_turn(ranks, batches, chunks=chunks, ahead=2, limit=limit)


def interleaved_zero_bubble(ranks: int, batches: int, chunks: int = 2, *, limit: float | None = None) -> Order:
    """Interleave with the backward in halves: what the later ranks have not done ahead they let lie as weight halves,
    until there is nothing else to do."""
    return in_turn(ranks, batches, chunks=chunks, late=1, limit=limit)


def zb_h1(ranks: int, batches: int, *, limit: float | None = None) -> Order:
    """Do 1F1B with the backward in halves: no more memory than its first rank has (Qi et al. 2023, arXiv
    2401.10241)."""
    return in_turn(ranks, batches, late=1, limit=limit)


def zb_h2(ranks: int, batches: int, *, limit: float | None = None) -> Order:
    """Do twice as much ahead, so that no gap is left where the halves take equally long (Qi et al. 2023, arXiv
    2401.10241), for almost twice the memory."""
    return in_turn(ranks, batches, ahead=2, late=2, limit=limit)


def witness(optimum: Optimum) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """Return the schedule that reaches a proved optimum: each of its stages is one layer."""
    return program_of(tuple(map(parse, optimum.orders)))


def zb_1p(ranks: int, batches: int, costs: Passes = EVEN, *, limit: float | None = None) -> Order:
    """Search for zero bubble with the memory of 1F1B, if half of an activation is given back by the input half, as in
    the paper. With `limit`, which is in microbatches of activations, they are there until the weight half, as
    everywhere here."""
    return _best(ranks, batches, costs, limit, ranks)


def zb_2p(ranks: int, batches: int, costs: Passes = EVEN, *, limit: float | None = None) -> Order:
    """Return the same with twice the memory of 1F1B."""
    return _best(ranks, batches, costs, limit, 2 * ranks)


def _best(ranks: int, batches: int, costs: Passes, limit: float | None, usual: int) -> Order:
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit:g} microbatches of activations are too few: a forward makes 1")
    room, back = (usual, 0.5) if limit is None else (limit, 0.0)
    found: list[list[_Rank]] = []
    for fit, backward_first, fill_short in product((True, False), repeat=3):
        search = _Search(ranks, batches, in_ticks(costs)[0], room, back, fit, backward_first, fill_short)
        search.run()
        found.append(search.ranks)
    best = min(found, key=lambda ranks: max(rank.now - rank.begun for rank in ranks))
    return tuple(tuple(rank.actions) for rank in best)


class _Rank:
    """A rank in a search: its actions so far, how many of each kind, when each forward was over; when it began and is
    free, and its `gap`, how long it has waited in between."""

    def __init__(self, stage: int, costs: dict[str, int]) -> None:
        self.stage, self.costs = stage, costs
        self.actions: list[Action] = []
        self.count: Counter[str] = Counter()
        self.forwards: list[int] = []
        self.begun = self.now = self.gap = 0

    @property
    def halves(self) -> int:
        """How many weight halves can be done."""
        return self.count["I"] - self.count["W"]

    def do(self, kind: str, ready: int = 0) -> None:
        """Do the next pass of a kind, once its input is ready."""
        start = max(self.now, ready)
        if self.actions:
            self.gap += start - self.now
        else:
            self.begun = start
        self.now = start + self.costs[kind]
        self.actions.append(Action(self.stage, kind, self.count[kind]))
        self.count[kind] += 1
        if kind == "F":
            self.forwards.append(self.now)

    def do_halves(self, count: int) -> None:
        """Do so many weight halves."""
        for _ in range(count):
            self.do("W")


class _Search:
    """One way through all microbatches. A rank may have `limit` activations, and the input half gives the part `back`
    of one back. The questions that are open: whether forwards before the first backward have to be over when its
    gradient comes, or only begun (`fit`); whether a forward is left out of a round where it would keep a backward
    waiting (`backward_first`); and whether a weight half goes into a gap that is too short for it also where another
    rank has longer gaps (`fill_short`). Times are in ticks."""

    def __init__(
        self,
        ranks: int,
        batches: int,
        ticks: Sequence[int],
        limit: float,
        back: float,
        fit: bool,
        backward_first: bool,
        fill_short: bool,
    ) -> None:
        self.batches, self.limit, self.back = batches, limit, back
        self.fit, self.backward_first, self.fill_short = fit, backward_first, fill_short
        *passes, self.message = ticks
        self.costs = dict(zip("FIW", passes, strict=True))
        self.ranks = [_Rank(stage, self.costs) for stage in range(ranks)]

    def run(self) -> None:
        """Take all microbatches through all ranks."""
        self.begin()
        for _ in range(1, self.batches):
            for rank in self.in_this_round():
                rank.do_halves(self.short(rank))
                self.fill(rank, self.forward_ready(rank))
                rank.do("F", self.forward_ready(rank))
            self.backwards()
        for rank in self.ranks:
            rank.do_halves(rank.halves)

    def begin(self) -> None:
        """Do the forwards before the first backward, and that: as many as there is time for until its gradient comes,
        and fewer than on the rank before, unless that is all there are."""
        for rank in self.ranks:
            rank.do("F", self.forward_ready(rank))
        most, forward = min(self.batches, int(self.limit)) - 1, self.costs["F"]
        more = [0] * len(self.ranks)
        gradient = self.ranks[-1].now + self.costs["I"]
        for rank in reversed(self.ranks[:-1]):
            there, now = gradient + self.message, rank.now
            while more[rank.stage] < most and (now + forward <= there if self.fit else now < there):
                more[rank.stage] += 1
                now += forward
            gradient = max(now, there) + self.costs["I"]
        for stage, before in enumerate(self.ranks[:-1], 1):
            if more[stage] < self.batches - 1:
                more[stage] = max(0, min(more[stage], more[before.stage] - 1))
        for rank in self.ranks:
            for _ in range(more[rank.stage]):
                rank.do("F", self.forward_ready(rank))
        self.backwards()

    def backwards(self) -> None:
        """Do the next input half of each rank, from the last to the first."""
        ready = 0
        for rank in reversed(self.ranks):
            self.fill(rank, ready)
            if rank.stage == 0 and rank.count["F"] == self.batches:
                rank.do_halves(rank.halves)
            rank.do("I", ready)
            ready = rank.now + self.message

    def forward_ready(self, rank: _Rank) -> int:
        """Return when the input of a rank's next forward is there."""
        return self.ranks[rank.stage - 1].forwards[rank.count["F"]] + self.message if rank.stage else 0

    def short(self, rank: _Rank) -> int:
        """Return how many weight halves have to be done before there is room for one more forward."""
        held = rank.count["F"] - self.back * rank.count["I"] - (1 - self.back) * rank.count["W"]
        return max(0, ceil((held + 1 - self.limit) / (1 - self.back)))

    def in_this_round(self) -> list[_Rank]:
        """Return the ranks that do a forward in this round: the last ones, up to the first that does none.

        One is left out where it would keep a backward waiting, and the next rank has forwards enough: unless the wait
        makes this rank worse than the worst.
        """
        found: list[_Rank] = []
        for rank in reversed(self.ranks):
            if rank.count["F"] == self.batches:
                break
            if found and self.backward_first and rank.count["F"] >= found[-1].count["F"] + 2:
                gradient = found[-1].now + self.costs["F"] + self.costs["I"] + self.message
                over = rank.now + self.costs["F"] + min(rank.halves, self.short(rank)) * self.costs["W"]
                if over > gradient and gradient - rank.now <= max(0, self.longest() - rank.gap):
                    break
            found.append(rank)
        return found[::-1]

    def fill(self, rank: _Rank, ready: int) -> None:
        """Do weight halves while a rank waits."""
        while rank.halves and rank.now + self.costs["W"] <= ready:
            rank.do("W")
        if rank.halves and rank.now < ready and (self.fill_short or ready - rank.now > self.longest() - rank.gap):
            rank.do("W")

    def longest(self) -> int:
        """Return the longest gap of all ranks."""
        return max(rank.gap for rank in self.ranks)
