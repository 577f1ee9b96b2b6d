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
    """A stage a rank, one layer a stage; after the warm-up each rank alternates forward and backward."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    stage, last = model.rank, model.RANKS - 1
    weights[0], opt_states[0] = model.load_weights(stage)

    async def forward(batch: int) -> None:
        if stage == 0:
            activations[batch] = model.get_activation([batch])
        else:
            activations[batch] = await model.receive(stage - 1)
        activations["out"] = model.forward(stage, activations[batch], weights[0])
        if stage == last:
            grad_activations[batch] = model.loss(activations["out"])
        else:
            await model.pass_to(stage + 1, activations["out"])
        del activations["out"]

    async def backward(batch: int) -> None:
        if stage != last:
            grad_activations[batch] = await model.receive(stage + 1)
        grad, grad_activations["in"] = model.backward(stage, activations[batch], grad_activations[batch], weights[0])
        del activations[batch], grad_activations[batch]
        grad_weights[0] = grad_weights[0] + grad if 0 in grad_weights else grad
        if stage != 0:
            await model.pass_to(stage - 1, grad_activations["in"])
        del grad_activations["in"]

    warm = min(model.BATCHES, last - stage + 1)
    for batch in range(warm):
        await forward(batch)
    for batch in range(model.BATCHES):
        await backward(batch)
        if batch + warm < model.BATCHES:
            await forward(batch + warm)
    weights[0], opt_states[0] = model.update(stage, grad_weights[0], weights[0], opt_states[0])
    model.set_final_weight(stage, weights[0])
