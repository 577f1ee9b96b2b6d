"""Honest solutions, however they are put together, are taken out of what was handed in, and reach all goals."""

from functools import cache

import pytest

from lib import PUZZLES, check, simulate
from lib.suite.submissions.function_check import judge_answers
from lib.suite.submissions.load import function_of, load_function
from lib.suite.submissions.locations import reference
from lib.suite.submissions.table import ask_here
from tests.support.variants import VARIANTS, Variant


@cache
def goals(puzzle: str) -> list[str]:
    """The goals that the reference reaches."""
    verdict = check(simulate(load_function(reference(puzzle), puzzle), puzzle=puzzle), puzzle)
    return [goal.name for goal in verdict.goals if goal.reached]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: f"{variant.puzzle}, {variant.name}")
def test_a_correct_variant_is_correct(variant: Variant) -> None:
    source = variant.source()
    assert source.puzzles() == (variant.puzzle,)
    assert not source.untouched(variant.puzzle)
    assert len(source.normalised(variant.puzzle)) == 16
    function = function_of(source, variant.puzzle)
    if PUZZLES[variant.puzzle].is_function:
        assert judge_answers(variant.puzzle, ask_here(function)).correct
        return
    verdict = check(simulate(function, puzzle=variant.puzzle), variant.puzzle)
    assert verdict.correct, verdict.text()
    assert [goal.name for goal in verdict.goals if goal.reached] == goals(variant.puzzle)


def test_there_are_many() -> None:
    assert len({(variant.puzzle, variant.name) for variant in VARIANTS}) == len(VARIANTS) >= 40
    assert len({variant.puzzle for variant in VARIANTS}) >= 10
