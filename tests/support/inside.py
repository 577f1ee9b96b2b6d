"""Programs that cut the inside of a layer: tensors, rows, heads, the vocabulary. Each with the mistakes that break it.

`mistake` names what is left out or done wrongly; without one they are right.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lib import Model, drawn_route, route_by_loads
from lib.values.layers import Layer

__all__ = ["PROGRAMS", "Inside"]


class Inside(NamedTuple):
    """A program, what it runs on, and its mistakes."""

    make: Callable[[str], Any]
    layers: Sequence[Layer]
    ranks: int
    batches: int
    mistakes: Sequence[str]


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


def tensor(mistake: str) -> Any:
    """Tensor and sequence parallelism: a norm on rows of its own, a column and a row linear layer on all."""

    async def step(model: Model) -> Model:
        rank, ranks = model.rank, model.RANKS
        load(model, 0)
        load(model, 1, rank, ranks, dim="out")
        load(model, 2, rank, ranks, dim="in")
        x = model.shard(model.get_activation(range(model.BATCHES)), "rows", rank, ranks)
        a = model.forward(0, x, model.weights[0])
        if mistake != "rows are not gathered":
            a = await model.allgather(a, 1)
        b = model.forward(1, a, model.weights[1])
        y = model.forward(2, b, model.weights[2])
        if mistake != "no reduce-scatter":
            y = await model.scatterreduce(y, 3, dim="rows")
        g = model.loss(y)
        if mistake != "no all-gather in backward":
            g = await model.allgather(g, 2)
        dw2, g = model.backward(2, b, g, model.weights[2])
        dw1, g = model.backward(1, a, g, model.weights[1])
        g = await (model.allreduce(g, 0) if mistake == "whole rows go on" else model.scatterreduce(g, 0, dim="rows"))
        dw0, _ = model.backward(0, x, g, model.weights[0])
        await update(model, 0, dw0, reduce=mistake != "the norm is not summed")
        await update(model, 1, dw1, reduce=mistake == "a shard is summed over others")
        await update(model, 2, dw2, reduce=False)
        return model

    return step


def ring(mistake: str, zigzag: bool = False) -> Any:
    """Ring attention: each rank has its rows, and keys go round."""

    async def step(model: Model) -> Model:
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
        steps = ranks - 1 if mistake == "the ring is too short" else ranks
        out = model.forward(1, x, x)
        for number in range(1, steps):
            keys = await model.shift(keys, 1)
            if mistake != "a step is left out" or number != 1:
                out = out + model.forward(1, x, keys)
            if mistake == "a block twice":
                out = out + model.forward(1, x, keys)
        if mistake == "around the attention":
            out = x
        y = model.forward(2, out, model.weights[2])
        dw2, g = model.backward(2, out, model.loss(y), model.weights[2])
        dkeys, dx = model.backward(1, x, g, x)
        keys = x
        for _ in range(1, steps):
            keys, dkeys = await model.shift(keys, 1), await model.shift(dkeys, 0)
            more, dq = model.backward(1, x, g, keys)
            dkeys, dx = dkeys + more, dx + dq
        if mistake != "the gradient of the keys does not come home":
            dkeys = await model.shift(dkeys, 0)
        if mistake != "the gradient of the keys is forgotten":
            dx = dx + dkeys
        dw0, _ = model.backward(0, mine, dx, model.weights[0])
        await update(model, 0, dw0, reduce=mistake != "no all-reduce")
        await update(model, 2, dw2)
        return model

    return step


def ulysses(mistake: str) -> Any:
    """Attention by heads: rows are exchanged for features, with grouped keys and values, and a residual connection."""

    async def step(model: Model) -> Model:
        rank, ranks = model.rank, model.RANKS
        for layer in (0, 1, 3):
            load(model, layer)
        mine = model.shard(model.get_activation(range(model.BATCHES)), "rows", rank, ranks)
        kv = model.forward(0, mine, model.weights[0])
        q = model.forward(1, mine, model.weights[1])
        by_heads = mistake != "no exchange"
        heads, keys = q, kv
        if by_heads:
            heads, keys = await exchange(model, q, "features"), await exchange(model, kv, "features")
        out = model.forward(2, heads, keys)
        a = await exchange(model, out, "rows") if by_heads else out
        b = model.forward(3, a, model.weights[3])
        y = model.forward(4, b, mine)
        g = model.loss(y)
        through, g = model.backward(4, b, g, mine)
        dw3, g = model.backward(3, a, g, model.weights[3])
        g = await exchange(model, g, "features") if mistake != "the gradient is not exchanged" else g
        dkeys, dheads = model.backward(2, heads, g, keys)
        dkv, dq = await exchange(model, dkeys, "rows"), await exchange(model, dheads, "rows")
        dw1, dx = model.backward(1, mine, dq, model.weights[1])
        dw0, more = model.backward(0, mine, dkv, model.weights[0])
        assert dx + more + through is not None
        for layer, gradient in ((0, dw0), (1, dw1), (3, dw3)):
            await update(model, layer, gradient, reduce=mistake != "no all-reduce")
        return model

    return step


def vocabulary(mistake: str) -> Any:
    """An embedding and a loss that are cut along the vocabulary, and one norm between them."""

    async def step(model: Model) -> Model:
        rank, ranks = model.rank, model.RANKS
        load(model, 0, rank, ranks)
        load(model, 1)
        load(model, 2, rank, ranks, dim="out")
        tokens = model.get_activation(range(model.BATCHES))
        x = model.forward(0, tokens, model.weights[0])
        if mistake != "the embedding is not summed":
            x = await model.allreduce(x, 1)
        a = model.forward(1, x, model.weights[1])
        logits = model.forward(2, a, model.weights[2])
        if mistake == "logits are gathered by one":
            logits = model.shard(logits, "features", 0, 2)
        each = model.forward(3, logits)
        if mistake != "the loss is not summed":
            each = await model.allreduce(each, 4)
        g = model.backward(3, logits, model.loss(each))
        dw2, g = model.backward(2, a, g, model.weights[2])
        if mistake != "the gradient is not summed":
            g = await model.allreduce(g, 1)
        dw1, g = model.backward(1, x, g, model.weights[1])
        dw0 = model.backward(0, tokens, g, model.weights[0])
        await update(model, 0, dw0, reduce=False)
        await update(model, 1, dw1, reduce=mistake == "the norm is summed over its copies")
        await update(model, 2, dw2, reduce=False)
        return model

    return step


def grid(mistake: str) -> Any:
    """Batches and rows cut at once, and one all-reduce over all ranks."""

    async def step(model: Model) -> Model:
        batch, part = divmod(model.rank, 2)
        x = [model.get_activation([batch])]
        if mistake != "rows are not cut":
            x = [model.shard(x[0], "rows", part, 2)]
        if mistake == "one part twice":
            x = [model.shard(model.get_activation([0]), "rows", part if model.rank else 1, 2)]
        for layer in range(model.LAYERS):
            load(model, layer)
            x.append(model.forward(layer, x[layer], model.weights[layer]))
        g = model.loss(x[-1])
        for layer in reversed(range(model.LAYERS)):
            dw, g = model.backward(layer, x[layer], g, model.weights[layer])
            if mistake == "rows alone":
                dw = await model.allreduce(dw, layer, group=[batch * 2, batch * 2 + 1])
            await update(model, layer, dw, reduce=mistake != "rows alone")
        return model

    return step


def experts(mistake: str) -> Any:
    """A shared layer for the rank's own batches; then each token goes to its experts, on whatever rank, and home."""

    async def step(model: Model) -> Model:
        rank, ranks = model.rank, model.RANKS
        load(model, 0)
        for layer in (2, 3):
            load(model, layer, rank, ranks)
        mine = model.shard(model.get_activation(range(model.BATCHES)), "batch", rank, ranks)
        x = model.forward(0, mine, model.weights[0])
        sent = model.forward(1, x)
        here = sent if mistake == "tokens stay" else await exchange(model, sent, "experts")
        if mistake == "some tokens are forgotten":
            here = model.shard(here, "rows", 0, 2)
        a = model.forward(2, here, model.weights[2])
        b = model.forward(3, a, model.weights[3])
        home = b if mistake == "results stay" else await exchange(model, b, "batch")
        y = model.forward(4, home)
        g = model.backward(4, None, model.loss(y))
        if mistake != "gradients stay":
            g = await exchange(model, g, "experts")
        dw3, g = model.backward(3, a, g, model.weights[3])
        dw2, g = model.backward(2, here, g, model.weights[2])
        if mistake != "gradients do not come home":
            g = await exchange(model, g, "batch")
        if mistake == "an expert twice":
            g = g.combine(model.shard(g, "experts", 1, 4))
        g = model.backward(1, None, g)
        dw0, _ = model.backward(0, mine, g, model.weights[0])
        await update(model, 0, dw0, reduce=mistake != "the shared layer is not summed")
        await update(model, 2, dw2, reduce=mistake == "experts are summed over others")
        await update(model, 3, dw3, reduce=False)
        return model

    return step


def open_experts(mistake: str) -> Any:
    """Rows are gathered in place of being sent, and each rank adds what its experts make of all of them."""

    async def step(model: Model) -> Model:
        rank, ranks = model.rank, model.RANKS
        load(model, 0)
        load(model, 2, rank, ranks)
        data = model.shard(model.get_activation(range(model.BATCHES)), "rows", rank, ranks)
        rows = await model.allgather(model.forward(0, data, model.weights[0]), 1)
        sent = model.shard(model.forward(1, rows), "experts", rank, ranks)
        out = model.forward(2, sent, model.weights[2])
        y = model.forward(3, out)
        if mistake != "parts are not added":
            y = await model.scatterreduce(y, 4, dim="rows")
        g = model.loss(y)
        if mistake != "rows of the gradient are not gathered":
            g = await model.allgather(g, 3)
        dw2, g = model.backward(2, sent, model.backward(3, out, g), model.weights[2])
        g = model.backward(1, rows, g)
        if mistake == "whole rows go on":
            g = model.shard(g, "rows", rank, ranks)
        else:
            g = await model.scatterreduce(g, 0, dim="rows")
        dw0, _ = model.backward(0, data, g, model.weights[0])
        await update(model, 0, dw0)
        await update(model, 2, dw2, reduce=mistake == "experts are summed over others")
        return model

    return step


ROWS = 16
ROUTES = {"experts": 4, "route": drawn_route(5, 2 * ROWS, experts=4, top=2, skew=0.5), "capacity": 9}
ATTENTION = [Layer("linear", 8, 8, ROWS), Layer("attention", 8, 8, ROWS, heads=4), Layer("linear", 8, 8, ROWS)]
PROGRAMS = {
    "tensor": Inside(
        tensor,
        [Layer("norm", 8, 8, ROWS), Layer("linear", 8, 16, ROWS), Layer("linear", 16, 8, ROWS)],
        4,
        4,
        [
            "rows are not gathered",
            "no reduce-scatter",
            "no all-gather in backward",
            "whole rows go on",
            "the norm is not summed",
            "a shard is summed over others",
        ],
    ),
    "ring": Inside(
        ring,
        ATTENTION,
        4,
        2,
        [
            "the ring is too short",
            "a step is left out",
            "a block twice",
            "around the attention",
            "the gradient of the keys does not come home",
            "the gradient of the keys is forgotten",
            "no all-reduce",
        ],
    ),
    "zigzag": Inside(lambda mistake: ring(mistake, zigzag=True), ATTENTION, 4, 2, ["a step is left out"]),
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
        ["no exchange", "the gradient is not exchanged", "no all-reduce"],
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
        [
            "the embedding is not summed",
            "logits are gathered by one",
            "the loss is not summed",
            "the gradient is not summed",
            "the norm is summed over its copies",
        ],
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
        [
            "tokens stay",
            "some tokens are forgotten",
            "results stay",
            "gradients stay",
            "an expert twice",
            "gradients do not come home",
            "the shared layer is not summed",
            "experts are summed over others",
        ],
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
        [
            "parts are not added",
            "rows of the gradient are not gathered",
            "whole rows go on",
            "experts are summed over others",
        ],
    ),
    "grid": Inside(grid, [Layer("linear", 8, 8, ROWS)] * 2, 4, 2, ["rows are not cut", "one part twice", "rows alone"]),
}
