"""Schedules that the benchmarks run: data parallel, fully sharded and 1F1B, written as a student would."""

from __future__ import annotations

from lib import Model


async def ddp(model: Model) -> None:
    """Each rank one batch, gradients all-reduced, values freed as early as possible."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        grad, grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        grad_weights[layer] = await model.allreduce(grad, layer)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
        model.set_final_weight(layer, weights[layer])


async def fsdp(model: Model) -> None:
    """Every layer sharded over all ranks, gathered for forward and again for backward."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weights["whole"] = await model.allgather(weights[layer], layer)
        activations[layer + 1] = model.forward(layer, activations[layer], weights["whole"])
        del weights["whole"]
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        weights["whole"] = await model.allgather(weights[layer], layer)
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights["whole"]
        )
        del weights["whole"], activations[layer], grad_activations[layer + 1]
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
        model.set_final_weight(layer, weights[layer])


async def one_f_one_b(model: Model) -> None:
    """Each rank a stage of equal size; after the warm-up forward and backward alternate."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    each, stage, last = model.LAYERS // model.RANKS, model.rank, model.RANKS - 1
    layers = range(stage * each, (stage + 1) * each)
    for layer in layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    async def forward(batch: int) -> None:
        x = model.get_activation([batch]) if stage == 0 else await model.receive(stage - 1)
        for layer in layers:
            activations[layer, batch] = x
            x = model.forward(layer, x, weights[layer])
        if stage == last:
            grad_activations[batch] = model.loss(x)
        else:
            await model.pass_to(stage + 1, x)

    async def backward(batch: int) -> None:
        grad = grad_activations.pop(batch) if stage == last else await model.receive(stage + 1)
        for layer in reversed(layers):
            made, grad = model.backward(layer, activations.pop((layer, batch)), grad, weights[layer])
            grad_weights[layer] = grad_weights[layer] + made if layer in grad_weights else made
        if stage != 0:
            await model.pass_to(stage - 1, grad)

    warm = min(model.BATCHES, last - stage + 1)
    for batch in range(warm):
        await forward(batch)
    for batch in range(model.BATCHES):
        await backward(batch)
        if batch + warm < model.BATCHES:
            await forward(batch + warm)
    for layer in layers:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
