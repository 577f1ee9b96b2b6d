"""Sum the gradients of the weights over the data behind the backward passes that follow.

The two axes have queues of their own, so a sum over `data` runs beside the sums over `model`. Only these are waited for.
"""

from lib import Model


async def place_inputs(model: Model, placement: str = "batch") -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    data, member = model.coord["data"], model.coord["model"]
    rows, members = len(model.group("data")), len(model.group("model"))
    for layer in range(model.LAYERS):
        dim = "out" if layer % 2 == 0 else "in"
        weights[layer], opt_states[layer] = model.load_weights(layer, member, members, dim=dim)
    each = model.BATCHES // rows
    my_batches = range(data * each, (data + 1) * each)

    if placement == "full":
        part = each // members
        activations[0] = model.get_activation(my_batches[member * part : (member + 1) * part])
        activations[0] = await model.allgather(activations[0], 0, group="model")
    elif placement == "batch":
        activations[0] = model.get_activation(my_batches)
    else:
        activations[0] = model.get_activation(range(model.BATCHES)).shard(data, rows)

    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        if layer % 2 == 1:
            activations[layer + 1] = await model.allreduce(activations[layer + 1], layer + 1, group="model")

    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))
    coming = {}
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
        )
        coming[layer] = model.allreduce(grad_weights.pop(layer), layer, group="data")
        if layer % 2 == 0 and layer > 0:
            grad_activations[layer] = await model.allreduce(grad_activations[layer], layer, group="model")
    del grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await coming.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
