"""Every schedule with backward in two halves: the same step, in the same time."""

from typing import Any

import pytest

from lib import ActivationGrad, Model, Trace, check, simulate
from lib.analysis import figures
from lib.analysis.bounds.limits import lower_bound
from lib.analysis.waiting.critical_path import critical_path
from lib.checker.notes import left_out
from lib.schedules.steps import accumulate, load, step
from lib.trace.retiming import retime
from tests.support.profiles import sample
from tests.support.puzzles import in_parts, way
from tests.support.schedules import EVERYTHING, Case


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backward as its halves, one after the other."""

    def backward(model: Model, layer: int, inp: Any, grad: Any, weight: Any) -> tuple[Any, ActivationGrad]:
        by_input = model.backward_input(layer, inp, grad, weight)
        return model.backward_weight(layer, inp, grad), by_input

    monkeypatch.setattr(Model, "backward", backward)


@pytest.mark.parametrize("case", sample(EVERYTHING), ids=lambda case: case.name)
def test_every_schedule_takes_halves(case: Case, monkeypatch: pytest.MonkeyPatch, halves: None) -> None:
    split = Trace.of(case.run(simulate))
    monkeypatch.undo()
    whole = Trace.of(case.run(simulate))
    assert check(split).correct == check(whole).correct
    assert figures.end(split) == figures.end(whole)
    assert figures.traffic(split) == figures.traffic(whole)
    again = Trace.parse(split.text())
    assert figures.end(again) == figures.end(whole)
    assert figures.peak(again).elements == figures.peak(split).elements
    assert figures.end(retime(split, split.costs)) == figures.end(whole)
    parts = dict(critical_path(whole).parts())
    both = dict(critical_path(split).parts())
    assert both.get("input half", 0) + both.get("weight half", 0) == parts["backward"]


def test_lower_bounds_do_not_speak_of_halves(halves: None) -> None:
    """They may be below them: what waits for a backward waits for half of it only."""
    for puzzle in ("basic", "fsdp", "gpipe"):
        models = simulate(way(puzzle), puzzle=puzzle)
        assert check(models, puzzle=puzzle).correct
        excuse = lower_bound(puzzle).excuse(Trace.of(models))
        assert excuse is not None
        assert "splits the backward of layer" in excuse


def test_no_goal_counts_without_the_input_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody needs the gradient of the data, and half of a backward less would be every puzzle's cheapest trick."""

    def backward(model: Model, layer: int, inp: Any, grad: Any, weight: Any) -> tuple[Any, Any]:
        made = model.backward_weight(layer, inp, grad)
        skip = layer == 0 and inp.batches <= skipped
        return made, None if skip else model.backward_input(layer, inp, grad, weight)

    def accum(model: Model) -> None:
        load(model)
        for batch in range(model.BATCHES):
            activations = [model.get_activation([batch])]
            for layer in range(model.LAYERS):
                activations.append(model.forward(layer, activations[-1], model.weights[layer]))
            grad: Any = model.loss(activations.pop())
            for layer in reversed(range(model.LAYERS)):
                made, grad = backward(model, layer, activations.pop(), grad, model.weights[layer])
                accumulate(model, layer, made)
        for layer in range(model.LAYERS):
            step(model, layer)

    times: list[float] = []
    for skipped in (frozenset[int](), frozenset([2]), frozenset(range(4))):
        verdict = check(simulate(accum, puzzle="grad_accum"), puzzle="grad_accum")
        times.append(verdict.time)
        assert verdict.correct
        assert verdict.goals[0].reached == (not skipped)
        told = [note for note in verdict.notes if "goals are for whole backwards" in note]
        assert len(told) == bool(skipped)
        if skipped:
            assert "weight halves without their input halves: layer 0, batch" in told[0]
    assert times == [times[0], times[0] - 0.5, times[0] - 2]


@pytest.mark.parametrize("again", [False, True])
def test_an_input_half_that_is_done_again_is_not_that_of_other_rows(again: bool) -> None:
    """Each rank has half the rows. Rank 0 leaves out its input half of layer 0 or not; rank 1 does its own twice."""

    async def shared(model: Model) -> None:
        load(model)
        x = model.get_activation(range(model.BATCHES)).cut("rows", 128 * model.rank, 128 * model.rank + 128)
        grad = model.loss(model.forward(0, x, model.weights[0]))
        for _ in range(2 if model.rank else not again):
            model.backward_input(0, x, grad, model.weights[0])
        model.grad_weights[0] = await model.allreduce(model.backward_weight(0, x, grad), 0)
        step(model, 0)

    trace = Trace.of(simulate(shared, ranks=2, layers=1, batches=2))
    assert check(trace).correct
    said = left_out(trace, set())
    assert said is None if not again else said is not None and "layer 0, batches 0 and 1" in said


def test_a_rank_without_rows_leaves_nothing_out() -> None:
    trace = in_parts("halo_conv", "", {"sizes": [22, 22, 20, 0]})
    assert {event.op for _, event in trace.events()} >= {"backward_input", "backward_weight"}
    assert left_out(trace, set()) is None
