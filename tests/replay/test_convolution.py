"""Convolutions in parts, with real tensors, beside torch's own convolution in one process."""

from itertools import accumulate, product
from typing import Any

import pytest

from lib import Layer, Model, Trace, simulate
from lib.replay import replay
from tests.support.profiles import THOROUGH
from tests.values.halos import gathered, overlapped, step

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

SIZES = {"even": [6] * 4, "uneven": [5, 4, 11, 4], "of eight": [3] * 8, "of sixteen": [2, 3] * 8, "none": [9, 0, 8, 7]}
WAYS = [*(("halo", name) for name in SIZES), *product(["alltoall", "gathered"], ["even", "uneven", "of eight"])]


def same(rows: int) -> list[Layer]:
    """Two layers that give as many rows as they take."""
    return [Layer("convolution", *sizes, rows, kernel=3, padding=1) for sizes in ((6, 4), (4, 6))]


@pytest.mark.parametrize(("way", "name"), WAYS)
def test_a_step_is_that_of_one_process(way: str, name: str) -> None:
    sizes = SIZES[name]
    function = gathered(sizes) if way == "gathered" else step(sizes, way)
    schedule = Trace.of(simulate(function, layers=same(sum(sizes)), ranks=len(sizes), batches=2))
    by_processes = THOROUGH or (way, name) in WAYS[:2] or (way != "halo" and name == "uneven")
    for transport in ("local", "gloo") if len(sizes) == 4 and by_processes else ("local",):
        result = replay(schedule, transport=transport, dtype="float64")
        assert result.ok, result.text()
        assert [one.sent for one in result.ranks] == [one.simulated_sent for one in result.ranks]


def test_edges_travel_behind_the_inner_rows() -> None:
    schedule = Trace.of(simulate(overlapped([6, 7, 5, 6]), layers=same(24), ranks=4, batches=2))
    assert replay(schedule, transport="gloo", dtype="float64").ok


@pytest.mark.parametrize(
    "how",
    [
        {"kernel": 5},
        {"kernel": 4, "stride": 2, "padding": 1},
        {"kernel": 3, "dilation": 3, "padding": 2},
        {"kernel": 1},
    ],
)
@pytest.mark.parametrize("sizes", [[8, 8, 8], [13, 4, 7]])
def test_any_stencil_gives_what_torch_gives(how: dict[str, Any], sizes: list[int]) -> None:
    """Rows are gathered, and each rank works out those outputs whose middle is its own."""
    layers = [Layer("convolution", 4, 6, 24, **how)]
    ends = [0, *accumulate(sizes)]

    async def function(model: Model) -> None:
        weight, state = model.load_weights(0)
        kind: Any = model.shape.kinds[0]
        stencil, own = kind.stencils["rows"], range(ends[model.rank], ends[model.rank + 1])
        middles = [stencil.needs(q)[(stencil.kernel - 1) // 2] for q in range(stencil.outputs)]
        mine = [q for q, row in enumerate(middles) if min(max(row, 0), 23) in own]
        needed = [row for q in mine for row in stencil.needs(q) if 0 <= row < 24]
        x = (await model.allgather(model.get_activation([0, 1]).cut("rows", own.start, own.stop), 0)).cut(
            "rows", min(needed), max(needed) + 1
        )
        y = model.forward(0, x, weight)
        gradient, _ = model.backward(0, x, model.loss(y), weight)
        model.set_final_weight(0, model.update(0, await model.allreduce(gradient, 0), weight, state)[0])

    result = replay(Trace.of(simulate(function, layers=layers, ranks=3, batches=2)), transport="local", dtype="float64")
    assert result.ok, result.text()
