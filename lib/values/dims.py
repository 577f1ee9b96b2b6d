"""The kinds of dims, a row each: places, files, sentences, pictures and a student's calls read the row.

Whatever a tensor extends along, or may be a partial sum over, is a dim of one of these kinds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["DIMS", "REST", "DimKind"]


class DimKind(NamedTuple):
    """A kind of dim.

    `role` is its name in files and calls, `noun` and `plural` are words for one of its pieces and for several.
    `field`: what the classic values call its pieces. `partial`: tensors are only summed over it, never split along it.

    The rest is advice: how to get values that are `alike` in it, how to count each of its pieces `once`.
    """

    role: str
    noun: str
    plural: str
    field: str | None = None
    partial: bool = False
    alike: str = ""
    once: str = ""


DIMS: Final = {
    kind.role: kind
    for kind in (
        DimKind("batch", "batch", "batches", field="batches"),
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
            alike="a partial sum is added to the other parts of the same sum, once each: with an all-reduce over the "
            "ranks\nthat have the other shards of the weight. A sum that is done stays as it is",
            once="each part of a sum is added once: each rank brings what its own shard of the weight gave",
        ),
        DimKind("rows", "row", "rows"),
    )
}
"""The kinds of dims by role. A Trace names one by its number here, so rows are only ever added at the end."""
REST: Final = {kind.role: kind.plural for kind in DIMS.values() if kind.field is None}
"""Those that may be cut beside the ones that students name by `shards` and `batches`, and the word for their pieces."""
