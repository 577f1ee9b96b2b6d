"""Take all batches through a layer before the next one, with the sums on their way in a dict.

Half an activation less than passes that take turns: no sum waits for the turn of its batch.
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

    def take_back(layer, b):  # and add the gradient of the weight to that of batch b - 1
        grad_weights[layer, b], grad_activations[layer, b] = model.backward(
            layer,
            activations.pop((layer, b)),
            grad_activations.pop((layer + 1, b)),
            weights[layer],
        )
        if b > my_batches[0]:
            grad_weights[layer, b] += grad_weights.pop((layer, b - 1))

    # The input first: "full" takes my part of my_batches and gathers, "batch" takes
    # them all, "replicated" takes every batch and cuts. Then forward, loss, backward,
    # sums, updates.
    if placement == "full":
        part = each // members
        mine = my_batches[member * part : (member + 1) * part]
        activations["mine"] = model.get_activation(mine)
        activations["row"] = await model.allgather(activations.pop("mine"), 0, group="model")
    elif placement == "batch":
        activations["row"] = model.get_activation(my_batches)
    else:
        activations["all"] = model.get_activation(range(model.BATCHES))
        activations["row"] = activations.pop("all").shard(data, rows)
    for number, b in enumerate(my_batches):
        activations[0, b] = activations["row"].shard(number, each)
    del activations["row"]

    coming = {}  # sums on their way, by layer and batch
    for layer in range(model.LAYERS):
        for b in my_batches:
            if (layer, b) in coming:
                activations[layer, b] = await coming.pop((layer, b))
            activations[layer + 1, b] = model.forward(layer, activations[layer, b], weights[layer])
            if layer % 2 == 1:  # rows give a part of a sum
                coming[layer + 1, b] = model.allreduce(activations.pop((layer + 1, b)), layer + 1, group="model")

    for layer in reversed(range(model.LAYERS)):
        for b in my_batches:
            if layer == model.LAYERS - 1:
                grad_activations[layer + 1, b] = model.loss(await coming.pop((layer + 1, b)))
            elif layer % 2 == 1:
                grad_activations[layer + 1, b] = await coming.pop((layer + 1, b))
            take_back(layer, b)
            if layer % 2 == 0:  # columns give a part of a sum
                partial = grad_activations.pop((layer, b))
                if layer > 0:  # the gradient of the data is not needed
                    coming[layer, b] = model.allreduce(partial, layer, group="model")
        coming[layer] = model.allreduce(grad_weights.pop((layer, my_batches[-1])), layer, group="data")

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await coming.pop(layer)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
