"""place_inputs: the three placements, in the figures that were published and in those that its notebook states."""

from collections import Counter
from typing import Any

import pytest

from drawing.comparing.plot import crossings
from lib import Links, Mesh, Model, Trace, check, retime, simulate
from lib.analysis.figures import end
from lib.schedules import data_parallel
from lib.schedules.mesh_parallel import PLACEMENTS, tensor_parallel
from tests.support.puzzles import way
from tests.support.said import Said

PUZZLE = "place_inputs"


def run(function: Any, placement: str | None = None, **sizes: Any) -> Trace:
    async def placed(model: Model) -> None:
        await (function(model) if placement is None else function(model, placement))

    return Trace.of(simulate(placed, **(sizes or {"puzzle": PUZZLE})))


def given(trace: Trace, rank: int) -> int:
    program = trace.programs[rank]
    made = [event.outputs for event in program.events if event.op == "get_activation"]
    return sum(int(value.elements()) for ids in made for value in program.values_of(ids))


def collectives(trace: Trace, rank: int) -> Counter[str]:
    return Counter(event.op for event in trace.programs[rank].events if event.group)


def came_to(function: Any, placement: str | None = None) -> str:
    trace = run(function, placement)
    verdict = check(trace, PUZZLE)
    assert verdict.correct
    ((counted, elements),) = {(collectives(trace, rank).total(), given(trace, rank)) for rank in range(4)}
    figures = f"time {verdict.time:g}, memory {verdict.memory:,.0f}, {verdict.best or 'no goal'}"
    return f"{figures}; {counted} collectives, {elements:,} elements of input"


test_figures = Said(__file__, "place_inputs").test(lambda: {**vars(data_parallel), **globals(), "way": way})


def test_the_crossing_is_where_the_link_is_as_fast_as_the_host() -> None:
    """Whatever the sizes: an all-gather brings a device just the batches that were not copied to it."""
    for members, batches in ((2, 4), (2, 8), (4, 8)):
        mesh = Mesh({"data": 2, "model": members})
        runs = {way: run(tensor_parallel(way), layers=2, batches=batches, mesh=mesh) for way in PLACEMENTS}
        for ratio, price in ((1.0, 0.2), (10.0, 2.0)):
            host = 2 * members if ratio == 1 else 1
            curves = {
                way: [(x, end(retime(trace, Links(to_device=x, host_size=host)))) for x in (0, price / 2, 2 * price)]
                for way, trace in runs.items()
            }
            (crossing,) = crossings(curves)
            assert (crossing.x, crossing.before, crossing.after) == (pytest.approx(price), "batch", "full")


@pytest.mark.parametrize(
    ("batches", "members", "link", "device", "latency"), [(4, 2, 0.2, 0.3, 0.2), (8, 4, 0.4, 0.1, 0.05)]
)
def test_the_formula_of_what_is_saved(batches: int, members: int, link: float, device: float, latency: float) -> None:
    costs = Links(p2p=link, to_device=device, latency=latency)
    mesh = Mesh({"data": 2, "model": members})
    full, batch = (
        end(run(tensor_parallel(way), layers=2, batches=2 * batches, mesh=mesh, costs=costs))
        for way in ("full", "batch")
    )
    saved = (batches - batches / members) * (link - device) + (members - 1) * latency
    assert full - batch == pytest.approx(saved)
