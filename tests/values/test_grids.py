"""Grids that are cut along rows and columns: corners, transposed convolutions, pooling, windows and transforms."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

import pytest

from lib import Layer, Links, Model, PuzzleError, check, simulate
from lib.cluster.costs import ticks
from lib.values.collectives import COLLECTIVES
from tests.values.numbers import play

__all__ = ["Tile", "corners", "redistributed", "windows"]

Value = Any


class Tile:
    """A rank's part of a grid, whose rows and columns are dealt out in so many of each; ranks go row by row."""

    def __init__(self, model: Model, rows: Sequence[int], columns: Sequence[int]) -> None:
        self.model, self.dims = model, {"rows": rows, "columns": columns}
        self.at = dict(zip(self.dims, divmod(model.rank, len(columns)), strict=True))

    def ends(self, dim: str) -> tuple[int, int]:
        """Where its part of a dim begins and ends."""
        ends = [0, *accumulate(self.dims[dim])]
        return ends[self.at[dim]], ends[self.at[dim] + 1]

    def group(self, dim: str) -> list[int]:
        """The ranks beside each other along a dim."""
        wide, (row, column) = len(self.dims["columns"]), self.at.values()
        if dim == "columns":
            return [row * wide + other for other in range(wide)]
        return [other * wide + column for other in range(len(self.dims["rows"]))]

    def own(self, value: Value, *dims: str) -> Value:
        """Its part of what is here."""
        for dim in dims or self.dims:
            value = value.cut(dim, *self.ends(dim))
        return value

    async def lend(self, value: Value, layer: int, dim: str, by: int = 1, back: bool = False) -> Value:
        """It with so many rows of the neighbours along a dim; or `back`: without those, and with what is due for its
        own."""
        low, high = self.ends(dim)
        first, last = low == 0, self.at[dim] == len(self.dims[dim]) - 1
        edges = [] if first else [(low - by, low) if back else (low, low + by)]
        edges += [] if last else [(high, high + by) if back else (high - by, high)]
        if not edges:
            return value
        got = await self.model.halo([value.cut(dim, *ends) for ends in edges], layer, self.group(dim))
        if not back:
            for edge in got:
                value = value.combine(edge)
            return value
        due = zip([(low, low + by)][first:] + [(high - by, high)][last:], got, strict=True)
        return self.added(value, dim, list(due))

    def added(self, value: Value, dim: str, due: list[tuple[tuple[int, int], Value]]) -> Value:
        """Its own part of a gradient and what has come for some of it: of few rows both neighbours may have some."""
        low, high = self.ends(dim)
        ends = sorted({low, high, *[end for both, _ in due for end in both]})
        total = None
        for first, after in pairwise(ends):
            part = value.cut(dim, first, after)
            for (begin, end), more in due:
                if begin <= first and after <= end:
                    part = part + more.cut(dim, first, after)
            total = part if total is None else total.combine(part)
        return total


def corners(rows: Sequence[int], columns: Sequence[int], mistake: str = "") -> Any:
    """Forward and backward of convolutions of 3 x 3 on a grid that is cut both ways: rows travel first, then columns
    with the rows that have come, so that nobody talks to a rank at a corner."""

    async def function(model: Model) -> None:
        tile, kept = Tile(model, rows, columns), dict[int, Value]()
        x = tile.own(model.get_activation(range(model.BATCHES)))
        for layer in range(model.LAYERS):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
            for dim in ("rows",) if mistake == "no columns" else ("rows", "columns"):
                x = await tile.lend(x, layer, dim)
            kept[layer] = x
            x = model.forward(layer, x, model.weights[layer])
        g = model.loss(x)
        for layer in reversed(range(model.LAYERS)):
            dw, g = model.backward(layer, kept[layer], g, model.weights[layer])
            for dim in ("rows",) if mistake == "no columns" else ("columns", "rows"):
                cut_off = mistake == "cut off" and dim == "columns"
                g = tile.own(g, dim) if cut_off else await tile.lend(g, layer, dim, back=True)
            dw = await model.allreduce(dw, layer)
            model.set_final_weight(layer, model.update(layer, dw, model.weights[layer], model.opt_states[layer])[0])

    return function


def same(rows: Sequence[int], columns: Sequence[int], layers: int = 2) -> list[Layer]:
    """Layers that give as many points as they take."""
    return [Layer("convolution", 4, 4, sum(rows), columns=sum(columns), kernel=3, padding=1)] * layers


@pytest.mark.parametrize(
    ("rows", "columns"), [([3, 3], [2, 4]), ([5, 3], [4, 6]), ([2, 4, 3], [3, 2]), ([6], [2, 3, 2])]
)
def test_corners_come_by_two_exchanges(rows: list[int], columns: list[int]) -> None:
    ranks = len(rows) * len(columns)
    models = simulate(corners(rows, columns), layers=same(rows, columns), ranks=ranks, batches=2)
    assert check(models).correct
    assert play(models[0].trace) > 10 * ranks


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("no columns", "is not summed over all grid columns yet"),
        ("cut off", "send it to the rank that has these columns"),
    ],
)
def test_a_mistake_along_columns_is_named_with_them(mistake: str, said: str) -> None:
    with pytest.raises(PuzzleError) as raised:
        simulate(corners([3, 3], [4, 4], mistake), layers=same([3, 3], [4, 4]), ranks=4)
    assert said in str(raised.value)


def redistributed(rows: Sequence[int], columns: Sequence[int], how: str = "alltoall") -> Any:
    """A transform along the columns, whose rows are dealt out, and one along the rows, whose columns are."""

    async def change(model: Model, value: Value, layer: int, have: str, want: str) -> Value:
        tiles = {"rows": rows, "columns": columns}
        ends = {dim: [0, *accumulate(sizes)] for dim, sizes in tiles.items()}
        if how == "allgather":
            whole = await model.allgather(value, layer)
            return whole.cut(want, ends[want][model.rank], ends[want][model.rank + 1])
        parts = [value.cut(want, low, high) for low, high in pairwise(ends[want])]
        first, *others = await model.alltoall(parts, layer)
        for other in others:
            first = first.combine(other)
        return first

    async def function(model: Model) -> None:
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        low = sum(rows[: model.rank])
        x = model.get_activation(range(model.BATCHES)).cut("rows", low, low + rows[model.rank])
        y = model.forward(1, model.forward(0, x, model.weights[0]))
        y = model.forward(2, await change(model, y, 2, "rows", "columns"))
        g = await change(model, model.backward(2, None, model.loss(y)), 2, "columns", "rows")
        g, _ = model.backward(0, x, model.backward(1, None, g), model.weights[0])
        g = await model.allreduce(g, 0)
        model.set_final_weight(0, model.update(0, g, model.weights[0], model.opt_states[0])[0])

    return function


def spectral(rows: int, columns: int, features: int = 4) -> list[Layer]:
    """Features of each point, and transforms along both dims."""
    sizes = (features, features, rows)
    along = [Layer("transform", *sizes, columns=columns, along=dim) for dim in ("columns", "rows")]
    return [Layer("linear", *sizes, columns=columns), *along]


@pytest.mark.parametrize("how", ["alltoall", "allgather"])
@pytest.mark.parametrize(("rows", "columns"), [([2, 2], [3, 3]), ([1, 2, 5], [4, 1, 2]), ([4, 0], [3, 2])])
def test_rows_become_columns(rows: list[int], columns: list[int], how: str) -> None:
    models = simulate(
        redistributed(rows, columns, how), layers=spectral(sum(rows), sum(columns)), ranks=len(rows), batches=2
    )
    assert check(models).correct
    assert play(models[0].trace) > 10 * len(rows)


@pytest.mark.parametrize(
    ("rows", "how", "time", "sent"),
    [
        ([16] * 4, "alltoall", 0.0375, [24_576] * 4),
        ([16] * 4, "allgather", 0.15, [98_304] * 4),
        ([4, 8, 12, 40], "alltoall", 0.09375, [6_144, 12_288, 18_432, 61_440]),
        ([4, 8, 12, 40], "allgather", 0.375, [114_688, 106_496, 49_152, 122_880]),
    ],
)
def test_an_exchange_takes_what_another_model_says(rows: list[int], how: str, time: float, sent: list[int]) -> None:
    run = redistributed(rows, [16] * 4, how)
    models = simulate(run, layers=spectral(64, 64, 32), ranks=4, batches=1, costs=Links())
    exchanges = [[e for e in model.program.events if e.op == how] for model in models]
    first = [one[0] for one in exchanges]
    assert max(event.end or 0 for event in first) - max(event.start or 0 for event in first) == ticks(time)
    row = COLLECTIVES[how]
    values = [model.program.values_of(event.inputs) for model, event in zip(models, first, strict=True)]
    assert row.sent(row.brought(values)) == sent


def test_a_transform_needs_all_of_its_dim() -> None:
    async def forward(model: Model) -> None:
        model.forward(0, model.get_activation([0]).shard(0, 2, "columns"))

    with pytest.raises(PuzzleError, match="this layer mixes all of them") as raised:
        simulate(forward, layers=[Layer("transform", 4, 4, 8, columns=8, along="columns")])
    assert "by an all-to-all" in str(raised.value)


def windows(sizes: Sequence[int], how: str = "together") -> Any:
    """Attention to windows of rows: keys and values of the neighbours come "together", one by one, or ("all") of
    everybody; or inner rows first."""

    async def function(model: Model) -> None:
        tile, half = Tile(model, sizes, [1]), model.shape.descriptions[-1].kernel // 2
        for layer in range(2):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
        low, high = tile.ends("rows")
        x = model.get_activation(range(model.BATCHES)).cut("rows", low, high)
        q, kv = (model.forward(layer, x, model.weights[layer]) for layer in range(2))
        wide = (
            (await model.allgather(kv, 2)).cut("rows", *around(low, high, half, sum(sizes))) if how == "all" else None
        )
        wide = await tile.lend(kv, 2, "rows", half) if wide is None else wide
        g, dq = model.backward(2, q, model.loss(model.forward(2, q, wide)), wide)
        g = await tile.lend(g, 2, "rows", half, back=True)
        for layer, one in ((1, g), (0, dq)):
            gradient, _ = model.backward(layer, x, one, model.weights[layer])
            gradient = await model.allreduce(gradient, layer)
            model.set_final_weight(
                layer, model.update(layer, gradient, model.weights[layer], model.opt_states[layer])[0]
            )

    return function


def around(low: int, high: int, half: int, rows: int) -> tuple[int, int]:
    """The rows whose keys some queries need."""
    kernel = 2 * half + 1
    return min(max(low - half, 0), rows - kernel), max(min(high + half, rows), kernel)


def attending(rows: int, kernel: int = 7, wide: int = 4) -> list[Layer]:
    """Queries, keys and values of each row, and attention to windows."""
    return [
        Layer("linear", wide, wide, rows),
        Layer("linear", wide, 2 * wide, rows, of=(0,)),
        Layer("neighborhood_attention", wide, wide, rows, heads=2, kv_heads=2, kernel=kernel, of=(1, 2)),
    ]


@pytest.mark.parametrize("sizes", [[8, 8, 8, 8], [4, 3, 3, 4], [12, 3, 5, 4], [9, 8]])
def test_windows_of_neighbours_are_those_of_the_whole(sizes: list[int]) -> None:
    models = simulate(windows(sizes), layers=attending(sum(sizes)), ranks=len(sizes), batches=2)
    assert check(models).correct
    assert play(models[0].trace) > 10 * len(sizes)


@pytest.mark.parametrize(
    ("sizes", "rank", "said"),
    [
        ([3, 4, 4, 4], 0, "forward lacks keys and values of row 6"),
        ([4, 2, 4, 4], 1, ""),
        ([8, 4, 4, 3], 3, "forward lacks keys and values of row 12"),
        ([20, 3, 1, 16], 2, ""),
    ],
)
def test_parts_for_which_a_neighbour_is_not_enough_are_named_before_any_rank_waits(
    sizes: list[int], rank: int, said: str
) -> None:
    with pytest.raises(PuzzleError) as raised:
        simulate(windows(sizes), layers=attending(sum(sizes)), ranks=4)
    assert f"rank {rank}" in str(raised.value)
    assert said in str(raised.value)


async def by_parts(model: Model, q: Value, kv: Value, how: str) -> None:
    """Attention to windows of seven rows, forward and backward: "all" keys are gathered; or queries, keys and values
    exchanged, "each" in turn, or keys and values "together"."""
    tile = Tile(model, [16] * 4, [64])
    back = how != "all"
    if how == "each":
        await tile.lend(q, 2, "rows", 3)
        parts = [await tile.lend(kv.shard(part, 2, "features"), 2, "rows", 3) for part in range(2)]
        wide = parts[0].combine(parts[1])
    else:
        wide = await tile.lend(kv, 2, "rows", 3) if back else await model.allgather(kv, 2)
    g, dq = model.backward(2, q, model.loss(model.forward(2, q, wide)), wide)
    if how == "each":
        await tile.lend(dq, 2, "rows", 3)
        for part in range(2):
            await tile.lend(g.shard(part, 2, "features"), 2, "rows", 3, back=True)
    else:
        await (tile.lend(g, 2, "rows", 3, back=True) if back else model.scatterreduce(g, 2, dim="rows"))


async def inner_first(model: Model, q: Value, kv: Value) -> None:
    """The same while keys and values, and then their gradients, travel."""
    low, high = Tile(model, [16] * 4, [64]).ends("rows")
    first, after = low + 3 * (low > 0), high - 3 * (high < 64)
    edges = [ends for ends in ((low, first), (after, high)) if ends[0] < ends[1]]
    coming = model.halo([kv.cut("rows", *ends) for ends in edges], 2)
    out, wide = model.forward(2, q.cut("rows", first, after), kv), kv
    for rows in await coming:
        wide = wide.combine(rows)
    for ends in edges:
        out = out.combine(model.forward(2, q.cut("rows", *ends), wide))
    g = model.loss(out)
    home = [model.backward(2, q.cut("rows", *ends), g.cut("rows", *ends), wide)[0] for ends in edges]
    ends = [ends for ends in ((low - 3, low), (high, high + 3)) if 0 <= ends[0] < 64]
    coming = model.halo([one.cut("rows", *its) for one, its in zip(home, ends, strict=True)], 2)
    model.backward(2, q.cut("rows", first, after), g.cut("rows", first, after), kv)
    await coming


@pytest.mark.parametrize(("how", "figure"), [("all", "4.52"), ("each", "2.69"), ("together", "2.38"), ("inner", "2.0")])
def test_attention_to_windows_takes_what_another_model_says(how: str, figure: str) -> None:
    took = dict[int, float]()

    async def function(model: Model) -> None:
        x = Tile(model, [16] * 4, [64]).own(model.get_activation(range(4)), "rows")
        q, kv = (model.forward(layer, x, model.load_weights(layer)[0]) for layer in range(2))
        began = model.time
        await (inner_first(model, q, kv) if how == "inner" else by_parts(model, q, kv, how))
        took[model.rank] = model.time - began

    layers = [
        Layer("linear", 8, 32, 64, columns=64),
        Layer("linear", 8, 64, 64, columns=64, of=(0,)),
        Layer("neighborhood_attention", 32, 32, 64, columns=64, heads=1, kv_heads=1, kernel=7, of=(1, 2)),
    ]
    # All prices are 49 times those of that model: attention of a batch, of 49 points to a window, takes 49.
    simulate(function, layers=layers, ranks=4, batches=4, costs=Links(latency=0.98, p2p=9.8, forward=256, backward=256))
    assert ticks(max(took.values())) == ticks(49 * Fraction(figure))


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ([Layer("neighborhood_attention", 4, 4, 8, heads=2, kernel=4)], "its kernel is odd; got 4"),
        ([Layer("neighborhood_attention", 4, 4, 8, heads=2, kernel=9)], "a window of 9 rows is wider than the 8"),
        ([Layer("neighborhood_attention", 4, 4, 8, heads=2, kernel=5, columns=4)], "a window of 5 columns is wider"),
        ([Layer("transform", 4, 4, 8, along="columns")], "along a dim of its grid: rows; got along='columns'"),
        ([Layer("transform", 4, 4, 8)], "along a dim of its grid"),
        ([Layer("attention", 4, 4, 8, columns=4, heads=2)], "a layer of the kind attention has no columns"),
        ([Layer("linear", 4, 4, 8, columns=4), Layer("linear", 4, 4, 8)], "is given 8 x 4 points of 4 features"),
        ([Layer("linear", 4, 4, 8, columns=-4)], "columns of a layer is a whole number from 1"),
        ([Layer("transposed_convolution", 4, 4, 8, kernel=2, stride=3)], "leaves rows that nothing gives"),
        ([Layer("transposed_convolution", 4, 4, 8, kernel=2, padding=2)], "cuts off all that a row at the edge gives"),
        ([Layer("pooling", 4, 2, 8, kernel=2)], "pooling gives as many features as it takes"),
        ([Layer("pooling", 4, 4, 8, columns=4, kernel=5)], "a kernel of 5 columns, 1 apart, is wider than 4 columns"),
        ([Layer("convolution", 4, 4, 100, columns=100, kernel=65)], "a kernel has at most 4,096 places; got 4,225"),
    ],
)
def test_what_is_no_layer_of_a_grid_is_refused_before_any_rank_runs(layers: list[Layer], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        simulate(corners([4, 4], [4]), layers=layers, ranks=2)
