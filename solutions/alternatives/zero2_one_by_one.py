"""Await each collective at once: the reduce-scatter of every gradient, and in the last batch the all-gather.

The second goal in the fewest lines, and good for memory: no schedule of this kind needs less. It costs time, since every
rank waits for eighteen collectives.
"""

from lib import Model


async def zero2(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], _ = model.load_weights(layer)
        _, opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    my_batches = range(model.rank, model.BATCHES, model.RANKS)

    for b in my_batches:
        last = b == my_batches[-1]
        activations[0] = model.get_activation([b])
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
        del activations[model.LAYERS]

        for layer in reversed(range(model.LAYERS)):
            grad_weights[layer, b], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights[layer]
            )
            del activations[layer], grad_activations[layer + 1]
            if last:
                weights[layer] = weights[layer].shard(model.rank, model.RANKS)
            grad_weights[layer, b] = await model.scatterreduce(grad_weights[layer, b], layer)
            if b > model.rank:
                grad_weights[layer, b] = grad_weights[layer, b] + grad_weights[layer, b - model.RANKS]
                del grad_weights[layer, b - model.RANKS]
            if last:
                weights[layer], opt_states[layer] = model.update(
                    layer, grad_weights[layer, b], weights[layer], opt_states[layer]
                )
                del grad_weights[layer, b]
                weights[layer] = await model.allgather(weights[layer], layer)
        del grad_activations[0]

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
