"""Shard over all ranks, as FSDP does, with the next weight on its way while a layer is computed.

Good for memory: a rank holds an eighth of everything, whatever the hosts are. It costs the slow links three times a
layer: no looking ahead helps, because the network is busy from the beginning to the end.
"""

from lib import Model


async def hsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    my_batches = range(model.rank, model.BATCHES, model.RANKS)
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    last = model.LAYERS - 1

    activations[0] = model.get_activation(my_batches)
    coming = model.allgather(weights[0], 0)
    for layer in range(model.LAYERS):
        weights[layer, "full"] = await coming
        if layer < last:
            coming = model.allgather(weights[layer + 1], layer + 1)
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])
        if layer < last:
            del weights[layer, "full"]
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    leaving = {}
    for layer in reversed(range(model.LAYERS)):
        if layer < last:
            weights[layer, "full"] = await coming
        if layer > 0:
            coming = model.allgather(weights[layer - 1], layer - 1)
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights.pop((layer, "full"))
        )
        if layer < last:
            grad_weights[layer + 1] = await leaving.pop(layer + 1)
        leaving[layer] = model.scatterreduce(grad_weights.pop(layer), layer)
    del grad_activations[0]
    grad_weights[0] = await leaving.pop(0)

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
