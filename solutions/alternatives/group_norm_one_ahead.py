"""All in one loop: each turn begins an image, and finishes the one before.

The same run as in two functions, with one turn more than there are images.
"""

from lib import Model


def my_rows(model, sizes=None):
    """Where this rank's rows begin and end: by chunk, or in these sizes, which all
    ranks know."""
    if sizes is None:
        most = -(-64 // model.RANKS)  # rounded up
        sizes = [max(0, min(most, 64 - rank * most)) for rank in range(model.RANKS)]
    low = sum(sizes[: model.rank])
    return low, low + sizes[model.rank]


def add(model, layer, grad_weight):
    """Adds the gradient of a weight to what there is of it already."""
    if layer in model.grad_weights:
        grad_weight = model.grad_weights[layer] + grad_weight
    model.grad_weights[layer] = grad_weight


async def group_norm(model: Model, sizes: list[int] | None = None) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 3):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    low, high = my_rows(model, sizes)

    # Forward, loss and backward of this rank's rows of all images; then update layers 0
    # and 3.
    moments, sums = {}, {}

    for image in range(model.BATCHES + 1):
        if image < model.BATCHES:
            activations[0, image] = model.get_activation([image]).cut("rows", low, high)
            activations[1, image] = model.forward(0, activations[0, image], weights[0])
            activations[2] = model.forward(1, activations[1, image])
            moments[image] = model.allreduce(activations.pop(2), 1)
        if image == 0:
            continue

        last = image - 1  # its moments were on their way until now
        activations[2] = await moments.pop(last)
        activations[3] = model.forward(2, activations[1, last], activations[2])
        grad_activations[4] = model.loss(model.forward(3, activations[3], weights[3]))
        grad_activations[3] = model.backward_input(3, activations[3], grad_activations[4], weights[3])
        grad_activations[2], grad_activations[1] = model.backward(
            2, activations[1, last], grad_activations.pop(3), activations.pop(2)
        )
        coming = model.allreduce(grad_activations.pop(2), 2)
        inp, grad = activations.pop(3), grad_activations.pop(4)
        add(model, 3, model.backward_weight(3, inp, grad))
        del inp, grad
        if image == model.BATCHES:
            sums[3] = model.allreduce(grad_weights.pop(3), 3)
        grad_activations[2] = await coming
        by_moments = model.backward(1, activations.pop((1, last)), grad_activations.pop(2))
        grad_activations[1] = grad_activations[1] + by_moments
        grad_weight, _ = model.backward(0, activations.pop((0, last)), grad_activations.pop(1), weights[0])
        add(model, 0, grad_weight)
        del by_moments, grad_weight, _
    sums[0] = model.allreduce(grad_weights.pop(0), 0)

    for layer in (3, 0):
        grad_weights[layer] = await sums.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (0, 3):
        model.set_final_weight(layer, weights[layer])
