"""Programs that cut the inside of a layer: tensors, rows, heads, the vocabulary. What goes wrong in such programs: the
cases of tests/diagnosis, of the puzzles about them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lib import Model, route_by_loads, simulate
from lib.values.layers import Layer

__all__ = ["PROGRAMS", "Inside"]


class Inside(NamedTuple):
    function: Callable[[Model], Any]
    layers: Sequence[Layer]
    ranks: int
    batches: int

    def run(self, **more: Any) -> list[Model]:
        sizes: dict[str, Any] = {"layers": self.layers, "ranks": self.ranks, "batches": self.batches}
        return simulate(self.function, **(sizes | more))


def load(model: Model, layer: int, *shard: Any, **dim: Any) -> None:
    model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *shard, **dim)


async def update(model: Model, layer: int, gradient: Any, reduce: bool = True) -> None:
    """Sums the gradient of a weight over all ranks, if that is said, and takes the step."""
    if reduce:
        gradient = await model.allreduce(gradient, layer)
    weight, state = model.update(layer, gradient, model.weights[layer], model.opt_states[layer])
    model.weights[layer], model.opt_states[layer] = weight, state
    model.set_final_weight(layer, weight)


async def exchange(model: Model, value: Any, dim: str, group: str | None = None) -> Any:
    """Cuts along one dim, and gathers what comes from the others of a group."""
    ranks = len(model.group(group))
    mine = [model.shard(value, dim, i, ranks) for i in range(ranks)]
    first, *parts = await model.alltoall(mine, value.layer, group=group)
    for one in parts:
        first = first.combine(one)
    return first


async def tensor(model: Model) -> None:
    """Tensor and sequence parallelism: a norm on rows of its own, a column and a row linear layer on all."""
    rank, ranks = model.rank, model.RANKS
    load(model, 0)
    load(model, 1, rank, ranks, dim="out")
    load(model, 2, rank, ranks, dim="in")
    x = model.shard(model.get_activation(range(model.BATCHES)), "rows", rank, ranks)
    a = await model.allgather(model.forward(0, x, model.weights[0]), 1)
    b = model.forward(1, a, model.weights[1])
    y = await model.scatterreduce(model.forward(2, b, model.weights[2]), 3, dim="rows")
    g = await model.allgather(model.loss(y), 2)
    dw2, g = model.backward(2, b, g, model.weights[2])
    dw1, g = model.backward(1, a, g, model.weights[1])
    g = await model.scatterreduce(g, 0, dim="rows")
    dw0, _ = model.backward(0, x, g, model.weights[0])
    await update(model, 0, dw0)
    await update(model, 1, dw1, reduce=False)
    await update(model, 2, dw2, reduce=False)


def ring(zigzag: bool) -> Any:
    """Ring attention: each rank has its rows, and keys go round."""

    async def step(model: Model) -> None:
        rank, ranks = model.rank, model.RANKS
        load(model, 0)
        load(model, 2)
        data = model.get_activation(range(model.BATCHES))
        if zigzag:
            mine = model.shard(data, "rows", rank, 2 * ranks)
            mine = mine.combine(model.shard(data, "rows", 2 * ranks - 1 - rank, 2 * ranks))
        else:
            mine = model.shard(data, "rows", rank, ranks)
        x = keys = model.forward(0, mine, model.weights[0])
        out = model.forward(1, x, x)
        for _ in range(1, ranks):
            keys = await model.shift(keys, 1)
            out = out + model.forward(1, x, keys)
        y = model.forward(2, out, model.weights[2])
        dw2, g = model.backward(2, out, model.loss(y), model.weights[2])
        dkeys, dx = model.backward(1, x, g, x)
        keys = x
        for _ in range(1, ranks):
            keys, dkeys = await model.shift(keys, 1), await model.shift(dkeys, 0)
            more, dq = model.backward(1, x, g, keys)
            dkeys, dx = dkeys + more, dx + dq
        dx = dx + await model.shift(dkeys, 0)
        dw0, _ = model.backward(0, mine, dx, model.weights[0])
        await update(model, 0, dw0)
        await update(model, 2, dw2)

    return step


async def ulysses(model: Model) -> None:
    """Attention by heads: rows are exchanged for features, with grouped keys and values, and a residual connection."""
    rank, ranks = model.rank, model.RANKS
    for layer in (0, 1, 3):
        load(model, layer)
    mine = model.shard(model.get_activation(range(model.BATCHES)), "rows", rank, ranks)
    kv = model.forward(0, mine, model.weights[0])
    q = model.forward(1, mine, model.weights[1])
    heads, keys = await exchange(model, q, "features"), await exchange(model, kv, "features")
    a = await exchange(model, model.forward(2, heads, keys), "rows")
    b = model.forward(3, a, model.weights[3])
    y = model.forward(4, b, mine)
    g = model.loss(y)
    through, g = model.backward(4, b, g, mine)
    dw3, g = model.backward(3, a, g, model.weights[3])
    g = await exchange(model, g, "features")
    dkeys, dheads = model.backward(2, heads, g, keys)
    dkv, dq = await exchange(model, dkeys, "rows"), await exchange(model, dheads, "rows")
    dw1, dx = model.backward(1, mine, dq, model.weights[1])
    dw0, more = model.backward(0, mine, dkv, model.weights[0])
    assert dx + more + through is not None
    for layer, gradient in ((0, dw0), (1, dw1), (3, dw3)):
        await update(model, layer, gradient)


async def vocabulary(model: Model) -> None:
    """An embedding and a loss that are cut along the vocabulary, and one norm between them."""
    rank, ranks = model.rank, model.RANKS
    load(model, 0, rank, ranks)
    load(model, 1)
    load(model, 2, rank, ranks, dim="out")
    tokens = model.get_activation(range(model.BATCHES))
    x = await model.allreduce(model.forward(0, tokens, model.weights[0]), 1)
    a = model.forward(1, x, model.weights[1])
    logits = model.forward(2, a, model.weights[2])
    each = await model.allreduce(model.forward(3, logits), 4)
    g = model.backward(3, logits, model.loss(each))
    dw2, g = model.backward(2, a, g, model.weights[2])
    g = await model.allreduce(g, 1)
    dw1, g = model.backward(1, x, g, model.weights[1])
    dw0 = model.backward(0, tokens, g, model.weights[0])
    await update(model, 0, dw0, reduce=False)
    await update(model, 1, dw1, reduce=False)
    await update(model, 2, dw2, reduce=False)


async def grid(model: Model) -> None:
    """Batches and rows cut at once, and one all-reduce over all ranks."""
    batch, part = divmod(model.rank, 2)
    x = [model.shard(model.get_activation([batch]), "rows", part, 2)]
    for layer in range(model.LAYERS):
        load(model, layer)
        x.append(model.forward(layer, x[layer], model.weights[layer]))
    g = model.loss(x[-1])
    for layer in reversed(range(model.LAYERS)):
        dw, g = model.backward(layer, x[layer], g, model.weights[layer])
        await update(model, layer, dw)


async def experts(model: Model) -> None:
    """A shared layer for the rank's own batches; then each token goes to its experts, on whatever rank, and home."""
    rank, ranks = model.rank, model.RANKS
    load(model, 0)
    for layer in (2, 3):
        load(model, layer, rank, ranks)
    mine = model.shard(model.get_activation(range(model.BATCHES)), "batch", rank, ranks)
    x = model.forward(0, mine, model.weights[0])
    sent = model.forward(1, x)
    here = await exchange(model, sent, "experts")
    a = model.forward(2, here, model.weights[2])
    b = model.forward(3, a, model.weights[3])
    home = await exchange(model, b, "batch")
    g = model.backward(4, None, model.loss(model.forward(4, home)))
    g = await exchange(model, g, "experts")
    dw3, g = model.backward(3, a, g, model.weights[3])
    dw2, g = model.backward(2, here, g, model.weights[2])
    g = await exchange(model, g, "batch")
    g = model.backward(1, None, g)
    dw0, _ = model.backward(0, mine, g, model.weights[0])
    await update(model, 0, dw0)
    await update(model, 2, dw2, reduce=False)
    await update(model, 3, dw3, reduce=False)


async def open_experts(model: Model) -> None:
    """Rows are gathered in place of being sent, and each rank adds what its experts make of all of them."""
    rank, ranks = model.rank, model.RANKS
    load(model, 0)
    load(model, 2, rank, ranks)
    data = model.shard(model.get_activation(range(model.BATCHES)), "rows", rank, ranks)
    rows = await model.allgather(model.forward(0, data, model.weights[0]), 1)
    sent = model.shard(model.forward(1, rows), "experts", rank, ranks)
    out = model.forward(2, sent, model.weights[2])
    y = await model.scatterreduce(model.forward(3, out), 4, dim="rows")
    g = await model.allgather(model.loss(y), 3)
    dw2, g = model.backward(2, sent, model.backward(3, out, g), model.weights[2])
    g = model.backward(1, rows, g)
    g = await model.scatterreduce(g, 0, dim="rows")
    dw0, _ = model.backward(0, data, g, model.weights[0])
    await update(model, 0, dw0)
    await update(model, 2, dw2, reduce=False)


ROWS = 16
ROUTES = {"experts": 4, "route": route_by_loads([4, 3, 2, 2], top=2), "capacity": 9}
ATTENTION = [Layer("linear", 8, 8, ROWS), Layer("attention", 8, 8, ROWS, heads=4), Layer("linear", 8, 8, ROWS)]
PROGRAMS = {
    "tensor": Inside(
        tensor, [Layer("norm", 8, 8, ROWS), Layer("linear", 8, 16, ROWS), Layer("linear", 16, 8, ROWS)], 4, 4
    ),
    "ring": Inside(ring(zigzag=False), ATTENTION, 4, 2),
    "zigzag": Inside(ring(zigzag=True), ATTENTION, 4, 2),
    "ulysses": Inside(
        ulysses,
        [
            Layer("linear", 4, 8, ROWS),
            Layer("linear", 4, 8, ROWS, of=(0,)),
            Layer("attention", 8, 8, ROWS, heads=4, kv_heads=2, of=(2, 1)),
            Layer("linear", 8, 4, ROWS),
            Layer("add", 4, 4, ROWS, of=(4, 0)),
        ],
        2,
        2,
    ),
    "vocabulary": Inside(
        vocabulary,
        [
            Layer("embedding", 32, 8, ROWS),
            Layer("norm", 8, 8, ROWS),
            Layer("linear", 8, 32, ROWS),
            Layer("cross_entropy", 32, 1, ROWS),
        ],
        4,
        2,
    ),
    "experts": Inside(
        experts,
        [
            Layer("linear", 8, 8, ROWS),
            Layer("dispatch", 8, 8, ROWS, **ROUTES),
            Layer("experts", 8, 12, ROWS, experts=4),
            Layer("experts", 12, 8, ROWS, experts=4),
            Layer("combine", 8, 8, ROWS),
        ],
        4,
        4,
    ),
    "open experts": Inside(
        open_experts,
        [
            Layer("linear", 8, 8, ROWS),
            Layer("dispatch", 8, 8, ROWS, experts=4, route=route_by_loads([5, 1, 1, 1]), capacity=3, groups=(6, 10)),
            Layer("experts", 8, 8, ROWS, experts=4),
            Layer("combine", 8, 8, ROWS),
        ],
        2,
        2,
    ),
    "grid": Inside(grid, [Layer("linear", 8, 8, ROWS)] * 2, 4, 2),
}
