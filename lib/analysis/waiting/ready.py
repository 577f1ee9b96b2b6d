"""What a rank could compute in a gap, if its program had it earlier: what it needs is there, and only the order is not.

A rank that waits although it has something to do waits for its own program: it holds work back, mostly so that it need
not hold what that work makes.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import NamedTuple

from lib.analysis.dependencies import At, causes_of
from lib.analysis.figures import samples
from lib.analysis.waiting.gaps import Gap
from lib.trace.trace import Trace
from lib.values.laws import total_elements
from lib.values.operations import COMMUNICATION, COMPUTE
from lib.values.values import Elements

__all__ = ["Ready", "ready_meanwhile"]


class Ready(NamedTuple):
    """An operation whose inputs were there from a moment on (in ticks): how many elements it makes, how many the rank
    has in the gap, and how many at its peak."""

    at: At
    time: int
    makes: Elements
    holds: Elements
    peak: Elements


def ready_meanwhile(run: Trace, gap: Gap) -> Ready | None:
    """The first operation after a gap that could have been computed in it; None where there is none."""
    if gap.before is None or gap.kind in ("unknown", "never", "stopped"):
        return None
    program, first = run.programs[gap.rank], _waits_at(run, gap)
    # Messages of the rank for which this one waits cannot be taken before the one that it waits for.
    channel = gap.before.event.peer if gap.before.event.op == "receive" else None
    maker = {value: number for number, event in enumerate(program.events) for value in event.outputs}
    found: dict[int, int | None] = {}

    def there(number: int) -> int | None:
        """When all that an event gives could be there; None where that is not before the gap is over."""
        if number not in found:
            found[number] = None  # while it is asked for: a file may say that something needs itself
            found[number] = _there(number)
        return found[number]

    def _there(number: int) -> int | None:
        event = program.events[number]
        if event.op in COMMUNICATION:
            sent = causes_of(run).sent(At(gap.rank, number, event))
            if number > first and (sent is None or sent.rank == channel):
                return None
            return event.end if sent is None or number < first else sent.event.end
        if number < first:
            return gap.start if event.end is None else event.end
        return None if event.length else needed(number)

    def needed(number: int) -> int | None:
        times = [there(maker[value]) for value in program.events[number].inputs if value in maker]
        known = [time for time in times if time is not None and time < gap.end]
        return max(known, default=0) if len(known) == len(times) else None

    for number in range(first + 1, len(program.events)):
        event = program.events[number]
        if event.op in COMPUTE and event.length and (time := needed(number)) is not None:
            curve = samples(run, gap.rank)
            holds = [sample.total for sample in curve if sample.time <= gap.start]
            makes, peak = total_elements(program.values_of(event.outputs)), max(sample.total for sample in curve)
            return Ready(At(gap.rank, number, event), max(time, gap.start), makes, holds[-1] if holds else 0, peak)
    return None


def _waits_at(run: Trace, gap: Gap) -> int:
    """The number of the event in which a rank waits: of a communication that it issued before, the wait for it."""
    spans = causes_of(run).spans[gap.rank]
    return spans[bisect_right(spans, gap.start, key=attrgetter("start")) - 1].at
