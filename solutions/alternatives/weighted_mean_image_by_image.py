"""Each image has a mean of its own, which travels while other images are computed.

Much slower than halves: 64 all-reduces pay for their messages 64 times, and soon all that is waited for is the link.
"""

from lib import Model
from lib.schedules.given import accumulate


def my_rows(model, sizes=None):
    """Where this rank's rows begin and end. Rank 1 has twice as many as rank 0, rank 2 three times as many, and so on,
    in whole rows; or they have these sizes, which all ranks know."""
    ranks = model.RANKS
    if sizes is None:
        ends = [40 * rank * (rank + 1) // (ranks * (ranks + 1)) for rank in range(ranks + 1)]
    else:
        ends = [sum(sizes[:rank]) for rank in range(ranks + 1)]
    return ends[model.rank], ends[model.rank + 1]


def backward(model, layer, inp, grad):
    """Backward of a layer with a weight: gives the gradient of the input. That of the weight is added to what there is
    of it already."""
    grad_weight, grad_input = model.backward(layer, inp, grad, model.weights[layer])
    accumulate(model, layer, grad_weight)
    return grad_input


async def weighted_mean(model: Model, sizes: list[int] | None = None) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 1, 3):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    low, high = my_rows(model, sizes)

    images = [range(batch, batch + 1) for batch in range(model.BATCHES)]
    means, sums = {}, {}

    for number, image in enumerate(images):
        activations[0, number] = model.get_activation(image).cut("rows", low, high)
        for layer in (0, 1):
            activations[layer + 1, number] = model.forward(layer, activations[layer, number], weights[layer])
        activations[3, number] = model.forward(2, activations[2, number])
        means[number] = model.allreduce(activations.pop((3, number)), 2)

    for number in range(len(images)):
        activations[3] = await means.pop(number)
        grad_activations[4] = model.loss(model.forward(3, activations[3], weights[3]))
        grad_activations[3] = backward(model, 3, activations.pop(3), grad_activations.pop(4))
        grad_activations[2] = model.backward(2, activations.pop((2, number)), grad_activations.pop(3))
        for layer in (1, 0):
            grad_activations[layer] = backward(
                model, layer, activations.pop((layer, number)), grad_activations.pop(layer + 1)
            )
            if number == len(images) - 1:
                sums[layer] = model.allreduce(grad_weights.pop(layer), layer)
        del grad_activations[0]

    for layer in (3, 1, 0):
        if layer in sums:  # layer 3 has seen the mean of all rows, on every rank
            grad_weights[layer] = await sums.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (0, 1, 3):
        model.set_final_weight(layer, weights[layer])
