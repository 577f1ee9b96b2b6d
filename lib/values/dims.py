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

    The rest is advice: how to get values that are `alike` in it, how to count each of its pieces `once`, and what a sum
    that lacks some of them is `owed`.
    """

    role: str
    counted: bool = False
    partial: bool = False
    noun: str = ""
    plural: str = ""
    field: str | None = None
    alike: str = ""
    once: str = ""
    owed: str = ""

    def __post_init__(self) -> None:
        plural = self.plural or self.role.replace("_", " ")
        object.__setattr__(self, "plural", plural)
        object.__setattr__(self, "noun", self.noun or plural.removesuffix("s"))


def _of_a_grid(of: str) -> DimKind:
    return DimKind(
        of,
        counted=True,
        plural=f"grid {of}",
        alike=f"put together along one dim of a grid at a time: parts of the same {of} that differ in their rows",
        once=f"each rank has {of} of its own: cut them off where others have them, too",
        owed="sum it over all ranks that have a part of the grid: await model.allreduce(gradient, layer)",
    )


def _outputs(of: str) -> DimKind:
    """The row of OUTPUTS for a dim of a grid."""
    return DimKind(
        OUTPUTS[of],
        counted=True,
        partial=True,
        plural=f"output {of}",
        alike=f"the gradient of a {of[:-1]} that several ranks took is a sum: each brings what its own {of} of the "
        "output gave",
        once=f"each {of[:-1]} of the output counts once: look for a halo that was added twice, and for two ranks that "
        f"worked out\nthe same {of[:-1]}",
        owed=f"the gradient of a halo goes home: cut it off, send it to the rank that has these {of}, and there "
        f"add it\nto the edge. Inner {of} are done by themselves",
    )


def _averaged(of: str) -> DimKind:
    """The row of AVERAGED for a dim of a grid."""
    return DimKind(
        AVERAGED[of],
        counted=True,
        partial=True,
        plural=f"averaged {of}",
        alike=f"parts of a mean are added once each, over other {of} each",
        once=f"each {of[:-1]} counts once: each rank brings what its own {of} gave",
        owed=f"it knows nothing of the other {of}. Sum it over the ranks that have these: "
        "await model.allreduce(value, layer)",
    )


_ROWS = (
    DimKind("batch", counted=True, noun="batch", plural="batches", field="batches"),
    DimKind("in", plural="shards", field="shards"),
    DimKind(
        "out",
        noun="column shard",
        plural="columns",
        alike="put together what has the same columns; give load_weights the same total and dim everywhere",
        once="each rank loads columns of its own, with its place in the group as the shard",
    ),
    DimKind(
        "features",
        alike="put together one thing at a time: batches of the same features, or features of the same batches",
    ),
    DimKind(
        "terms",
        partial=True,
        plural="part",  # as in "part 0-1 of 4 of a sum"
        alike="a partial sum is added to the other parts of the same sum, once each: by an all-reduce or a "
        "reduce-scatter\nover the ranks that have the other shards of the weight. A sum that is done stays as it is",
        once="each part of a sum is added once: each rank brings what its own shard of the weight gave",
    ),
    DimKind(
        "rows",
        counted=True,
        alike="a sum is over values of the same rows: ranks that share a weight gather the rows before they use it,"
        "\nand a sum that goes round meets the same rows on each of them",
        once="each rank has rows of its own, or batches of its own: does it take them by its place in the group?",
        owed="sum it over the ranks that have the other rows: await model.allreduce(gradient, layer)",
    ),
    DimKind(
        "keys",
        counted=True,
        partial=True,
        alike="rows that have seen different keys stay apart, and are put together when all have seen theirs",
        once="each block of keys is attended to once: look for a step of the ring that is made twice, and for two "
        "ranks\nwith the same tokens",
        owed="attend to the other keys too, and add up what comes of it: out + model.forward(layer, x, keys)",
    ),
    DimKind(
        "queries",
        counted=True,
        partial=True,
        noun="query",
        alike="gradients that different queries gave stay apart, and are put together when all queries are in each",
        once="each block of queries counts once: look for a step of the ring that is made twice, and for two "
        "ranks\nwith the same tokens",
        owed="the gradient of the keys goes round with them until all queries are in it, and comes home",
    ),
    DimKind(
        "uses",
        counted=True,
        partial=True,
        once="each layer that takes an activation gives one part of its gradient",
        owed="several layers take this activation: add the gradients that their backwards give",
    ),
    DimKind(
        "vocabulary",
        partial=True,
        noun="part of the vocabulary",
        alike="what part of the vocabulary each rank has is a part of a sum, which is added and not put together: "
        "with an\nall-reduce over the ranks that have the rest of the vocabulary",
        once="each part of the vocabulary counts once: each rank brings what its own shard gave",
        owed="this is as if there were no other words than those that are here. Sum it over the ranks that have "
        "the\nrest of the vocabulary: await model.allreduce(value, layer)",
    ),
    DimKind(
        "experts",
        counted=True,
        alike="these ranks have different experts, and an expert sees the tokens of all ranks: the gradient of its "
        "weight\nis complete without a sum. Put together what is of one expert",
        once="each expert counts once: after an exchange a rank has its own experts and all tokens, or its own "
        "tokens\nand all experts",
        owed="results come home before they are combined, and gradients before they go on: exchange them, so "
        "that each rank\nhas those of all experts, for its own tokens. Or add what each rank has, by a "
        "reduce-scatter",
    ),
    DimKind("taps", counted=True),
    _outputs("rows"),
    *map(_of_a_grid, SPACE[1:]),
    *map(_outputs, SPACE[1:]),
    *map(_averaged, SPACE),
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
