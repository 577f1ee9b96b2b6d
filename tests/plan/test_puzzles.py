"""The puzzles of planning a run: what is said of the mistakes that somebody makes."""

from collections.abc import Callable
from typing import Any

import pytest

from lib.plan import Plan
from lib.puzzles.records import PUZZLES
from lib.suite.submissions.function_check import judge_answers
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference
from lib.suite.submissions.table import ask_here

Answer = Callable[..., Any]
PLANS = [name for name, record in PUZZLES.items() if record.kind == "plan"]


def right(puzzle: str) -> Answer:
    return load_function(reference(puzzle), puzzle)


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


FIT: dict[str, tuple[Answer, str]] = {
    "gradients in bf16": (instead("gradients", lambda m, p: 0.5), "gradients are summed in fp32, in 4 bytes"),
    "sharded too early": (
        instead("optimizer", lambda m, p: 1 if p["zero"] else 1 / p["dp"]),
        "12 bytes a weight, and only from zero 1 on divided by dp",
    ),
    "interleaved without v": (
        instead("activations", lambda m, p: 1 if p["v"] > 1 else 1 + (p["pp"] - 1) / p["pp"]),
        "is for interleaved schedules",
    ),
    "masks of two bytes": (
        lambda m, p: (
            right("will_it_fit")(m, p)
            | {
                "activations": right("will_it_fit")(m, p)["activations"]
                + 2 * m["sequence"] * p["micro"] * m["hidden"] * m["layers"]
            }
        ),
        "2·s·b·h too much a layer",
    ),
    "micro forgotten": (lambda m, p: right("will_it_fit")(m, p | {"micro": 1}), "micro is b, and that is 2 here"),
    "micro forgotten in the square": (
        lambda m, p: (
            (found := right("will_it_fit"))(m, p)
            | {
                "activations": found(m, p | {"selective": True})["activations"]
                + found(m, p | {"micro": 1})["activations"]
                - found(m, p | {"micro": 1, "selective": True})["activations"]
            }
        ),
        "each of the 2 texts has a square of attention of its own",
    ),
    "fewer layers": (instead("activations", lambda m, p: 1 / p["pp"]), "p microbatches of them in flight"),
    "nothing": (lambda model, plan: None, "a dict of weights, gradients, optimizer, activations, in bytes"),
}


@pytest.mark.parametrize("mistake", FIT)
def test_mistakes_in_bytes_are_named(mistake: str) -> None:
    answer, words = FIT[mistake]
    assert words in said("will_it_fit", answer)


OTHERS: dict[str, tuple[str, Answer, str]] = {
    "the rest forgotten": (
        "where_do_80_go",
        lambda state, rest, room: (
            None if rest >= room and state else max(1, -(-state // room)) if rest <= room else None
        ),
        "beside the rest there is room for",
    ),
    "parts of a GPU": (
        "where_do_80_go",
        lambda state, rest, room: right("where_do_80_go")(state, rest, room) and max(1, state / max(1, room - rest)),
        "there are no parts of a GPU",
    ),
    "no end": (
        "where_do_80_go",
        lambda state, rest, room: max(1, -(-state // max(1, room - rest))),
        "so return None",
    ),
    "a card of eight": (
        "hidden_from",
        lambda weights, flops, rate, gradient: tuple(
            8 * one for one in right("hidden_from")(weights, flops, rate, gradient)
        ),
        "the rate is that of the host already",
    ),
    "backward like forward": (
        "hidden_from",
        lambda w, flops, rate, g: (-(-flops // rate),) * 2,
        "backward also sends a gradient out",
    ),
    "weights on one side": (
        "hidden_from",
        lambda w, flops, rate, g: (-(-w * flops // rate), -(-(2 + g) * w * flops // (4 * rate))),
        "W is on both sides, and cancels",
    ),
    "the other way round": (
        "hidden_from",
        lambda w, flops, rate, g: (-(-rate // flops), -(-4 * rate // ((2 + g) * flops))),
        "the other way round. Work is 2·W·T over FLOP/s, the wire 2·W over bytes/s",
    ),
    "one FLOP a weight": (
        "hidden_from",
        lambda w, flops, rate, g: (-(-2 * flops // rate), -(-(2 + g) * flops // (2 * rate))),
        "too many bytes, or too few FLOP",
    ),
    "no gather in backward": (
        "hidden_from",
        lambda w, flops, rate, g: (-(-flops // rate), -(-g * flops // (4 * rate))),
        "weights are gathered for backward again",
    ),
    "not rounded": (
        "hidden_from",
        lambda w, flops, rate, g: (flops / rate, (2 + g) * flops / 4 / rate),
        "is to be rounded up",
    ),
}


@pytest.mark.parametrize("mistake", OTHERS)
def test_mistakes_are_named(mistake: str) -> None:
    puzzle, answer, words = OTHERS[mistake]
    assert words in said(puzzle, answer)


@pytest.mark.parametrize("puzzle", PLANS)
def test_a_plan_may_be_an_object_and_the_answer_of_ours_is_not_told(puzzle: str) -> None:
    ours = right(puzzle)()
    verdict = judge_answers(puzzle, ask_here(lambda: Plan(1, 1, **ours)))
    assert verdict.correct
    assert [goal.reached for goal in verdict.goals] == [True] * len(PUZZLES[puzzle].goals)
    wrong = said(puzzle, lambda: ours | {"tp": 3})
    assert "a plan of at most" in wrong
    assert f"'pp': {ours['pp']}, 'ep'" not in wrong.partition("got:")[0]
    assert str(ours | {"tp": 3}) in wrong.partition("got:")[2], "all of it, and not what differs from ours"


def test_a_plan_has_to_do_on_other_machines_too() -> None:
    """One with data parallel gradients in the open is fine on 64 GPUs, where there is no data parallelism."""
    ours = right("plan_gpt3")()
    text = said("plan_gpt3", lambda: ours | {"tp": 4, "pp": 16, "micro": 4, "recompute": "full", "v": 1})
    assert "GiB" in text or "s a step" in text


def test_a_puzzle_of_planning_that_raises_says_what_is_to_come_out() -> None:
    text = said("plan_405b", lambda: {}["tp"])
    assert "KeyError" in text
    assert "return a dict with a value for each of tp, cp" in text
