"""Shard the weights over all ranks too, and gather each in two moves: eighths between the hosts, then quarters inside.

Good for memory: nothing is left of which two ranks have the same, and the first goal still has room for it. It costs
time, since half a time unit on the slow links is waited for at every gather, twice a layer.
"""

from lib import Model


async def hsdp_zero(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    shard, shards = model.coord["shard"], len(model.group("shard"))
    replica, replicas = model.coord["replica"], len(model.group("replica"))
    my_batches = range(model.rank, model.BATCHES, model.RANKS)
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, shard * replicas + replica, shards * replicas)

    async def gather(layer: int) -> None:
        weights[layer, "full"] = await model.allgather(weights[layer], layer, group="replica")
        weights[layer, "full"] = await model.allgather(weights[layer, "full"], layer, group="shard")

    last = model.LAYERS - 1
    activations[0] = model.get_activation(my_batches)
    for layer in range(model.LAYERS):
        await gather(layer)
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])
        if layer < last:
            del weights[layer, "full"]

    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    summing = {}
    for layer in reversed(range(model.LAYERS)):
        if layer < last:
            await gather(layer)
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer, "full"]
        )
        del activations[layer], grad_activations[layer + 1], weights[layer, "full"]
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group="shard")
        summing[layer] = model.scatterreduce(grad_weights[layer], layer, group="replica")
        del grad_weights[layer]
    del grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await summing.pop(layer)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
