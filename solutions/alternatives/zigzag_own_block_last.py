"""The best ring of contiguous pieces, with other tokens: the own block last in backward.

It waits for no pass and sends the least. But a rank keeps its own keys until the end, beside those that go round.
"""

from lib import Model


async def zigzag(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 2):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    data = model.get_activation(range(model.BATCHES))
    early = model.shard(data, "rows", model.rank, 2 * model.RANKS)
    late = model.shard(data, "rows", 2 * model.RANKS - 1 - model.rank, 2 * model.RANKS)
    activations[0] = early.combine(late)
    del data, early, late

    last = model.RANKS - 1
    activations[1, 0] = model.forward(0, activations[0], weights[0])  # the keys and values of these rows
    passing = {"keys": model.shift(activations[1, 0], 1)}
    activations[2] = model.forward(1, activations[0], activations[1, 0])
    for step in range(1, model.RANKS):
        activations[1, step] = await passing.pop("keys")
        if step < last:
            passing["keys"] = model.shift(activations[1, step], 1)
        activations[2] = activations[2] + model.forward(1, activations[0], activations.pop((1, step)))

    passing["keys"] = model.shift(activations[1, 0], 1)  # backward needs them again
    activations[3] = model.forward(2, activations[2], weights[2])
    grad_activations[3] = model.loss(activations.pop(3))
    grad_weights[2], grad_activations[2] = model.backward(2, activations.pop(2), grad_activations.pop(3), weights[2])
    sums = {2: model.allreduce(grad_weights.pop(2), 2)}

    for step in range(1, model.RANKS):
        activations[1, step] = await passing.pop("keys")
        if step < last:
            passing["keys"] = model.shift(activations[1, step], 1)
        part, _ = model.backward(1, activations[0], grad_activations[2], activations.pop((1, step)))
        if step > 1:
            part = part + await passing["gradient"]
        passing["gradient"] = model.shift(part, 1)
        del part, _
    grad_activations[1], _ = model.backward(1, activations[0], grad_activations.pop(2), activations.pop((1, 0)))
    grad_activations[1] = grad_activations[1] + await passing["gradient"]
    del _

    grad_weights[0], _ = model.backward(0, activations.pop(0), grad_activations.pop(1), weights[0])
    del _
    sums[0] = model.allreduce(grad_weights.pop(0), 0)
    for layer in (2, 0):
        grad_weights[layer] = await sums.pop(layer)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]

    for layer in (0, 2):
        model.set_final_weight(layer, weights[layer])
