"""Fetch one weight ahead, and let each reduce-scatter run behind the backward of one more layer.

Good for memory, and for layers that are all alike: then one ahead is all there is to hide. It costs time where a light
layer has to hide the gather of a heavy one: what one light layer cannot hide, the rank waits for.
"""

from lib import Model


async def fsdp_prefetch(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    my_batches = range(model.rank, model.BATCHES, model.RANKS)
    last = model.LAYERS - 1

    activations[0] = model.get_activation(my_batches)
    coming = model.allgather(weights[0], 0)
    for layer in range(model.LAYERS):
        weights[layer, "full"] = await coming
        if layer < last:
            coming = model.allgather(weights[layer + 1], layer + 1)
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])
        if layer < last:
            del weights[layer, "full"]
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    leaving = {}
    for layer in reversed(range(model.LAYERS)):
        if layer < last:
            weights[layer, "full"] = await coming
        if layer > 0:
            coming = model.allgather(weights[layer - 1], layer - 1)
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights.pop((layer, "full"))
        )
        leaving[layer] = model.scatterreduce(grad_weights.pop(layer), layer)
        if layer < last:
            grad_weights[layer + 1] = await leaving.pop(layer + 1)
            weights[layer + 1], opt_states[layer + 1] = model.update(
                layer + 1, grad_weights.pop(layer + 1), weights[layer + 1], opt_states[layer + 1]
            )
    del grad_activations[0]
    grad_weights[0] = await leaving.pop(0)
    weights[0], opt_states[0] = model.update(0, grad_weights.pop(0), weights[0], opt_states[0])

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
