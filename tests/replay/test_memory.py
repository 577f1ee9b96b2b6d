"""What a replay measures, in flight included, is what was simulated: event by event, however the ranks hurry."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from lib import PUZZLES, Model, Trace, check, simulate
from lib.program import Event
from lib.replay import replay
from lib.sources import load_function
from tests.replay.schedules import compared, compute
from tests.replay.trainings import Training, traced, trainings

torch = pytest.importorskip("torch", reason="a replay needs torch: pip install 'llm-training-puzzles[replay]'")

SMALL: dict[str, Any] = {"hidden": 24, "length": 4, "timeout": 30}
ALTERNATIVES = sorted(Path(__file__).parents[2].glob("solutions/alternatives/*.py"), key=lambda path: path.stem)


@pytest.mark.parametrize("path", ALTERNATIVES, ids=lambda path: path.stem)
def test_alternative_solutions(path: Path) -> None:
    puzzle = max((name for name in PUZZLES if path.stem.startswith(name)), key=len)
    schedule = Trace.of(simulate(load_function(path, puzzle), puzzle=puzzle))
    result = replay(schedule, transport="local", **SMALL)
    assert result.ok, result.text()
    for _, measured, alive in compared(result):
        assert measured == alive


@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(training=trainings())
def test_random_training_steps(training: Training) -> None:
    schedule = traced(training)
    assert check(schedule).correct
    result = replay(schedule, transport="local", **SMALL)
    assert result.ok, result.text()
    for at, measured, alive in compared(result):
        assert measured <= alive, at
