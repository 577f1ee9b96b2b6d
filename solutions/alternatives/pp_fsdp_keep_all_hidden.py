"""Gather once, and let every collective but the first gather run behind computation.

The second gather runs behind the first forward of stage 0, the sum of the upper layer behind the last backward of the lower one,
and that of the lower one behind the update of the upper one. It is as good as a pipeline without FSDP, but for one gather.
"""

from typing import Any

from lib import Model


async def pp_fsdp_keep(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    stage, data = model.coord["stage"], model.coord["data"]
    pipeline, shards = model.group("stage"), len(model.group("data"))
    per_stage = model.LAYERS // len(pipeline)
    my_layers = range(stage * per_stage, (stage + 1) * per_stage)
    first, last = my_layers[0], my_layers[-1]
    my_batches = range(data, model.BATCHES, shards)
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer, data, shards)

    coming: dict[int, Any] = {}
    summing: dict[int, Any] = {}

    async def take_input(b: int) -> None:
        if stage == 0:
            activations[first, b] = model.get_activation([b])
        else:
            activations[first, b] = await model.receive(pipeline[stage - 1])

    async def forward(b: int) -> None:
        for layer in my_layers:
            if layer in coming:
                weights[layer] = await coming.pop(layer)
            activations[layer + 1, b] = model.forward(layer, activations[layer, b], weights[layer])

    async def hand_on(b: int) -> None:
        if stage == len(pipeline) - 1:
            grad_activations[last + 1, b] = model.loss(activations[last + 1, b])
        else:
            await model.pass_to(pipeline[stage + 1], activations[last + 1, b])
        del activations[last + 1, b]

    async def take_gradient(b: int) -> None:
        if stage < len(pipeline) - 1:
            grad_activations[last + 1, b] = await model.receive(pipeline[stage + 1])

    def backward(b: int) -> None:
        for layer in reversed(my_layers):
            grad_weights[layer, b], grad_activations[layer, b] = model.backward(
                layer, activations[layer, b], grad_activations[layer + 1, b], weights[layer]
            )
            del activations[layer, b], grad_activations[layer + 1, b]
            if b != my_batches[0]:
                grad_weights[layer, b] = grad_weights[layer, b] + grad_weights[layer, b - shards]
                del grad_weights[layer, b - shards]
            if b == my_batches[-1]:
                weights[layer] = weights[layer].shard(data, shards)
                summing[layer] = model.scatterreduce(grad_weights.pop((layer, b)), layer, group="data")

    async def hand_back(b: int) -> None:
        if stage > 0:
            await model.pass_to(pipeline[stage - 1], grad_activations[first, b])
        del grad_activations[first, b]

    for layer in my_layers:
        coming[layer] = model.allgather(weights[layer], layer, group="data")
    ahead = min(len(my_batches), len(pipeline) - stage)
    for b in my_batches[:ahead]:
        await take_input(b)
        await forward(b)
        await hand_on(b)
    for place, b in enumerate(my_batches):
        await take_gradient(b)
        backward(b)
        await hand_back(b)
        if place + ahead < len(my_batches):
            b = my_batches[place + ahead]
            await take_input(b)
            await forward(b)
            await hand_on(b)

    for layer in reversed(my_layers):
        grad_weights[layer] = await summing.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
