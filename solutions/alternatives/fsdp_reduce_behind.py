"""Let the reduce-scatters run behind the next backward as well as the all-gathers.

Good for time: what is left of the communication is the first all-gather and, for each batch, the last reduce-scatter.
It costs memory, because a whole gradient stays alive while the next one is made, on top of two whole weights.
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
            if layer < last:
                coming = model.allgather(weights[layer + 1], layer + 1)
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])
            if layer < last:
                del weights[layer, "full"]
                weights[layer + 1, "full"] = await coming
        grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

        leaving = {}
        for layer in reversed(range(model.LAYERS)):
            if layer > 0:
                coming = model.allgather(weights[layer - 1], layer - 1)
            grad_weights[layer, b], grad_activations[layer] = model.backward(
                layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer, "full"]
            )
            if layer < last:
                shard = await leaving.pop(layer + 1)
                grad_weights[layer + 1] = grad_weights[layer + 1] + shard if layer + 1 in grad_weights else shard
            leaving[layer] = model.scatterreduce(grad_weights.pop((layer, b)), layer)
            if layer > 0:
                del weights[layer, "full"]
                weights[layer - 1, "full"] = await coming
        del grad_activations[0]
        shard = await leaving.pop(0)
        grad_weights[0] = grad_weights[0] + shard if 0 in grad_weights else shard
    del weights[0, "full"]

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
