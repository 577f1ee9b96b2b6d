"""What notebooks give the learner: sums of gradients, passes that take turns, rows of a grid that ranks share.

A message about what a learner does with these shows the learner's line.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Coroutine, Iterable, Sequence
from itertools import pairwise
from typing import Any

from lib.simulator.model import Model
from lib.values.values import WeightGrad

Block = tuple[int, int]
"""Some rows: the first, and the one after the last."""
OVER = object()
"""What a pass gives that has no further turn."""


def accumulate(model: Model, layer: int, grad: WeightGrad) -> None:
    """Add a gradient to the sum of its layer, or begin that sum."""
    if layer in model.grad_weights:
        grad = model.grad_weights[layer] + grad
    model.grad_weights[layer] = grad


async def in_turn(passes: Iterable[AsyncGenerator[Any, None] | Coroutine[Any, Any, Any]]) -> None:
    """Run passes that take turns: each goes on to its next `yield`, one after the other, until all are over. One that
    has no `yield` runs to its end in its first turn."""
    going = [*passes]
    while going:
        going = [one for one in going if await _goes_on(one)]


async def _goes_on(one: AsyncGenerator[Any, None] | Coroutine[Any, Any, Any]) -> bool:
    if isinstance(one, Coroutine):
        await one
        return False
    return await anext(one, OVER) is not OVER


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
