"""Gather all keys and values, instead of a ring, and bring each piece of their gradient home by an all-to-all.

A reduce-scatter will not do: it cuts the rows into contiguous parts, and those belong to no rank. So each rank cuts out the
pieces of all, sends them straight to their ranks, and adds up what it gets.
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

    activations[1] = model.forward(0, activations[0], weights[0])
    activations["all"] = await model.allgather(activations[1], 1)
    activations[2] = model.forward(1, activations[0], activations.pop("all"))

    activations[3] = model.forward(2, activations[2], weights[2])
    grad_activations[3] = model.loss(activations.pop(3))
    grad_weights[2], grad_activations[2] = model.backward(2, activations.pop(2), grad_activations.pop(3), weights[2])
    grad_weights[2] = await model.allreduce(grad_weights[2], 2)

    activations["all"] = await model.allgather(activations.pop(1), 1)
    grad_activations[1], _ = model.backward(1, activations[0], grad_activations.pop(2), activations.pop("all"))
    del _
    pieces = [model.shard(grad_activations[1], "rows", piece, 2 * model.RANKS) for piece in range(2 * model.RANKS)]
    del grad_activations[1]
    for half, mine in (("early", pieces[: model.RANKS]), ("late", pieces[: model.RANKS - 1 : -1])):
        grad_activations[half], *parts = await model.alltoall(mine, 1)
        while parts:
            grad_activations[half] = grad_activations[half] + parts.pop()
    grad_activations[1] = grad_activations.pop("early").combine(grad_activations.pop("late"))
    del pieces, mine, parts

    grad_weights[0], _ = model.backward(0, activations.pop(0), grad_activations.pop(1), weights[0])
    del _
    grad_weights[0] = await model.allreduce(grad_weights[0], 0)
    for layer in (2, 0):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (0, 2):
        model.set_final_weight(layer, weights[layer])
