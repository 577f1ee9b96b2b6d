"""check_function: is a plain function right? It is asked what the table of its puzzle says, and random inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lib import diagnosis
from lib.checker.listeners import tell
from lib.checker.table import Ask, Judge, ask_here, first_failure
from lib.checker.verdict import FunctionVerdict
from lib.errors.exceptions import CheckError, NotSolved
from lib.errors.source_lines import raised_at
from lib.puzzles.records import PUZZLES
from lib.submissions.load import SourceError, load_function
from lib.submissions.locations import reference
from lib.submissions.wrong_answer import wrong_answer

__all__ = ["check_function", "judge_answers", "judge_of", "where"]


def check_function(function: Callable[..., Any], *, puzzle: str) -> FunctionVerdict | None:
    """Prints whether a function answers right wherever it was asked, and returns the verdict.

    CheckError shows the smallest input on which it does not; None for a function that is not solved yet, which is no
    error. ValueError for a puzzle whose answer is a schedule.
    """
    if (error := diagnosis.not_the_latest(function)) is not None:
        raise error
    try:
        verdict = judge_answers(puzzle, ask_here(function, where))
    except NotSolved as error:
        print(error)
        return None
    tell(verdict, None)
    if not verdict.correct:
        raise CheckError("\n".join(verdict.faults))
    print(verdict.text())
    return verdict


def judge_answers(puzzle: str, ask: Ask, source: Path | None = None) -> FunctionVerdict:
    """The verdict on the answers that `ask` gets, by the reference of the puzzle, or another one's `source`."""
    record = PUZZLES[puzzle]
    if not record.is_function:
        raise ValueError(f'the answer to {puzzle} is a schedule: Model.check(simulate({puzzle}, puzzle="{puzzle}"))')
    asked, failure = first_failure(record.table, record.draws, judge_of(puzzle, source or reference(puzzle)), ask)
    faults = () if failure is None else (str(wrong_answer(puzzle, failure, record.fix)),)
    return FunctionVerdict(puzzle, asked, faults)


def judge_of(puzzle: str, source: Path) -> Judge:
    """Who knows what is right: the answer in a source, and `<puzzle>_inputs` and `<puzzle>_accepts` if it has them."""
    inputs, accepts = (_optional(source, f"{puzzle}_{name}") for name in ("inputs", "accepts"))
    return Judge(load_function(source, puzzle), inputs, accepts)


def where(error: BaseException) -> str:
    """The student's line in which an error was raised, in words; empty where it was raised in none."""
    place = raised_at(error)
    return "" if place is None else str(place)


def _optional(source: Path, name: str) -> Callable[..., Any] | None:
    try:
        return load_function(source, name)
    except SourceError:
        return None
