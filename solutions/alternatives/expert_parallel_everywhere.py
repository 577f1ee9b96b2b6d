"""All experts on all ranks: plain data parallelism, in which no token travels.

Each rank holds, sums and updates four times as much of the layer of experts as it would have to.
"""

from lib import Model


async def expert_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    weights[0], opt_states[0] = model.load_weights(0)
    weights[2], opt_states[2] = model.load_weights(2)
    mine = model.BATCHES // model.RANKS
    activations[0] = model.get_activation(range(model.rank * mine, (model.rank + 1) * mine))

    activations[1] = model.forward(0, activations[0], weights[0])
    activations[2] = model.forward(1, activations[1])
    activations[3] = model.forward(2, activations[2], weights[2])

    grad_activations[4] = model.loss(model.forward(3, activations[3]))
    grad_activations[3] = model.backward(3, activations.pop(3), grad_activations.pop(4))
    grad_weights[2], grad_activations[2] = model.backward(2, activations.pop(2), grad_activations.pop(3), weights[2])
    grad_activations[1] = model.backward(1, activations.pop(1), grad_activations.pop(2))
    grad_weights[0], _ = model.backward(0, activations.pop(0), grad_activations.pop(1), weights[0])
    del _

    for layer in (2, 0):
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (0, 2):
        model.set_final_weight(layer, weights[layer])
