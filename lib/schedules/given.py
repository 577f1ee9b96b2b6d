"""What notebooks give the learner: a layer forward, back and updated, passes that take turns, rows that ranks share.

A message about what a learner does with these shows the learner's line.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from functools import wraps
from inspect import iscoroutinefunction
from itertools import pairwise
from typing import Any, ParamSpec, TypeVar, cast

from lib.errors.source_lines import student_frame
from lib.simulator.model import Model
from lib.trace.event import Source
from lib.values.values import Weight, WeightGrad

P = ParamSpec("P")
T = TypeVar("T")
Block = tuple[int, int]
"""Some rows: the first, and the one after the last."""
Pass = AsyncGenerator[Any, None] | Coroutine[Any, Any, Any]
OVER = object()
"""What a pass gives that has no further turn."""


def helper(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function that a notebook gives one of ours, as those below: what it does has the line that calls it."""
    function.__code__ = function.__code__.replace(co_filename=_HERE)
    if iscoroutinefunction(function):
        return cast("Callable[P, T]", function)  # of what it awaits, an exchange of ours has that line

    @wraps(function)
    def called(*args: P.args, **named: P.kwargs) -> T:
        program = cast(Model, args[0]).program
        since = len(program.rows)
        result = function(*args, **named)
        program.placed(since, _calling())
        return result

    return called


_HERE = helper.__code__.co_filename


def _calling() -> Source:
    frame = student_frame(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
    return None if frame is None else (frame.f_code, frame.f_lasti)


@helper
def accumulate(model: Model, layer: int, grad: WeightGrad) -> None:
    """Add a gradient to the sum of its layer, or begin that sum."""
    if layer in model.grad_weights:
        grad = model.grad_weights[layer] + grad
    model.grad_weights[layer] = grad


@helper
def forward(model: Model, layer: int, i: int | None = None, weight: Weight | None = None) -> None:
    """Take a layer forward: activations[layer] gives activations[layer + 1], and stays for backward. With an i it is
    a part of the batch, activations[layer, i]. `weight` is used instead of the stored one."""
    x = model.activations[_key(layer, i)]
    model.activations[_key(layer + 1, i)] = model.forward(layer, x, weight or model.weights[layer])


@helper
def backward(model: Model, layer: int, i: int | None = None, weight: Weight | None = None) -> None:
    """Take a layer back: it uses up activations[layer] and grad_activations[layer + 1], adds the gradient of the weight
    to grad_weights[layer], and gives grad_activations[layer], but for layer 0: nothing needs the data's gradient."""
    x, grad = model.activations.pop(_key(layer, i)), model.grad_activations.pop(_key(layer + 1, i))
    of_weight, before = model.backward(layer, x, grad, weight or model.weights[layer])
    del x, grad
    if layer > 0:
        model.grad_activations[_key(layer, i)] = before
    accumulate(model, layer, of_weight)


def _key(layer: int, i: int | None) -> int | tuple[int, int]:
    return layer if i is None else (layer, i)


@helper
def update(model: Model, layer: int) -> None:
    """Exchange a weight and its optimizer state for the new ones; the gradient is used up."""
    grad, weight, state = model.grad_weights.pop(layer), model.weights.pop(layer), model.opt_states.pop(layer)
    model.weights[layer], model.opt_states[layer] = model.update(layer, grad, weight, state)


async def in_turn(*passes: Pass | Iterable[Pass]) -> None:
    """Run passes, or lists of them, that take turns: each goes on to its next `yield`, one after the other, until all
    are over. One that has no `yield` runs to its end in its first turn."""
    going = [one for some in passes for one in ([some] if isinstance(some, AsyncGenerator | Coroutine) else some)]
    while going:
        going = [one for one in going if await _goes_on(one)]


async def _goes_on(one: Pass) -> bool:
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
    model: Model, value: Any, blocks: Sequence[Block], layer: int, group: Sequence[int] | str, dim: str = "rows"
) -> Awaitable[list[Any]]:
    """Start a halo exchange in a group: each neighbour gets one of these blocks of a value, along a dim. Awaited, it
    gives the list of what the neighbours hand in. A rank without neighbours hands in nothing, and gets nothing."""
    if not blocks:
        return _Nothing()
    since = len(model.program.rows)
    work = model.halo([value.cut(dim, *block) for block in blocks], layer, group)
    model.program.placed(since, _calling())
    return work


class _Nothing:
    """What an exchange without neighbours brings; unlike a coroutine it may stay unawaited where a rank fails."""

    def __await__(self) -> Generator[Any, Any, list[Any]]:
        return []
        yield


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
