"""Two microbatches: half of what each device has, and then the other half.

What most people would write, and what frameworks do for `n` microbatches. Nothing travels, and the peak is that of the
second half, with the sums of the first.
"""

from lib import Model


async def accumulate_in_place(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    each = model.BATCHES // model.RANKS
    first = each * model.coord["data"]
    activations["batch"] = await model.read(range(first, first + each))

    for i in (0, 1):
        activations[0] = activations["batch"].shard(i, 2)
        if i:
            del activations["batch"]
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            gradient, grad_activations[layer] = model.backward(
                layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
            )
            grad_weights[layer] = grad_weights[layer] + gradient if i else gradient
        del grad_activations[0]

    for layer in range(model.LAYERS):
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
