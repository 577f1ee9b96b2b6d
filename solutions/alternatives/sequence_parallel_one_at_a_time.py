"""One batch through all layers and back, then the next: the least memory of all, and most collectives are waited for.

Only the second gather hides, behind backward of the row layer. As fast as tensor parallelism that waits for every sum, with
half of its memory.
"""

from lib import Model


async def sequence_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        dim = "out" if layer % 2 == 0 else "in"
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS, dim=dim)

    for b in range(model.BATCHES):
        activations[0, b] = model.get_activation([b])
        activations["rows", 0, b] = model.shard(activations[0, b], "rows", model.rank, model.RANKS)
        for block in range(0, model.LAYERS, 2):
            if block > 0:
                activations[block, b] = await model.allgather(activations["rows", block, b], block)
            activations[block + 1, b] = model.forward(block, activations[block, b], weights[block])
            del activations[block, b]
            activations["part", b] = model.forward(block + 1, activations[block + 1, b], weights[block + 1])
            activations["rows", block + 2, b] = await model.scatterreduce(
                activations.pop(("part", b)), block + 2, dim="rows"
            )

        grad_activations["rows", b] = model.loss(activations.pop(("rows", model.LAYERS, b)))
        for block in reversed(range(0, model.LAYERS, 2)):
            grad_activations[block + 2, b] = await model.allgather(grad_activations.pop(("rows", b)), block + 2)
            coming = model.allgather(activations.pop(("rows", block, b)), block)
            for layer in (block + 1, block):
                if layer == block:
                    activations[block, b] = await coming
                grad_weights[layer, b], grad_activations[layer, b] = model.backward(
                    layer, activations[layer, b], grad_activations[layer + 1, b], weights[layer]
                )
                del activations[layer, b], grad_activations[layer + 1, b]
                if b > 0:
                    grad_weights[layer, b] = grad_weights[layer, b] + grad_weights.pop((layer, b - 1))
            if block > 0:
                grad_activations["rows", b] = await model.scatterreduce(
                    grad_activations.pop((block, b)), block, dim="rows"
                )
            else:
                del grad_activations[0, b]

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop((layer, model.BATCHES - 1)), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
