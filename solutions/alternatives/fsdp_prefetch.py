"""Gather the next layer while this one is computed, and let the reduce-scatters run behind the backward.

A forward or a backward takes longer than a collective, so nearly all communication is hidden behind computation: what
is left is the first all-gather and the last reduce-scatter. Good for time. It costs memory: two full weights are there
at the same time, and a gradient waits for its reduce-scatter while the next one is made.
"""

from lib import Model


async def fsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])

    last = model.LAYERS - 1
    coming = model.allgather(weights[0], 0)
    for layer in range(model.LAYERS):
        weights[layer, "full"] = await coming
        if layer < last:
            coming = model.allgather(weights[layer + 1], layer + 1)
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])
        if layer < last:
            del weights[layer, "full"]
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    scattering = {}
    for layer in reversed(range(model.LAYERS)):
        if layer < last:
            weights[layer, "full"] = await coming
        if layer > 0:
            coming = model.allgather(weights[layer - 1], layer - 1)
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights.pop((layer, "full"))
        )
        scattering[layer] = model.scatterreduce(grad_weights.pop(layer), layer)
        if layer < last:
            grad_weights[layer + 1] = await scattering.pop(layer + 1)
    grad_weights[0] = await scattering.pop(0)
    del grad_activations[0]

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
