"""Keep whole weights on every rank, and let the sums of their gradients travel while other layers are computed.

Good where weights are small, as they are in convolutions: nothing is gathered, so it sends the least. It costs the
memory of all weights and optimizer states on each rank.
"""

from lib import Model
from lib.schedules.given import exchange, summed


def my_rows(place, places):
    """Where the rows of a rank begin and end, the blocks of them that its neighbours need, and the blocks of theirs that
    it needs. A block is one row."""
    low, high = 64 * place // places, 64 * (place + 1) // places
    beside = [(low, low - 1)] if place > 0 else []
    beside += [(high - 1, high)] if place < places - 1 else []
    edges, halo = ([(pair[i], pair[i] + 1) for pair in beside] for i in (0, 1))
    return low, high, edges, halo


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

    sums = {}
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
        )
        if layer > 0:
            arrived = await exchange(model, grad_activations[layer], halo, layer, group="domain")
            grad_activations[layer] = summed(low, high, grad_activations.pop(layer), edges, arrived)
            del arrived
        sums[layer] = model.allreduce(grad_weights.pop(layer), layer)
    del grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await sums.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
