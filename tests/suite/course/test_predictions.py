"""Predictions: what is right, how far off the others are, and what is no guess."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Mesh, Model, Trace, check, predict, simulate
from lib.suite.course.exercises import QUANTITIES, Prediction, measured
from lib.suite.course.progress import Standing, known
from tests.support.functions import good, official, run, unsolved
from tests.support.said import Said

CLASSIC = ("basic", "grad_accum", "ddp", "wsdp", "fsdp", "pipeline", "gpipe", "pipeline_fsdp")
MESSAGES = {"pipeline": 2, "gpipe": 8, "pipeline_fsdp": 8}
COLLECTIVES = {"ddp": 2, "wsdp": 18, "fsdp": 36, "pipeline_fsdp": 2}


def facts(models: list[Model]) -> dict[str, float]:
    """The quantities, from the log that the original keeps and not from the figures that predictions use. What is on
    its way is in no store and so not in that log: the memory is what the check finds."""
    peaks = [max(event.memory for event in model.log) for model in models]
    end = max(event.time + event.length for model in models for event in model.log)
    busy = sum(
        event.length for model in models for event in model.log if event.typ in ("forward", "backward", "update")
    )
    return {
        "end": end,
        "memory": check(models).memory,
        "rank": peaks.index(max(peaks)),
        "idle": 100 * (1 - busy / (end * len(models))),
    }


@pytest.mark.parametrize("puzzle", CLASSIC)
def test_the_truth_is_right(puzzle: str, capsys: pytest.CaptureFixture[str], file: Path) -> None:
    models = official(puzzle)
    guesses = facts(models) | {"collectives": COLLECTIVES.get(puzzle, 0), "messages": MESSAGES.get(puzzle, 0)}
    predict(puzzle, **guesses).against(models)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert all(line.endswith("right") for line in lines[1:]), lines
    assert known() == {puzzle: Standing(predictions=6, right=6)}


@given(st.floats(0, 1e9), st.sampled_from(list(QUANTITIES)))
def test_right_means_within_the_tolerance(guess: float, name: str) -> None:
    quantity = QUANTITIES[name]
    fact = measured(Trace.of(GPIPE))[name]
    gap = min(abs(guess - value) for value in fact)
    near = {"memory": gap <= 0.01 * fact[0], "idle": gap <= 1}.get(name, gap <= 1e-7)
    assert (quantity.verdict(guess, fact) == "right") == near or (name not in ("memory", "idle") and 1e-10 < gap < 1e-7)


GPIPE = official("gpipe")


def lopsided(model: Model) -> None:
    if model.rank % 2:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.get_activation([0])
        model.activations[1] = model.forward(0, model.activations[0], model.weights[0])


def told(guess: Prediction, models: list[Model] | Trace) -> str:
    with redirect_stdout(StringIO()) as paper:
        guess.against(models)
    return paper.getvalue().removesuffix("\n")


test_what_is_said = Said(__file__, "predictions").test(lambda: {**globals(), "Mesh": Mesh, "simulate": simulate})


def test_an_unsolved_puzzle_gets_one_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    guess = predict("basic", end=3)
    models = run(unsolved)
    capsys.readouterr()
    guess.against(models)
    assert capsys.readouterr().out == "Not solved yet: basic. Your prediction waits.\n"
    assert known() == {}


def test_it_counts_once_and_only_guesses_at_the_puzzles_size(file: Path) -> None:
    guess = predict("basic", end=17, memory=3, rank=...)
    guess.against(run(good, layers=3))
    assert known() == {}
    guess.against(run(good))
    guess.against(run(good))
    assert known() == {"basic": Standing(predictions=2, right=1)}
    predict("basic", end=...).against(run(good))
    predict(end=17).against(run(good))
    sandbox = Model(layers=2, batches=4)
    good(sandbox)
    predict("basic", end=17).against(sandbox)
    assert known() == {"basic": Standing(predictions=2, right=1)}
