"""Run whole segments again, the last layer of each too, although nobody needs its output.

This is what a checkpoint around a module does when it knows nothing of what comes after it: simpler, and two forwards of
four batches longer.
"""

from lib import Model
from lib.schedules.data_parallel import segments


def checkpointing(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation(range(model.BATCHES))

    def forward(layer: int) -> None:
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])

    parts = segments(model.LAYERS, round(model.LAYERS**0.5))
    for segment in parts:
        for layer in segment:
            forward(layer)
            if layer > segment[0] and segment != parts[-1]:
                del activations[layer]
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    for segment in reversed(parts):
        if segment != parts[-1]:
            for layer in segment:
                forward(layer)
            del activations[segment[-1] + 1]
        for layer in reversed(segment):
            grad_weights[layer], grad_activations[layer] = model.backward(
                layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
            )
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
            )

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
