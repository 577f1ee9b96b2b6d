"""Gather the weights of the stage for each microbatch, forward and backward, before the message comes.

What FSDP does when it is put on top of a pipeline as it is. It sends more than twice as much, is slower, and saves no
memory at the peak, because a stage that goes backward has to be whole.
"""

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

    async def unshard() -> None:
        for layer in my_layers:
            weights[layer] = await model.allgather(weights[layer], layer, group="data")

    def reshard() -> None:
        for layer in my_layers:
            weights[layer] = weights[layer].shard(data, shards)

    async def take_input(b: int) -> None:
        if stage == 0:
            activations[first, b] = model.get_activation([b])
        else:
            activations[first, b] = await model.receive(pipeline[stage - 1])

    def forward(b: int) -> None:
        for layer in my_layers:
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

    async def hand_back(b: int) -> None:
        if stage > 0:
            await model.pass_to(pipeline[stage - 1], grad_activations[first, b])
        del grad_activations[first, b]

    async def there(b: int) -> None:
        await unshard()
        await take_input(b)
        forward(b)
        reshard()
        await hand_on(b)

    async def back(b: int) -> None:
        await unshard()
        await take_gradient(b)
        backward(b)
        reshard()
        await hand_back(b)

    ahead = min(len(my_batches), len(pipeline) - stage)
    for b in my_batches[:ahead]:
        await there(b)
    for place, b in enumerate(my_batches):
        await back(b)
        if place + ahead < len(my_batches):
            await there(my_batches[place + ahead])

    for layer in my_layers:
        total = grad_weights.pop((layer, my_batches[-1]))
        grad_weights[layer] = await model.scatterreduce(total, layer, group="data")
        del total
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
