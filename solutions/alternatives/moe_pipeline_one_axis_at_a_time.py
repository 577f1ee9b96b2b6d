"""1F1B with everything awaited, and the usual layer's gradient summed along one axis after the other.

Two sums over two ranks each give what one over four gives, but more is sent: 0.4 and 0.4, where it could be 0.6.
"""

from lib import Model
from lib.schedules.given import accumulate, joined


async def exchange(model: Model, value, dim: str, layer: int):
    ranks = len(model.group("expert"))
    parts = [model.shard(value, dim, rank, ranks) for rank in range(ranks)]
    coming = model.alltoall(parts, layer, group="expert")
    del value, parts
    return joined(await coming)


async def moe_pipeline(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    stage, other = model.coord["stage"], model.group("stage")[1 - model.coord["stage"]]
    dense, dispatch, experts, combine = range(4 * stage, 4 * stage + 4)  # this stage's layers
    replicas = model.group(["data", "expert"])  # all ranks of this stage
    mine = range(replicas.index(model.rank), model.BATCHES, len(replicas))
    weights[dense], opt_states[dense] = model.load_weights(dense)
    weights[experts], opt_states[experts] = model.load_weights(
        experts, model.coord["expert"], len(model.group("expert"))
    )

    async def forward(b: int) -> None:
        activations[dense, b] = model.get_activation([b]) if stage == 0 else await model.receive(other)
        activations["out", b] = model.forward(dense, activations[dense, b], weights[dense])
        activations["out", b] = model.forward(dispatch, activations["out", b])
        activations[experts, b] = await exchange(model, activations.pop(("out", b)), "experts", experts)
        activations["out", b] = model.forward(experts, activations[experts, b], weights[experts])
        activations["out", b] = await exchange(model, activations.pop(("out", b)), "batch", combine)
        activations["out", b] = model.forward(combine, activations["out", b])
        if stage == 1:
            grad_activations["out", b] = model.loss(activations.pop(("out", b)))
        else:
            await model.pass_to(other, activations.pop(("out", b)))

    async def backward(b: int) -> None:
        if stage == 0:
            grad_activations["out", b] = await model.receive(other)
        grad_activations[combine, b] = model.backward(combine, None, grad_activations.pop(("out", b)))
        grad_activations[combine, b] = await exchange(model, grad_activations.pop((combine, b)), "experts", experts)
        gradient, grad_activations[experts, b] = model.backward(
            experts, activations.pop((experts, b)), grad_activations.pop((combine, b)), weights[experts]
        )
        accumulate(model, experts, gradient)
        del gradient
        grad_activations[experts, b] = await exchange(model, grad_activations.pop((experts, b)), "batch", dispatch)
        grad_activations[dispatch, b] = model.backward(dispatch, None, grad_activations.pop((experts, b)))
        gradient, grad_activations[dense, b] = model.backward(
            dense, activations.pop((dense, b)), grad_activations.pop((dispatch, b)), weights[dense]
        )
        accumulate(model, dense, gradient)
        del gradient
        if stage == 0:
            del grad_activations[dense, b]
        else:
            await model.pass_to(other, grad_activations.pop((dense, b)))

    ahead = 2 - stage
    for b in mine[:ahead]:
        await forward(b)
    for number, b in enumerate(mine):
        await backward(b)
        for later in mine[number + ahead : number + ahead + 1]:
            await forward(later)

    grad_weights[dense] = await model.allreduce(grad_weights[dense], dense, group="expert")
    for layer in (experts, dense):
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer, group="data")
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (dense, experts):
        model.set_final_weight(layer, weights[layer])
