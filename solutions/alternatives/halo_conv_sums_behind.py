"""Halo exchanges are awaited, and the sums of the weights' gradients travel while layers further down are computed.

Only the last sum is waited for, and seven exchanges.
"""

from itertools import pairwise

from lib import Model
from lib.schedules.given import by_chunk


def my_rows(model, sizes=None):
    """Where this rank's rows begin and end, which of them neighbours need, which of theirs it needs, and the group of
    those that have rows. Rows are shared out by chunk, or in these sizes, which all ranks know."""
    sizes = sizes or by_chunk(64, model.RANKS)
    low = sum(sizes[: model.rank])
    high = low + sizes[model.rank]
    beside = [(low, low - 1), (high - 1, high)] if low < high else []
    beside = [(mine, other) for mine, other in beside if 0 <= other < 64]
    group = [rank for rank, size in enumerate(sizes) if size]
    return low, high, [mine for mine, _ in beside], [other for _, other in beside], group


async def nothing():
    return []


def exchange(model, rows, layer, group):
    """What the neighbours in the group have for this rank: a list, to be awaited. A rank that has no neighbour hands in
    no rows, and gets none."""
    return model.halo(rows, layer, group) if rows else nothing()


def summed(low, high, parts):
    """The gradient of the rows from low to high: of each row the sum of all parts that have it. A part is
    (first row, row after the last, value); rows of others are left out."""
    ends = sorted({min(max(row, low), high) for first, after, _ in parts for row in (first, after)})
    whole = parts[0][2].cut("rows", low, low)
    for first, after in pairwise(ends):
        here, *more = [value.cut("rows", first, after) for a, b, value in parts if a <= first and after <= b]
        for value in more:
            here = here + value
        whole = whole.combine(here) if first > low else here
    return whole


async def halo_conv(model: Model, sizes: list[int] | None = None) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    low, high, edges, halo, group = my_rows(model, sizes)
    activations[0] = model.get_activation(range(model.BATCHES)).cut("rows", low, high)

    sums = {}
    for layer in range(model.LAYERS):
        rows = [activations[layer].cut("rows", row, row + 1) for row in edges]
        for row in await exchange(model, rows, layer, group):
            activations[layer] = activations[layer].combine(row)
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
        )
        if layer > 0:
            rows = [grad_activations[layer].cut("rows", row, row + 1) for row in halo]
            arrived = await exchange(model, rows, layer, group)
            parts = [(low - 1, high + 1, grad_activations.pop(layer))]
            parts += [(row, row + 1, value) for row, value in zip(edges, arrived, strict=True)]
            grad_activations[layer] = summed(low, high, parts)
        sums[layer] = model.allreduce(grad_weights.pop(layer), layer)

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await sums.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
