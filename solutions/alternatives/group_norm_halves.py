"""The images in two halves: while the moments of one are on their way, layer 0 of the other is computed.

As fast as image by image, with half as many exchanges and nearly twice the memory.
"""

from lib import Model
from lib.schedules.given import accumulate, by_chunk


def my_rows(model, sizes=None):
    """Where this rank's rows begin and end: by chunk, or in these sizes, which all ranks know."""
    sizes = sizes or by_chunk(64, model.RANKS)
    low = sum(sizes[: model.rank])
    return low, low + sizes[model.rank]


async def group_norm(model: Model, sizes: list[int] | None = None) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 3):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    low, high = my_rows(model, sizes)

    middle = (model.BATCHES + 1) // 2
    halves = [half for half in (range(middle), range(middle, model.BATCHES)) if half]
    moments, sums = {}, {}

    for number, half in enumerate(halves):
        activations[0, number] = model.get_activation(half).cut("rows", low, high)
        activations[1, number] = model.forward(0, activations[0, number], weights[0])
        activations[2, number] = model.forward(1, activations[1, number])
        moments[number] = model.allreduce(activations.pop((2, number)), 1)

    for number in range(len(halves)):
        activations[2] = await moments.pop(number)
        activations[3] = model.forward(2, activations[1, number], activations[2])
        grad_activations[4] = model.loss(model.forward(3, activations[3], weights[3]))
        grad_activations[3] = model.backward_input(3, activations[3], grad_activations[4], weights[3])
        grad_activations[2], grad_activations[1] = model.backward(
            2, activations[1, number], grad_activations.pop(3), activations.pop(2)
        )
        coming = model.allreduce(grad_activations.pop(2), 2)
        accumulate(model, 3, model.backward_weight(3, activations.pop(3), grad_activations.pop(4)))
        if number == len(halves) - 1:
            sums[3] = model.allreduce(grad_weights.pop(3), 3)
        grad_activations[2] = await coming
        by_moments = model.backward(1, activations.pop((1, number)), grad_activations.pop(2))
        grad_activations[1] = grad_activations[1] + by_moments
        grad_weight, _ = model.backward(0, activations.pop((0, number)), grad_activations.pop(1), weights[0])
        accumulate(model, 0, grad_weight)
        del by_moments, grad_weight, _
    sums[0] = model.allreduce(grad_weights.pop(0), 0)

    for layer in (3, 0):
        grad_weights[layer] = await sums.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (0, 3):
        model.set_final_weight(layer, weights[layer])
