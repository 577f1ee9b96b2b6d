"""When the actions of an order start and end, without running a program: for the search, and for thousands of settings.

The times are those of the simulator, where a run of an order waits for nothing but inputs. No values, no check: what is
legal says `legality`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, chain, compress, islice
from math import lcm

from lib.analysis.figures import Bubbles
from lib.cluster.costs import as_written
from lib.errors.exceptions import PuzzleError
from lib.schedules.pipelines.action import (
    BEGINS,
    MESSAGES,
    Action,
    Clock,
    Messages,
    Order,
    parts_of,
    places,
    says_messages,
)
from lib.schedules.pipelines.legality import require_legal
from lib.schedules.pipelines.lowering import awaited

Number = float | Fraction


class NoRoom(PuzzleError):
    """A legal order whose ranks wait for one another, as there is room for one message only from a rank to another."""


@dataclass(frozen=True)
class Timed:
    """An order with its times: `starts[r][i]` and `ends[r][i]` are of the action `order[r][i]`, in time units.

    They are counted in ticks, so that nothing is rounded; `busy` is what all ranks compute together.
    """

    order: Order
    start_ticks: list[list[int]]
    end_ticks: list[list[int]]
    ticks: int
    busy: int

    @cached_property
    def starts(self) -> list[list[float]]:
        return [[time / self.ticks for time in times] for times in self.start_ticks]

    @cached_property
    def ends(self) -> list[list[float]]:
        return [[time / self.ticks for time in times] for times in self.end_ticks]

    @property
    def end(self) -> float:
        """Return when the last rank is done."""
        return max((times[-1] for times in self.end_ticks if times), default=0) / self.ticks

    @property
    def bubble(self) -> Bubbles:
        """Return the share of time in which ranks compute nothing, in both conventions."""
        ranks, busy, longest = len(self.order), Fraction(self.busy, self.ticks), 0
        for rank in zip(self.order, self.start_ticks, self.end_ticks, strict=True):
            computes = [
                (start, end)
                for action, start, end in zip(*rank, strict=True)
                if end > start and action.kind not in MESSAGES and action.kind not in BEGINS
            ]
            longest = max(longest, computes[-1][1] - computes[0][0]) if computes else longest
        times = self.end, longest / self.ticks
        return Bubbles(*(float(1 - busy / (ranks * Fraction(time))) if time else 0.0 for time in times))

    @property
    def peaks(self) -> list[float]:
        """The most activations of each rank (see `peaks`)."""
        return peaks(self.order)


def peaks(order: Order) -> list[float]:
    """Count the most activations of each rank, in microbatches of all its stages. A stage's are there from the start
    of its forward to the end of its backward, or of the weight half: no costs matter."""
    stages = len(places(order)) or 1
    found: list[float] = []
    for actions in order:
        held = accumulate((part.kind == "F") - (part.kind in ("B", "W")) for part in parts_of(actions))
        found.append(float(Fraction(max(0, *held, 0) * len(order), stages)))
    return found


def time_order(
    order: Order,
    *,
    forward: Number = 1.0,
    input_half: Number = 1.0,
    weight_half: Number = 1.0,
    backward: Number | None = None,
    update: Number = 0.0,
    message: Number = 0.0,
    messages: Messages = "posted",
    cost: Callable[[Action, int], Number] | None = None,
) -> Timed:
    """Time an order: every action starts as soon as its rank is free and its inputs are there.

    The costs are those of one stage; a backward that is not split takes as long as its halves, if nothing is said, and
    updates have a cost only where the order says them. `cost` gives the costs of an action on a rank instead, for
    stages or ranks that are not alike.

    A message takes `message` from the end of what makes it until it is there, half of it until it is sent; or nothing,
    where both stages are on one rank. Awaited, both ranks do nothing else meanwhile, each for half of the time; an
    order that has no messages gets them first (see `awaited` in `lowering`). Posted, it costs no rank any time, but
    that one is sent before the next to the same rank, and receives are issued early enough. What has a WAIT in an order
    that has its messages is sent, received and awaited where the order says so.

    IllegalOrder where ranks wait for what does not come, NoRoom where it is legal and does not come all the same.
    """
    both = input_half + weight_half if backward is None else backward
    prices: dict[str, Number] = {"F": forward, "B": both, "I": input_half, "W": weight_half, "UPDATE": update}
    lowered = order
    if messages == "awaited" and not says_messages(order):
        lowered = awaited(order)
    half = as_written(message) / 2
    if cost is None:
        (half, *each), ticks = in_ticks([half, *prices.values()])
        known = dict(zip(prices, each, strict=True))
        costs = [[sum([known.get(p.kind, 0) for p in a.parts or (a,)]) for a in actions] for actions in lowered]
    else:
        exact = [
            [sum(as_written(cost(p, rank)) for p in a.parts or (a,) if p.kind in prices) for a in actions]
            for rank, actions in enumerate(lowered)
        ]
        (half, *each), ticks = in_ticks([half, *chain(*exact)])
        rest = iter(each)
        costs = [[*islice(rest, len(actions))] for actions in lowered]
    clock = Clock(lowered, places(lowered), costs, half, awaited=messages == "awaited")
    try:
        waiting = clock.run()
    except KeyError:  # a stage that no rank has
        require_legal(order)
        raise
    if waiting:
        require_legal(order)
        raise NoRoom(
            "this order is legal, but ranks wait for room for their messages",
            expected="room for one message from a rank to another, so that each is received before the next is sent",
            got="; ".join(f"rank {rank} is at {clock.at(rank)}" for rank in sorted(waiting)),
        )
    starts, ends = clock.starts, clock.ends
    if lowered is not order:  # of the messages that were put in nobody asked
        asked = [[action.kind not in MESSAGES for action in actions] for actions in lowered]
        starts, ends = ([*map(list, map(compress, times, asked))] for times in (starts, ends))
    return Timed(order, starts, ends, ticks, sum(map(sum, costs)))


def time_until(order: Order, place: dict[int, int]) -> tuple[Timed, dict[int, Action]]:
    """Time as much of an order as can be done, all passes equally long; and tell for each rank that does not come to
    its end the pass that it waits for: none where it is at a WAIT. `place` has the rank of each stage, also of those
    that are not done."""
    ticks = {"F": 1, "B": 2, "I": 1, "W": 1}
    costs = [[sum(ticks.get(part.kind, 0) for part in one.parts or (one,)) for one in actions] for actions in order]
    clock = Clock(order, place, costs, awaited=False)
    waiting = clock.run()
    done = tuple(actions[: len(ends)] for actions, ends in zip(order, clock.ends, strict=True))
    gradient = "I" if any(one.kind == "I" for actions in order for one in actions) else "B"
    passes = {"RECV_F": ("F", -1), "RECV_B": (gradient, 1), "F": ("F", 0), "I": ("I", 0)}
    missing: dict[int, Action] = {}
    for rank, (what, stage, microbatch) in waiting.items():
        if what in passes:
            kind, further = passes[what]
            missing[rank] = Action(stage + further, kind, microbatch)
    return Timed(done, clock.starts, clock.ends, 1, 0), missing


def in_ticks(times: Iterable[Number]) -> tuple[list[int], int]:
    """Return times as whole numbers of ticks, and how many ticks make a time unit: as few as will do. A time is the
    decimal that was written."""
    exact = [*map(as_written, times)]
    ticks = lcm(*{time.denominator for time in exact})
    return [int(time * ticks) for time in exact], ticks
