"""All examples of a device in one go.

As fast, and simpler. But every activation of every layer is there for all examples at once, which is what microbatches
are to avoid.
"""

from lib import Model


async def accumulate_in_place(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    each = model.BATCHES // model.RANKS
    first = each * model.coord["data"]
    activations["batch"] = await model.read(range(first, first + each))

    activations[0] = activations.pop("batch")
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        gradient, grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
        )
        grad_weights[layer] = gradient
    del grad_activations[0]

    for layer in range(model.LAYERS):
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
