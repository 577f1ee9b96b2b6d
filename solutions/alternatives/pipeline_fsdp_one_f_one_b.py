"""Begin with a backward as soon as there is one, and then take turns: one forward, one backward (1F1B).

Good for memory: a stage holds the activations of at most as many batches as there are stages from it to the end. It costs
no time (Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, section
2.2).
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

    async def forward(b: int) -> None:
        if stage == 0:
            activations[first, b] = model.get_activation([b])
        else:
            activations[first, b] = await model.receive(pipeline[stage - 1])
        for layer in my_layers:
            activations[layer + 1, b] = model.forward(layer, activations[layer, b], weights[layer, "full"])
        if stage == len(pipeline) - 1:
            grad_activations[last + 1, b] = model.loss(activations.pop((last + 1, b)))
        else:
            await model.pass_to(pipeline[stage + 1], activations.pop((last + 1, b)))

    async def backward(b: int) -> None:
        if stage < len(pipeline) - 1:
            grad_activations[last + 1, b] = await model.receive(pipeline[stage + 1])
        for layer in reversed(my_layers):
            made, grad_activations[layer, b] = model.backward(
                layer, activations.pop((layer, b)), grad_activations.pop((layer + 1, b)), weights[layer, "full"]
            )
            if b == my_batches[-1]:
                del weights[layer, "full"]
            grad_weights[layer] = grad_weights[layer] + made if layer in grad_weights else made
            del made
        if stage > 0:
            await model.pass_to(pipeline[stage - 1], grad_activations.pop((first, b)))
        else:
            del grad_activations[first, b]

    ahead = min(len(my_batches), len(pipeline) - stage)
    for b in my_batches[:ahead]:
        await forward(b)
    for place, b in enumerate(my_batches):
        await backward(b)
        if place + ahead < len(my_batches):
            await forward(my_batches[place + ahead])

    for layer in my_layers:
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group="data")
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
