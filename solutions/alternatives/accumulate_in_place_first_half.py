"""The first half of the batch is the first microbatch, the second half the other one.

Correct, and what `batch[:half]` means on a batch that is spread over the devices: its examples have to travel to the
devices that have none of them. Each message blocks both of its ends.
"""

from lib import Model


async def accumulate_in_place(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    each = model.BATCHES // model.RANKS
    first = each * model.coord["data"]
    activations["batch"] = await model.read(range(first, first + each))

    for i in range(each):
        activations["waits", first + i] = activations["batch"].shard(i, each)
    del activations["batch"]

    half, part = model.BATCHES // 2, each // 2
    for i in (0, 1):
        begin = i * half
        for r in range(model.RANKS):  # what rank r works on is there, or comes
            for b in range(begin + r * part, begin + (r + 1) * part):
                owner = b // each
                if owner == model.rank != r:
                    await model.pass_to(r, activations.pop(("waits", b)))
                elif r == model.rank != owner:
                    activations["waits", b] = await model.receive(owner)
        mine = range(begin + model.rank * part, begin + (model.rank + 1) * part)
        activations[0] = activations.pop(("waits", mine[0]))
        for b in mine[1:]:
            activations[0] = activations[0].combine(activations.pop(("waits", b)))
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            gradient, grad_activations[layer] = model.backward(
                layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
            )
            grad_weights[layer] = grad_weights[layer] + gradient if i else gradient
        del grad_activations[0]

    for layer in range(model.LAYERS):
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
