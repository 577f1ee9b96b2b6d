"""Keys and values first; the queries, which need no halo, while they travel.

The same in backward: the layer that made the queries is done while the gradients of keys and values go home. The exchange is
longer than that layer, so the rest of it is waited for.
"""

from itertools import pairwise

from lib import Model
from lib.schedules.given import by_chunk


def my_rows(model, sizes):
    """Where this rank's rows begin and end; the blocks of them that neighbours need, as (first row, row after the last);
    the blocks of theirs that it needs; and the group of the ranks that have rows."""
    low = sum(sizes[: model.rank])
    high = low + sizes[model.rank]
    beside = [((low, low + 3), (low - 3, low)), ((high - 3, high), (high, high + 3))] if low < high else []
    beside = [(mine, other) for mine, other in beside if other[0] >= 0 and other[1] <= 64]
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


async def neighborhood_attention(model: Model, sizes: list[int] | None = None) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 1):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    sizes = sizes or by_chunk(64, model.RANKS)
    low, high, edges, halo, group = my_rows(model, sizes)
    activations[0] = model.get_activation(range(model.BATCHES)).cut("rows", low, high)

    parts = [size for size in sizes if size]
    if len(parts) > 1 and (min(parts) < 3 or parts[0] < 4 or parts[-1] < 4):
        raise ValueError(f"some windows of 7 rows reach past the neighbours of a rank: the parts are {sizes}")

    activations[2] = model.forward(1, activations[0], weights[1])
    coming = exchange(model, [activations[2].cut("rows", *edge) for edge in edges], 2, group)
    activations[1] = model.forward(0, activations[0], weights[0])
    for rows in await coming:
        activations[2] = activations[2].combine(rows)
    activations[3] = model.forward(2, activations[1], activations[2])
    grad_activations[3] = model.loss(activations.pop(3))
    grad_activations[2], grad_activations[1] = model.backward(
        2, activations.pop(1), grad_activations.pop(3), activations.pop(2)
    )
    coming = exchange(model, [grad_activations[2].cut("rows", *rows) for rows in halo], 2, group)
    grad_weights[0], _ = model.backward(0, activations[0], grad_activations.pop(1), weights[0])
    del _
    parts = [(max(low - 3, 0), min(high + 3, 64), grad_activations.pop(2))]
    parts += [(*edge, rows) for edge, rows in zip(edges, await coming, strict=True)]
    grad_activations[2] = summed(low, high, parts)
    del parts
    grad_weights[1], _ = model.backward(1, activations.pop(0), grad_activations.pop(2), weights[1])
    del _
    for layer in (0, 1):
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (0, 1):
        model.set_final_weight(layer, weights[layer])
