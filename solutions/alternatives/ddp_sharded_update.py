"""Each rank updates only its share of every layer, and the updated shares are gathered (ZeRO, stages 1 and 2).

In the reference all ranks do the same update on the same numbers. Here a rank keeps a quarter of the optimizer state,
gets a quarter of the summed gradient from a reduce-scatter, and an all-gather puts the new weight together. Good for
memory, most of all with real optimizers, whose states are several times as large as the weights. It costs a second
collective for each layer.
"""

from lib import Model


async def ddp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], _ = model.load_weights(layer)
        _, opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
        )
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        weights[layer] = await model.allgather(weights[layer], layer)
        model.set_final_weight(layer, weights[layer])
    del grad_activations[0]
