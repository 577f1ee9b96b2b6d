"""place_inputs: the three placements, in the figures that were published and in those that its notebook states."""

from collections import Counter
from typing import Any

import pytest

from drawing.figures.curves import crossings
from lib import PUZZLES, Links, Mesh, Model, Trace, check, retime, simulate
from lib.analysis.figures import end
from lib.course.solutions import alternatives
from lib.schedules.data_parallel import fsdp_prefetch
from lib.schedules.tensor_parallel import PLACEMENTS, tensor_parallel
from lib.submissions.load import load_function
from tests.support.puzzles import way

PUZZLE = "place_inputs"
RECORD = PUZZLES[PUZZLE]
INPUT = {"full": 131_072, "batch": 262_144, "replicated": 524_288}
MESH = Mesh({"data": 2, "model": 2})


def run(function: Any, placement: str | None = None, **sizes: Any) -> Trace:
    async def placed(model: Model) -> None:
        await (function(model) if placement is None else function(model, placement))

    return Trace.of(simulate(placed, **(sizes or {"puzzle": PUZZLE})))


def given(trace: Trace, rank: int) -> int:
    """Elements of input that a device is given."""
    program = trace.programs[rank]
    made = [event.outputs for event in program.events if event.op == "get_activation"]
    return sum(int(value.elements()) for ids in made for value in program.values_of(ids))


def collectives(trace: Trace, rank: int) -> Counter[str]:
    return Counter(event.op for event in trace.programs[rank].events if event.group)


@pytest.mark.parametrize(
    ("placement", "first", "time", "count"),
    [
        ("full", True, 12.75, 9),
        ("batch", True, 12.5, 8),
        ("replicated", True, 12.6, 8),
        ("full", False, 12.45, 8),
        ("batch", False, 12.2, 7),
        ("replicated", False, 12.3, 7),
    ],
)
def test_the_published_figures(placement: str, first: bool, time: float, count: int) -> None:
    """They sum up the gradient of the data, too, which nobody needs: one collective less is as correct."""
    trace = run(tensor_parallel(placement, first_input=first))
    verdict = check(trace, PUZZLE)
    assert (verdict.correct, verdict.time) == (True, time)
    for rank in range(4):
        assert collectives(trace, rank).total() == count
        assert given(trace, rank) == INPUT[placement]


@pytest.mark.parametrize(("placement", "time"), [("full", 10.35), ("batch", 10.1), ("replicated", 10.2)])
def test_the_reference_places_in_all_three_ways(placement: str, time: float) -> None:
    trace = run(way(PUZZLE), placement)
    verdict = check(trace, PUZZLE)
    assert (verdict.correct, verdict.time, verdict.memory) == (True, time, 2_097_152)
    assert given(trace, 3) == INPUT[placement]
    assert collectives(trace, 3) == Counter({"allreduce": 10, **({"allgather": 1} if placement == "full" else {})})


def test_the_figures_of_all_ways() -> None:
    assert check(run(way(PUZZLE)), PUZZLE).best == RECORD.goals[-1].name
    ways = {path.stem: load_function(path, PUZZLE) for path in alternatives(PUZZLE)}
    times = {name: [check(run(way, placement), PUZZLE).time for placement in PLACEMENTS] for name, way in ways.items()}
    assert times == {"place_inputs_await_all": [12.45, 12.2, 12.3], "place_inputs_hide_gradients": [11.25, 11.0, 11.1]}


def test_fsdp_is_nearly_as_fast_where_every_rank_has_a_batch() -> None:
    verdict = check(run(fsdp_prefetch), PUZZLE)
    assert (verdict.correct, verdict.time, verdict.memory) == (True, 10.35, 2_097_152)


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


def test_the_three_are_played_with_real_tensors() -> None:
    """On gloo: the gradients of one process, and as many collectives as were counted."""
    pytest.importorskip("torch", reason="a replay needs torch: pip install torch")
    from lib.replay import replay

    for placement in PLACEMENTS:
        trace = run(way(PUZZLE), placement)
        result = replay(trace, transport="gloo", hidden=16, length=4)
        assert result.ok, result.text()
        assert {error.what for error in result.errors} >= {"gradient", "final weight"}
        played = [collectives(result.measured, rank) for rank in range(4)]
        assert played == [Counter({"allreduce": 10, **({"allgather": 1} if placement == "full" else {})})] * 4
