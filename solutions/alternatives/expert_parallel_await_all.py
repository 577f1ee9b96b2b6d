"""All tokens at once, and every collective awaited where it is called.

The step that is easiest to follow. In each exchange all ranks wait, and none computes.
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

    activations[1] = model.forward(0, activations[0], weights[0])
    activations[2] = joined(await model.alltoall(cut(model, model.forward(1, activations[1]), "experts"), 2))
    results = model.forward(2, activations[2], weights[2])
    activations[3] = joined(await model.alltoall(cut(model, results, "batch"), 3))
    del results

    grad_activations[4] = model.loss(model.forward(3, activations[3]))
    grad_activations[3] = model.backward(3, activations.pop(3), grad_activations.pop(4))
    grad_activations[3] = joined(await model.alltoall(cut(model, grad_activations[3], "experts"), 2))
    grad_weights[2], grad_activations[2] = model.backward(2, activations.pop(2), grad_activations.pop(3), weights[2])
    grad_activations[2] = joined(await model.alltoall(cut(model, grad_activations[2], "batch"), 1))
    grad_activations[1] = model.backward(1, activations.pop(1), grad_activations.pop(2))
    grad_weights[0], _ = model.backward(0, activations.pop(0), grad_activations.pop(1), weights[0])
    del _

    grad_weights[0] = await model.allreduce(grad_weights[0], 0)
    for layer in (0, 2):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (0, 2):
        model.set_final_weight(layer, weights[layer])
