"""Every schedule with backward in two halves: the same step, in the same time."""

from __future__ import annotations

from typing import Any

import pytest

from lib import HIDDEN, LENGTH, ActivationGrad, Model, Trace, check, simulate
from lib.analysis import figures
from lib.analysis.bounds.puzzle_bounds import lower_bound
from lib.analysis.waiting.critical_path import critical_path
from lib.schedules.pipelines.action import Order
from lib.schedules.pipelines.generators import zb_h1
from lib.schedules.steps import accumulate, load, step
from lib.submissions.load import load_function
from lib.submissions.locations import reference
from lib.trace.retiming import retime
from tests.support.profiles import sample
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


def zero_bubble(order: Order, keep: bool) -> Any:
    """An order with halves, each message awaited at once. `keep`: the gradient that was sent stays until its W."""

    async def run(model: Model) -> None:
        weights, _, activations, grads, _ = model.storage()
        each = model.LAYERS // model.RANKS
        layers = range(model.rank * each, (model.rank + 1) * each)
        load(model, layers)
        first, after = layers[0], layers[-1] + 1
        for _, kind, b, _ in order[model.rank]:
            if kind == "F":
                x = await model.receive(model.rank - 1) if model.rank else model.get_activation([b])
                for layer in layers:
                    activations[layer, b] = x
                    x = model.forward(layer, x, weights[layer])
                if model.rank < model.RANKS - 1:
                    await model.pass_to(model.rank + 1, x)
                else:
                    activations[after, b] = x
            elif kind == "I":
                if model.rank < model.RANKS - 1:
                    grads[after, b] = await model.receive(model.rank + 1)
                else:
                    grads[after, b] = model.loss(activations.pop((after, b)))
                for layer in reversed(layers):
                    grad = model.backward_input(layer, activations[layer, b], grads[layer + 1, b], weights[layer])
                    grads[layer, b] = grad
                if model.rank:
                    await model.pass_to(model.rank - 1, grads[first, b])
                if not keep:
                    del grads[first, b]
            else:
                for layer in reversed(layers):
                    made = model.backward_weight(layer, activations.pop((layer, b)), grads.pop((layer + 1, b)))
                    accumulate(model, layer, made)
                grads.pop((first, b), None)
        for layer in layers:
            step(model, layer)

    return run


@pytest.mark.parametrize(
    ("batches", "end", "kept"), [(4, 27.4, 3_670_016), (8, 46.6, 4_194_304), (16, 85.0, 4_194_304)]
)
def test_an_activation_lives_to_the_end_of_its_weight_half(batches: int, end: float, kept: int) -> None:
    """ZB-H1, whose table has the sent gradients too: nobody needs them for the weight half, of three microbatches."""
    for keep, memory in ((True, kept), (False, kept - 3 * LENGTH * HIDDEN)):
        verdict = check(simulate(zero_bubble(zb_h1(4, batches), keep), ranks=4, layers=8, batches=batches))
        assert (verdict.correct, verdict.time, verdict.memory) == (True, end, memory)


def test_lower_bounds_do_not_speak_of_halves(halves: None) -> None:
    """They may be below them: what waits for a backward waits for half of it only."""
    for puzzle in ("basic", "fsdp", "gpipe"):
        models = simulate(load_function(reference(puzzle), puzzle), puzzle=puzzle)
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
