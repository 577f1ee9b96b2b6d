"""Buckets of two layers, and one update in the middle of backward, as soon as a sum is certainly there.

Good for memory at no cost in time: one gradient less waits for the end. More such updates would cost time, because
each of them delays the backwards below it, and with them the last bucket.
"""

from lib import Model


async def ddp_overlap(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    def update(layer: int) -> None:
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]

    bucket, travelling, late = [], [], []
    for done, layer in enumerate(reversed(range(model.LAYERS)), 1):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        if layer == 0:
            del grad_activations[0]
        bucket.append(layer)
        if len(bucket) == 2 or layer == 0:
            work = model.allreduce_bucket([grad_weights[i] for i in bucket])
            travelling.append((bucket, work))
            bucket = []
        if done == 5:  # the first bucket left three backwards ago
            first, work = travelling.pop(0)
            sums = await work
            for i in first:
                grad_weights[i] = sums.pop(0)
            update(first[0])
            late = first[1:]

    for layer in late:
        update(layer)
    for bucket, work in travelling:
        sums = await work
        for layer in bucket:
            grad_weights[layer] = sums.pop(0)
        for layer in bucket:
            update(layer)

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
