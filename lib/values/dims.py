"""The kinds of dims, a row each: places, files, sentences, pictures and a student's calls read the row.

Whatever a tensor extends along, or may be a partial sum over, is a dim of one of these kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from lib.values.table import table

__all__ = ["DIMS", "NAMES", "REST", "DimKind", "Relation"]


class DimKind(NamedTuple):
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


DIMS: Final = table(
    (
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
            alike="a sum is over values of the same rows: ranks that share a weight gather the rows before they use it",
            once="each rank has rows of its own, with its place in the group as the shard",
            owed="sum it over the ranks that have the other rows: await model.allreduce(gradient, layer)",
        ),
        DimKind(
            "keys",
            "key",
            "keys",
            counted=True,
            partial=True,
            once="each block of keys is attended to once: look for a step of the ring that is made twice",
            owed="attend to the other keys too, and add up what comes of it: out + model.forward(layer, x, keys)",
        ),
        DimKind(
            "queries",
            "query",
            "queries",
            counted=True,
            partial=True,
            once="each block of queries counts once: look for a step of the ring that is made twice",
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
            once="each part of the vocabulary counts once: each rank brings what its own shard gave",
            owed="sum it over the ranks that have the rest of the vocabulary: await model.allreduce(value, layer)",
        ),
    ),
    by="role",
)
# Heads are no dim of their own: some of them are some of the features, as a linear layer gives them, and attention asks
# that none is broken (see `LayerKind.unbroken`). Experts have a row when there is a kind of layer that has experts.
"""The kinds of dims by role."""
NAMES: Final = ("", *DIMS)
"""Their roles. A Trace names one by its number here, from 1 on, so a row is only ever added at the end."""
REST: Final = {kind.role: kind.plural for kind in DIMS.values() if kind.field is None}
"""Those that may be cut beside the ones that students name by `shards` and `batches`, and the word for their pieces."""


class Relation:
    """Which elements of one dim each element of another needs. Asked of sets of them, each worked out once."""

    def __init__(self, needs: Callable[[int], Iterable[int]]) -> None:
        self.needs = needs
        self._known: dict[frozenset[int], frozenset[int]] = {}

    def __call__(self, items: frozenset[int]) -> frozenset[int]:
        found = self._known.get(items)
        if found is None:
            found = self._known[items] = self.union(items)
        return found

    def union(self, items: frozenset[int]) -> frozenset[int]:
        """What all of them need."""
        return frozenset[int]().union(*map(self.needs, items))

    def pairs(self, items: frozenset[int], others: frozenset[int]) -> int:
        """How many of the others the items need, one by one: the work between the two."""
        return sum(len(others.intersection(self.needs(item))) for item in items)
