"""Swap rows for columns by an all-to-all, all batches at once, and await it: the plain form.

Each rank gets what it asks for, and nothing else. While it travels, no rank computes.
"""

from lib import Model
from lib.schedules.given import by_chunk, joined


def parts_of(sizes):
    """Where the part of each rank begins and ends, from the sizes of all parts."""
    return [(sum(sizes[:rank]), sum(sizes[: rank + 1])) for rank in range(len(sizes))]


async def redistribute(model: Model, rows: list[int] | None = None, columns: list[int] | None = None) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 3):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    parts = {
        "rows": parts_of(rows or by_chunk(64, model.RANKS)),
        "columns": parts_of(columns or by_chunk(64, model.RANKS)),
    }

    activations[0] = model.get_activation(range(model.BATCHES)).cut("rows", *parts["rows"][model.rank])

    activations[1] = model.forward(0, activations[0], weights[0])
    activations[2] = model.forward(1, activations.pop(1))
    value = activations.pop(2)
    activations[2] = joined(await model.alltoall([value.cut("columns", *part) for part in parts["columns"]], 2))
    activations[3] = model.forward(2, activations.pop(2))
    activations[4] = model.forward(3, activations[3], weights[3])
    activations[5] = model.forward(4, activations.pop(4))
    value = activations.pop(5)
    activations[5] = joined(await model.alltoall([value.cut("rows", *part) for part in parts["rows"]], 5))
    activations[6] = model.forward(5, activations.pop(5))
    grad_activations[6] = model.loss(activations.pop(6))

    grad_activations[5] = model.backward(5, None, grad_activations.pop(6))
    value = grad_activations.pop(5)
    grad_activations[5] = joined(await model.alltoall([value.cut("columns", *part) for part in parts["columns"]], 5))
    grad_activations[4] = model.backward(4, None, grad_activations.pop(5))
    grad_weights[3], grad_activations[3] = model.backward(3, activations.pop(3), grad_activations.pop(4), weights[3])
    grad_activations[2] = model.backward(2, None, grad_activations.pop(3))
    value = grad_activations.pop(2)
    grad_activations[2] = joined(await model.alltoall([value.cut("rows", *part) for part in parts["rows"]], 2))
    grad_activations[1] = model.backward(1, None, grad_activations.pop(2))
    grad_weights[0], _ = model.backward(0, activations.pop(0), grad_activations.pop(1), weights[0])
    del _
    for layer in (3, 0):
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (0, 3):
        model.set_final_weight(layer, weights[layer])
