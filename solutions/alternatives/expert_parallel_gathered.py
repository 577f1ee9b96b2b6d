"""Gather the tokens of all ranks, and scatter the sums of what their experts made of them.

No token is cut out for anybody: each rank takes from all tokens those of its expert, and what it combines is a part of a
sum. It is short, and sends every token to every rank: with two experts in four that is twice what is needed, and with two
in 256 it would be 128 times.
"""

from lib import Model


async def expert_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    weights[0], opt_states[0] = model.load_weights(0)
    weights[2], opt_states[2] = model.load_weights(2, model.rank, model.RANKS)
    mine = model.BATCHES // model.RANKS
    activations[0] = model.get_activation(range(model.rank * mine, (model.rank + 1) * mine))

    activations[1] = model.forward(0, activations[0], weights[0])
    activations["all"] = await model.allgather(activations.pop(1), 1)
    activations[2] = model.shard(model.forward(1, activations["all"]), "experts", model.rank, model.RANKS)
    activations[3] = model.forward(2, activations[2], weights[2])
    activations[4] = await model.scatterreduce(model.forward(3, activations[3]), 4, dim="batch")

    grad_activations[4] = await model.allgather(model.loss(activations.pop(4)), 3)
    grad_activations[3] = model.backward(3, activations.pop(3), grad_activations.pop(4))
    grad_weights[2], grad_activations[2] = model.backward(2, activations.pop(2), grad_activations.pop(3), weights[2])
    grad_activations[1] = model.backward(1, activations.pop("all"), grad_activations.pop(2))
    grad_activations[1] = await model.scatterreduce(grad_activations[1], 0, dim="batch")
    grad_weights[0], _ = model.backward(0, activations.pop(0), grad_activations.pop(1), weights[0])
    del _

    grad_weights[0] = await model.allreduce(grad_weights[0], 0)
    for layer in (0, 2):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (0, 2):
        model.set_final_weight(layer, weights[layer])
