"""Give the optimizer of whole layers to ranks in turn; whoever has it updates the layer, and broadcasts the new weight.

So does PyTorch's ZeroRedundancyOptimizer. Good for optimizers that have to see a whole matrix, and beside a DDP whose
all-reduces stay as they are. It costs a broadcast on top of the all-reduce, and memory where the layers do not divide by
the ranks: here two of the ranks have two whole states, and the others one.
"""

from lib import Model


async def zero1(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], state = model.load_weights(layer)
        if layer % model.RANKS == model.rank:
            opt_states[layer] = state
    del state
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        if layer in opt_states:
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights[layer], weights[layer], opt_states[layer]
            )
        del grad_weights[layer]
        weights[layer] = await model.broadcast(weights[layer], layer, root=layer % model.RANKS)
    del grad_activations[0]

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
