"""All-reduce as HSDP does, update an eighth, and gather the quarter again: six all-gathers more than HSDP.

Good for a small change to a program that is there: nothing but the update is different. It costs the time of these
all-gathers, for every all-reduce brings a quarter of the sum, of which the update throws away one half.
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
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer, group="replica")
    del grad_activations[0]

    for layer in range(model.LAYERS):
        weights[layer] = weights[layer].shard(replica, replicas)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        weights[layer] = await model.allgather(weights[layer], layer, group="replica")
        model.set_final_weight(layer, weights[layer])
