"""Keep the last layer gathered between its forward and its backward.

Nothing happens between the two but the loss. Good for time: one all-gather less. It costs nothing at the peak, because
the last layer is whole at both moments anyway; to keep more layers would cost their memory.
"""

from lib import Model


async def fsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])

    last = model.LAYERS - 1
    for layer in range(model.LAYERS):
        weights[layer, "full"] = await model.allgather(weights[layer], layer)
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])
        if layer < last:
            del weights[layer, "full"]
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        if layer < last:
            weights[layer, "full"] = await model.allgather(weights[layer], layer)
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights.pop((layer, "full"))
        )
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    del grad_activations[0]
