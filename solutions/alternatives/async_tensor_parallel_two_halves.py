"""Two halves of the rows instead of two batches: while the sum of one is on its way, the other is computed.

What was learned of tensor parallelism, with all-reduces and no ring. As fast, and whole activations on every rank.
"""

from lib import Model


async def async_tensor_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        dim = "out" if layer % 2 == 0 else "in"
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS, dim=dim)

    coming = {}
    activations[0] = model.get_activation(range(model.BATCHES))
    for half in (0, 1):
        activations[0, half] = model.shard(activations[0], "rows", half, 2)
    del activations[0]
    for block in range(0, model.LAYERS, 2):
        for half in (0, 1):
            if block > 0:
                activations[block, half] = await coming.pop(half)
            activations[block + 1, half] = model.forward(block, activations[block, half], weights[block])
            part = model.forward(block + 1, activations[block + 1, half], weights[block + 1])
            coming[half] = model.allreduce(part, block + 2)
            del part

    for block in reversed(range(0, model.LAYERS, 2)):
        for half in (0, 1):
            arrived = await coming.pop(half)
            grad_activations[half] = model.loss(arrived) if block + 2 == model.LAYERS else arrived
            del arrived
            for layer in (block + 1, block):
                gradient, grad_activations[half] = model.backward(
                    layer, activations.pop((layer, half)), grad_activations.pop(half), weights[layer]
                )
                grad_weights[layer] = grad_weights[layer] + gradient if half else gradient
                del gradient
            if block > 0:
                coming[half] = model.allreduce(grad_activations.pop(half), block)
            else:
                del grad_activations[half]

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
