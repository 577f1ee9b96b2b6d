"""The kinds of dims, a row each: places, files, sentences, pictures and a student's calls read the row.

Whatever a tensor extends along, or may be a partial sum over, is a dim of one of these kinds. Some elements of a dim
are a set by its runs, so that a million rows that lie together cost as much as one.
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
"""The dims of a grid. Rows has every activation."""
OUTPUTS: Final[dict[str, str]] = dict(zip(SPACE, ("outputs", "output_columns", "output_planes"), strict=True))
"""What the gradient of a part is a sum over where others take its edges, too, by the dim of the grid."""
AVERAGED: Final[dict[str, str]] = dict(zip(SPACE, ("averaged", "averaged_columns", "averaged_planes"), strict=True))
"""What one number for a whole grid, or its gradient, is a sum over, by the dim of the grid."""
Run = tuple[int, int]
N = TypeVar("N", int, int | Fraction)


@record()
class DimKind:
    """A kind of dim.

    `role` is its name in files and calls, `noun` and `plural` are words for one of its pieces and for several: where
    nothing is said, the role without its s, and with it. `counted`: it is made of whole elements, and a part of it is a
    set of these; any other is cut into n equal pieces, which may end within an element. `partial`: tensors are only
    summed over it, never split along it. `field`: what the classic values call its pieces.

    What to do about values that do not fit along it is in `lib/diagnosis/advice.toml`.
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
# Heads are no dim of their own: some of them are some of the features, as a linear layer gives them, and attention asks
# that none is broken (see `LayerKind.unbroken`).
DIMS: Final = table(_ROWS, by="role")
"""The kinds of dims by role."""
NAMES: Final = ("", *DIMS)
"""Their roles. A Trace names one by its number here, from 1 on, so a row is only ever added at the end."""
REST: Final = {kind.role: kind.plural for kind in DIMS.values() if kind.field is None}
"""Those that may be cut beside the ones that students name by `shards` and `batches`, and the word for their pieces."""


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

    # What `Set` makes the results of its operators with.
    _from_iterable = of

    @classmethod
    def span(cls, first: int, after: int) -> RunSet:
        """Return all numbers from the first to the one before `after`."""
        return cls((first, after)) if first < after else cls()

    @classmethod
    def union(cls, sets: Iterable[RunSet]) -> RunSet:
        """Return what is in any of some sets."""
        return cls(*joined(chain.from_iterable([one.runs for one in sets])))

    def rest(self, size: int) -> RunSet:
        """Return the numbers below `size` that are not in it."""
        return RunSet(*gaps(self.runs, size))

    def nth(self, low: int, high: int) -> RunSet:
        """Return the numbers from the one at place `low`, in order, to the one before place `high`."""
        # Places are counted through all runs: what a run has used up is taken off both ends.
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
        # Runs are in order and apart, so only the last one that begins no later can have it.
        at = bisect_right(self.runs, item, key=itemgetter(0))
        return at > 0 and item < self.runs[at - 1][1]

    def __hash__(self) -> int:
        # An equal frozenset hashes otherwise. `Dim.piece` keeps to one of the two kinds in a dim's table; elsewhere a
        # miss costs a second entry, and nothing else.
        return hash(self.runs)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RunSet):
            return self.runs == other.runs
        return isinstance(other, frozenset) and self == RunSet.of(cast("frozenset[int]", other))

    def __and__(self, other: Iterable[int]) -> RunSet:
        return RunSet(*common(self.runs, RunSet.of(other).runs))

    __rand__ = __and__

    def __le__(self, other: Set[int]) -> bool:
        # By runs, as `&` is: the mixin of `Set` would ask for each of a million numbers.
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
    # Ranges that only touch become one: then equal sets have equal runs, and can be compared and looked up by them.
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        elif low < high:
            found.append((low, high))
    return tuple(found)


def common(mine: Sequence[tuple[N, N]], theirs: Sequence[tuple[N, N]]) -> tuple[tuple[N, N], ...]:
    """Return what two unions of ranges have in common. In each they are in order, and no two touch."""
    found: list[tuple[N, N]] = []
    # As in a merge: whichever range ends first has met all that it can meet.
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
    # A gap is from the end of one range to the beginning of the next: pair the ends one place further on.
    ends: list[Any] = [0, *chain.from_iterable(ranges), size]
    return tuple([(low, high) for low, high in zip(ends[::2], ends[1::2], strict=True) if low < high])


Pieces = frozenset[int] | RunSet


def united(sets: Sequence[Pieces]) -> Pieces:
    """Unite some sets, at least one, of one kind."""
    if isinstance(sets[0], RunSet):
        return RunSet.union(map(RunSet.of, sets))
    return NO_PIECES.union(*sets)


def listed_numbers(pieces: Pieces) -> int:
    """Return how many numbers are written down in it."""
    return len(pieces.runs) if isinstance(pieces, RunSet) else len(pieces)


class Relation(ABC):
    """A relation of dims: which elements of one each element of another needs. Asked of sets of them, each worked out
    once.

    Two that say the same are equal: layers that are alike then have one schema, and one table of what is known.
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
