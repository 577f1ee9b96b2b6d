"""Treat every microbatch as FSDP does: gather for its forward and again for its backward, and reduce-scatter its gradient.

Good for memory where a stage has many layers: only one whole weight and one whole gradient are there at a time, and what
waits for the next batch is a shard. With one layer a stage it saves little, and it costs three collectives for each batch
instead of two for all.
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

    async def gather(layer: int) -> None:
        weights[layer, "full"] = await model.allgather(weights[layer], layer, group="data")

    for b in my_batches:
        if stage == 0:
            activations[0, b] = model.get_activation([b])
        else:
            activations[first, b] = await model.receive(pipeline[stage - 1])
        for layer in my_layers:
            await gather(layer)
            activations[layer + 1, b] = model.forward(layer, activations[layer, b], weights.pop((layer, "full")))
        if stage == len(pipeline) - 1:
            grad_activations[last + 1, b] = model.loss(activations.pop((last + 1, b)))
        else:
            await model.pass_to(pipeline[stage + 1], activations.pop((last + 1, b)))

    for b in my_batches:
        if stage < len(pipeline) - 1:
            grad_activations[last + 1, b] = await model.receive(pipeline[stage + 1])
        for layer in reversed(my_layers):
            await gather(layer)
            grad_weights[layer, b], grad_activations[layer, b] = model.backward(
                layer, activations.pop((layer, b)), grad_activations.pop((layer + 1, b)), weights.pop((layer, "full"))
            )
        if stage > 0:
            await model.pass_to(pipeline[stage - 1], grad_activations.pop((first, b)))
        else:
            del grad_activations[first, b]
        for layer in my_layers:
            shard = await model.scatterreduce(grad_weights.pop((layer, b)), layer, group="data")
            grad_weights[layer] = grad_weights[layer] + shard if layer in grad_weights else shard

    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
