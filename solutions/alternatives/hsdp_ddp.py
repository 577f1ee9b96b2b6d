"""Keep the whole model on each rank, as DDP does, and let the all-reduces run behind backward.

Good where the model is small: no weight is ever gathered. It costs memory for a whole model and its optimizer, and an
all-reduce of whole gradients over the slow links, four times what HSDP sends there.
"""

from lib import Model


async def hsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    my_batches = range(model.rank, model.BATCHES, model.RANKS)
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    activations[0] = model.get_activation(my_batches)
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    summing = {}
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
        )
        summing[layer] = model.allreduce(grad_weights[layer], layer)
    del grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await summing.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
