"""Begin with a backward as soon as there is one, and then take turns: one forward, one backward (1F1B).

Good for memory: a stage holds the activations of at most as many batches as there are stages from it to the end, however
many batches there are. It costs no time, only an order that is different on every stage (Narayanan et al. 2021, Efficient
Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, section 2.2).
"""

from lib import Model


async def gpipe(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    per_rank = model.LAYERS // model.RANKS
    my_layers = range(model.rank * per_rank, (model.rank + 1) * per_rank)
    first, last = my_layers[0], my_layers[-1]
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    async def forward(b: int) -> None:
        if model.rank == 0:
            activations[first, b] = model.get_activation([b])
        else:
            activations[first, b] = await model.receive(model.rank - 1)
        for layer in my_layers:
            activations[layer + 1, b] = model.forward(layer, activations[layer, b], weights[layer])
        if model.rank == model.RANKS - 1:
            grad_activations[last + 1, b] = model.loss(activations.pop((last + 1, b)))
        else:
            await model.pass_to(model.rank + 1, activations.pop((last + 1, b)))

    async def backward(b: int) -> None:
        if model.rank < model.RANKS - 1:
            grad_activations[last + 1, b] = await model.receive(model.rank + 1)
        for layer in reversed(my_layers):
            grad_weights[layer, b], grad_activations[layer, b] = model.backward(
                layer, activations.pop((layer, b)), grad_activations.pop((layer + 1, b)), weights[layer]
            )
            if b > 0:
                grad_weights[layer, b] = grad_weights[layer, b] + grad_weights.pop((layer, b - 1))
        if model.rank > 0:
            await model.pass_to(model.rank - 1, grad_activations.pop((first, b)))
        else:
            del grad_activations[first, b]

    ahead = min(model.BATCHES, model.RANKS - model.rank)
    for b in range(ahead):
        await forward(b)
    for b in range(model.BATCHES):
        await backward(b)
        if b + ahead < model.BATCHES:
            await forward(b + ahead)

    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop((layer, model.BATCHES - 1)), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
