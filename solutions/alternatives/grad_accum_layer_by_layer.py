"""Take all batches through one layer before the next layer begins.

Each weight is used in two stretches, one forward and one backward, instead of twice for every batch. That is good where
a weight has to be fetched before it can be used (from other ranks, or from the memory of the host): it is fetched twice
a step. It costs memory, because the activations of all batches are there at the same time.
"""

from lib import Model


def grad_accum(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    for b in range(model.BATCHES):
        activations[0, b] = model.get_activation([b])
    for layer in range(model.LAYERS):
        for b in range(model.BATCHES):
            activations[layer + 1, b] = model.forward(layer, activations[layer, b], weights[layer])

    for b in range(model.BATCHES):
        grad_activations[model.LAYERS, b] = model.loss(activations.pop((model.LAYERS, b)))
    for layer in reversed(range(model.LAYERS)):
        for b in range(model.BATCHES):
            grad_weights[layer, b], grad_activations[layer, b] = model.backward(
                layer, activations.pop((layer, b)), grad_activations.pop((layer + 1, b)), weights[layer]
            )
            if layer == 0:
                del grad_activations[layer, b]
            if b > 0:
                grad_weights[layer, b] = grad_weights[layer, b] + grad_weights[layer, b - 1]
                del grad_weights[layer, b - 1]
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop((layer, b)), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
