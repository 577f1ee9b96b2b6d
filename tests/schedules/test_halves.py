"""Every schedule with backward in two halves: the same step, in the same time."""

from __future__ import annotations

from typing import Any

import pytest

from lib import ActivationGrad, Model, Trace, check, simulate
from lib.analysis import figures
from lib.analysis.waiting.critical_path import critical_path
from lib.trace.retiming import retime
from tests.support.schedules import EVERYTHING, Case


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backward as its halves, one after the other."""

    def backward(model: Model, layer: int, inp: Any, grad: Any, weight: Any) -> tuple[Any, ActivationGrad]:
        by_input = model.backward_input(layer, inp, grad, weight)
        return model.backward_weight(layer, inp, grad), by_input

    monkeypatch.setattr(Model, "backward", backward)


@pytest.mark.parametrize("case", EVERYTHING, ids=lambda case: case.name)
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
