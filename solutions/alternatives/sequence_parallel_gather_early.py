"""Gather the first rows for backward one block earlier, still in forward: no rank waits, for a quarter of an activation more.

The gathers for backward run into the sums of the turn from forward to backward. What starts before them is there in time.
"""

from lib import Model


async def sequence_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        dim = "out" if layer % 2 == 0 else "in"
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS, dim=dim)

    scattered, gathered = {}, {}  # calls by layer and batch: rows on their way, and what is whole again
    again = {}  # the same for inputs that backward needs once more

    async def hand_on(keep=False):
        for number, b in list(scattered):
            rows = await scattered.pop((number, b))
            if number == model.LAYERS:
                rows = model.loss(rows)
            elif keep:
                activations["rows", number, b] = rows
            gathered[number, b] = model.allgather(rows, number)
            del rows

    def take_back(layer, b):
        grad_weights[layer, b], grad_activations[layer, b] = model.backward(
            layer, activations[layer, b], grad_activations[layer + 1, b], weights[layer]
        )
        del activations[layer, b], grad_activations[layer + 1, b]
        if b > 0:
            grad_weights[layer, b] = grad_weights[layer, b] + grad_weights.pop((layer, b - 1))

    def gather_again(block, b):
        if ("rows", block, b) in activations:
            again[block, b] = model.allgather(activations.pop(("rows", block, b)), block)

    for first in range(0, model.BATCHES, 2):
        batches = range(first, min(first + 2, model.BATCHES))
        forward = [(block, b) for block in range(0, model.LAYERS, 2) for b in batches]
        backward = [(block, b) for block in reversed(range(0, model.LAYERS, 2)) for b in batches]

        for block, b in forward:
            if block == 0:
                activations[0, b] = model.get_activation([b])
                activations["rows", 0, b] = model.shard(activations[0, b], "rows", model.rank, model.RANKS)
            else:
                if (block, b) not in gathered:
                    await hand_on(keep=True)
                activations[block, b] = await gathered.pop((block, b))
            activations[block + 1, b] = model.forward(block, activations[block, b], weights[block])
            del activations[block, b]
            await hand_on(keep=True)  # what the batch before has left: scattered by now
            if (block, b) == forward[-1]:
                gather_again(*backward[0])
            activations[block + 2, b] = model.forward(block + 1, activations[block + 1, b], weights[block + 1])
            scattered[block + 2, b] = model.scatterreduce(activations.pop((block + 2, b)), block + 2, dim="rows")

        for (block, b), following in zip(backward, [*backward[1:], None], strict=True):
            if (block + 2, b) not in gathered:
                await hand_on()
            grad_activations[block + 2, b] = await gathered.pop((block + 2, b))
            take_back(block + 1, b)
            gather_again(block, b)
            await hand_on()
            if following:
                gather_again(*following)  # so that it is there in time
            activations[block, b] = await again.pop((block, b))
            take_back(block, b)
            if block > 0:
                scattered[block, b] = model.scatterreduce(grad_activations[block, b], block, dim="rows")
            del grad_activations[block, b]

    for layer in range(model.LAYERS):
        grad_weights[layer] = grad_weights.pop((layer, model.BATCHES - 1))
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
