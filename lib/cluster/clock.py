"""Simulated time: exact integers of a billionth of a time unit, and the streams that operations occupy.

Floats would make 0.3 + 0.3 + 0.3 differ from 0.9, and equal moments unequal. A tick is small enough that every cost
anybody states is a whole number of ticks, so sums are exact and comparisons mean what they say.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction

from lib.errors.wording import exact, plural

__all__ = ["MAX_TICKS", "TICKS", "Streams", "as_written", "in_units", "ticks", "units"]

TICKS = 10**9
MAX_TICKS = 2**60
"""The latest time, and the longest length, that a Trace may have."""


def ticks(time: float | Fraction) -> int:
    """A time in units as a whole number of ticks."""
    return round(time * TICKS)


def as_written(number: float | Fraction) -> Fraction:
    """The decimal that was written, not the binary float nearest to it."""
    return Fraction(str(number))


def units(time: int) -> float:
    """A time in ticks as time units: 19900000000 -> 19.9."""
    return time / TICKS


def in_units(time: int) -> str:
    """A time in ticks in words: "1 time unit", "1.4 time units"."""
    figure = exact(units(time))
    return f"{figure} {plural('time unit', float(figure))}"


class Streams:
    """When communication streams are free. The ranks of a process group have one stream, in whatever order they
    are named, and so has each ordered pair of ranks.

    A rank computes on its own clock; what it communicates runs beside that on these streams, one operation after the
    other in each, as early as it can. The only copy of this timing (of that on shared links see `network`): the
    simulator and `retime` both ask here.
    """

    def __init__(self) -> None:
        self._free: dict[Hashable, int] = {}

    def meet(self, stream: Hashable, issued: Sequence[int], length: int) -> int:
        """A collective takes its stream, when its last member has issued it; returns the start."""
        start = max(issued)
        free = self._free.get(stream, 0)
        if free > start:
            start = free
        self._free[stream] = start + length
        return start

    def carry(self, stream: Hashable, issued: int, length: int, sent: int = 0) -> int:
        """One end of a message takes its stream, when it has been issued: a receive, when it has been `sent` besides.
        Returns the start."""
        start = issued if issued > sent else sent
        free = self._free.get(stream, 0)
        if free > start:
            start = free
        self._free[stream] = start + length
        return start
