"""Add up whole gradients on each rank, and reduce-scatter them once, at the end.

Good for time and for what is sent: one reduce-scatter for each layer, however many batches there are. It costs the memory
that FSDP is there to save, because every rank keeps a whole gradient of every layer from the first batch to the last. So
it does not even pass.
"""

from lib import Model


async def fsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    my_batches = range(model.rank, model.BATCHES, model.RANKS)

    for b in my_batches:
        activations[0] = model.get_activation([b])
        for layer in range(model.LAYERS):
            weights[layer, "full"] = await model.allgather(weights[layer], layer)
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])
            del weights[layer, "full"]

        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
        del activations[model.LAYERS]

        for layer in reversed(range(model.LAYERS)):
            weights[layer, "full"] = await model.allgather(weights[layer], layer)
            grad_weights[layer, b], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights[layer, "full"]
            )
            del activations[layer], grad_activations[layer + 1], weights[layer, "full"]
            if b > model.rank:
                grad_weights[layer, b] = grad_weights[layer, b] + grad_weights[layer, b - model.RANKS]
                del grad_weights[layer, b - model.RANKS]
        del grad_activations[0]

    for layer in range(model.LAYERS):  # b is still the last of my batches
        grad_weights[layer, b] = await model.scatterreduce(grad_weights[layer, b], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights[layer, b], weights[layer], opt_states[layer]
        )
        del grad_weights[layer, b]

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
