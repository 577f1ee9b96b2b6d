"""All rows and all gradients to every rank: an all-gather instead of each exchange, awaited.

Nothing has to go home: a rank with the gradient of the rows around its own can work out its own part alone. It costs a
lot to send, and two rows more to compute, one beside each edge. And each rank holds a whole image meanwhile.
"""

from lib import Model
from lib.schedules.given import by_chunk


def my_rows(model, sizes=None):
    """Where this rank's rows begin and end, which of them neighbours need, which of theirs it needs, and the group of
    those that have rows. Rows are shared out by chunk, or in these sizes, which all ranks know."""
    sizes = sizes or by_chunk(64, model.RANKS)
    low = sum(sizes[: model.rank])
    high = low + sizes[model.rank]
    beside = [(low, low - 1), (high - 1, high)] if low < high else []
    beside = [(mine, other) for mine, other in beside if 0 <= other < 64]
    group = [rank for rank, size in enumerate(sizes) if size]
    return low, high, [mine for mine, _ in beside], [other for _, other in beside], group


def around(value, first, after):
    return value.cut("rows", max(first, 0), min(after, 64)) if first < after else value.cut("rows", 0, 0)


async def halo_conv(model: Model, sizes: list[int] | None = None) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    low, high, *_ = my_rows(model, sizes)
    wide = 1 if low < high else 0
    activations[0] = model.get_activation(range(model.BATCHES)).cut("rows", low, high)

    for layer in range(model.LAYERS):
        activations["all"] = await model.allgather(activations.pop(layer), layer)
        activations[layer] = around(activations["all"], low - 2 * wide, high + 2 * wide)
        del activations["all"]
        mine = around(activations[layer], low - wide, high + wide)
        activations[layer + 1] = model.forward(layer, mine, weights[layer])
        del mine
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        mine = around(activations[layer], low - wide, high + wide)
        grad_weights[layer] = model.backward_weight(layer, mine, grad_activations[layer + 1])
        del mine
        grad_activations["all"] = await model.allgather(grad_activations.pop(layer + 1), layer)
        around_mine = around(grad_activations.pop("all"), low - wide, high + wide)
        gradient = model.backward_input(layer, activations.pop(layer), around_mine, weights[layer])
        grad_activations[layer] = gradient.cut("rows", low, high)
        del around_mine, gradient
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
