"""Gather all keys and values, and send each rank all gradients of its own.

The latter is a reduce-scatter, made of an all-to-all and additions, as parts may be uneven. There are no neighbours, and no part
is too small. But each rank has the keys and values of the whole grid, and eight times as much travels as with a halo.
"""

from functools import reduce
from operator import add

from lib import Model
from lib.schedules.given import by_chunk


async def neighborhood_attention(model: Model, sizes: list[int] | None = None) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 1):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    sizes = sizes or by_chunk(64, model.RANKS)
    low = sum(sizes[: model.rank])
    activations[0] = model.get_activation(range(model.BATCHES)).cut("rows", low, low + sizes[model.rank])

    activations[1] = model.forward(0, activations[0], weights[0])
    activations[2] = model.forward(1, activations[0], weights[1])
    activations[2] = await model.allgather(activations[2], 2)
    activations[3] = model.forward(2, activations[1], activations[2])
    grad_activations[3] = model.loss(activations.pop(3))
    grad_activations[2], grad_activations[1] = model.backward(
        2, activations.pop(1), grad_activations.pop(3), activations.pop(2)
    )
    ends = [(sum(sizes[:rank]), sum(sizes[: rank + 1])) for rank in range(model.RANKS)]
    arrived = await model.alltoall([grad_activations[2].cut("rows", *part) for part in ends], 2)
    grad_activations[2] = reduce(add, arrived) if sizes[model.rank] else arrived[0]
    del arrived
    for layer in (0, 1):
        grad_weights[layer], _ = model.backward(layer, activations[0], grad_activations.pop(layer + 1), weights[layer])
        del _
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (0, 1):
        model.set_final_weight(layer, weights[layer])
