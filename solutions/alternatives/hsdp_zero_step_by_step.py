"""Await every collective at once: reduce-scatter inside, reduce-scatter between, update an eighth, gather a quarter.

Good for seeing that it costs nothing: an all-reduce is a reduce-scatter and an all-gather, so the step takes as long as
HSDP with every collective awaited, to the tick. It costs the time of all collectives.
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

    activations[0] = model.get_activation(my_batches)
    for layer in range(model.LAYERS):
        weights[layer, "full"] = await model.allgather(weights[layer], layer, group="shard")
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])
        del weights[layer, "full"]
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weights[layer, "full"] = await model.allgather(weights[layer], layer, group="shard")
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights.pop((layer, "full"))
        )
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group="shard")
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group="replica")
    del grad_activations[0]

    for layer in range(model.LAYERS):
        weights[layer] = weights[layer].shard(replica, replicas)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        weights[layer] = await model.allgather(weights[layer], layer, group="replica")
        model.set_final_weight(layer, weights[layer])
