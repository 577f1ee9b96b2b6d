"""All images at once. In backward the gradient of the moments travels behind half of layer 3; forward, nothing is hidden.

One exchange forward and one in backward, the fewest that there can be: the best where messages are slow.
"""

from lib import Model
from lib.schedules.given import by_chunk


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

    activations[0] = model.get_activation(range(model.BATCHES)).cut("rows", low, high)
    activations[1] = model.forward(0, activations[0], weights[0])
    activations[2] = model.forward(1, activations[1])
    activations[2] = await model.allreduce(activations[2], 1)
    activations[3] = model.forward(2, activations[1], activations[2])
    grad_activations[4] = model.loss(model.forward(3, activations[3], weights[3]))

    grad_activations[3] = model.backward_input(3, activations[3], grad_activations[4], weights[3])
    grad_activations[2], grad_activations[1] = model.backward(
        2, activations[1], grad_activations.pop(3), activations.pop(2)
    )
    coming = model.allreduce(grad_activations.pop(2), 2)
    grad_weights[3] = model.backward_weight(3, activations.pop(3), grad_activations.pop(4))
    sums = {3: model.allreduce(grad_weights.pop(3), 3)}
    grad_activations[2] = await coming
    by_moments = model.backward(1, activations.pop(1), grad_activations.pop(2))
    grad_activations[1] = grad_activations[1] + by_moments
    grad_weights[0], _ = model.backward(0, activations.pop(0), grad_activations.pop(1), weights[0])
    del by_moments, _
    sums[0] = model.allreduce(grad_weights.pop(0), 0)

    for layer in (3, 0):
        grad_weights[layer] = await sums.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (0, 3):
        model.set_final_weight(layer, weights[layer])
