"""Keep whole weights, and await each exchange and each sum where it is called: the plain form.

Good for a first version. All ranks wait in each collective, and the data's gradient goes home, though nothing needs it.
"""

from lib import Model


def my_rows(place, places):
    """Where the rows of a rank begin and end, which of them its neighbours need, and which of theirs it needs."""
    low, high = 64 * place // places, 64 * (place + 1) // places
    beside = [(low, low - 1)] if place > 0 else []
    beside += [(high - 1, high)] if place < places - 1 else []
    return low, high, [mine for mine, _ in beside], [other for _, other in beside]


async def exchange(model, value, rows, layer, group):
    """Hands these rows of a value to the neighbours in a group, and gives a list of what they hand in. A rank without
    neighbours hands in no rows, and gets none."""
    return await model.halo([value.cut("rows", row, row + 1) for row in rows], layer, group) if rows else []


def summed(low, high, gradient, edges, arrived):
    """The gradient of the rows from low to high: the halo is cut off, and what has arrived is added at the edges."""
    whole = gradient.cut("rows", low + (low > 0), high - (high < 64))
    for row, more in zip(edges, arrived, strict=True):
        whole = whole.combine(gradient.cut("rows", row, row + 1) + more)
    return whole


async def domain_data(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    images = range(model.coord["data"], model.BATCHES, len(model.group("data")))
    low, high, edges, halo = my_rows(model.coord["domain"], len(model.group("domain")))
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    activations[0] = model.get_activation(images).cut("rows", low, high)
    for layer in range(model.LAYERS):
        for row in await exchange(model, activations[layer], edges, layer, group="domain"):
            activations[layer] = activations[layer].combine(row)
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
        )
        arrived = await exchange(model, grad_activations[layer], halo, layer, group="domain")
        grad_activations[layer] = summed(low, high, grad_activations.pop(layer), edges, arrived)
        del arrived
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
    del grad_activations[0]

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
