"""The kinds of dims, a row each: places, files, sentences, pictures and a student's calls read the row.

Whatever a tensor extends along, or may be a partial sum over, is a dim of one of these kinds. Some elements of a dim
are a set by its runs, so that a million rows that lie together cost as much as one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from fractions import Fraction
from itertools import chain, starmap
from typing import Final, TypeVar, cast

from lib.errors.wording import runs
from lib.record import record
from lib.values.table import table

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

    `role` is its name in files and calls, `noun` and `plural` are words for one of its pieces and for several.
    `counted`: it is made of whole elements, and a part of it is a set of these; any other is cut into n equal pieces,
    which may end within an element. `field`: what the classic values call its pieces. `partial`: tensors are only
    summed over it, never split along it.

    The rest is advice: how to get values that are `alike` in it, how to count each of its pieces `once`, and what a sum
    that lacks some of them is `owed`.
    """

    role: str
    noun: str
    plural: str
    counted: bool = False
    field: str | None = None
    partial: bool = False
    alike: str = ""
    once: str = ""
    owed: str = ""


def _of_a_grid(role: str) -> DimKind:
    """A dim of a grid beside its rows."""
    what = role[:-1]
    return DimKind(
        role,
        f"grid {what}",
        f"grid {what}s",
        counted=True,
        alike=f"put together along one dim of a grid at a time: parts of the same {what}s that differ in their rows",
        once=f"each rank has {what}s of its own: cut them off where others have them, too",
        owed="sum it over all ranks that have a part of the grid: await model.allreduce(gradient, layer)",
    )


def _outputs(of: str) -> DimKind:
    """The row of OUTPUTS for a dim of a grid."""
    what = of[:-1]
    return DimKind(
        OUTPUTS[of],
        f"output {what}",
        f"output {what}s",
        counted=True,
        partial=True,
        alike=f"the gradient of a {what} that several ranks took is a sum: each brings what its own {what}s of the "
        "output gave",
        once=f"each {what} of the output counts once: look for a halo that was added twice, and for two ranks that "
        f"worked out\nthe same {what}",
        owed=f"the gradient of a halo goes home: cut it off, send it to the rank that has these {what}s, and there "
        f"add it\nto the edge. Inner {what}s are done by themselves",
    )


def _averaged(of: str) -> DimKind:
    """The row of AVERAGED for a dim of a grid."""
    what = of[:-1]
    return DimKind(
        AVERAGED[of],
        f"averaged {what}",
        f"averaged {what}s",
        counted=True,
        partial=True,
        alike=f"parts of a mean are added once each, over other {what}s each",
        once=f"each {what} counts once: each rank brings what its own {what}s gave",
        owed=f"it knows nothing of the other {what}s. Sum it over the ranks that have these: "
        "await model.allreduce(value, layer)",
    )


_ROWS = (
    DimKind("batch", "batch", "batches", counted=True, field="batches"),
    DimKind("in", "shard", "shards", field="shards"),
    DimKind(
        "out",
        "column shard",
        "columns",
        alike="put together what has the same columns; give load_weights the same total and dim everywhere",
        once="each rank loads columns of its own, with its place in the group as the shard",
    ),
    DimKind(
        "features",
        "feature",
        "features",
        alike="put together one thing at a time: batches of the same features, or features of the same batches",
    ),
    DimKind(
        "terms",
        "part",
        "part",  # as in "part 0-1 of 4 of a sum"
        partial=True,
        alike="a partial sum is added to the other parts of the same sum, once each: by an all-reduce or a "
        "reduce-scatter\nover the ranks that have the other shards of the weight. A sum that is done stays as it "
        "is",
        once="each part of a sum is added once: each rank brings what its own shard of the weight gave",
    ),
    DimKind(
        "rows",
        "row",
        "rows",
        counted=True,
        alike="a sum is over values of the same rows: ranks that share a weight gather the rows before they use it,"
        "\nand a sum that goes round meets the same rows on each of them",
        once="each rank has rows of its own, or batches of its own: is the shard its place in the group?",
        owed="sum it over the ranks that have the other rows: await model.allreduce(gradient, layer)",
    ),
    DimKind(
        "keys",
        "key",
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
        "query",
        "queries",
        counted=True,
        partial=True,
        alike="gradients that different queries gave stay apart, and are put together when all queries are in each",
        once="each block of queries counts once: look for a step of the ring that is made twice, and for two "
        "ranks\nwith the same tokens",
        owed="the gradient of the keys goes round with them until all queries are in it, and comes home",
    ),
    DimKind(
        "uses",
        "use",
        "uses",
        counted=True,
        partial=True,
        once="each layer that takes an activation gives one part of its gradient",
        owed="several layers take this activation: add the gradients that their backwards give",
    ),
    DimKind(
        "vocabulary",
        "part of the vocabulary",
        "vocabulary",
        partial=True,
        alike="what part of the vocabulary each rank has is a part of a sum, which is added and not put together: "
        "with an\nall-reduce over the ranks that have the rest of the vocabulary",
        once="each part of the vocabulary counts once: each rank brings what its own shard gave",
        owed="this is as if there were no other words than those that are here. Sum it over the ranks that have "
        "the\nrest of the vocabulary: await model.allreduce(value, layer)",
    ),
    DimKind(
        "experts",
        "expert",
        "experts",
        counted=True,
        alike="each rank has its own experts, which see the tokens of all ranks: what is of one expert is put "
        "together,\nand of a weight's gradient there is nothing to add",
        once="each expert counts once: after an exchange a rank has its own experts and all tokens, or its own "
        "tokens\nand all experts",
        owed="results come home before they are combined, and gradients before they go on: exchange them, so "
        "that each rank\nhas those of all experts, for its own tokens. Or add what each rank has, by a "
        "reduce-scatter",
    ),
    DimKind("taps", "tap", "taps", counted=True),
    _outputs("rows"),
    _of_a_grid("columns"),
    _of_a_grid("planes"),
    _outputs("columns"),
    _outputs("planes"),
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
        # A gap lies between the end of one run and the beginning of the next: pair the ends one place further on.
        ends = [0, *chain.from_iterable(self.runs), size]
        return RunSet(*[(low, high) for low, high in zip(ends[::2], ends[1::2], strict=True) if low < high])

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
        at = bisect_right(self.runs, item, key=_first)
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
        mine, theirs = self.runs, RunSet.of(other).runs
        found: list[Run] = []
        # As in a merge: whichever run ends first has met all that it can meet.
        at = to = 0
        while at < len(mine) and to < len(theirs):
            first, after = max(mine[at][0], theirs[to][0]), min(mine[at][1], theirs[to][1])
            if first < after:
                found.append((first, after))
            if mine[at][1] < theirs[to][1]:
                at += 1
            else:
                to += 1
        return RunSet(*found)

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


def _first(run: Run) -> int:
    return run[0]


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


Pieces = frozenset[int] | RunSet


def united(sets: Sequence[Pieces]) -> Pieces:
    """Unite some sets, at least one, of one kind."""
    if isinstance(sets[0], RunSet):
        return RunSet.union(map(RunSet.of, sets))
    return NO_PIECES.union(*sets)


def listed_numbers(pieces: Pieces) -> int:
    """Return how many numbers are written down in it."""
    return len(pieces.runs) if isinstance(pieces, RunSet) else len(pieces)


class Relation:
    """A relation of dims: which elements of one each element of another needs. Asked of sets of them, each worked
    out once.

    Two of a subclass that say the same (`said`) are equal: layers that are alike then have one schema, and one table of
    what is known.
    """

    def __init__(self, needs: Callable[[int], Iterable[int]], *said: object) -> None:
        self.needs, self.said = needs, said
        self._known: dict[Pieces, RunSet] = {}

    def __eq__(self, other: object) -> bool:
        # A bare Relation is known by its function alone, and two lambdas that say the same are not equal to Python.
        return self is other or (type(other) is type(self) is not Relation and self.said == cast(Relation, other).said)

    def __hash__(self) -> int:
        return hash((type(self), self.said))

    def __call__(self, items: Pieces) -> RunSet:
        found = self._known.get(items)
        if found is None:
            found = self._known[items] = self.union(RunSet.of(items))
        return found

    def union(self, items: RunSet) -> RunSet:
        """Return what all of them need."""
        return RunSet.of({one for item in items for one in self.needs(item)})
