"""Inputs of function puzzles reach each branch of their rules: our own answers, changed anywhere, are found wrong."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest

from lib import PUZZLES
from lib.suite.submissions.function_check import judge_answers, judge_of
from lib.suite.submissions.locations import reference
from lib.suite.submissions.table import Answer, Given, ask_here, first_failure
from tests.puzzles.changed_answers import Change, changes
from tests.support.profiles import sample
from tests.support.puzzles import FUNCTIONS

THE_SAME = {
    ("process_map", "min(before[0], r)  ->  before[0]"): "replicas are walked in order, so the first is the smallest",
    ("parallel_dims", "sizes = dict(sizes)  ->  (gone)"): "what a function does to its inputs is not asked",
    ("find_the_bug", "if sizes['cp'] > 1:  ->  if True:"): "along an axis of size 1 there is nobody else",
    ("find_the_bug", "sizes['cp'] > 1  ->  sizes['cp'] >= 1"): "the same",
    ("find_the_bug", "1  ->  0"): "the same",
}  # fmt: skip
"""Changes after which the answer is right on whatever it may be asked, and why."""


@cache
def asked(puzzle: str) -> Sequence[Given]:
    """All that a function is asked: first the rows of the table."""
    judge, inputs = judge_of(puzzle, reference(puzzle)), list[Given]()

    def note(given: Sequence[Given]) -> Sequence[Answer]:
        inputs.extend(given)
        return ask_here(judge.answer)(given)

    assert first_failure(PUZZLES[puzzle].table, PUZZLES[puzzle].draws, judge, note)[1] is None
    return inputs


def is_found_wrong(puzzle: str, function: Callable[..., Any]) -> bool:
    """As `check_function` finds it, but not how: only up to the first input."""
    judge, table, ask = judge_of(puzzle, reference(puzzle)), PUZZLES[puzzle].table, ask_here(function)
    rows = [*table, *[None] * (len(asked(puzzle)) - len(table))]
    return any(
        judge.failure(given, ask([given])[0], row) is not None for given, row in zip(asked(puzzle), rows, strict=True)
    )


@cache
def changed(puzzle: str) -> Sequence[Change]:
    return list(changes(puzzle))


@pytest.mark.parametrize("puzzle", FUNCTIONS)
def test_whatever_is_changed_in_our_answer_is_found(puzzle: str) -> None:
    """Every 25th change at a commit, all of them in `make test-all`."""
    missed = {str(change) for change in sample(sample(changed(puzzle))) if not is_found_wrong(puzzle, change.function)}
    assert missed <= {change for name, change in THE_SAME if name == puzzle}


def test_what_changes_nothing_is_named_once_and_is_there() -> None:
    for puzzle, change in THE_SAME:
        found = [one for one in changed(puzzle) if str(one) == change]
        assert any(not is_found_wrong(puzzle, one.function) for one in found), change


@pytest.mark.parametrize("puzzle", FUNCTIONS)
def test_the_rows_that_everybody_sees_are_not_all_that_is_asked(puzzle: str) -> None:
    """Who has only written down the answers of the table is wrong."""
    rows = [row.given for row in PUZZLES[puzzle].table]
    judge = judge_of(puzzle, reference(puzzle))

    def by_heart(*given: Any) -> Any:
        if given not in rows:
            raise ValueError("that is in no table")
        return judge.answer(*given)

    assert len([given for given in asked(puzzle) if given not in rows]) > 5 * len(rows)
    assert not judge_answers(puzzle, ask_here(by_heart)).correct
