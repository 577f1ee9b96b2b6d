"""Compute the rows that need no halo while it travels, and backward the edges first; shards over both axes.

Good for time: no rank waits for a neighbour. It costs more lines than anything else here, and two small blocks of rows
for each layer, which keep a GPU less busy than a large one.
"""

from lib import Model


def my_rows(place, places):
    """Where the rows of a rank begin and end, which of them its neighbours need, and which of theirs it needs."""
    low, high = 64 * place // places, 64 * (place + 1) // places
    beside = [(low, low - 1)] if place > 0 else []
    beside += [(high - 1, high)] if place < places - 1 else []
    return low, high, [mine for mine, _ in beside], [other for _, other in beside]


async def domain_data(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    images = range(model.coord["data"], model.BATCHES, len(model.group("data")))
    low, high, edges, halo = my_rows(model.coord["domain"], len(model.group("domain")))
    first, after = low > 0, high < 64  # whether there is a neighbour before, and after
    inner = low + first, high - after  # the rows of the output that need no halo
    last, sums = model.LAYERS - 1, {}
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    def around(value, row):
        return value.cut("rows", row - 1, row + 2)

    def rows_of(value, rows):
        return [value.cut("rows", row, row + 1) for row in rows]

    activations[0] = model.get_activation(images).cut("rows", low, high)
    coming = model.allgather(weights[0], 0)
    for layer in range(model.LAYERS):
        weights[layer, "full"] = await coming
        arriving = model.halo(rows_of(activations[layer], edges), layer, group="domain") if edges else None
        if layer < last:
            coming = model.allgather(weights[layer + 1], layer + 1)
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])
        for row in await arriving if arriving else []:
            activations[layer] = activations[layer].combine(row)
        for row in edges:
            output = model.forward(layer, around(activations[layer], row), weights[layer, "full"])
            activations[layer + 1] = activations[layer + 1].combine(output)
            del output
        if layer < last:
            del weights[layer, "full"]
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        if layer < last:
            weights[layer, "full"] = await coming
        for row in edges:  # first, because a neighbour waits for what comes of it
            gradient, grad_activations[layer, row] = model.backward(
                layer,
                around(activations[layer], row),
                grad_activations[layer + 1].cut("rows", row, row + 1),
                weights[layer, "full"],
            )
            grad_weights[layer] = grad_weights[layer] + gradient if layer in grad_weights else gradient
            del gradient
        if edges and layer > 0:
            home = [
                grad_activations[layer, row].cut("rows", out, out + 1) for row, out in zip(edges, halo, strict=True)
            ]
            arriving = model.halo(home, layer, group="domain")
            del home
        if layer > 0:
            coming = model.allgather(weights[layer - 1], layer - 1)
        gradient, grad_activations[layer] = model.backward(
            layer,
            activations.pop(layer).cut("rows", low, high),
            grad_activations.pop(layer + 1).cut("rows", *inner),
            weights.pop((layer, "full")),
        )
        grad_weights[layer] = grad_weights[layer] + gradient if layer in grad_weights else gradient
        del gradient
        sums[layer] = model.scatterreduce(grad_weights.pop(layer), layer)
        if edges and layer > 0:
            whole = grad_activations[layer].cut("rows", low + 2 * first, high - 2 * after)
            for row, arrived in zip(edges, await arriving, strict=True):
                of_edge, of_inner = grad_activations.pop((layer, row)), grad_activations[layer]
                beside = row + 1 if row == low and first else row - 1
                whole = whole.combine(of_inner.cut("rows", row, row + 1) + of_edge.cut("rows", row, row + 1) + arrived)
                whole = whole.combine(
                    of_inner.cut("rows", beside, beside + 1) + of_edge.cut("rows", beside, beside + 1)
                )
            grad_activations[layer] = whole
            del whole, arrived, of_edge, of_inner
    for layer in [*grad_activations]:
        del grad_activations[layer]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await sums.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
