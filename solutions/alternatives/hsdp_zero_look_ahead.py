"""Fetch one weight ahead and let every collective run behind something, as in the reference of HSDP.

Good for time: what is left is the first gather, and at the end the way of the last gradient to its eighth and back. It
costs memory for a second whole weight and for a gradient under way, more than the optimizer states that were saved.
"""

from lib import Model


async def hsdp_zero(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    shard, shards = model.coord["shard"], len(model.group("shard"))
    replica, replicas = model.coord["replica"], len(model.group("replica"))
    my_batches = range(model.rank, model.BATCHES, model.RANKS)
    for layer in range(model.LAYERS):
        weights[layer], _ = model.load_weights(layer, shard, shards)
        _, opt_states[layer] = model.load_weights(layer, shard * replicas + replica, shards * replicas)

    last = model.LAYERS - 1
    reducing, summing, returning = {}, {}, {}

    async def sum_up(layer: int) -> None:
        if layer in reducing:
            grad_weights[layer] = await reducing.pop(layer)
            summing[layer] = model.scatterreduce(grad_weights.pop(layer), layer, group="replica")

    activations[0] = model.get_activation(my_batches)
    coming = model.allgather(weights[0], 0, group="shard")
    for layer in range(model.LAYERS):
        weights[layer, "full"] = await coming
        if layer < last:
            coming = model.allgather(weights[layer + 1], layer + 1, group="shard")
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])
        if layer < last:
            del weights[layer, "full"]
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        if layer < last:
            weights[layer, "full"] = await coming
        if layer > 0:
            coming = model.allgather(weights[layer - 1], layer - 1, group="shard")
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights.pop((layer, "full"))
        )
        reducing[layer] = model.scatterreduce(grad_weights.pop(layer), layer, group="shard")
        await sum_up(layer + 1)
    del grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        await sum_up(layer)
        grad_weights[layer] = await summing.pop(layer)
        weights[layer] = weights[layer].shard(replica, replicas)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        await sum_up(0)
        returning[layer] = model.allgather(weights[layer], layer, group="replica")
    for layer in reversed(range(model.LAYERS)):
        weights[layer] = await returning.pop(layer)

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
