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
from typing import Any, cast

from lib import diagnosis
from lib.checker.announce import tell
from lib.checker.verdict import FunctionVerdict
from lib.errors import graded
from lib.errors.exceptions import CheckError, NotSolved, PuzzleError
from lib.errors.source_lines import raised_at
from lib.puzzles.records import PUZZLES
from lib.suite.submissions.load import SourceError, function_of, load_function
from lib.suite.submissions.locations import reference
from lib.suite.submissions.source import Source
from lib.suite.submissions.table import Answer, Ask, Failure, Given, Judge, ask_here, first_failure

__all__ = [
    "answering",
    "building_on",
    "check_function",
    "judge_answers",
    "judge_of",
    "solution_of",
    "sources_below",
    "where",
    "wrong_answer",
]

PATIENCE = 10.0
"""Seconds that a function may take for all that it is asked at once."""
AGAIN = 1.0
"""Seconds until a function is stopped again that would not be stopped."""
LONGEST = 300
"""Characters of a value that are shown."""
_asked: list[str] = []
"""The puzzles to which a student's functions are answering at this moment. No context variable: it holds in the threads
and contexts that such a function starts, too."""
_ours: ContextVar[Mapping[str, str] | None] = ContextVar("ours", default=None)
"""The sources of ours that are to be had; None: all that lie in solutions/."""


def check_function(function: Callable[..., Any], *, puzzle: str) -> FunctionVerdict | None:
    """Print whether a function answers right wherever it was asked, and return the verdict.

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
    """Withhold our own solution of a puzzle while a student's function answers to it."""
    _asked.append(puzzle)
    try:
        yield
    finally:
        _asked.remove(puzzle)


@contextmanager
def building_on(ours: Mapping[str, str]) -> Generator[None]:
    """Let these sources be the only functions of ours that are to be had, as where solutions/ cannot be read."""
    before = _ours.set(ours)
    try:
        yield
    finally:
        _ours.reset(before)


@cache
def sources_below(puzzle: str) -> Mapping[str, str]:
    """Return the sources of our functions that a puzzle builds on, and of those that these build on."""
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
    """Return our own function of a puzzle, for the puzzles that build on it. ValueError for one that there is not, and
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
    """Judge the answers that `ask` gets, by the reference of the puzzle, or another one's `source`."""
    record = PUZZLES[puzzle]
    if not record.is_function:
        raise ValueError(f'the answer to {puzzle} is a schedule: Model.check(simulate({puzzle}, puzzle="{puzzle}"))')
    judge = judge_of(puzzle, source or reference(puzzle))
    asked, failure = first_failure(record.table, record.draws, judge, ask)
    if failure is None:
        return FunctionVerdict(puzzle, asked)
    return FunctionVerdict(puzzle, asked, (str(wrong_answer(puzzle, failure, record.fix)),), judge.shown(failure))


def judge_of(puzzle: str, source: Path) -> Judge:
    """Return the judge of a puzzle: the answer in a source, and `<puzzle>_inputs`, `_accepts` and `_picture` if it has
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
    """Return the student's line in which an error was raised, in words; empty where it was raised in none."""
    place = raised_at(error)
    return "" if place is None else str(place)


def _optional(source: Path, name: str) -> Callable[..., Any] | None:
    try:
        return load_function(source, name)
    except SourceError:
        return None


# -- what is wrong with an answer, in words ------------------------------------------------------------------------


def wrong_answer(name: str, failure: Failure, fix: str = "") -> PuzzleError:
    """Return the mistake of the function `name` as an error. `fix` is its puzzle's, where nothing better is known."""
    call = f"{name}({', '.join(map(_shown, failure.given))})"
    got = failure.got
    what = f"{call} raises {got.raised}" if got.raised else f"{call} is not right"
    return PuzzleError(
        what,
        expected=_words(failure.expected),
        got=_words(got) + (f" ({got.where})" if got.where else ""),
        fix=_fix(failure) or fix or "work this one out by hand: it is the smallest input found that goes wrong",
    )


def _words(answer: Answer) -> str:
    if not answer.raised:
        return _shown(answer.value)
    return f"{answer.raised}: {answer.message[:LONGEST]}" if answer.message else answer.raised


def _shown(value: Any) -> str:
    if isinstance(value, frozenset):
        items = sorted(cast("frozenset[Any]", value), key=repr)
        value = set(items) or "set()"
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        if not all(isinstance(key, str) for key, _ in items):
            items = sorted(items, key=lambda item: _in_order(repr(item[0])))
        value = dict(items)
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _fix(failure: Failure) -> str:
    """The likely reason, seen from the two answers alone."""
    expected, got = failure.expected, failure.got
    if "coroutine" in got.message and got.raised == "TypeError":
        return "write `def` in place of `async def`: nobody awaits a plain function"
    if got.raised and expected.raised:
        return f"such an input is a mistake of the caller's: raise {expected.raised}, before anything else goes wrong"
    if got.raised == "ValueError":
        return "this input is not to be refused: it has an answer"
    if got.raised:
        return ""
    if expected.raised:
        return f"such an input is a mistake of the caller's: raise {expected.raised}"
    if failure.why:
        return failure.why
    if got.value is None:
        return "it gives nothing back: end it with `return ...`"
    if _kind(expected.value) != _kind(got.value):
        return f"give back {_kind(expected.value)}; this is {_kind(got.value)}"
    return _fix_of_values(expected.value, got.value)


def _fix_of_values(expected: Any, got: Any) -> str:
    """The same for answers of one kind."""
    kind = _kind(expected)
    if kind == "a dict":
        if missing := _keys(expected, got):
            return f"the answer has the key{'s' if len(missing) > 1 else ''} {', '.join(missing)}; this has not"
        return f"there is no key {' and no key '.join(more)} in the answer" if (more := _keys(got, expected)) else ""
    if kind == "a list" and len(got) != len(expected):
        return f"the answer has {len(expected)} items; this has {len(got)}"
    if kind == "a list" and sorted(map(repr, expected)) == sorted(map(repr, got)):
        return "the right items, in another order"
    rights, values = (expected, got) if kind == "a list" else ([expected], [got])
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in [*rights, *values]):
        gaps = {value - right for right, value in zip(rights, values, strict=True)}
        many = "many" if gaps == {1} else "few" if gaps == {-1} else ""
        return f"one too {many}: does it count from 0, and up to but not including the end?" if many else ""
    return ""


def _keys(one: Any, other: Any) -> list[str]:
    """The keys of a dict that another has not, in order."""
    return sorted((repr(key) for key in one if key not in other), key=_in_order)


def _in_order(key: str) -> tuple[int, str]:
    """Numbers by size."""
    return len(key), key


def _kind(value: Any) -> str:
    kinds = {bool: "True or False", int: "a number", float: "a number", str: "text", list: "a list", dict: "a dict"}
    return "None" if value is None else "a set" if isinstance(value, frozenset) else kinds[type(value)]
