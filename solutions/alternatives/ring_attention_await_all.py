"""Await each pass where it is called: the plain form.

Keys and values go round while no rank computes, and in backward their gradients after them, all the way home.
"""

from lib import Model


async def ring_attention(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in (0, 2):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    data = model.get_activation(range(model.BATCHES))
    activations[0] = model.shard(data, "rows", model.rank, model.RANKS)
    del data

    activations[1] = activations["passing"] = model.forward(0, activations[0], weights[0])
    activations[2] = model.forward(1, activations[0], activations["passing"])
    for _ in range(1, model.RANKS):
        activations["passing"] = await model.shift(activations["passing"], 1)
        activations[2] = activations[2] + model.forward(1, activations[0], activations["passing"])
    del activations["passing"]

    activations[3] = model.forward(2, activations[2], weights[2])
    grad_activations[3] = model.loss(activations.pop(3))
    grad_weights[2], grad_activations[2] = model.backward(2, activations.pop(2), grad_activations.pop(3), weights[2])
    grad_weights[2] = await model.allreduce(grad_weights[2], 2)

    activations["passing"] = activations.pop(1)
    grad_activations[1], _ = model.backward(1, activations[0], grad_activations[2], activations["passing"])
    del _
    for _ in range(1, model.RANKS):
        activations["passing"] = await model.shift(activations["passing"], 1)
        grad_activations[1] = await model.shift(grad_activations[1], 1)
        part, dq = model.backward(1, activations[0], grad_activations[2], activations["passing"])
        grad_activations[1] = grad_activations[1] + part
        del part, dq
    del activations["passing"], grad_activations[2]
    grad_activations[1] = await model.shift(grad_activations[1], 1)

    grad_weights[0], _ = model.backward(0, activations.pop(0), grad_activations.pop(1), weights[0])
    del _
    grad_weights[0] = await model.allreduce(grad_weights[0], 0)
    for layer in (2, 0):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in (0, 2):
        model.set_final_weight(layer, weights[layer])
