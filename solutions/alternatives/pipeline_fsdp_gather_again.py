"""Throw the full weight away after the forward, and gather it again just before the backward.

Good for memory between the two, which is most of the time in a pipeline: other values can use that room, and with
several layers a stage the peak is lower too. It costs one more collective for each layer. That one is done before the
gradient is received, while the stage waits anyway; only the last stage, which waits for nobody, is later by it.
"""

from lib import Model


async def pipeline_fsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    stage, batch = model.coord["stage"], model.coord["data"]
    pipeline, shards = model.group("stage"), len(model.group("data"))
    per_stage = model.LAYERS // len(pipeline)
    my_layers = range(stage * per_stage, (stage + 1) * per_stage)
    first, last = my_layers[0], my_layers[-1]
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer, batch, shards)

    weights[first, "full"] = await model.allgather(weights[first], first, group="data")
    if stage == 0:
        activations[0] = model.get_activation([batch])
    else:
        activations[first] = await model.receive(pipeline[stage - 1])
    for layer in my_layers:
        if layer > first:
            weights[layer, "full"] = await model.allgather(weights[layer], layer, group="data")
        activations[layer + 1] = model.forward(layer, activations[layer], weights.pop((layer, "full")))

    if stage == len(pipeline) - 1:
        grad_activations[last + 1] = model.loss(activations.pop(last + 1))
        weights[last, "full"] = await model.allgather(weights[last], last, group="data")
    else:
        await model.pass_to(pipeline[stage + 1], activations.pop(last + 1))
        weights[last, "full"] = await model.allgather(weights[last], last, group="data")
        grad_activations[last + 1] = await model.receive(pipeline[stage + 1])

    for layer in reversed(my_layers):
        if layer < last:
            weights[layer, "full"] = await model.allgather(weights[layer], layer, group="data")
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights.pop((layer, "full"))
        )
    if stage > 0:
        await model.pass_to(pipeline[stage - 1], grad_activations.pop(first))
    else:
        del grad_activations[first]

    for layer in my_layers:
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group="data")
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
