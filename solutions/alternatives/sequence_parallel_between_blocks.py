"""Keep rows between two blocks and gather them again for backward; the data stay whole.

A gather more than tensor parallelism, and the input of the second block takes a quarter. That of the first is as large as
before: no rank needs it whole between forward and backward either.
"""

from lib import Model


async def sequence_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        dim = "out" if layer % 2 == 0 else "in"
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS, dim=dim)

    activations[0] = model.get_activation(range(model.BATCHES))
    for block in range(0, model.LAYERS, 2):
        if block > 0:
            activations[block] = await model.allgather(activations["rows", block], block)
        activations[block + 1] = model.forward(block, activations[block], weights[block])
        if block > 0:
            del activations[block]
        activations["part"] = model.forward(block + 1, activations[block + 1], weights[block + 1])
        activations["rows", block + 2] = await model.scatterreduce(activations.pop("part"), block + 2, dim="rows")

    grad_activations["rows", model.LAYERS] = model.loss(activations.pop(("rows", model.LAYERS)))
    for block in reversed(range(0, model.LAYERS, 2)):
        grad_activations[block + 2] = await model.allgather(grad_activations.pop(("rows", block + 2)), block + 2)
        grad_weights[block + 1], grad_activations[block + 1] = model.backward(
            block + 1, activations.pop(block + 1), grad_activations.pop(block + 2), weights[block + 1]
        )
        if block > 0:
            activations[block] = await model.allgather(activations.pop(("rows", block)), block)
        grad_weights[block], grad_activations[block] = model.backward(
            block, activations.pop(block), grad_activations.pop(block + 1), weights[block]
        )
        if block > 0:
            grad_activations["rows", block] = await model.scatterreduce(grad_activations.pop(block), block, dim="rows")
    del grad_activations[0]

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
