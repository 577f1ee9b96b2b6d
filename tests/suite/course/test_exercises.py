"""hint: one more at a time, the same text whatever is recorded. expect: right, not yet and why, or not solved."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from lib import HIDDEN, PUZZLES, Model, NotSolved, expect, hint, simulate
from lib.puzzles.puzzle import HINTS
from lib.suite.course.exercises import next_hint
from lib.suite.course.progress import Standing, known, record
from tests.support.said import Said


def test_closed_it_says_how_to_open_them(file: Path) -> None:
    text = "3 hints for this puzzle: a question, an idea, nearly the code. To open the first: "
    assert repr(hint("ddp")) == f'{text}hint("ddp", 1)'
    assert hint("ddp")._repr_markdown_() == f'{text}`hint("ddp", 1)`'  # pyright: ignore[reportPrivateUsage]
    assert known() == {}


@pytest.mark.parametrize("puzzle", PUZZLES)
def test_open_they_hold_the_texts_of_the_record(file: Path, puzzle: str) -> None:
    every = PUZZLES[puzzle].hints
    for opened in (1, 2, 3):
        text = hint(puzzle, opened).markdown
        assert [one in text for one in every] == [number <= opened for number in (1, 2, 3)]
        assert [f"**Hint {number}, {kind}**" in text for number, kind in enumerate(HINTS, 1)] == [
            number <= opened for number in (1, 2, 3)
        ]
        assert (f'hint("{puzzle}", {opened + 1})' in text) == (opened < 3)
    assert text.endswith("These were all the hints.")


def test_the_text_does_not_depend_on_what_is_recorded(file: Path) -> None:
    before = [hint("fsdp", opened).markdown for opened in range(4)]
    record("fsdp", Standing(3, True, None, 1.0, 1.0, 3))
    assert [hint("fsdp", opened).markdown for opened in range(4)] == before


def test_opening_counts_up_to_the_most_that_was_open(file: Path) -> None:
    for opened, counted in ((1, 1), (3, 3), (2, 3), (0, 3)):
        hint("ddp", opened)
        assert known()["ddp"] == Standing(hints=counted)


def test_the_next_hint_is_one_more_than_was_recorded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [next_hint("ddp").opened for _ in range(5)] == [1, 2, 3, 3, 3]
    monkeypatch.setenv("PUZZLES_PROGRESS", "off")
    assert [next_hint("ddp").opened for _ in range(2)] == [1, 1]


SAID = Said(__file__, "hints")


@pytest.mark.parametrize("expression", SAID.texts)
def test_what_is_no_hint(file: Path, expression: str) -> None:
    SAID.check(expression, {"hint": hint})
    assert known() == {}


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


def made_up(model: Model) -> None:
    model.grad_weights["all"] = model.fake_grad(0, [model.rank]) + model.fake_grad(0, [1 - model.rank])


def told(out: list[Model], **wanted: Any) -> str:
    with redirect_stdout(StringIO()) as paper:
        expect(out, **wanted)
    return paper.getvalue().removesuffix("\n")


test_what_is_said = Said(__file__, "exercises").test(lambda: globals())


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
