"""Layer by layer for all batches; the output layer goes back with a batch while the next one goes forward.

Nobody waits, and only two batches have logits at a time. But the activations of all four batches are there at once.
"""

from lib import Model


async def loss_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    output, loss = model.LAYERS - 2, model.LAYERS - 1

    for layer in range(loss):
        dim = "out" if layer % 2 == 0 else "in"
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS, dim=dim)

    def backward(layer: int, b: int) -> None:
        grad_weights[layer, b], grad_activations[layer, b] = model.backward(
            layer, activations.pop((layer, b)), grad_activations.pop((layer + 1, b)), weights[layer]
        )
        if b > 0:
            grad_weights[layer, b] = grad_weights[layer, b] + grad_weights.pop((layer, b - 1))

    coming = {}
    for block in range(0, output, 2):
        for b in range(model.BATCHES):
            activations[block, b] = await coming.pop((block, b)) if block > 0 else model.get_activation([b])
            for layer in (block, block + 1):
                activations[layer + 1, b] = model.forward(layer, activations[layer, b], weights[layer])
            coming[block + 2, b] = model.allreduce(activations.pop((block + 2, b)), block + 2)

    for b in range(model.BATCHES + 1):
        if b < model.BATCHES:
            activations[output, b] = await coming.pop((output, b))
            activations[loss, b] = model.forward(output, activations[output, b], weights[output])
            coming[loss + 1, b] = model.allreduce(model.forward(loss, activations[loss, b]), loss + 1)
        if b > 0:
            grad_activations[loss + 1, b - 1] = model.loss(await coming.pop((loss + 1, b - 1)))
            grad_activations[loss, b - 1] = model.backward(
                loss, activations.pop((loss, b - 1)), grad_activations.pop((loss + 1, b - 1))
            )
            backward(output, b - 1)
            coming[output, b - 1] = model.allreduce(grad_activations.pop((output, b - 1)), output)

    for block in reversed(range(0, output, 2)):
        for b in range(model.BATCHES):
            grad_activations[block + 2, b] = await coming.pop((block + 2, b))
            backward(block + 1, b)
            backward(block, b)
            if block > 0:
                coming[block, b] = model.allreduce(grad_activations[block, b], block)
            del grad_activations[block, b]

    for layer in range(loss):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop((layer, model.BATCHES - 1)), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
