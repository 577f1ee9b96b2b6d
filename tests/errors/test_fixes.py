"""Where the fix is the line that a puzzle asks for, the message names the idea, and fix() shows the line."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lib import PUZZLES, Model, PuzzleError, check, fix, simulate
from lib.errors import fixes
from tests.diagnosis.corpus import cases, code_of, function

ALLREDUCE = "grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)"
(CASE,) = (case for case in cases() if case.name == "035_update_without_allreduce")


@pytest.fixture(autouse=True)
def none_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixes, "_last", [])


def failure(run: Callable[[], Any]) -> PuzzleError:
    with pytest.raises(PuzzleError) as caught:
        run()
    return caught.value


def test_before_any_mistake_it_says_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    fix()
    assert capsys.readouterr().out.startswith("There is nothing to fix yet")


@pytest.mark.parametrize("sizes", [{"puzzle": "ddp"}, {"ranks": 4, "batches": 4}], ids=["puzzle", "demonstration"])
def test_the_line_is_hidden_until_somebody_asks(sizes: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    with function(CASE) as student:
        error = failure(lambda: simulate(student, **sizes))
    assert error.idea is not None
    assert "allreduce" not in str(error)
    assert "allreduce" not in error.trace.error
    assert "this rank has only seen batch 0" in str(error)
    fix()
    assert capsys.readouterr().out == f"sum the gradients of all ranks first:\n{ALLREDUCE}\n"


def test_whoever_is_at_another_puzzle_has_solved_it_and_sees_the_line() -> None:
    assert "allreduce" not in PUZZLES["wsdp"].asks
    with function(CASE) as student:
        error = failure(lambda: simulate(student, puzzle="wsdp"))
    assert ALLREDUCE in str(error)
    assert fixes.HOW not in str(error)


def test_any_other_fix_is_shown_again_and_the_last_mistake_counts_until_a_run_is_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with function(CASE) as student:
        failed = failure(lambda: simulate(student, puzzle="ddp"))
    assert not check(failed.trace, "ddp").correct
    fix()
    assert ALLREDUCE in capsys.readouterr().out
    with function(replace(CASE, change=None, code=code_of("ddp"))) as student:
        assert check(simulate(student, puzzle="ddp"), "ddp").correct
    fix()
    assert capsys.readouterr().out.startswith("There is nothing to fix yet")
    for mistake in (lambda: Model().load_weights(7), lambda: Model().get_activation([7])):
        error = failure(mistake)
        fix()
        assert capsys.readouterr().out == f"{error.fix}\n"
        assert f"{error.fix}" in str(error)


def test_what_is_sent_too_much_is_asked_as_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    code = code_of("fsdp").replace("scatterreduce", "allreduce")
    with function(replace(CASE, name="sent", fields={"puzzle": "fsdp"}, change=None, code=code)) as student:
        text = check(simulate(student, puzzle="fsdp"), "fsdp").text()
    assert "which collective sends less?" in text
    assert "scatterreduce" not in text
    fix()
    assert "await model.scatterreduce(" in capsys.readouterr().out


def test_every_record_says_what_it_asks_for_in_words_that_are_used() -> None:
    folder = Path(fixes.__file__).parents[1] / "diagnosis"
    text = "".join(path.read_text("utf-8") for path in folder.rglob("*.py"))
    for record in PUZZLES.values():
        if not record.is_function:
            # The answers of this chapter, and 1F1B's, are orders, or put in order what is given: they ask for no call.
            assert record.asks or record.chapter == "pipelines" or record.id == "one_f_one_b"
            assert [word for word in record.asks if f'"{word}"' not in text] == []
