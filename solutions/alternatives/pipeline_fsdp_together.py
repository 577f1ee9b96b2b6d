"""Take all batches of a pipeline through it together, as in the puzzle "Pipeline".

Good for few messages, and no gradient has to wait for another batch. It costs time: at any moment three stages of four
wait. It passes, and no more.
"""

from lib import Model


async def pipeline_fsdp(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    stage, data = model.coord["stage"], model.coord["data"]
    pipeline, shards = model.group("stage"), len(model.group("data"))
    per_stage = model.LAYERS // len(pipeline)
    my_layers = range(stage * per_stage, (stage + 1) * per_stage)
    first, last = my_layers[0], my_layers[-1]
    my_batches = range(data, model.BATCHES, shards)
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer, data, shards)

    for layer in my_layers:
        weights[layer, "full"] = await model.allgather(weights[layer], layer, group="data")

    if stage == 0:
        activations[0] = model.get_activation(my_batches)
    else:
        activations[first] = await model.receive(pipeline[stage - 1])

    for layer in my_layers:
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer, "full"])

    if stage == len(pipeline) - 1:
        grad_activations[last + 1] = model.loss(activations[last + 1])
        del activations[last + 1]
    else:
        await model.pass_to(pipeline[stage + 1], activations[last + 1])
        del activations[last + 1]
        grad_activations[last + 1] = await model.receive(pipeline[stage + 1])

    for layer in reversed(my_layers):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer, "full"]
        )
        del activations[layer], grad_activations[layer + 1], weights[layer, "full"]

    if stage > 0:
        await model.pass_to(pipeline[stage - 1], grad_activations[first])
    del grad_activations[first]

    for layer in my_layers:
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group="data")
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]

    for layer in my_layers:
        model.set_final_weight(layer, weights[layer])
