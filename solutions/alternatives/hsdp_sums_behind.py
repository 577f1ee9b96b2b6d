"""Start each all-reduce when its shard is there, and await it only before the update.

Good for time at no price: the slow links work while the next layer goes backward, and all that waits is a quarter of a
gradient. It costs nothing in memory, and leaves the gathers and reduce-scatters inside the host where they were.
"""

from lib import Model


async def hsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    shard, shards = model.coord["shard"], len(model.group("shard"))
    my_batches = range(model.rank, model.BATCHES, model.RANKS)
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, shard, shards)

    activations[0] = model.get_activation(my_batches)
    for layer in range(model.LAYERS):
        weights[layer, "full"] = await model.allgather(weights[layer], layer, group="shard")
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])
        del weights[layer, "full"]
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    summing = {}
    for layer in reversed(range(model.LAYERS)):
        weights[layer, "full"] = await model.allgather(weights[layer], layer, group="shard")
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights.pop((layer, "full"))
        )
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group="shard")
        summing[layer] = model.allreduce(grad_weights[layer], layer, group="replica")
    del grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await summing.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
