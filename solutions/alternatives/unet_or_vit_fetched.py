"""Fetch the halo of the data from the neighbours, as that of any other activation.

Right where the data is there already, or was made by another network. Here each rank could have read it.
"""

from lib import Model


def size(number):
    """The rows of an activation, and the columns."""
    return 32 if number in (2, 3) else 64


def ends(model, number, dim):
    """Where this rank's part of an activation begins and ends, in rows or in columns."""
    place, places = model.coord[dim], len(model.group(dim))
    return size(number) * place // places, size(number) * (place + 1) // places


def at_edges(model, number, dim, outside):
    """What lies at the edges to neighbours: one row or column `outside` of this rank's part, or inside."""
    low, high = ends(model, number, dim)
    before = [(low - outside, low + 1 - outside)] if low > 0 else []
    after = [(high - 1 + outside, high + outside)] if high < size(number) else []
    return before + after


async def exchange(model, value, layer, dim, edges):
    """What the neighbours along a dim have for this rank, in return for these pieces of a value."""
    return await model.halo([value.cut(dim, *edge) for edge in edges], layer, dim) if edges else []


async def borrow(model, value, layer, dim):
    """The input of a layer, with a row, or a column, of each neighbour along this dim."""
    for edge in await exchange(model, value, layer, dim, at_edges(model, layer, dim, outside=False)):
        value = value.combine(edge)
    return value


async def give_back(model, grad, layer, dim):
    """The gradient of the input of a layer, without its halo along this dim, and with what the neighbours have for it."""
    low, high = ends(model, layer, dim)
    arrived = await exchange(model, grad, layer, dim, at_edges(model, layer, dim, outside=True))
    edges = at_edges(model, layer, dim, outside=False)
    own = grad.cut(dim, low + (low > 0), high - (high < size(layer)))
    for edge, more in zip(edges, arrived, strict=True):
        own = own.combine(grad.cut(dim, *edge) + more)
    return own


async def unet_or_vit(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 2, 3, 5):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    data = model.get_activation(range(model.BATCHES))
    for dim in ("rows", "columns"):
        data = data.cut(dim, *ends(model, 0, dim))
    activations[0] = data
    for dim in ("rows", "columns"):
        activations[0] = await borrow(model, activations[0], 0, dim)

    activations[1] = model.forward(0, activations[0], weights[0])
    activations[2] = model.forward(1, activations[1])
    for dim in ("rows", "columns"):
        activations[2] = await borrow(model, activations[2], 2, dim)
    activations[3] = model.forward(2, activations[2], weights[2])
    activations[4] = model.forward(3, activations[3], weights[3])
    activations[5] = model.forward(4, activations[4], activations[1])
    for dim in ("rows", "columns"):
        activations[5] = await borrow(model, activations[5], 5, dim)
    activations[6] = model.forward(5, activations[5], weights[5])
    grad_activations[6] = model.loss(activations.pop(6))

    sums = {}

    def backward(layer):
        inp, grad = activations.pop(layer), grad_activations.pop(layer + 1)
        grad_weights[layer], grad_activations[layer] = model.backward(layer, inp, grad, weights[layer])
        sums[layer] = model.allreduce(grad_weights.pop(layer), layer)

    backward(5)
    for dim in ("columns", "rows"):
        grad_activations[5] = await give_back(model, grad_activations[5], 5, dim)
    grad_activations["skip"], grad_activations[4] = model.backward(
        4, activations.pop(4), grad_activations.pop(5), activations[1]
    )
    backward(3)
    backward(2)
    for dim in ("columns", "rows"):
        grad_activations[2] = await give_back(model, grad_activations[2], 2, dim)
    grad_activations[1] = model.backward(1, activations.pop(1), grad_activations.pop(2)) + grad_activations.pop("skip")
    backward(0)
    del grad_activations[0]

    for layer in (5, 3, 2, 0):
        grad_weights[layer] = await sums.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (0, 2, 3, 5):
        model.set_final_weight(layer, weights[layer])
