"""Give each rank every fourth layer instead of two neighbours, so that a batch passes every rank twice (interleaved).

A stage is half as long now, and so is the time until the last rank has something to do: the bubble shrinks. Good for
time, and for memory as 1F1B is. It costs twice as many messages, and each of them takes its time on both sides: with many
batches, or a slow network, plain 1F1B is faster (Narayanan et al. 2021, Efficient Large-Scale Language Model Training on
GPU Clusters Using Megatron-LM, section 2.2).
"""

from lib import Model


async def gpipe(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    my_layers = range(model.rank, model.LAYERS, model.RANKS)
    before, after = (model.rank - 1) % model.RANKS, (model.rank + 1) % model.RANKS
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    async def forward(layer: int, b: int) -> None:
        if layer == 0:
            activations[layer, b] = model.get_activation([b])
        else:
            activations[layer, b] = await model.receive(before)
        activations[layer + 1, b] = model.forward(layer, activations[layer, b], weights[layer])
        if layer == model.LAYERS - 1:
            grad_activations[layer + 1, b] = model.loss(activations.pop((layer + 1, b)))
        else:
            await model.pass_to(after, activations.pop((layer + 1, b)))

    async def backward(layer: int, b: int) -> None:
        if layer < model.LAYERS - 1:
            grad_activations[layer + 1, b] = await model.receive(after)
        grad_weights[layer, b], grad_activations[layer, b] = model.backward(
            layer, activations.pop((layer, b)), grad_activations.pop((layer + 1, b)), weights[layer]
        )
        if b > 0:
            grad_weights[layer, b] = grad_weights[layer, b] + grad_weights.pop((layer, b - 1))
        if layer > 0:
            await model.pass_to(before, grad_activations.pop((layer, b)))
        else:
            del grad_activations[layer, b]

    # All batches through one of my layers, then through the next. The forwards before the first backward: one rank
    # further from the end needs two more, one for the way there and one for the way back.
    forwards = [(layer, b) for layer in my_layers for b in range(model.BATCHES)]
    backwards = [(layer, b) for layer in reversed(my_layers) for b in range(model.BATCHES)]
    ahead = 2 * (model.RANKS - 1 - model.rank) + (len(my_layers) - 1) * model.RANKS + 1
    for layer, b in forwards[:ahead]:
        await forward(layer, b)
    left = forwards[ahead:]
    for layer, b in backwards:
        await backward(layer, b)
        if left:
            await forward(*left.pop(0))

    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop((layer, model.BATCHES - 1)), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
