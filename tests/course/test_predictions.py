"""Predictions: what is right, how far off the others are, and what is no guess."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Mesh, Model, Trace, check, predict, simulate
from lib.course.predictions import QUANTITIES
from lib.course.progress import Standing, load
from tests.support.functions import good, official, run, unsolved

CLASSIC = ("basic", "grad_accum", "ddp", "wsdp", "fsdp", "pipeline", "gpipe", "pipeline_fsdp")
MESSAGES = {"pipeline": 2, "gpipe": 8, "pipeline_fsdp": 8}
COLLECTIVES = {"ddp": 2, "wsdp": 18, "fsdp": 33, "pipeline_fsdp": 2}


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
    assert load() == {puzzle: Standing(predictions=6, right=6)}


@given(st.floats(0, 1e9), st.sampled_from(list(QUANTITIES)))
def test_right_means_within_the_tolerance(guess: float, name: str) -> None:
    quantity = QUANTITIES[name]
    fact = quantity.measure(Trace.of(GPIPE))
    gap = min(abs(guess - value) for value in fact.values)
    near = {"memory": gap <= 0.01 * fact.values[0], "idle": gap <= 1}.get(name, gap <= 1e-7)
    assert (quantity.verdict(guess, fact) == "right") == near or (name not in ("memory", "idle") and 1e-10 < gap < 1e-7)


GPIPE = official("gpipe")


def test_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    guess = predict("gpipe", end=30, memory=2_880_000, rank=0, messages=..., collectives=1, idle=52)
    assert repr(guess) == (
        "your prediction: end 30, memory 2,880,000, rank 0, messages ..., collectives 1, idle 52; "
        "run the next cells, then guess.against(out)"
    )
    guess.against(GPIPE)
    assert capsys.readouterr().out == (
        "                    you said      it is\n"
        "end (time units)          30       33.8   3.8 too low\n"
        "memory (elements)  2,880,000  2,883,584   right\n"
        "rank                       0          3   not this rank\n"
        "messages            no guess          8\n"
        "collectives                1          0   1 too high\n"
        "idle (%)                  52       49.7   2.3 too high\n"
    )


@pytest.mark.parametrize("rank", range(4))
def test_any_of_equal_ranks_is_right(rank: int, capsys: pytest.CaptureFixture[str]) -> None:
    predict(rank=rank).against(official("ddp"))
    assert capsys.readouterr().out.endswith(f"rank         {rank}  all are equal   right\n")


def test_some_of_the_ranks_have_the_highest_peak(capsys: pytest.CaptureFixture[str]) -> None:
    def lopsided(model: Model) -> None:
        if model.rank % 2:
            model.weights[0], _ = model.load_weights(0)
            model.activations[0] = model.get_activation([0])
            model.activations[1] = model.forward(0, model.activations[0], model.weights[0])

    models = simulate(lopsided, ranks=4, layers=1)
    predict(rank=2).against(models)
    predict(rank=3).against(Trace.of(models))
    out = capsys.readouterr().out
    assert "1 or 3   not this rank" in out
    assert "1 or 3   right" in out


def test_an_unsolved_puzzle_gets_one_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    guess = predict("basic", end=3)
    models = run(unsolved)
    capsys.readouterr()
    guess.against(models)
    assert capsys.readouterr().out == "Not solved yet: basic. Your prediction waits.\n"
    assert load() == {}


def test_it_counts_once_and_only_guesses_at_the_puzzles_size(file: Path) -> None:
    guess = predict("basic", end=17, memory=3, rank=...)
    guess.against(run(good, layers=3))
    assert load() == {}
    guess.against(run(good))
    guess.against(run(good))
    assert load() == {"basic": Standing(predictions=2, right=1)}
    predict("basic", end=...).against(run(good))
    predict(end=17).against(run(good))
    sandbox = Model(layers=2, batches=4)
    good(sandbox)
    predict("basic", end=17).against(sandbox)
    assert load() == {"basic": Standing(predictions=2, right=1)}


@pytest.mark.parametrize(
    ("arguments", "guesses", "message"),
    [
        (("ddq",), {"end": 5}, "there is no puzzle 'ddq'; there are basic, "),
        (("ddp",), {}, 'say what you predict, such as predict("ddp", end=5). There are end (time units: '),
        (
            ("ddp",),
            {"time": 5},
            "'time' cannot be predicted. There are end (time units: when the last operation is over), ",
        ),
        (("ddp",), {"end": "5"}, "or ... for no guess yet; got '5'"),
        (("ddp",), {"end": True}, "got True"),
        (("ddp",), {"end": None}, "got a NoneType"),
        (("ddp",), {"end": Mesh}, "got a type"),
        (("ddp",), {"memory": -1}, "memory (elements: the highest peak of any rank) wants a number"),
        (("ddp",), {"memory": float("nan")}, "got nan"),
    ],
)
def test_what_is_no_prediction(arguments: tuple[Any, ...], guesses: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        predict(*arguments, **guesses)
