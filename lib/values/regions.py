"""Parts of a weight as intervals: which of its elements some shards are, whatever number of shards it is cut into.

Shard 1 of 4 is the interval from 1/4 to 2/4. Ends are exact fractions and runs of shards are one interval, so that the
work grows with the runs that there are and never with the number that a weight is cut into.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence, Set
from fractions import Fraction
from typing import Generic, TypeVar

from lib.errors.wording import run_words, runs, these

__all__ = ["NOTHING", "WHOLE", "Owners", "Region", "listed"]

Point = int | Fraction
Interval = tuple[Point, Point]
T = TypeVar("T")
MOST = 10**6
"""The largest number of shards of a weight, and of ranks, layers or batches: a Trace file holds no more."""
MOST_RUNS = 20
"""Runs that a message lists."""


class Region:
    """A part of the whole [0, 1): `intervals` in order, which neither overlap nor touch."""

    __slots__ = ("intervals",)

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        """The union of intervals, given in any order."""
        joined: list[Interval] = []
        for low, high in sorted(intervals):
            if joined and low <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], high))
            elif low < high:
                joined.append((low, high))
        self.intervals = tuple(joined)

    @classmethod
    def of(cls, *pieces: tuple[Set[int], int]) -> Region:
        """What some shards are together, each given as (shard numbers, how many the weight is cut into)."""
        # Shards that are cut alike are put together as whole numbers first: ten thousand fractions are slow.
        alike: dict[int, list[Set[int]]] = {}
        for shards, total in pieces:
            alike.setdefault(total, []).append(shards)
        intervals: list[Interval] = []
        for total, sets in alike.items():
            if any(len(shards) == total for shards in sets):
                return WHOLE
            shards = sets[0] if len(sets) == 1 else frozenset[int]().union(*sets)
            intervals += [(Fraction(low, total), Fraction(high, total)) for low, high in runs(shards)]
        return cls(intervals)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Region) and self.intervals == other.intervals

    def __hash__(self) -> int:
        return hash(self.intervals)

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def __or__(self, other: Region) -> Region:
        return Region([*self.intervals, *other.intervals])

    def __sub__(self, other: Region) -> Region:
        """What is in this region and not in the other."""
        left: list[Interval] = []
        at, cuts = 0, other.intervals
        for low, high in self.intervals:
            while at < len(cuts) and cuts[at][1] <= low:
                at += 1
            here = at
            while here < len(cuts) and cuts[here][0] < high:
                if low < cuts[here][0]:
                    left.append((low, cuts[here][0]))
                low = max(low, cuts[here][1])
                here += 1
            if low < high:
                left.append((low, high))
        return Region(left)

    def __le__(self, other: Region) -> bool:
        """Whether all of this region lies in the other."""
        return not self - other

    def meets(self, other: Region) -> bool:
        """Whether the two have an element in common."""
        return self - other != self

    def size(self) -> Fraction:
        """Which part of the whole it is."""
        return sum((Fraction(high - low) for low, high in self.intervals), Fraction(0))

    def shards(self, total: int) -> list[tuple[int, int]] | None:
        """It as runs of shards [first, after the last) of `total`; None where it is not made of those."""
        if total < 1:
            return None
        found: list[tuple[int, int]] = []
        for low, high in self.intervals:
            first, after = Fraction(low) * total, Fraction(high) * total
            if first.denominator > 1 or after.denominator > 1:
                return None
            found.append((first.numerator, after.numerator))
        return found

    def words(self, total: int) -> str:
        """It in words, as some of `total` shards where it is that: "shard 3 of 4", "from 1/6 to 1/4"."""
        found = self.shards(total)
        if found is None:
            parts = [f"from {low} to {high}" for low, high in self.intervals[:MOST_RUNS]]
            return " and ".join(parts) + (" and more" if len(self.intervals) > MOST_RUNS else "")
        return f"{_shards(found)} of {total}"


WHOLE = Region([(0, 1)])
NOTHING = Region()


def _shards(found: Sequence[tuple[int, int]]) -> str:
    """Runs of shards in the words of `wording.these`, however long they are: "shards 0, 4-7"."""
    if sum(after - first for first, after in found) <= 2:
        return these("shard", [number for run in found for number in range(*run)])
    return f"shards {listed(found)}"


def listed(found: Sequence[tuple[int, int]]) -> str:
    """Runs of numbers in the words of `wording.ranges`, of very many the beginning: "0, 4-7"."""
    return ", ".join(run_words(found[:MOST_RUNS])) + (", ..." if len(found) > MOST_RUNS else "")


class Owners(Generic[T]):
    """Who was first to have each part of a whole: disjoint intervals in order, each with its owner.

    A new one among n others is found in log n steps.
    """

    __slots__ = ("_count", "_intervals")

    def __init__(self) -> None:
        # (low, high, number of the owner, owner), in order of `low`; no two have the same one.
        self._intervals: list[tuple[Point, Point, int, T]] = []
        self._count = 0

    def add(self, intervals: Iterable[Interval], owner: T) -> T | None:
        """Gives an owner what nobody has yet. Who is the first owner with whom it overlaps, if it does."""
        number, self._count = self._count, self._count + 1
        first: tuple[int, T] | None = None
        for low, high in intervals:
            for held in self._between(low, high):
                if first is None or held[2] < first[0]:
                    first = held[2], held[3]
                if low < held[0]:
                    insort(self._intervals, (low, held[0], number, owner), key=_low)
                low = held[1]
            if low < high:
                insort(self._intervals, (low, high, number, owner), key=_low)
        return None if first is None else first[1]

    def _between(self, low: Point, high: Point) -> list[tuple[Point, Point, int, T]]:
        """The intervals that are there and overlap one, in order."""
        begin = bisect_right(self._intervals, low, key=_low)
        if begin and self._intervals[begin - 1][1] > low:
            begin -= 1
        return self._intervals[begin : bisect_left(self._intervals, high, key=_low)]


def _low(item: tuple[Point, Point, int, object]) -> Point:
    return item[0]
