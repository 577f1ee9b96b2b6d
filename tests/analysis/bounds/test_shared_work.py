"""The time of ranks that share the work: no known way is below it, and one reaches it where we say so."""

from dataclasses import replace

import pytest
from hypothesis import given

from lib import Layer, Model, Trace, Uneven, check, simulate
from lib.analysis.bounds.family import SharedWork, excuse
from lib.analysis.bounds.limits import lower_bound, work_time
from lib.analysis.figures import end
from lib.cluster.costs import units
from lib.puzzles.records import PUZZLES
from lib.suite.course.solutions import alternatives
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference
from lib.values.operations import COMPUTE
from tests.adversary.examples import runs, tensor_runs
from tests.adversary.programs import Program
from tests.support.profiles import THOROUGH, examples

SHARED = [name for name, record in PUZZLES.items() if record.bound is not None and record.bound.work]
DUST = 1e-6


@pytest.mark.parametrize("puzzle", SHARED)
def test_no_known_way_computes_less_at_any_size_and_one_is_as_fast_where_we_say_so(puzzle: str) -> None:
    record, bound, ends = PUZZLES[puzzle], lower_bound(puzzle), list[float]()
    for ranks, layers, batches, mesh in ((*record.size, record.mesh), *(record.hidden if THOROUGH else ())):
        here = replace(record, ranks=ranks, layers=layers, batches=batches, mesh=mesh, hidden=())
        family = SharedWork.of(here)
        for way in (reference(puzzle), *alternatives(puzzle)):
            function = load_function(way, puzzle)
            trace = Trace.of(simulate(function, puzzle=puzzle, ranks=ranks, layers=layers, batches=batches))
            assert excuse(trace, family) is None
            busy = units(sum(event.length for _, event in trace.events() if event.op in COMPUTE))
            assert end(trace) >= busy / ranks >= work_time(family, record.costs).value - DUST, way
            ends += [end(trace)] if here.size == record.size else []
    assert (min(ends) == pytest.approx(bound.time.value, abs=DUST)) == bound.time.optimal


@examples(200, 20)
@given(runs() | tensor_runs())
def test_no_random_step_with_all_its_updates_and_halves_is_below(program: Program) -> None:
    trace = program.run().normalised()
    family = SharedWork(trace.ranks, trace.layers, trace.batches, trace.descriptions)
    limit = work_time(family, trace.costs).value
    assert excuse(trace, family) is not None or end(trace) >= limit - DUST


def _alone(family: SharedWork, *, half: bool = False) -> Trace:
    """Rank 0 alone trains the last layer, perhaps with the weight half of its backward; none below it has a weight."""

    def run(model: Model) -> None:
        if model.rank == 0:
            act, last = model.get_activation(range(model.BATCHES)), model.LAYERS - 1
            weight, state = model.load_weights(last)
            act = model.forward(0, act, act) if last else act
            grad = model.loss(model.forward(last, act, weight))
            made = model.backward_weight(last, act, grad) if half else model.backward(last, act, grad, weight)[0]
            model.set_final_weight(last, model.update(last, made, weight, state)[0])

    return Trace.of(simulate(run, ranks=family.ranks, layers=family.described, batches=family.batches))


def test_what_there_is_to_compute_and_which_runs_may_be_below() -> None:
    for layers in ([Layer(rows=4)], [Layer("attention", rows=4, heads=2, of=(0, 0)), Layer(rows=4)]):
        one, two = (SharedWork(ranks, len(layers), 3, tuple(layers)) for ranks in (1, 2))
        assert excuse(_alone(one), one) is None
        assert end(_alone(one)) == pytest.approx(work_time(one, Uneven()).value, abs=DUST)
        cheap, lonely = _alone(one, half=True), _alone(two)
        assert excuse(cheap, one) == f"the backward of layer {len(layers) - 1} leaves out input halves"
        assert end(cheap) < work_time(one, Uneven()).value - DUST
        assert check(lonely).correct
        assert excuse(lonely, two) == f"rank 1 updates nothing of layer {len(layers) - 1}"
    assert work_time(SharedWork(2, 1, 3), Uneven(ranks=(1, 2))).value == pytest.approx((3 * 2 + 2 * 0.5) / 1.5)
