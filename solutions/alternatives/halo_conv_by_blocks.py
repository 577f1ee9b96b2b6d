"""Compute the edge rows first in backward too, a block at a time, and no half of backward anywhere.

As fast, with less memory: no gradient of all rows lies beside the one it comes from. But a thin block does not fill a
GPU, and there are three calls of backward for each layer.
"""

from itertools import pairwise

from lib import Model
from lib.schedules.given import accumulate, by_chunk


def my_rows(model, sizes=None):
    """Where this rank's rows begin and end, which of them neighbours need, which of
    theirs it needs, and the group of those that have rows. Rows are shared out by
    chunk, or in these sizes, which all ranks know."""
    sizes = sizes or by_chunk(64, model.RANKS)
    low = sum(sizes[: model.rank])
    high = low + sizes[model.rank]
    beside = [(low, low - 1), (high - 1, high)] if low < high else []
    beside = [(mine, other) for mine, other in beside if 0 <= other < 64]
    group = [rank for rank, size in enumerate(sizes) if size]
    edges, halo = [mine for mine, _ in beside], [other for _, other in beside]
    return low, high, edges, halo, group


async def nothing():
    return []


def exchange(model, rows, layer, group):
    """What the neighbours in the group have for this rank: a list, to be awaited. A
    rank that has no neighbour hands in no rows, and gets none."""
    return model.halo(rows, layer, group) if rows else nothing()


def blocks(low, high):
    """The rows of the output that need no halo, the rows that these need, and a list of
    the blocks of rows that need the halo. Of a part of one or two rows all need it, at
    once."""
    if high - low < 3:
        return (low, low), (low, low), [(low, high)] if low < high else []
    needy = [(low, low + 1)] if low > 0 else []
    needy += [(high - 1, high)] if high < 64 else []
    return (low + (low > 0), high - (high < 64)), (low, high), needy


def around(value, first, after):
    """The rows that these rows of the output need."""
    return value.cut("rows", max(first - 1, 0), min(after + 1, 64))


def backward(model, layer, inp, grad):
    """Backward of some rows: gives the gradient of the input. The gradient of the
    weight is added to what other rows of this rank have given so far."""
    grad_weight, grad_input = model.backward(layer, inp, grad, model.weights[layer])
    accumulate(model, layer, grad_weight)
    return grad_input


def summed(low, high, parts):
    """The gradient of the rows from low to high: of each row the sum of all parts that
    have it. A part is (first row, row after the last, value); rows of others are left
    out."""
    rows = {row for first, after, _ in parts for row in (first, after)}
    ends = sorted({min(max(row, low), high) for row in rows})
    whole = parts[0][2].cut("rows", low, low)
    for first, after in pairwise(ends):
        having = [value for a, b, value in parts if a <= first and after <= b]
        here, *more = [value.cut("rows", first, after) for value in having]
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

    # Forward, loss and backward of this rank's rows; then update all layers.
    inner, own, needy = blocks(low, high)
    sums = {}

    for layer in range(model.LAYERS):
        lent = [activations[layer].cut("rows", row, row + 1) for row in edges]
        coming = exchange(model, lent, layer, group)
        activations[layer + 1] = model.forward(layer, activations[layer].cut("rows", *own), weights[layer])
        for row in await coming:
            activations[layer] = activations[layer].combine(row)
        for block in needy:
            inp = around(activations[layer], *block)
            output = model.forward(layer, inp, weights[layer])
            activations[layer + 1] = activations[layer + 1].combine(output)
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        for block in needy:  # first, because neighbours wait for what comes of them
            grad = grad_activations[layer + 1].cut("rows", *block)
            inp = around(activations[layer], *block)
            grad_activations[layer, block] = backward(model, layer, inp, grad)
        if layer > 0:  # the gradient of the data is not needed
            home = [
                grad_activations[layer, block].cut("rows", row, row + 1)
                for block, row in zip(needy * 2, halo, strict=False)
            ]
            coming = exchange(model, home, layer, group)
        inp = activations.pop(layer).cut("rows", *own)
        grad = grad_activations.pop(layer + 1).cut("rows", *inner)
        grad_activations[layer] = backward(model, layer, inp, grad)
        sums[layer] = model.allreduce(grad_weights.pop(layer), layer)
        if layer > 0:
            arrived = await coming
            parts = [(*own, grad_activations.pop(layer))]
            parts += [(first - 1, after + 1, grad_activations.pop((layer, (first, after)))) for first, after in needy]
            parts += zip(edges, (row + 1 for row in edges), arrived, strict=True)
            grad_activations[layer] = summed(low, high, parts)

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await sums.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
