"""Keep the input and the middle, go back through the second half, then treat the first half in the same way, and so on.

The number of activations grows with the logarithm of the number of layers, and the work by a factor of it (Griewank and
Walther 2000, Algorithm 799: revolve). For 8 layers the peak is that of three segments; for hundreds it is far below.
"""

from lib import Model


def checkpointing(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation(range(model.BATCHES))

    def back(first: int, end: int) -> None:
        """The layers from first to end, of which only the first input is there."""
        if end == first + 1:
            if end == model.LAYERS:
                grad_activations[end] = model.loss(model.forward(first, activations[first], weights[first]))
            gradient, grad_activations[first] = model.backward(
                first, activations.pop(first), grad_activations.pop(end), weights[first]
            )
            grad_weights[first] = gradient
            del gradient
            weights[first], opt_states[first] = model.update(
                first, grad_weights.pop(first), weights[first], opt_states[first]
            )
            return
        middle = (first + end) // 2
        for layer in range(first, middle):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
            if layer > first:
                del activations[layer]
        back(middle, end)
        back(first, middle)

    back(0, model.LAYERS)
    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
