"""Sum up in rounds of pairs, each gradient by itself: first with the neighbour, then with the rank two places away.

Good where messages are late rather than large: the rounds grow with the logarithm of the ranks, so that a layer needs 4
latencies here where a ring needs 6, and the rounds of two layers run at the same time. It costs bytes: a rank sends two
whole gradients for each layer in place of one and a half, and rounds that run at the same time share its link.
"""

from lib import Model


async def ddp_overlap(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([model.rank])

    distances = [1 << i for i in range((model.RANKS - 1).bit_length())]  # as many ranks as a power of two

    def start(layer: int, number: int):
        pair = sorted([model.rank, model.rank ^ distances[number]])
        return model.allreduce(grad_weights[layer], layer, pair)

    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    travelling = {}  # the round in which the gradient of each layer is, and its all-reduce

    async def next_rounds() -> None:
        for layer in list(travelling):
            number, work = travelling.pop(layer)
            grad_weights[layer] = await work
            if number + 1 < len(distances):
                travelling[layer] = number + 1, start(layer, number + 1)

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        await next_rounds()
        travelling[layer] = 0, start(layer, 0)
    del grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        while layer in travelling:
            await next_rounds()
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
        if layer % 2 == 0:  # two updates take longer than a round
            await next_rounds()

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
