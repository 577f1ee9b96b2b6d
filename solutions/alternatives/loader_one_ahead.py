"""One example at a time, asked for one ahead.

After the first example a device never waits for the reader. It does wait for the all-reduce of each example. For that
there are never more than two examples on a device: the least memory of those that read ahead.
"""

from lib import Model


async def loader(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    member, members = model.coord["model"], len(model.group("model"))
    weights[0], opt_states[0] = model.load_weights(0, member, members, "out")
    weights[1], opt_states[1] = model.load_weights(1, member, members, "in")

    def forward(b):
        activations[1, b] = model.forward(0, activations[0, b], weights[0])
        activations[2, b] = model.forward(1, activations[1, b], weights[1])
        return model.allreduce(activations[2, b], 1, group="model")

    async def backward(b, coming):
        activations[2, b] = await coming
        grad_activations[2] = model.loss(activations.pop((2, b)))
        for layer in (1, 0):
            gradient, grad_activations[layer] = model.backward(
                layer, activations.pop((layer, b)), grad_activations.pop(layer + 1), weights[layer]
            )
            grad_weights[layer] = grad_weights[layer] + gradient if layer in grad_weights else gradient
        del grad_activations[0]

    row, rows = model.coord["data"], len(model.group("data"))
    mine = range(row, model.BATCHES, rows)

    reading = model.read([mine[0]])
    for b in mine:
        activations[0, b] = await reading
        if b + rows in mine:
            reading = model.read([b + rows])
        await backward(b, forward(b))

    sums = {layer: model.allreduce(grad_weights[layer], layer, group="data") for layer in (1, 0)}
    for layer in (1, 0):
        grad_weights[layer] = await sums[layer]
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
