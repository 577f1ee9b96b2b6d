"""Await every collective where it is called, and sum only what is read.

All batches of the row go through a layer at once. The sum of the activation cannot be hidden then, because nothing else is
left to compute. It is the plain form of tensor parallelism, and what its figures are usually quoted for.
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
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
        )
        if layer % 2 == 0 and layer > 0:
            grad_activations[layer] = await model.allreduce(grad_activations[layer], layer, group="model")
    del grad_activations[0]

    for layer in range(model.LAYERS):
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer, group="data")
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
