"""Start the all-reduce of a layer and go on with the backward of the next one, instead of waiting for it.

A collective runs beside the computation, so only the last all-reduce has nothing left to hide behind. Good for time;
DDP in PyTorch does it, with buckets of several layers in place of single ones. It costs memory: the gradient of a layer
stays until its sum has come, while the next gradient is made.
"""

from lib import Model


async def ddp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    coming = {}
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
        )
        coming[layer] = model.allreduce(grad_weights[layer], layer)
    del grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await coming.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
