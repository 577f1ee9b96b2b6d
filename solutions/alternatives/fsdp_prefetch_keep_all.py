"""Gather every weight once, and keep all of them whole until their backward.

Good for the network: a rank sends a third less, so nothing has to be fetched in backward and the reduce-scatters have
the queue for themselves. It costs memory: at the turn all weights are whole on every rank. PyTorch calls this
reshard_after_forward=False.
"""

from lib import Model


async def fsdp_prefetch(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    my_batches = range(model.rank, model.BATCHES, model.RANKS)

    coming = {0: model.allgather(weights[0], 0)}
    activations[0] = model.get_activation(my_batches)
    for layer in range(model.LAYERS):
        weights[layer, "full"] = await coming.pop(layer)
        for ahead in (layer + 1, layer + 2):
            if ahead < model.LAYERS and ahead not in coming:
                coming[ahead] = model.allgather(weights[ahead], ahead)
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    leaving = {}
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights.pop((layer, "full"))
        )
        leaving[layer] = model.scatterreduce(grad_weights.pop(layer), layer)
    del grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await leaving.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
