"""Take all of my batches through the layers at once, as one large batch, and finish each layer after its backward.

Good where activations are small: no gradient has to wait for another batch, and one reduce-scatter a layer is enough, so
that no schedule sends less. It costs twice the activations, and they grow with every batch.
"""

from lib import Model


async def zero2(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], _ = model.load_weights(layer)
        _, opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    my_batches = range(model.rank, model.BATCHES, model.RANKS)

    activations[0] = model.get_activation(my_batches)
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
        weights[layer] = await model.allgather(weights[layer], layer)
    del grad_activations[0]

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
