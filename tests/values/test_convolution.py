"""Convolutions along rows: who gives which rows, which gradients are done, and the figures of an exchange of halos."""

from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lib import Layer, Links, Mesh, Model, RuleError, Trace, check, simulate
from lib.analysis.figures import traffic
from lib.cluster.costs import ticks
from lib.values.dims import RunSet
from lib.values.kinds.grid.stencils import Sweep
from lib.values.layers import layer_from
from tests.values.halos import gathered, overlapped, step
from tests.values.numbers import play

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


THRICE = Links(latency=0.06, p2p=0.6, forward=0.25, backward=0.25)
"""A layer of 3 x 2,048 x 2,048 numbers takes 3 for a batch of 64 rows: three times what the other model says."""
NET = [Layer("convolution", 2048, 2048, 64, kernel=3, padding=1)] * 4
FOUR, SIXTEEN, UNEVEN = [16] * 4, [4] * 16, [4, 8, 12, 40]


@pytest.mark.parametrize(
    ("make", "sizes", "end", "sent"),
    [
        (step, FOUR, 8.52, 131_072),
        (step, SIXTEEN, 2.52, 131_072),
        (step, UNEVEN, 20.52, 131_072),
        (partial(step, last_back=False), FOUR, 8.455, 114_688),
        (partial(step, last_back=False), SIXTEEN, 2.455, 114_688),
        (partial(step, last_back=False), UNEVEN, 20.455, 114_688),
        (partial(step, way="alltoall"), FOUR, 8.68, 131_072),
        (partial(step, way="alltoall"), SIXTEEN, 4.6, 131_072),
        (partial(step, way="alltoall"), UNEVEN, 20.68, 131_072),
        (partial(step, way="shifts"), FOUR, 8.52, 131_072),
        (partial(step, way="shifts"), SIXTEEN, 2.52, 131_072),
        (partial(step, way="shifts"), UNEVEN, 20.52, 131_072),
        (overlapped, FOUR, 8.0, 114_688),
        (overlapped, SIXTEEN, 2.0, 114_688),
        (overlapped, UNEVEN, 20.0, 114_688),
    ],
)
def test_a_step_takes_what_another_model_says(make: Any, sizes: list[int], end: float, sent: int) -> None:
    models = simulate(make(sizes, train=False), layers=NET, ranks=len(sizes), batches=4, costs=THRICE)
    last = max(event.end or 0 for model in models for event in model.program.events)
    assert last == ticks(3 * Fraction(str(end)))
    elements = [one for one, _ in traffic(models[0].trace)]
    assert elements == [sent / 2, *[sent] * (len(sizes) - 2), sent / 2]
    assert check(simulate(make(sizes), layers=NET, ranks=len(sizes), batches=4)).correct


@pytest.mark.parametrize(
    ("make", "ends"),
    [
        (partial(step, last_back=False), ["18.205", "18.455", "18.705", "20.455"]),
        (overlapped, ["15.3775", "15.6275", "15.8775", "20"]),
    ],
)
def test_ranks_of_unequal_parts_end_when_another_model_says(make: Any, ends: list[str]) -> None:
    models = simulate(make(UNEVEN, train=False), layers=NET, ranks=4, batches=4, costs=THRICE)
    found = [max(event.end or 0 for event in model.program.events) for model in models]
    assert found == [ticks(3 * Fraction(end)) for end in ends]


DOMAIN_DATA: list[tuple[Any, list[int], int, float, list[int]]] = [
    (partial(step, mesh=True), [32, 32], 2, 8.21, [32_768] * 4),
    (partial(overlapped, mesh=True), [32, 32], 2, 8.0, [28_672] * 4),
    (partial(step, mesh=True), FOUR, 1, 8.52, [65_536, 131_072, 131_072, 65_536]),
    (partial(step, mesh=True), [64], 4, 8.0, [0] * 4),
]


@pytest.mark.parametrize(("make", "sizes", "data", "end", "sent"), DOMAIN_DATA)
def test_a_step_over_domain_and_data_takes_what_another_model_says(
    make: Any, sizes: list[int], data: int, end: float, sent: list[int]
) -> None:
    mesh = Mesh({"data": data, "domain": len(sizes)})
    models = simulate(make(sizes, train=False), layers=NET, mesh=mesh, batches=4, costs=THRICE)
    assert max(event.end or 0 for model in models for event in model.program.events) == ticks(3 * Fraction(str(end)))
    assert [one for one, _ in traffic(models[0].trace)] == sent
    for each in (mesh, Mesh(mesh.axes, ranks=[2, 0, 3, 1]), Mesh({"domain": len(sizes), "data": data})):
        assert check(simulate(make(sizes), layers=NET, mesh=each, batches=4)).correct


@pytest.mark.parametrize(
    ("groups", "end", "sent"),
    [([["data", "domain"]], "0.14109375", 13_824), (["domain", "data"], "0.108125", 18_432)],
)
def test_the_sum_of_a_weight_gradient_takes_what_another_model_says(groups: list[Any], end: str, sent: int) -> None:
    """9,216 elements, in one sum over all four ranks, or over the domain and then over the data."""

    async def summed(model: Model) -> None:
        gradient = model.fake_grad(0)
        for group in groups:
            gradient = await model.allreduce(gradient, 0, group=group)

    layer = Layer("convolution", 48, 64, 64, kernel=3, padding=1)
    models = simulate(summed, layers=[layer], mesh=Mesh({"data": 2, "domain": 2}), costs=THRICE)
    assert max(event.end or 0 for model in models for event in model.program.events) == ticks(3 * Fraction(end))
    assert [one for one, _ in traffic(models[0].trace)] == [sent] * 4


@pytest.mark.parametrize(
    ("sizes", "end", "sent", "again"),
    [
        (FOUR, 13.28, [3_145_728] * 4, 2),
        (SIXTEEN, 10.4, [3_932_160] * 16, 2),
        (UNEVEN, 32.48, [3_670_016, 3_407_872, 1_572_864, 3_932_160], 1),
    ],
)
def test_all_rows_for_everybody_take_what_another_model_says(
    sizes: list[int], end: float, sent: list[int], again: int
) -> None:
    """But for the rows beside its own for which the busiest rank works out input gradients once again: that model
    counts the rows of the result, and ours those of the output that they come of."""
    rows = Fraction(again, sum(sizes)) / 2 * 4 * len(NET)
    for back, expected in ((False, Fraction(str(end)) / 2), (True, Fraction(str(end)) + rows)):
        models = simulate(
            gathered(sizes, train=False, back=back), layers=NET, ranks=len(sizes), batches=4, costs=THRICE
        )
        assert max(event.end or 0 for model in models for event in model.program.events) == ticks(3 * expected)
        assert [one * (2 - back) for one, _ in traffic(models[0].trace)] == sent
    assert check(simulate(gathered(sizes), layers=NET, ranks=len(sizes), batches=4)).correct


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        *product([step, partial(step, way="alltoall"), gathered, overlapped], [[4, 4, 4, 4], [5, 4, 11, 4], [9, 7]]),
        (step, [3, 3, 3, 0]),
        (step, [4, 0, 5]),
    ],
)
def test_in_numbers_every_value_that_is_done_is_its_part_of_the_whole(make: Any, sizes: list[int]) -> None:
    rows = sum(sizes)
    net = [Layer("convolution", 3, 5, rows, kernel=3, padding=1), Layer("convolution", 5, 3, rows, kernel=3, padding=1)]
    assert play(simulate(make(sizes), layers=net, ranks=len(sizes), batches=2)[0].trace) > 10 * len(sizes)


@pytest.mark.parametrize("how", [{"stride": 2}, {"dilation": 2, "padding": 1}, {}])
def test_it_comes_back_from_a_file_and_from_text(how: dict[str, Any], tmp_path: Path) -> None:
    async def forward(model: Model) -> None:
        model.loss(model.forward(0, model.get_activation([0]), model.load_weights(0)[0]))

    trace = simulate(forward, layers=[Layer("convolution", 4, 6, 16, kernel=3, **how)])[0].trace
    trace.save(tmp_path / "run.json")
    for again in (Trace.load(tmp_path / "run.json"), Trace.parse(trace.text())):
        assert again.text() == trace.text()
        assert again.descriptions == trace.descriptions


@pytest.mark.parametrize("field", ["kernel", "stride", "dilation", "padding"])
@pytest.mark.parametrize("wrong", ["3", 1.5, -1, None, [3], 10**9])
def test_a_file_with_a_stencil_that_is_none_is_refused(field: str, wrong: object) -> None:
    described = Layer("convolution", 4, 6, 16, kernel=3).to_json()
    with pytest.raises(ValueError, match=f"{field} of a layer is a whole number"):
        layer_from({**described, field: wrong})


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("no halo", "put the rows of the neighbours that it lacks, the halo"),
        ("halo's gradient dropped", "the gradient of a halo goes home"),
        ("halo's gradient kept", "the gradient of a halo goes home"),
        ("halo's gradient twice", "output rows 4 of 64 would be counted twice"),
        ("halo of the layer before", "cannot gather activations of different layers"),
        ("weights not summed", "the sum over all 64 rows of all batches"),
    ],
)
def test_a_mistake_is_named_with_its_rows(mistake: str, said: str) -> None:
    with pytest.raises(RuleError) as raised:
        simulate(step(UNEVEN, mistake=mistake), layers=NET, ranks=4, batches=4)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"kernel": 0}, "kernel of a layer is a whole number from 1"),
        ({"kernel": 3, "padding": -1}, "padding of a layer is a whole number from 0"),
        ({"kernel": 3, "stride": 0}, "stride of a layer is a whole number from 1"),
        ({"kernel": 9}, "a kernel of 9 rows, 1 apart, is wider than 8 rows with a padding of 0"),
        ({"kernel": 3, "dilation": 5, "padding": 1}, "is wider than 8 rows"),
        ({"kernel": 5000}, "a kernel has at most 4,096 places; got 5,000"),
        ({"kernel": 3, "padding": 3}, "rows at the edge are of zeros alone"),
    ],
)
def test_what_is_no_convolution_is_refused_before_any_rank_runs(how: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        simulate(step([4, 4]), layers=[Layer("convolution", 4, 4, 8, **how)], ranks=2)


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
