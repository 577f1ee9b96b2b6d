"""Each batch travels while the next one is computed, stage by stage, with all batches in each stage.

Nobody waits. But between two stages there are all batches in memory, and two would do.
"""

from lib import Model
from lib.schedules.given import accumulate, by_chunk, joined


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

    travelling = {}

    def send(value, layer, dim, b):
        travelling[layer, b] = model.alltoall([value.cut(dim, *part) for part in parts[dim]], layer)

    async def arrived(layer, b):
        return joined(await travelling.pop((layer, b)))

    batches = range(model.BATCHES)
    for b in batches:
        activations[0, b] = model.get_activation([b]).cut("rows", *parts["rows"][model.rank])
        activations[1, b] = model.forward(0, activations[0, b], weights[0])
        activations[2, b] = model.forward(1, activations.pop((1, b)))
        send(activations.pop((2, b)), 2, "columns", b)
    for b in batches:
        activations[2, b] = await arrived(2, b)
        activations[3, b] = model.forward(2, activations.pop((2, b)))
        activations[4, b] = model.forward(3, activations[3, b], weights[3])
        activations[5, b] = model.forward(4, activations.pop((4, b)))
        send(activations.pop((5, b)), 5, "rows", b)
    for b in batches:
        activations[5, b] = await arrived(5, b)
        activations[6, b] = model.forward(5, activations.pop((5, b)))
        grad_activations[6, b] = model.loss(activations.pop((6, b)))
        grad_activations[5, b] = model.backward(5, None, grad_activations.pop((6, b)))
        send(grad_activations.pop((5, b)), 5, "columns", b)
    for b in batches:
        grad_activations[5, b] = await arrived(5, b)
        grad_activations[4, b] = model.backward(4, None, grad_activations.pop((5, b)))
        part, grad_activations[3, b] = model.backward(
            3, activations.pop((3, b)), grad_activations.pop((4, b)), weights[3]
        )
        accumulate(model, 3, part)
        del part
        grad_activations[2, b] = model.backward(2, None, grad_activations.pop((3, b)))
        send(grad_activations.pop((2, b)), 2, "rows", b)
    sums = {3: model.allreduce(grad_weights.pop(3), 3)}
    for b in batches:
        grad_activations[2, b] = await arrived(2, b)
        grad_activations[1, b] = model.backward(1, None, grad_activations.pop((2, b)))
        part, _ = model.backward(0, activations.pop((0, b)), grad_activations.pop((1, b)), weights[0])
        accumulate(model, 0, part)
        del part, _
    sums[0] = model.allreduce(grad_weights.pop(0), 0)
    for layer in (3, 0):
        grad_weights[layer] = await sums.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (0, 3):
        model.set_final_weight(layer, weights[layer])
