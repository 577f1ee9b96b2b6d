"""Keep shards of the weights between steps, and gather each during the forward of the layer before.

So does PyTorch's fully_shard(reshard_after_forward=False). Good for memory at rest, and for time: every gather but the
first hides behind a forward. It costs the same to send, and the first gather in place of the last.
"""

from lib import Model


async def zero1(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])

    coming = model.allgather(weights[0], 0)
    for layer in range(model.LAYERS):
        weights[layer] = await coming
        if layer + 1 < model.LAYERS:
            coming = model.allgather(weights[layer + 1], layer + 1)
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    summing = {}
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)
        summing[layer] = model.scatterreduce(grad_weights[layer], layer)
        for ready in [i for i in summing if i > layer]:
            grad_weights[ready] = await summing.pop(ready)
    del grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        if layer in summing:
            grad_weights[layer] = await summing.pop(layer)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
