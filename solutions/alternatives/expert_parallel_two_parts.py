"""Two parts instead of four.

Each exchange is twice as long, and there are still a first one and a last one in each direction that nothing hides.
"""

from lib import Model
from lib.schedules.given import joined


def cut(model: Model, value, dim: str) -> list:
    return [model.shard(value, dim, rank, model.RANKS) for rank in range(model.RANKS)]


async def expert_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    weights[0], opt_states[0] = model.load_weights(0)
    weights[2], opt_states[2] = model.load_weights(2, model.rank, model.RANKS)
    mine = model.BATCHES // model.RANKS
    activations[0] = model.get_activation(range(model.rank * mine, (model.rank + 1) * mine))

    parts = 2
    on_the_way = {}

    async def turn_back(part: int) -> None:
        """From the results of a part, at home, to the gradients, on their way to the experts."""
        activations[3, part] = joined(await on_the_way.pop(("home", part)))
        grad_activations[4, part] = model.loss(model.forward(3, activations[3, part]))
        grad_activations[3, part] = model.backward(3, activations.pop((3, part)), grad_activations.pop((4, part)))
        on_the_way["out", part] = model.alltoall(cut(model, grad_activations.pop((3, part)), "experts"), 2)

    for part in range(parts):
        activations[0, part] = model.shard(activations[0], "rows", part, parts)
        activations[1, part] = model.forward(0, activations[0, part], weights[0])
        by_expert = model.forward(1, activations[1, part])
        on_the_way["out", part] = model.alltoall(cut(model, by_expert, "experts"), 2)
        del by_expert
    del activations[0]

    for part in range(parts):
        activations[2, part] = joined(await on_the_way.pop(("out", part)))
        results = model.forward(2, activations[2, part], weights[2])
        on_the_way["home", part] = model.alltoall(cut(model, results, "batch"), 3)
        del results
        if part > 0:
            await turn_back(part - 1)
    await turn_back(parts - 1)

    for part in range(parts):
        grad_activations[3, part] = joined(await on_the_way.pop(("out", part)))
        gradient, grad_activations[2, part] = model.backward(
            2, activations.pop((2, part)), grad_activations.pop((3, part)), weights[2]
        )
        grad_weights[2] = gradient if part == 0 else grad_weights[2] + gradient
        on_the_way["home", part] = model.alltoall(cut(model, grad_activations.pop((2, part)), "batch"), 1)

    for part in range(parts):
        grad_activations[2, part] = joined(await on_the_way.pop(("home", part)))
        grad_activations[1, part] = model.backward(1, activations.pop((1, part)), grad_activations.pop((2, part)))
        gradient, _ = model.backward(0, activations.pop((0, part)), grad_activations.pop((1, part)), weights[0])
        grad_weights[0] = gradient if part == 0 else grad_weights[0] + gradient
    del gradient, _

    total = model.allreduce(grad_weights.pop(0), 0)  # of layer 0 alone: each expert has seen the tokens of all ranks
    weights[2], opt_states[2] = model.update(2, grad_weights.pop(2), weights[2], opt_states[2])
    grad_weights[0] = await total
    weights[0], opt_states[0] = model.update(0, grad_weights.pop(0), weights[0], opt_states[0])

    for layer in (0, 2):
        model.set_final_weight(layer, weights[layer])
