"""One batch through all layers and back, then the next: the least memory, and every sum is waited for.

With one batch under way there is nothing to compute while its sum travels. Time as in the plain form, memory of a half.
"""

from lib import Model


async def tensor_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        dim = "out" if layer % 2 == 0 else "in"
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS, dim=dim)

    for first in range(model.BATCHES):
        batches = [first]
        coming = {}
        for b in batches:
            activations[0, b] = model.get_activation([b])
        for block in range(0, model.LAYERS, 2):
            for b in batches:
                if block > 0:
                    activations[block, b] = await coming.pop((block, b))
                for layer in (block, block + 1):
                    activations[layer + 1, b] = model.forward(layer, activations[layer, b], weights[layer])
                coming[block + 2, b] = model.allreduce(activations.pop((block + 2, b)), block + 2)
        for block in reversed(range(0, model.LAYERS, 2)):
            for b in batches:
                arrived = await coming.pop((block + 2, b))
                grad_activations[block + 2, b] = model.loss(arrived) if block + 2 == model.LAYERS else arrived
                del arrived
                for layer in (block + 1, block):
                    grad_weights[layer, b], grad_activations[layer, b] = model.backward(
                        layer, activations[layer, b], grad_activations[layer + 1, b], weights[layer]
                    )
                    del activations[layer, b], grad_activations[layer + 1, b]
                    if b > 0:
                        grad_weights[layer, b] = grad_weights[layer, b] + grad_weights.pop((layer, b - 1))
                if block > 0:
                    coming[block, b] = model.allreduce(grad_activations[block, b], block)
                del grad_activations[block, b]

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop((layer, model.BATCHES - 1)), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
