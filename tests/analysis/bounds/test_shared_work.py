"""The time of ranks that share the work: no known way is below it, and one reaches it where we say so."""

from dataclasses import replace

import pytest
from hypothesis import given

from lib import Layer, Model, Trace, Uneven, check, simulate
from lib.analysis.bounds.family import SharedWork, WholeLayers, excuse
from lib.analysis.bounds.limits import lower_bound, work_time
from lib.analysis.figures import end
from lib.cluster.costs import units
from lib.puzzles.records import PUZZLES
from lib.schedules.pipelines import generators
from lib.schedules.pipelines.program import program_of
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
    hidden = [(one.ranks, one.layers, one.batches, one.mesh) for one in record.hidden] if THOROUGH else []
    for ranks, layers, batches, mesh in ((*record.size, record.mesh), *hidden):
        here = replace(record, ranks=ranks, layers=layers, batches=batches, mesh=mesh, hidden=())
        family = SharedWork(*here.size, here.described(here.layers))
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


WHOLE = [name for name, record in PUZZLES.items() if record.bound is not None and record.bound.whole]


@pytest.mark.parametrize("puzzle", WHOLE)
def test_no_order_of_whole_layers_ends_before_the_bound_and_the_reference_ends_at_it(puzzle: str) -> None:
    record, bound = PUZZLES[puzzle], lower_bound(puzzle)
    for way in (reference(puzzle), *alternatives(puzzle)):
        trace = Trace.of(simulate(load_function(way, puzzle), puzzle=puzzle))
        assert bound.excuse(trace) is None
        assert end(trace) >= bound.time.value
    assert end(Trace.of(simulate(load_function(reference(puzzle), puzzle), puzzle=puzzle))) == bound.time.value
    assert bound.time.optimal
    assert record.goals[-1].time == bound.time.value


@pytest.mark.parametrize(("ranks", "layers", "batches"), [(2, 2, 1), (2, 4, 3), (3, 3, 4), (3, 6, 5), (4, 8, 8)])
def test_pipelines_of_any_size_are_not_below(ranks: int, layers: int, batches: int) -> None:
    family = WholeLayers(ranks, layers, batches)
    for costs in (Uneven(), Uneven(p2p=0.0, update=0.0, backward=2.0), Uneven(layers=(2, 1, 0.5), ranks=(1, 2))):
        for order in (generators.gpipe(ranks, batches), generators.one_f_one_b(ranks, batches)):
            models = simulate(program_of(order), ranks=ranks, layers=layers, batches=batches, costs=costs)
            trace = Trace.of(models).normalised()
            assert excuse(trace, family) is None
            assert end(trace) >= work_time(family, costs).value - DUST


@examples(200, 20)
@given(runs() | tensor_runs())
def test_no_random_step_of_whole_layers_is_below(program: Program) -> None:
    trace = program.run().normalised()
    family = WholeLayers(trace.ranks, trace.layers, trace.batches, trace.descriptions)
    assert excuse(trace, family) is not None or end(trace) >= work_time(family, trace.costs).value - DUST


def test_which_runs_do_not_leave_layers_whole() -> None:
    def of(puzzle: str, family: WholeLayers) -> str | None:
        function = load_function(reference(puzzle), puzzle)
        models = simulate(function, ranks=family.ranks, layers=family.layers, batches=family.batches)
        return excuse(Trace.of(models), family)

    assert of("ddp", WholeLayers(2, 2, 2)) == "layer 0 is on several ranks"
    assert of("tensor_parallel", WholeLayers(2, 2, 2)) == "rank 0 runs forward of layer 0 on a part of it"
    assert of("basic", WholeLayers(1, 2, 2)) is None
