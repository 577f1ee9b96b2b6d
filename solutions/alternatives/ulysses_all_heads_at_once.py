"""Swap all heads of a rank at once, each swap started as soon as it can be.

Queries and their gradients travel behind layer 1. For keys, results and their gradients attention has to wait.
"""

from lib import Model


async def ulysses(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 1, 3):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    data = model.get_activation(range(model.BATCHES))
    activations[0] = model.shard(data, "rows", model.rank, model.RANKS)
    del data

    def to_heads(value):
        return model.alltoall([model.shard(value, "features", rank, model.RANKS) for rank in range(model.RANKS)], 2)

    def to_rows(value):
        return model.alltoall([model.shard(value, "rows", rank, model.RANKS) for rank in range(model.RANKS)], 2)

    async def arrived(work):
        first, *more = await work
        while more:
            first = first.combine(more.pop(0))
        return first

    activations[1] = model.forward(0, activations[0], weights[0])
    queries = to_heads(activations[1])  # on their way behind layer 1
    activations[2] = model.forward(1, activations[1], weights[1])
    activations["keys"] = await arrived(to_heads(activations.pop(2)))
    activations["queries"] = await arrived(queries)
    activations[3] = model.forward(2, activations["queries"], activations["keys"])
    activations[3] = await arrived(to_rows(activations.pop(3)))

    activations[4] = model.forward(3, activations[3], weights[3])
    grad_activations[4] = model.loss(activations.pop(4))
    grad_weights[3], grad_activations[3] = model.backward(3, activations.pop(3), grad_activations.pop(4), weights[3])
    gradient = to_heads(grad_activations.pop(3))
    sums = {3: model.allreduce(grad_weights.pop(3), 3)}

    grad_activations[3] = await arrived(gradient)
    grad_activations["keys"], grad_activations["queries"] = model.backward(
        2, activations.pop("queries"), grad_activations.pop(3), activations.pop("keys")
    )
    keys, queries = to_rows(grad_activations.pop("keys")), to_rows(grad_activations.pop("queries"))
    grad_activations[2] = await arrived(keys)
    grad_weights[1], grad_activations[1] = model.backward(1, activations.pop(1), grad_activations.pop(2), weights[1])
    sums[1] = model.allreduce(grad_weights.pop(1), 1)
    grad_activations[1] = grad_activations[1] + await arrived(queries)
    del gradient, keys, queries

    grad_weights[0], _ = model.backward(0, activations.pop(0), grad_activations.pop(1), weights[0])
    del _
    sums[0] = model.allreduce(grad_weights.pop(0), 0)
    for layer in (3, 1, 0):
        grad_weights[layer] = await sums.pop(layer)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]

    for layer in (0, 1, 3):
        model.set_final_weight(layer, weights[layer])
