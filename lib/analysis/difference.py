"""Two schedules beside each other: the figures by which they are compared, and where they first differ."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from lib.analysis.event_words import event_words
from lib.analysis.figures import bubbles, end, peak, traffic
from lib.cluster.clock import units
from lib.errors.wording import amount, exact
from lib.trace.event import Event, Program
from lib.trace.trace import Trace
from lib.values.operations import TIMED

__all__ = ["Difference", "difference", "ending", "figures_of", "highest_peak", "said"]


class Difference(NamedTuple):
    """Where two schedules first differ: the rank, when, and on both sides the event and its number (None: no more).

    `ranks` are the sizes of the two worlds.
    """

    rank: int
    time: int
    numbers: tuple[int | None, int | None]
    events: tuple[Event | None, Event | None]
    ranks: tuple[int, int]

    def words(self, first: str, second: str) -> str:
        """On which rank, from when, and what each of the two does."""
        return f"{self.head(first, second)}: {self.side(first, 0)}; {self.side(second, 1)}"

    def head(self, first: str, second: str) -> str:
        """On which rank, and from when."""
        return f"{first} and {second} first differ on rank {self.rank}, from {exact(units(self.time))}"

    def side(self, name: str, side: int) -> str:
        """What the first (side 0) or the second (side 1) does there."""
        event = self.events[side]
        if event is None:
            return f"{name} does nothing more"
        when = "never begun" if event.start is None else f"at {exact(units(event.start))}"
        return f"{name} has {event_words(event, self.ranks[side])} ({when})"


def ending(trace: Trace) -> str:
    """When a run is over: "end 5.6"; or, where it failed, "stopped at 3"."""
    return f"{'end' if trace.error is None else 'stopped at'} {exact(end(trace))}"


def highest_peak(trace: Trace) -> str:
    """The peak in words: "peak 2,490,368 on rank 0"."""
    top = peak(trace)
    return f"peak {amount(top.elements)} on rank {top.rank}"


def figures_of(trace: Trace) -> str:
    """The figures by which schedules are compared, in words."""
    sent = max((float(elements) for elements, _ in traffic(trace)), default=0.0)
    idle = f"bubble {bubbles(trace).makespan:.1%}"
    return " · ".join([ending(trace), highest_peak(trace), idle, f"sent per rank {amount(sent)} elements"])


def difference(one: Trace, other: Trace) -> Difference | None:
    """The first difference in simulated time, of equal times that on the lowest rank; None where there is none."""
    found: list[Difference] = []
    sizes = one.ranks, other.ranks
    for rank, (mine, theirs) in enumerate(zip_longest(one.programs, other.programs)):
        for a, b in zip_longest(_timed(mine), _timed(theirs)):
            if a is None or b is None or _key(a[1], sizes) != _key(b[1], sizes):
                sides = [event for _, event in (side for side in (a, b) if side is not None)]
                time = min(event.issued if event.start is None else event.start for event in sides)
                numbers, events = (a and a[0], b and b[0]), (a and a[1], b and b[1])
                found.append(Difference(rank, time, numbers, events, sizes))
                break
    return min(found, key=lambda gap: (gap.time, gap.rank), default=None)


def said(gap: Difference | None, first: str, second: str) -> str:
    """Where two schedules of these names first differ, or that they do not."""
    return f"{first} and {second} do the same" if gap is None else gap.words(first, second)


def _timed(program: Program | None) -> Iterator[tuple[int, Event]]:
    """The operations that take time, with their numbers. What they are counts, not how long they took."""
    if program is not None:
        for number, event in enumerate(program.events):
            if event.op in TIMED and event.op != "loss":  # a loss takes no time, except where it was measured
                yield number, event


def _key(event: Event, sizes: tuple[int, int]) -> tuple[object, ...]:
    group = event.group if sizes[0] == sizes[1] else ()
    return event.op, event.layer, event.batches, event.start, event.length, group, event.peer
