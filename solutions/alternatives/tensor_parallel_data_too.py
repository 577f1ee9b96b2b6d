"""Sum the gradient of the data as well, which nothing reads.

Every column layer gives a part of a sum in backward, and adding all of them up is easy to write. That of the first layer
is the gradient of the data, which is not trained: one all-reduce for nothing.
"""

from lib import Model


async def tensor_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        dim = "out" if layer % 2 == 0 else "in"
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS, dim=dim)

    activations[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        if layer % 2 == 1:
            activations[layer + 1] = await model.allreduce(activations[layer + 1], layer + 1)

    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
        )
        if layer % 2 == 0:
            grad_activations[layer] = await model.allreduce(grad_activations[layer], layer)
    del grad_activations[0]

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
