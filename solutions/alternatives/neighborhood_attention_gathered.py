"""Gather all keys and values, and scatter the sum of their gradients.

That needs no neighbour, and no part is too small. But each rank has the keys and values of the whole grid, twice as many rows
travel as a halo has on both sides in all, and more ranks do not make it less.
"""

from lib import Model


def by_chunk(ranks):
    """How many rows each rank has, as scatter_rows says."""
    most = -(-64 // ranks)  # rounded up
    return [max(0, min(most, 64 - rank * most)) for rank in range(ranks)]


async def neighborhood_attention(model: Model, sizes: list[int] | None = None) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 1):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    sizes = sizes or by_chunk(model.RANKS)
    low = sum(sizes[: model.rank])
    activations[0] = model.get_activation(range(model.BATCHES)).cut("rows", low, low + sizes[model.rank])

    activations[1] = model.forward(0, activations[0], weights[0])
    activations[2] = model.forward(1, activations[0], weights[1])
    activations[2] = await model.allgather(activations[2], 2)
    activations[3] = model.forward(2, activations[1], activations[2])
    grad_activations[3] = model.loss(activations.pop(3))
    grad_activations[2], grad_activations[1] = model.backward(
        2, activations.pop(1), grad_activations.pop(3), activations.pop(2)
    )
    grad_activations[2] = await model.scatterreduce(grad_activations[2], 2, dim="rows")
    for layer in (0, 1):
        grad_weights[layer], _ = model.backward(layer, activations[0], grad_activations.pop(layer + 1), weights[layer])
        del _
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (0, 1):
        model.set_final_weight(layer, weights[layer])
