"""The puzzles of planning a run: what is said of the mistakes that somebody makes."""

from collections.abc import Callable
from typing import Any

import pytest

from lib.plan import Plan
from lib.puzzles.records import PUZZLES
from lib.suite.submissions.function_check import judge_answers
from lib.suite.submissions.table import ask_here
from tests.support.puzzles import way
from tests.support.said import Said

Answer = Callable[..., Any]
PLANS = [name for name, record in PUZZLES.items() if record.kind == "plan"]


def right(puzzle: str) -> Answer:
    return way(puzzle)


def said(puzzle: str, answer: Answer) -> str:
    verdict = judge_answers(puzzle, ask_here(answer))
    assert not verdict.correct
    return verdict.text()


def instead(kind: str, factor: Callable[[dict[str, Any], dict[str, Any]], float]) -> Answer:
    """The right bytes, of which one kind is multiplied."""

    def answer(model: dict[str, Any], plan: dict[str, Any]) -> dict[str, float]:
        found = right("will_it_fit")(model, plan)
        return found | {kind: found[kind] * factor(model, plan)}

    return answer


test_mistakes_are_named = Said(__file__, "mistakes").test(lambda: globals())


@pytest.mark.parametrize("puzzle", PLANS)
def test_a_plan_may_be_an_object_and_the_answer_of_ours_is_not_told(puzzle: str) -> None:
    ours = right(puzzle)()
    verdict = judge_answers(puzzle, ask_here(lambda: Plan(1, 1, **ours)))
    assert verdict.correct
    assert [goal.reached for goal in verdict.goals] == [True] * len(PUZZLES[puzzle].goals)
    wrong = said(puzzle, lambda: ours | {"tp": 3})
    assert "a plan of at most" in wrong
    assert f"'pp': {ours['pp']}" not in wrong.partition("got:")[0]
    assert str(ours | {"tp": 3}) in wrong.partition("got:")[2], "all of it, and not what differs from ours"


def test_a_plan_has_to_do_on_other_machines_too() -> None:
    """One with data parallel gradients in the open is fine on 64 GPUs, where there is no data parallelism."""
    ours = right("plan_gpt3")()
    text = said("plan_gpt3", lambda: ours | {"tp": 4, "pp": 16, "micro": 4, "recompute": "full", "v": 1})
    assert "GiB" in text or "s a step" in text
