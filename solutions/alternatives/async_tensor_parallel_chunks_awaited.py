"""Rows travel in 18 shifts where there were three all-reduces, and each shift is awaited where it is called.

More steps, and nothing gained: the rows that travel are awaited before others are multiplied.
"""

from lib import Model


async def async_tensor_parallel(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        dim = "out" if layer % 2 == 0 else "in"
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS, dim=dim)

    me = model.rank
    coming = [(me - step) % model.RANKS for step in range(model.RANKS)]
    homeward = coming[1:] + coming[:1]

    async def arrive(store, layer, owner):
        if owner != coming[0]:
            store[layer, owner] = await model.shift(store[layer, (owner + 1) % model.RANKS], layer)

    async def send_home(store, layer, owner):
        if owner != homeward[0]:
            store[layer, owner] = store[layer, owner] + store.pop("sum")
        if owner != homeward[-1]:
            store["sum"] = await model.shift(store.pop((layer, owner)), layer)

    def take_back(layer, owner):
        gradient, grad_activations[layer, owner] = model.backward(
            layer, activations.pop((layer, owner)), grad_activations.pop((layer + 1, owner)), weights[layer]
        )
        grad_weights[layer] = grad_weights[layer] + gradient if layer in grad_weights else gradient

    activations[0] = model.get_activation(range(model.BATCHES))
    for owner in coming:
        activations[0, owner] = model.shard(activations[0], "rows", owner, model.RANKS)
    del activations[0]
    for block in range(0, model.LAYERS, 2):
        for owner in coming:
            if block > 0:
                await arrive(activations, block, owner)
            activations[block + 1, owner] = model.forward(block, activations[block, owner], weights[block])
        for owner in homeward:
            activations[block + 2, owner] = model.forward(block + 1, activations[block + 1, owner], weights[block + 1])
            await send_home(activations, block + 2, owner)

    grad_activations[model.LAYERS, me] = model.loss(activations.pop((model.LAYERS, me)))
    for block in reversed(range(0, model.LAYERS, 2)):
        for owner in coming:
            if owner != coming[-1]:
                after = (owner - 1) % model.RANKS
                grad_activations[block + 2, after] = await model.shift(grad_activations[block + 2, owner], block + 2)
            take_back(block + 1, owner)
        for owner in homeward:
            take_back(block, owner)
            if block > 0:
                await send_home(grad_activations, block, owner)
            else:
                del grad_activations[0, owner]

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
