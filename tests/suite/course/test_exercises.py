"""expect: right, not yet and why, or not solved. Given code that takes time before the gap is no mistake."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from lib import HIDDEN, Model, NotSolved, expect, simulate
from tests.support.said import Said

WEIGHT = HIDDEN * HIDDEN


async def summed(model: Model) -> None:
    grad_weights = model.grad_weights
    grad_weights["mine"] = model.fake_grad(0, [model.rank])
    grad_weights["sum"] = await model.allreduce(grad_weights["mine"], 0)


async def alone(model: Model) -> None:
    model.grad_weights["mine"] = model.fake_grad(0, [model.rank])
    await model.allreduce(model.grad_weights["mine"], 0)


async def scattered(model: Model) -> None:
    model.grad_weights["mine"] = await model.scatterreduce(model.fake_grad(0, [model.rank]), 0)


def run(function: Any, ranks: int) -> list[Model]:
    return simulate(function, layers=1, batches=ranks, ranks=ranks)


def told(out: list[Model], **wanted: Any) -> str:
    with redirect_stdout(StringIO()) as paper:
        expect(out, **wanted)
    return paper.getvalue().removesuffix("\n")


test_what_is_said = Said(Path(__file__).with_name("said") / "exercises.txt").test(lambda: globals())


def test_given_code_that_takes_time_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    def after_work(model: Model) -> None:
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        model.activations[1] = model.forward(0, model.get_activation([0]), model.weights[0])
        # --- your code (about 1 line) ---
        raise NotSolved("after_work")
        # --- end of your code ---

    expect(simulate(after_work, layers=1, batches=1, ranks=1), store="activations")
    assert capsys.readouterr().out.splitlines()[0] == "after_work is not solved yet"


def test_code_above_a_stub_that_was_left_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    def left(model: Model) -> None:
        # --- your code (about 1 line) ---
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        model.activations[1] = model.forward(0, model.get_activation([0]), model.weights[0])
        raise NotSolved("left")
        # --- end of your code ---

    simulate(left, layers=1, batches=1, ranks=1)
    assert capsys.readouterr().out.splitlines()[0] == "left still raises NotSolved, after your code has run"
