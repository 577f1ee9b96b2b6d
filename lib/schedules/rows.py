"""Rows of a grid that ranks share: who has how many, what neighbours lend each other, and what comes home in backward.

The notebooks on shared grids give these to the learner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from itertools import pairwise
from typing import Any

from lib.simulator.model import Model

Block = tuple[int, int]
"""Some rows: the first, and the one after the last."""


def by_chunk(size: int, ranks: int) -> list[int]:
    """Return how many of so many rows, or columns, each rank has, as torch.chunk deals them out."""
    most = -(-size // ranks)  # rounded up
    return [max(0, min(most, size - rank * most)) for rank in range(ranks)]


def joined(pieces: Sequence[Any]) -> Any:
    """Return the pieces as one value."""
    whole, *others = pieces
    for piece in others:
        whole = whole.combine(piece)
    return whole


def exchange(
    model: Model, value: Any, blocks: Sequence[Block], layer: int, group: Sequence[int]
) -> Awaitable[list[Any]]:
    """Start a halo exchange in a group: each neighbour gets one of these blocks of a value. Awaited, it gives the list
    of what the neighbours hand in. A rank without neighbours hands in no rows, and gets none."""
    rows = [value.cut("rows", *block) for block in blocks]
    return model.halo(rows, layer, group) if rows else _nothing()


async def _nothing() -> list[Any]:
    return []


def summed(low: int, high: int, gradient: Any, edges: Sequence[Block], arrived: Sequence[Any]) -> Any:
    """Return the gradient of the rows from low to high: the halo is cut off, and what has arrived is added at the
    edges. Where few rows are left, edges may overlap."""
    ends = sorted({low, high, *(end for edge in edges for end in edge)})
    pieces = [gradient.cut("rows", low, low)] if low == high else []
    for first, after in pairwise(ends):
        piece = gradient.cut("rows", first, after)
        for edge, more in zip(edges, arrived, strict=True):
            if edge[0] <= first and after <= edge[1]:
                piece = piece + more.cut("rows", first, after)
        pieces.append(piece)
    return joined(pieces)
