"""The solver finds what is stored, and what trying everything finds. Skips without OR-tools."""

import itertools
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Trace
from lib.analysis.bounds.optima import Optimum, Size
from lib.schedules.pipelines.action import Action
from lib.values.kinds.kind import PRICED
from tests.support.optima import find
from tests.support.pipeline_orders import all_orders, figures, in_turn, random_orders, run
from tests.support.profiles import THOROUGH, examples, sample

pytest.importorskip("ortools", reason="needs OR-tools: pip install ortools")

from ortools.sat.python import cp_model

from tools.solver.__main__ import main, write
from tools.solver.pipeline import Pipeline
from tools.solver.search import NotFound, Search, between, fastest, floor, leanest

ALONE = Search(seconds=60, workers=1, seed=7)
SMALL = [
    Size(stages, stages * each, batches, overlap)
    for stages, each, batches in ((2, 1, 3), (2, 2, 2), (2, 2, 3), (3, 1, 4), (3, 2, 2), (4, 1, 3))
    for overlap in (False, True)
]


def _claims(found: Optimum) -> tuple[float, float, int, int]:
    return found.end, found.end_bound, found.peak, found.peak_bound


@pytest.mark.parametrize("size", sample(SMALL), ids=str)
def test_solved_again_by_one_worker_it_is_what_is_stored(size: Size) -> None:
    assert _claims(fastest(size, ALONE)) == _claims(find(size, "fastest"))
    assert _claims(leanest(size, ALONE)) == _claims(find(size, "leanest"))


@pytest.mark.parametrize("size", sample([Size(2, 2, 4, True), Size(2, 4, 3, True), Size(3, 3, 3, False)]), ids=str)
def test_the_help_for_the_leanest_changes_nothing(size: Size) -> None:
    assert _claims(leanest(size, ALONE, helped=False)) == _claims(find(size, "leanest"))


def _times(size: Size, orders: list[list[Action]], trace: Trace) -> dict[Action, int]:
    """When the operations of a run started, in tenths of a step; with overlap, when its messages were called for."""
    found: dict[Action, int] = {}
    for rank, order in enumerate(orders):
        timed = [action for action in order if not action.kind.startswith("WAIT")]
        events = [e for e in trace.programs[rank].events if e.op in MODELLED]
        for action, event in zip(timed, events, strict=True):
            time = event.issued if size.overlap else event.start
            assert time is not None
            found[action] = round(time / 10**8)
    return found


MODELLED = ("forward", "backward", "update", "pass_to", "receive")


def _peak(pipeline: Pipeline, times: dict[Action, int]) -> int:
    """The least peak that the model gives a run at its own times. None would be an error of the model."""
    for key, span in pipeline.spans.items():
        pipeline.model.add(span.start == times[key])
    pipeline.model.minimize(pipeline.limit_memory_to_a_variable())
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(pipeline.model) == cp_model.OPTIMAL
    return round(solver.objective_value) * PRICED.batch


@examples(120)
@given(st.integers(2, 4), st.integers(1, 3), st.integers(1, 4), st.booleans(), st.integers(0, 2**32 - 1))
def test_every_run_is_in_the_model_with_no_more_memory_than_it_has(
    stages: int, each: int, batches: int, overlap: bool, seed: int
) -> None:
    size = Size(stages, stages * each, batches, overlap)
    orders = [in_turn(order) for order in random_orders(size, random.Random(seed))]
    trace = run(size, orders)
    assert trace is not None
    end, peak = figures(trace)
    times = _times(size, orders, trace)
    full, loose = (_peak(Pipeline(size, round(end * 10), loose=loose), times) for loose in (False, True))
    assert loose <= full <= peak
    if not overlap:
        assert full == peak


@pytest.mark.parametrize(
    "size", [Size(2, 2, 1, False), Size(2, 4, 1, True), Size(2, 2, 2, False), Size(2, 2, 2, True)], ids=str
)
def test_nothing_that_can_be_tried_is_better_than_the_optimum(size: Size) -> None:
    """Of all orders that can be run, and of every so many at a commit: those whose messages come in another order
    cannot."""
    orders = list(itertools.product(*(sorted(all_orders(size, rank)) for rank in range(size.stages))))
    all_ = THOROUGH or size.batches == 1
    traces = [run(size, combined) for combined in (orders if all_ else orders[:: len(orders) // 100])]
    found = [figures(trace) for trace in traces if trace is not None]
    quick, lean = find(size, "fastest"), find(size, "leanest")
    assert min(found) >= (quick.end, quick.peak)
    assert min(peak for _, peak in found) >= lean.peak
    if all_:
        assert min(found) == (quick.end, quick.peak)
    if all_ and size.batches > 1:  # alone, it pays to update between two backwards, which is not tried here
        assert min((peak, end) for end, peak in found) == (lean.peak, lean.end)


def _least_end(pipeline: Pipeline) -> float:
    pipeline.model.minimize(pipeline.end)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(pipeline.model) == cp_model.OPTIMAL
    return solver.objective_value


@pytest.mark.parametrize("batches", sample([2, 3, 4]))
def test_waiting_for_room_in_time_costs_nothing_here(batches: int) -> None:
    size = Size(3, 3, batches, overlap=False)
    free, waiting = _least_end(Pipeline(size, 600)), _least_end(Pipeline(size, 600, room=True))
    assert free == waiting == round(find(size, "fastest").end * 10)


def test_the_floor_is_reached_from_two_batches_on() -> None:
    for size in SMALL:
        assert floor(size) * 131_072 == find(size, "leanest").peak


def test_what_lies_between() -> None:
    size = Size(2, 2, 4, overlap=True)
    quick, slow = find(size, "fastest"), find(size, "leanest")
    points = list(between(size, ALONE, quick, slow))
    assert points
    for point in points:
        assert quick.end < point.end < slow.end
        assert slow.peak < point.peak < quick.peak
        assert (point.end, point.peak) == (point.end_bound, point.peak_bound)


def test_no_time_to_find_anything() -> None:
    with pytest.raises(NotFound, match=r"UNKNOWN: nothing for Size\(.*\) in 1e-06 seconds"):
        fastest(Size(4, 8, 8, False), Search(seconds=1e-6, workers=1))


def test_the_command_prints_what_it_finds(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--stages", "2", "--layers", "2", "3", "4", "--batches", "1", "2", "--workers", "1", "--overlap"])
    assert capsys.readouterr().out == Path(__file__).with_name("solver.txt").read_text("utf-8")


def test_the_store_keeps_what_is_better_proved(tmp_path: Path) -> None:
    store = tmp_path / "optima.json"
    proved = find(Size(2, 4, 3, False), "fastest")
    open_ = Optimum(proved.size, "fastest", proved.end, 1.0, proved.peak, proved.peak, "", proved.orders)
    for found in ([open_], [proved], [open_]):
        write(store, found)
    assert [record["end_bound"] for record in json.loads(store.read_text("utf-8"))["optima"]] == [proved.end_bound]
