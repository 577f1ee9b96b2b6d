"""All-reduce each gradient as before, update only the own shard with it, and gather the new shards.

Good as a first step from plain data parallelism, whose all-reduce it leaves as it is. It costs half as much again to
send: everybody is told all of the sum, and then all of the new weights.
"""

from lib import Model


async def zero1(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], _ = model.load_weights(layer)
        _, opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])

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
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
        weights[layer] = await model.allgather(weights[layer], layer)
    del grad_activations[0]

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
