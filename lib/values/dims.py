"""The kinds of dims, a row each: places, files, sentences, pictures and a student's calls read the row.

A tensor extends along dims of these kinds, and may be a partial sum over some. Elements of a dim are a set of runs, so
that a million adjacent rows cost as much as one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence, Set
from fractions import Fraction
from functools import cached_property
from itertools import chain, starmap
from operator import itemgetter
from typing import Any, Final, TypeVar, cast

from lib.errors.wording import runs
from lib.record import record, table

NO_PIECES: frozenset[int] = frozenset()
SPACE: Final[tuple[str, ...]] = ("rows", "columns", "planes")
"""The dims of a grid. Every activation has rows."""
OUTPUTS: Final[dict[str, str]] = dict(zip(SPACE, ("outputs", "output_columns", "output_planes"), strict=True))
"""The sum in the gradient of a part whose edges others take too, by the dim of the grid."""
AVERAGED: Final[dict[str, str]] = dict(zip(SPACE, ("averaged", "averaged_columns", "averaged_planes"), strict=True))
"""The sum in one number for a whole grid, or in its gradient, by the dim of the grid."""
Run = tuple[int, int]
N = TypeVar("N", int, int | Fraction)


@record()
class DimKind:
    """A kind of dim.

    `role` is its name in files and calls, `noun` and `plural` are words for one of its pieces and for several: by
    default the role without and with its s. `counted`: it consists of whole elements, and a part is a set of these; any
    other is cut into n equal pieces, which may end within an element. `partial`: tensors are only summed over it, never
    split along it. `field`: the name of its pieces in the classic values.

    Advice on values that do not fit along it is in `lib/diagnosis/advice.toml`.
    """

    role: str
    counted: bool = False
    partial: bool = False
    noun: str = ""
    plural: str = ""
    field: str | None = None

    def __post_init__(self) -> None:
        plural = self.plural or self.role.replace("_", " ")
        object.__setattr__(self, "plural", plural)
        object.__setattr__(self, "noun", self.noun or plural.removesuffix("s"))


_ROWS = (
    DimKind("batch", counted=True, noun="batch", plural="batches", field="batches"),
    DimKind("in", plural="shards", field="shards"),
    DimKind("out", noun="column shard", plural="columns"),
    DimKind("features"),
    DimKind("terms", partial=True, plural="part"),  # as in "part 0-1 of 4 of a sum"
    DimKind("rows", counted=True),
    DimKind("keys", counted=True, partial=True),
    DimKind("queries", counted=True, partial=True, noun="query"),
    DimKind("uses", counted=True, partial=True),
    DimKind("vocabulary", partial=True, noun="part of the vocabulary"),
    DimKind("experts", counted=True),
    DimKind("taps", counted=True),
    DimKind(OUTPUTS["rows"], counted=True, partial=True, plural="output rows"),
    *[DimKind(of, counted=True, plural=f"grid {of}") for of in SPACE[1:]],
    *[DimKind(OUTPUTS[of], counted=True, partial=True, plural=f"output {of}") for of in SPACE[1:]],
    *[DimKind(AVERAGED[of], counted=True, partial=True, plural=f"averaged {of}") for of in SPACE],
)
# Heads are not a dim of their own: they are parts of the features that a linear layer gives, and attention checks that
# none is broken (see `LayerKind.unbroken`).
DIMS: Final = table(_ROWS, by="role")
"""The kinds of dims by role."""
NAMES: Final = ("", *DIMS)
"""Their roles. A Trace has the number of one here, from 1 on, so rows are only added at the end."""
REST: Final = {kind.role: kind.plural for kind in DIMS.values() if kind.field is None}
"""Dims other than those that students name by `shards` and `batches`, and the words for their pieces."""


class RunSet(Set[int]):
    """A set of whole numbers as its runs in order, each (first, after the last); no two of them touch."""

    __slots__ = ("_count", "runs")

    def __init__(self, *runs: Run) -> None:
        self.runs = runs
        self._count = sum([after - first for first, after in runs])

    @classmethod
    def of(cls, items: Iterable[int]) -> RunSet:
        """Return the set of some numbers."""
        return items if isinstance(items, RunSet) else cls(*runs(items))

    # `Set` makes the results of its operators with it.
    _from_iterable = of

    @classmethod
    def span(cls, first: int, after: int) -> RunSet:
        """Return all numbers from the first to the one before `after`."""
        return cls((first, after)) if first < after else cls()

    @classmethod
    def union(cls, sets: Iterable[RunSet]) -> RunSet:
        """Return the union of some sets."""
        return cls(*joined(chain.from_iterable([one.runs for one in sets])))

    def rest(self, size: int) -> RunSet:
        """Return the numbers below `size` that are not in it."""
        return RunSet(*gaps(self.runs, size))

    def nth(self, low: int, high: int) -> RunSet:
        """Return the numbers from the one at place `low`, in order, to the one before place `high`."""
        # Places count through all runs: the length of each run is taken off both ends.
        found: list[Run] = []
        for first, after in self.runs:
            if low < high and low < after - first:
                end = min(first + high, after)
                found.append((first + low, end))
                low = end - first
            low, high = max(low - (after - first), 0), high - (after - first)
        return RunSet(*found)

    def issuperset(self, other: Iterable[int]) -> bool:
        return RunSet.of(other) <= self

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(starmap(range, self.runs))

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, int):
            return False
        # Runs are in order and disjoint, so only the last that begins no later can have it.
        at = bisect_right(self.runs, item, key=itemgetter(0))
        return at > 0 and item < self.runs[at - 1][1]

    def __hash__(self) -> int:
        # An equal frozenset has another hash. `Dim.piece` uses only one of the two in a dim's table; elsewhere a miss
        # only costs a second entry.
        return hash(self.runs)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RunSet):
            return self.runs == other.runs
        return isinstance(other, frozenset) and self == RunSet.of(cast("frozenset[int]", other))

    def __and__(self, other: Iterable[int]) -> RunSet:
        return RunSet(*common(self.runs, RunSet.of(other).runs))

    __rand__ = __and__

    def __le__(self, other: Set[int]) -> bool:
        # By runs, as `&` is: the mixin of `Set` would test a million numbers one by one.
        return len(self & other) == self._count

    def __ge__(self, other: Set[int]) -> bool:
        return len(self & other) == len(other)

    def isdisjoint(self, other: Iterable[int]) -> bool:
        return not self & other

    def __repr__(self) -> str:
        return f"{{{', '.join([f'{first}-{after - 1}' for first, after in self.runs])}}}"


def joined(ranges: Iterable[tuple[N, N]]) -> tuple[tuple[N, N], ...]:
    """Return the union of ranges, given in any order."""
    found: list[tuple[N, N]] = []
    # Ranges that touch become one, so that equal sets have equal runs.
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        elif low < high:
            found.append((low, high))
    return tuple(found)


def common(mine: Sequence[tuple[N, N]], theirs: Sequence[tuple[N, N]]) -> tuple[tuple[N, N], ...]:
    """Return the intersection of two unions of ranges, each in order, with no two touching."""
    found: list[tuple[N, N]] = []
    # As in a merge: the range that ends first can meet no more.
    at = to = 0
    while at < len(mine) and to < len(theirs):
        low, high = max(mine[at][0], theirs[to][0]), min(mine[at][1], theirs[to][1])
        if low < high:
            found.append((low, high))
        if mine[at][1] < theirs[to][1]:
            at += 1
        else:
            to += 1
    return tuple(found)


def gaps(ranges: Iterable[tuple[N, N]], size: int) -> tuple[tuple[N, N], ...]:
    """Return what lies between ranges that are in order, from 0 to a size."""
    # A gap is from the end of one range to the start of the next, so the ends are paired one place further on.
    ends: list[Any] = [0, *chain.from_iterable(ranges), size]
    return tuple([(low, high) for low, high in zip(ends[::2], ends[1::2], strict=True) if low < high])


Pieces = frozenset[int] | RunSet


def united(sets: Sequence[Pieces]) -> Pieces:
    """Return the union of at least one set, all of one kind."""
    if isinstance(sets[0], RunSet):
        return RunSet.union(map(RunSet.of, sets))
    return NO_PIECES.union(*sets)


def listed_numbers(pieces: Pieces) -> int:
    """Return how many objects it consists of: runs or numbers."""
    return len(pieces.runs) if isinstance(pieces, RunSet) else len(pieces)


class Relation(ABC):
    """A relation of dims: which elements of one are needed by each element of another. Applied to sets, once each.

    Equivalent relations are equal, so that layers that are alike have one schema, and share its tables.
    """

    @cached_property
    def _known(self) -> dict[Pieces, RunSet]:
        return {}

    def __call__(self, items: Pieces) -> RunSet:
        found = self._known.get(items)
        if found is None:
            found = self._known[items] = self.needed(RunSet.of(items))
        return found

    @abstractmethod
    def needed(self, items: RunSet) -> RunSet:
        """Return what any of them needs."""
