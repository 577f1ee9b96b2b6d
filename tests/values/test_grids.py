"""Grids that are cut: who gives which rows, inner rows first, and rows that become columns. Every kind of layer, on any
mesh, in parts of any size: tests/schedules/test_domain_parallel.py."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import pytest

from lib import Layer, Model, PuzzleError, RuleError, check, simulate
from lib.values.dims import RunSet
from lib.values.kinds.grid import Sweep
from tests.values.halos import gathered, overlapped
from tests.values.numbers import play

__all__ = ["redistributed", "spectral"]

Value = Any


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


def test_a_transform_needs_all_of_its_dim() -> None:
    async def forward(model: Model) -> None:
        model.forward(0, model.get_activation([0]).shard(0, 2, "columns"))

    with pytest.raises(PuzzleError, match="this layer mixes all of them") as raised:
        simulate(forward, layers=[Layer("transform", 4, 4, 8, columns=8, along="columns")])
    assert "by an all-to-all" in str(raised.value)


OUTPUTS: list[tuple[list[int], dict[str, int], list[int]]] = [
    ([8, 8, 8, 8], {"kernel": 3}, [7, 8, 8, 7]),
    ([8, 8, 8, 8], {"kernel": 5}, [6, 8, 8, 6]),
    ([16, 4, 7, 13], {"kernel": 3}, [15, 4, 7, 12]),
    ([4, 8, 12, 40], {"kernel": 3, "padding": 1}, [4, 8, 12, 40]),
    ([16, 4, 7, 13], {"kernel": 3, "stride": 2, "padding": 1}, [8, 2, 4, 6]),
    ([16, 4, 7, 13], {"kernel": 3, "dilation": 2, "padding": 2}, [16, 4, 7, 13]),
]


@pytest.mark.parametrize(("sizes", "how", "outputs"), OUTPUTS)
def test_who_gives_how_many_rows_is_what_another_model_says(
    sizes: list[int], how: dict[str, Any], outputs: list[int]
) -> None:
    """Each rank has its own rows, and a halo of those that the rows around its own centres need."""
    stencil = Sweep(sum(sizes), **how)
    first, found = 0, list[int]()
    for size in sizes:
        own = RunSet.span(first, first + size)
        mine = [
            q
            for q in range(stencil.outputs)
            if min(max(stencil.needs(q)[(stencil.kernel - 1) // 2], 0), stencil.rows - 1) in own
        ]
        halo = {row for q in mine for row in stencil.needs(q) if 0 <= row < stencil.rows}
        assert set(mine) <= set(stencil.given(RunSet.of(halo | {*own})))
        found.append(len(mine))
        first += size
    assert found == outputs


@pytest.mark.parametrize("make", [gathered, overlapped])
@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], [5, 4, 11, 4], [9, 7]])
def test_in_numbers_every_value_that_is_done_is_its_part_of_the_whole(make: Any, sizes: list[int]) -> None:
    rows = sum(sizes)
    net = [Layer("convolution", 3, 5, rows, kernel=3, padding=1), Layer("convolution", 5, 3, rows, kernel=3, padding=1)]
    assert play(simulate(make(sizes), layers=net, ranks=len(sizes), batches=2)[0].trace) > 10 * len(sizes)


@pytest.mark.parametrize("back", [False, True])
def test_a_kernel_is_used_whole(back: bool) -> None:
    async def cut(model: Model) -> None:
        weight, _ = model.load_weights(0)
        x, part = model.get_activation([0]), model.shard(weight, "taps", 0, 3)
        if back:
            model.backward(0, x, model.loss(model.forward(0, x, weight)), part)
        model.forward(0, x, part)

    with pytest.raises(RuleError, match="lacks a part of its kernel"):
        simulate(cut, layers=[Layer("convolution", 4, 4, 8, kernel=3, padding=1)])


def test_an_exchange_with_neighbours_takes_a_value_for_each() -> None:
    async def one_too_many(model: Model) -> None:
        await model.halo([model.fake_grad(0)] * 2, 0)

    with pytest.raises(RuleError, match="one value for each neighbour") as raised:
        simulate(one_too_many, ranks=3)
    assert "a list of 1 value, for the member after it" in str(raised.value)
    with pytest.raises(RuleError, match="a group of one member has none"):
        simulate(one_too_many, ranks=1)
