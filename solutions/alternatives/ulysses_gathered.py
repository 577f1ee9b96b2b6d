"""Gather all rows of all heads, and keep those of the own heads: four times as much on the way to them.

On the way back an all-to-all is what there is. No goal is reached, because it sends twice as much in all.
"""

from lib import Model


async def ulysses(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 1, 3):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    data = model.get_activation(range(model.BATCHES))
    activations[0] = model.shard(data, "rows", model.rank, model.RANKS)
    del data

    async def to_heads(value):
        whole = await model.allgather(value, value.layer)
        return model.shard(whole, "features", model.rank, model.RANKS)

    def to_rows(value):
        return model.alltoall([model.shard(value, "rows", rank, model.RANKS) for rank in range(model.RANKS)], 2)

    async def arrived(work):
        first, *more = await work
        while more:
            first = first.combine(more.pop(0))
        return first

    activations[1] = model.forward(0, activations[0], weights[0])
    activations["queries"] = await to_heads(activations[1])
    activations[2] = model.forward(1, activations[1], weights[1])
    activations["keys"] = await to_heads(activations.pop(2))
    activations[3] = model.forward(2, activations["queries"], activations["keys"])
    activations[3] = await arrived(to_rows(activations.pop(3)))

    activations[4] = model.forward(3, activations[3], weights[3])
    grad_activations[4] = model.loss(activations.pop(4))
    grad_weights[3], grad_activations[3] = model.backward(3, activations.pop(3), grad_activations.pop(4), weights[3])
    grad_activations[3] = await to_heads(grad_activations.pop(3))
    grad_weights[3] = await model.allreduce(grad_weights[3], 3)

    grad_activations["keys"], grad_activations["queries"] = model.backward(
        2, activations.pop("queries"), grad_activations.pop(3), activations.pop("keys")
    )
    grad_activations[2] = await arrived(to_rows(grad_activations.pop("keys")))
    grad_activations["queries"] = await arrived(to_rows(grad_activations.pop("queries")))
    grad_weights[1], grad_activations[1] = model.backward(1, activations.pop(1), grad_activations.pop(2), weights[1])
    grad_activations[1] = grad_activations[1] + grad_activations.pop("queries")
    grad_weights[1] = await model.allreduce(grad_weights[1], 1)

    grad_weights[0], _ = model.backward(0, activations.pop(0), grad_activations.pop(1), weights[0])
    del _
    grad_weights[0] = await model.allreduce(grad_weights[0], 0)
    for layer in (3, 1, 0):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (0, 1, 3):
        model.set_final_weight(layer, weights[layer])
