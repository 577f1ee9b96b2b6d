"""Ask for each weight one layer before it is needed, so that its all-gather runs beside the work.

Good for time: only the first all-gather and the reduce-scatters are waited for. It costs a second whole weight in memory.
"""

from lib import Model


async def fsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    my_batches = range(model.rank, model.BATCHES, model.RANKS)

    last = model.LAYERS - 1
    weights[0, "full"] = await model.allgather(weights[0], 0)
    for b in my_batches:
        activations[0] = model.get_activation([b])
        for layer in range(model.LAYERS):
            if layer < last:  # on its way while this layer is computed
                coming = model.allgather(weights[layer + 1], layer + 1)
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])
            if layer < last:  # the last layer turns round at once and keeps its weight
                del weights[layer, "full"]
                weights[layer + 1, "full"] = await coming

        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
        del activations[model.LAYERS]

        for layer in reversed(range(model.LAYERS)):
            if layer > 0:
                coming = model.allgather(weights[layer - 1], layer - 1)
            grad_weights[layer, b], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights[layer, "full"]
            )
            del activations[layer], grad_activations[layer + 1]
            if layer > 0:  # the first layer is the first of the next batch, too
                del weights[layer, "full"]
                weights[layer - 1, "full"] = await coming
            grad_weights[layer, b] = await model.scatterreduce(grad_weights[layer, b], layer)
            if b > model.rank:
                grad_weights[layer, b] = grad_weights[layer, b] + grad_weights[layer, b - model.RANKS]
                del grad_weights[layer, b - model.RANKS]
        del grad_activations[0]
    del weights[0, "full"]

    for layer in range(model.LAYERS):  # b is still the last of my batches
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights[layer, b], weights[layer], opt_states[layer]
        )
        del grad_weights[layer, b]

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
