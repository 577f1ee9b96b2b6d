"""One batch through all layers and back, then the next: the least memory, and every sum is waited for.

Time as in the plain form. With one batch under way there is nothing to compute while its sums travel.
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

    coming = {}  # sums on their way, by layer and batch
    for first in range(model.BATCHES):
        batches = [first]
        for b in batches:
            activations[0, b] = model.get_activation([b])
        for block in range(0, output, 2):
            for b in batches:
                if block > 0:
                    activations[block, b] = await coming.pop((block, b))
                for layer in (block, block + 1):
                    activations[layer + 1, b] = model.forward(layer, activations[layer, b], weights[layer])
                coming[block + 2, b] = model.allreduce(activations.pop((block + 2, b)), block + 2)

        for b in batches:
            activations[output, b] = await coming.pop((output, b))
            activations[loss, b] = model.forward(output, activations[output, b], weights[output])
            coming[loss + 1, b] = model.allreduce(model.forward(loss, activations[loss, b]), loss + 1)
        for b in batches:
            grad_activations[loss + 1, b] = model.loss(await coming.pop((loss + 1, b)))
            grad_activations[loss, b] = model.backward(
                loss, activations.pop((loss, b)), grad_activations.pop((loss + 1, b))
            )
            backward(output, b)
            coming[output, b] = model.allreduce(grad_activations.pop((output, b)), output)

        for block in reversed(range(0, output, 2)):
            for b in batches:
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
