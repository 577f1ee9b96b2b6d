"""All experts of a stage on all of its ranks: a pipeline with data parallelism, in which no token travels.

With two experts it is faster, as no rank waits for tokens, but the weights, gradients and states of both are on each rank.
"""

from lib import Model
from lib.schedules.given import accumulate


async def moe_pipeline(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    stage, other = model.coord["stage"], model.group("stage")[1 - model.coord["stage"]]
    dense, dispatch, experts, combine = range(4 * stage, 4 * stage + 4)  # this stage's layers
    replicas = model.group(["data", "expert"])  # all ranks of this stage
    mine = range(replicas.index(model.rank), model.BATCHES, len(replicas))
    weights[dense], opt_states[dense] = model.load_weights(dense)
    weights[experts], opt_states[experts] = model.load_weights(experts)

    on_the_way = {}  # messages and sums

    async def sent(key) -> None:
        if key in on_the_way:
            await on_the_way.pop(key)

    async def forward(b: int) -> None:
        activations[dense, b] = model.get_activation([b]) if stage == 0 else await model.receive(other)
        activations["out", b] = model.forward(dense, activations[dense, b], weights[dense])
        activations[experts, b] = model.forward(dispatch, activations.pop(("out", b)))
        activations["out", b] = model.forward(experts, activations[experts, b], weights[experts])
        activations["out", b] = model.forward(combine, activations["out", b])
        if stage == 1:
            grad_activations["out", b] = model.loss(activations.pop(("out", b)))
        else:
            await sent("forward")  # the batch before, which has had a whole batch's time to arrive
            on_the_way["forward"] = model.pass_to(other, activations.pop(("out", b)))

    async def backward(b: int) -> None:
        if stage == 0:
            grad_activations["out", b] = await model.receive(other)
        grad_activations[combine, b] = model.backward(combine, None, grad_activations.pop(("out", b)))
        gradient, grad_activations[experts, b] = model.backward(
            experts, activations.pop((experts, b)), grad_activations.pop((combine, b)), weights[experts]
        )
        accumulate(model, experts, gradient)
        del gradient
        if b == mine[-1]:  # the sum of this expert's gradients, while layer `dense` goes back
            on_the_way["sum", experts] = model.allreduce(grad_weights.pop(experts), experts, group=["data", "expert"])
        grad_activations[dispatch, b] = model.backward(dispatch, None, grad_activations.pop((experts, b)))
        gradient, grad_activations[dense, b] = model.backward(
            dense, activations.pop((dense, b)), grad_activations.pop((dispatch, b)), weights[dense]
        )
        accumulate(model, dense, gradient)
        del gradient
        if stage == 0:
            del grad_activations[dense, b]
        else:
            await sent("backward")
            on_the_way["backward"] = model.pass_to(other, grad_activations.pop((dense, b)))

    ahead = 2 - stage  # the first stage is one batch ahead of the second, and no more
    for b in mine[:ahead]:
        await forward(b)
    for number, b in enumerate(mine):
        await backward(b)
        for later in mine[number + ahead : number + ahead + 1]:
            await forward(later)
    await sent("forward")
    await sent("backward")

    on_the_way["sum", dense] = model.allreduce(grad_weights.pop(dense), dense, group=["data", "expert"])
    for layer in (experts, dense):
        grad_weights[layer] = await on_the_way.pop(("sum", layer))
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (dense, experts):
        model.set_final_weight(layer, weights[layer])
