"""Grids that are cut: who gives which rows, and the ways of puzzles: inner rows first, all gathered, rows that become
columns. Every kind of layer, on any mesh, in parts of any size: tests/schedules/test_domain_parallel.py."""

from typing import Any

import pytest

from lib import Layer, Model, PuzzleError, RuleError, simulate
from lib.values.dims import RunSet
from lib.values.kinds.grid import Sweep
from tests.support.puzzles import in_parts
from tests.values.numbers import play


def test_a_transform_needs_all_of_its_dim() -> None:
    async def forward(model: Model) -> None:
        model.forward(0, model.get_activation([0]).shard(0, 2, "columns"))

    with pytest.raises(PuzzleError, match="this layer mixes all of them") as raised:
        simulate(forward, layers=[Layer("transform", 4, 4, 8, columns=8, along="columns")])
    assert "by an all-to-all" in str(raised.value)


WAYS = [
    *[("halo_conv", name, {"sizes": sizes}) for name in ("", "gathered") for sizes in ([16] * 4, [5, 4, 11, 44])],
    *[("redistribute", name, {"rows": [4, 0, 60], "columns": [16, 43, 5]}) for name in ("await_all", "gathered")],
]


@pytest.mark.parametrize(("puzzle", "name", "parts"), WAYS)
def test_in_numbers_every_value_that_is_done_is_its_part_of_the_whole(
    puzzle: str, name: str, parts: dict[str, list[int]]
) -> None:
    assert play(in_parts(puzzle, name, parts, 2)) > 90


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
        mine = [q for q in range(stencil.outputs) if stencil.centre(q) in own]
        halo = {row for q in mine for row in stencil.needs(q) if 0 <= row < stencil.rows}
        assert set(mine) <= set(stencil.given(RunSet.of(halo | {*own})))
        found.append(len(mine))
        first += size
    assert found == outputs


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
