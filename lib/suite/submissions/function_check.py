"""check_function: is a plain function right? It is asked what the table of its puzzle says, and random inputs."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from typing import Any

from lib import diagnosis
from lib.checker.announce import tell
from lib.checker.table import Answer, Ask, Given, Judge, ask_here, first_failure
from lib.checker.verdict import FunctionVerdict
from lib.errors import graded
from lib.errors.exceptions import CheckError, NotSolved, PuzzleError
from lib.errors.source_lines import raised_at
from lib.puzzles.records import PUZZLES
from lib.suite.submissions.load import SourceError, function_of, load_function
from lib.suite.submissions.locations import reference
from lib.suite.submissions.source import Source
from lib.suite.submissions.wrong_answer import wrong_answer

__all__ = [
    "answering",
    "building_on",
    "check_function",
    "judge_answers",
    "judge_of",
    "solution_of",
    "sources_below",
    "where",
]

PATIENCE = 10.0
"""Seconds that a function may take for all that it is asked at once."""
AGAIN = 1.0
"""Seconds until a function is stopped again that would not be stopped."""
_asked: list[str] = []
"""The puzzles to which a student's functions are answering at this moment. No context variable: it holds in the threads
and contexts that such a function starts, too."""
_ours: ContextVar[Mapping[str, str] | None] = ContextVar("ours", default=None)
"""The sources of ours that are to be had; None: all that lie in solutions/."""


def check_function(function: Callable[..., Any], *, puzzle: str) -> FunctionVerdict | None:
    """Prints whether a function answers right wherever it was asked, and returns the verdict.

    CheckError shows the smallest input on which it does not, or the line of a loop that never ends (where there is an
    alarm clock: not on Windows, nor beside the main thread); None for a function that is not solved yet, which is no
    error unless that is graded. ValueError for a puzzle whose answer is a schedule. Nothing else is limited here, as it
    is in a child.
    """
    if (error := diagnosis.not_the_latest(function)) is not None:
        raise error
    try:
        verdict = judge_answers(puzzle, _in_time(puzzle, ask_here(function, where)))
    except NotSolved as error:
        graded.say_unsolved(error)
        return None
    tell(verdict, None)
    if not verdict.correct:
        wrong = CheckError("\n".join(verdict.faults))
        wrong.shown = verdict.shown
        raise wrong
    print(verdict.text())
    return verdict


@contextmanager
def answering(puzzle: str) -> Generator[None]:
    """While a student's function answers to a puzzle: our own solution of it is not to be had."""
    _asked.append(puzzle)
    try:
        yield
    finally:
        _asked.remove(puzzle)


@contextmanager
def building_on(ours: Mapping[str, str]) -> Generator[None]:
    """Where solutions/ cannot be read: the sources of the only functions of ours that are to be had."""
    before = _ours.set(ours)
    try:
        yield
    finally:
        _ours.reset(before)


@cache
def sources_below(puzzle: str) -> Mapping[str, str]:
    """The sources of our functions that a puzzle builds on, and of those that these build on."""
    found: dict[str, str] = {}
    waiting = _asked_for(puzzle, reference(puzzle).read_text("utf-8"))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = reference(name).read_text("utf-8")
            waiting += _asked_for(name, found[name])
    found.pop(puzzle, None)
    return found


def _asked_for(puzzle: str, source: str) -> list[str]:
    """The puzzles whose solution the notebook of another one asks for."""
    return [name for name in re.findall(r'\bsolution_of\("(\w+)"\)', source) if name in PUZZLES and name != puzzle]


@cache
def solution_of(puzzle: str) -> Callable[..., Any]:
    """Our own function of a puzzle, for the puzzles that build on it. ValueError for one that there is not, and
    PuzzleError when it is to answer to the puzzle itself, or is none that is built on."""
    _solution(puzzle)
    return _guarded(puzzle, lambda: _solution(puzzle))


def _guarded(puzzle: str, ours: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Wraps a function of ours, which `ours` gives at each call, so that it does not answer to somebody who is to find
    the answer to the puzzle."""

    def solution(*given: Any) -> Any:
        if puzzle in _asked:
            raise PuzzleError(
                f'solution_of("{puzzle}") is our own answer, and does not count as yours',
                expected="a function that finds the answer itself",
                fix="write it yourself; the hints go as far as nearly the code, and once it passes you can reveal ours",
            )
        return ours()(*given)

    return solution


@cache
def _solution(puzzle: str) -> Callable[..., Any]:
    if (ours := _ours.get()) is None:
        return load_function(reference(puzzle), puzzle)
    if PUZZLES[puzzle].id not in ours:
        raise PuzzleError(
            f'solution_of("{puzzle}") is no part of this puzzle',
            expected="a function that finds the answer itself",
            fix=f"build on {' and '.join(ours)}" if ours else "write it yourself; nothing of ours is to be had here",
        )
    return function_of(Source.of(reference(puzzle).name, ours[puzzle]), puzzle)


def judge_answers(puzzle: str, ask: Ask, source: Path | None = None) -> FunctionVerdict:
    """The verdict on the answers that `ask` gets, by the reference of the puzzle, or another one's `source`."""
    record = PUZZLES[puzzle]
    if not record.is_function:
        raise ValueError(f'the answer to {puzzle} is a schedule: Model.check(simulate({puzzle}, puzzle="{puzzle}"))')
    judge = judge_of(puzzle, source or reference(puzzle))
    asked, failure = first_failure(record.table, record.draws, judge, ask)
    if failure is None:
        return FunctionVerdict(puzzle, asked)
    return FunctionVerdict(puzzle, asked, (str(wrong_answer(puzzle, failure, record.fix)),), judge.shown(failure))


def judge_of(puzzle: str, source: Path) -> Judge:
    """Who knows what is right: the answer in a source, and `<puzzle>_inputs`, `_accepts` and `_picture` if it has
    them."""
    load = cache(partial(load_function, source, puzzle))
    load()
    return Judge(
        _guarded(puzzle, load),
        *(_optional(source, f"{puzzle}_{name}") for name in ("inputs", "accepts", "picture")),
    )


class _Late(BaseException):
    """Time is over. No Exception: a function is not to go on from it."""


def _in_time(puzzle: str, ask: Ask) -> Ask:
    """The same questions, with a limit on the time that the answers take."""

    def asked(inputs: Sequence[Given]) -> Sequence[Answer]:
        try:
            with answering(puzzle), _alarm():
                return ask(inputs)
        except _Late as late:
            place = where(late)
            raise CheckError(
                f"{puzzle} did not end within {PATIENCE:g} seconds, so it was stopped"
                + (f" ({place})" if place else ""),
                fix="look for a loop that never ends, or one that is far too long",
            ) from None

    return asked


@contextmanager
def _alarm() -> Generator[None]:
    """Raises _Late in what takes too long, where this system can."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: object) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def where(error: BaseException) -> str:
    """The student's line in which an error was raised, in words; empty where it was raised in none."""
    place = raised_at(error)
    return "" if place is None else str(place)


def _optional(source: Path, name: str) -> Callable[..., Any] | None:
    try:
        return load_function(source, name)
    except SourceError:
        return None
