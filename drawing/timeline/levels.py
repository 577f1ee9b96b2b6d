"""What a rank holds over time, as plain data: levels by kind of value, stacked, and the longest moment of the peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from drawing.canvas.palette import KINDS
from lib.analysis.figures import makespan, samples
from lib.analysis.memory import guests
from lib.trace.lifetimes import held_at
from lib.trace.trace import Trace
from lib.values.values import OptState, Weight

__all__ = ["GATHERED", "SERIES", "Level", "Plateau", "levels", "longest"]

GATHERED: Final = "gathered weight"
"""What a weight is called that came in a communication and goes again: it is a guest."""
SERIES: Final = (*list(KINDS)[:2], GATHERED, *list(KINDS)[2:])
"""What memory is stacked of: what stays lies at the bottom, guests above it, then what comes and goes."""


class Level(NamedTuple):
    """Memory of a rank from a moment on: running sums in the order of SERIES, so the last is the total."""

    time: int
    sums: tuple[float, ...]


def levels(trace: Trace, rank: int) -> list[Level]:
    """The memory curve of a rank, to the end of the run. Of samples at one moment the highest counts.

    Memory is sampled when an operation starts; what was issued earlier and had to wait is placed where it was issued,
    since nothing changed in between. After its last operation a rank has what is at rest; in a run that failed, all
    that it had.
    """
    program = trace.programs[rank]
    visiting = guests(program)
    calls = None
    if visiting:
        values = trace.lifetimes()[rank].values
        calls = [GATHERED if number in visiting else value and value.kind for number, value in enumerate(values)]
    found: list[Level] = []
    for sample in samples(trace, rank, calls):
        sums = _stacked(sample.by_kind)
        time = program.events[sample.index].issued
        if found and found[-1].time >= time:
            if found[-1].sums[-1] < sums[-1]:
                found[-1] = Level(found[-1].time, sums)
        elif not found or found[-1].sums != sums:
            found.append(Level(time, sums))
    if not program.events:
        return found
    over = makespan(trace)
    end = max((event.end or 0 for event in program.events), default=0)
    after = _stacked(_left(trace, rank))
    if end < over or not found:
        found.append(Level(max(end, found[-1].time) if found else 0, after))
    found.append(Level(max(over, found[-1].time), found[-1].sums))
    return found


def _stacked(by_name: Mapping[str, object]) -> tuple[float, ...]:
    total = 0.0
    sums: list[float] = []
    for name in SERIES:
        total += float(by_name.get(name, 0))  # pyright: ignore[reportArgumentType]
        sums.append(total)
    return tuple(sums)


def _left(trace: Trace, rank: int) -> dict[str, float]:
    """What a rank has after its last operation."""
    program, lives = trace.programs[rank], trace.lifetimes()[rank]
    over, visiting = len(program.events), guests(program)
    found = dict.fromkeys(SERIES, 0.0)
    for number in lives.alive(over, held_at(program, over)):
        value = lives.values[number]
        if value is not None and (trace.error is not None or isinstance(value, Weight | OptState)):
            found[GATHERED if number in visiting else value.kind] += float(value.elements())
    return found


class Plateau(NamedTuple):
    """A stretch of time at which a rank has the most memory of all."""

    rank: int
    start: int
    end: int


def longest(curves: Mapping[int, Sequence[Level]], most: float) -> Plateau | None:
    """Of the stretches at which the curves of ranks reach so much, the longest; of equals the first."""
    best: Plateau | None = None
    for rank, curve in curves.items():
        start: int | None = None
        for level in curve:
            full = level.sums[-1] >= most * (1 - 1e-12)
            if start is not None and (not full or level is curve[-1]):
                if best is None or level.time - start > best.end - best.start:
                    best = Plateau(rank, start, level.time)
                start = None
            if full and start is None:
                start = level.time
    return best
