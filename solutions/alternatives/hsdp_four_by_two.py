"""Shard over pairs of ranks and replicate over four of them: a mesh of 4 x 2, spelt out as lists of ranks.

Good for the gathers, which get smaller. It costs memory, as each rank holds half of everything, and time: twice as much
of each gradient goes over the slow links, and round a longer ring.
"""

from lib import Model


async def hsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    shard = model.rank % 2
    pair = [model.rank - shard, model.rank - shard + 1]
    alike = [*range(shard, model.RANKS, 2)]
    my_batches = range(model.rank, model.BATCHES, model.RANKS)
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, shard, 2)

    activations[0] = model.get_activation(my_batches)
    for layer in range(model.LAYERS):
        weights[layer, "full"] = await model.allgather(weights[layer], layer, group=pair)
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])
        del weights[layer, "full"]
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weights[layer, "full"] = await model.allgather(weights[layer], layer, group=pair)
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights.pop((layer, "full"))
        )
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group=pair)
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer, group=alike)
    del grad_activations[0]

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
