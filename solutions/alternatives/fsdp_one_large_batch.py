"""Take both batches through the layers together: one large batch instead of two microbatches.

Good for time and for what is sent: each weight is gathered twice instead of four times, and each gradient is reduced
once. It costs memory, because the activations of all batches of the rank are alive together, and with more batches it
costs more. It passes, and no more.
"""

from lib import Model


async def fsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    my_batches = range(model.rank, model.BATCHES, model.RANKS)

    activations[0] = model.get_activation(my_batches)
    for layer in range(model.LAYERS):
        weights[layer, "full"] = await model.allgather(weights[layer], layer)
        activations[layer + 1] = model.forward(layer, activations[layer], weights.pop((layer, "full")))
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        weights[layer, "full"] = await model.allgather(weights[layer], layer)
        made, grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights.pop((layer, "full"))
        )
        grad_weights[layer] = await model.scatterreduce(made, layer)
        del made
    del grad_activations[0]

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
