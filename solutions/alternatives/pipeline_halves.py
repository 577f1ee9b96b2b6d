"""Send the batches in two messages of two instead of one message of four.

The next stage can begin when half of the batches are through, so two stages work at the same time: the first step
towards GPipe. Good for time. It costs twice as many messages, and a sum of gradients.
"""

from lib import Model


async def pipeline(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    per_rank = model.LAYERS // model.RANKS
    my_layers = range(model.rank * per_rank, (model.rank + 1) * per_rank)
    first, last = my_layers[0], my_layers[-1]
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    middle = (model.BATCHES + 1) // 2
    halves = [half for half in (range(middle), range(middle, model.BATCHES)) if half]

    for h, half in enumerate(halves):
        if model.rank == 0:
            activations[first, h] = model.get_activation(half)
        else:
            activations[first, h] = await model.receive(model.rank - 1)
        for layer in my_layers:
            activations[layer + 1, h] = model.forward(layer, activations[layer, h], weights[layer])
        if model.rank == model.RANKS - 1:
            grad_activations[last + 1, h] = model.loss(activations.pop((last + 1, h)))
        else:
            await model.pass_to(model.rank + 1, activations.pop((last + 1, h)))

    for h in range(len(halves)):
        if model.rank < model.RANKS - 1:
            grad_activations[last + 1, h] = await model.receive(model.rank + 1)
        for layer in reversed(my_layers):
            grad_weights[layer, h], grad_activations[layer, h] = model.backward(
                layer, activations.pop((layer, h)), grad_activations.pop((layer + 1, h)), weights[layer]
            )
            if h > 0:
                grad_weights[layer, h] = grad_weights[layer, h] + grad_weights[layer, h - 1]
                del grad_weights[layer, h - 1]
        if model.rank > 0:
            await model.pass_to(model.rank - 1, grad_activations[first, h])
        del grad_activations[first, h]

    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop((layer, len(halves) - 1)), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
