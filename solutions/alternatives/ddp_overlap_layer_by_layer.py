"""Start an all-reduce for each layer right after its backward, and await all of them after the last one.

Good for time where the latency is small: everything but the end of the last all-reduce is hidden. It costs a latency
for each layer: here eight all-reduces take longer than eight backwards, so the rank waits for the network.
"""

from lib import Model


async def ddp_overlap(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    coming = {}
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        coming[layer] = model.allreduce(grad_weights[layer], layer)
    del grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await coming[layer]
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
