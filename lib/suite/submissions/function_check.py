"""check_function: checks a plain function on the inputs in its puzzle's table, and on random ones."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from inspect import signature
from linecache import getline
from pathlib import Path
from traceback import walk_tb
from typing import Any, cast

from lib import diagnosis
from lib.checker import tell
from lib.checker.verdict import FunctionVerdict
from lib.errors import graded
from lib.errors.exceptions import CheckError, NotSolved, PuzzleError
from lib.errors.source_lines import is_students, place, raised_at
from lib.errors.wording import counted, message_of
from lib.puzzles.puzzle import Puzzle
from lib.puzzles.records import PUZZLES
from lib.suite.submissions.load import SourceError, function_of, load_function
from lib.suite.submissions.locations import reference
from lib.suite.submissions.source import Source
from lib.suite.submissions.table import Answer, Ask, Failure, Given, Judge, ask_here, first_failure

PATIENCE = 10.0  # seconds for all inputs of one call of `ask`
AGAIN = 1.0  # seconds between further attempts to stop a function that resists
LONGEST = 300  # characters of a value that are shown
WIDE = 100  # characters of an answer that is shown whole; of longer ones only what differs
_given: list[Mapping[str, str]] = []
"""While a student's function answers, the sources of ours that its puzzle builds on, by puzzle; otherwise empty, and
all of ours are available. No context variable: it must hold in threads and contexts that the function starts, too."""


def check_function(function: Callable[..., Any], *, puzzle: str) -> FunctionVerdict | None:
    """Print whether a function's answers are all right, and return the verdict.

    CheckError shows the smallest input that goes wrong, or the line of an endless loop (if the system has an alarm
    clock: not on Windows, nor outside the main thread). None for an unsolved function, which is an error only when
    grading. ValueError for a puzzle whose answer is a schedule. Only time is limited here; a child process limits more.
    """
    if (error := diagnosis.not_the_latest(function)) is not None:
        raise error

    def ask(inputs: Sequence[Given]) -> Sequence[Answer]:
        with building_on(sources_below(puzzle)), _in_time(puzzle):
            return ask_here(function, where)(inputs)

    try:
        verdict = judge_answers(puzzle, ask)
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
def building_on(ours: Mapping[str, str]) -> Generator[None]:
    """Make these sources the only functions of ours that a student's function can use."""
    _given.append(ours)
    try:
        yield
    finally:
        _given.pop()


@cache
def sources_below(puzzle: str) -> Mapping[str, str]:
    """Return the sources of our functions that a puzzle builds on, even indirectly."""
    found: dict[str, str] = {}
    waiting = [puzzle]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = reference(name).read_text("utf-8")
            asked = re.findall(r'\bsolution_of\("(\w+)"\)', found[name])
            waiting += [other for other in asked if other in PUZZLES]
    del found[puzzle]
    return found


@cache
def solution_of(puzzle: str) -> Callable[..., Any]:
    """Return our own function for a puzzle, for the puzzles that build on it. ValueError for an unknown puzzle. The
    function raises PuzzleError if called by a student's function whose puzzle does not build on it."""
    file = reference(puzzle)

    @cache
    def ours(text: str) -> Callable[..., Any]:
        return function_of(Source.of(str(file), text), puzzle)

    def solution(*given: Any) -> Any:
        if not _given:
            return ours(file.read_text("utf-8"))(*given)
        if puzzle not in (there := _given[-1]):
            alone = "write it yourself; the hints go as far as nearly the code, and once it passes you can reveal ours"
            raise PuzzleError(
                f'solution_of("{puzzle}") is our own answer, and does not count as yours',
                expected="a function that finds the answer itself",
                fix=f"build on {' and '.join(there)}" if there else alone,
            )
        return ours(there[puzzle])(*given)

    return solution


def judge_answers(puzzle: str, ask: Ask, source: Path | None = None) -> FunctionVerdict:
    """Judge the answers that `ask` gets, by the puzzle's reference or another `source`."""
    record = PUZZLES[puzzle]
    if not record.is_function:
        raise ValueError(f'the answer to {puzzle} is a schedule: Model.check(simulate({puzzle}, puzzle="{puzzle}"))')
    judge, answers = judge_of(puzzle, source or reference(puzzle)), list[Answer]()

    def noted(inputs: Sequence[Given]) -> Sequence[Answer]:
        answers[:] = ask(inputs)
        return answers

    asked, failure = first_failure(record.table, record.draws, judge, noted)
    if failure is None:
        return _worth(record, answers[0].value) if record.kind == "plan" else FunctionVerdict(puzzle, asked)
    return FunctionVerdict(puzzle, asked, (str(wrong_answer(puzzle, failure, record.fix)),), judge.shown(failure))


@cache
def judge_of(puzzle: str, source: Path) -> Judge:
    """Return the judge of a puzzle: the answer in a source, with its `<puzzle>_inputs`, `_accepts` and `_picture` if
    there are any."""
    ours = load_function(source, puzzle)
    if (record := PUZZLES[puzzle]).kind == "plan":
        goal = record.goals[0]
        wanted = f"a plan of at most {goal.time:g} s a step and {goal.memory:g} GiB"
        return Judge(ours, _asked_once, partial(_accepts_plan, record), wanted=wanted)
    more: dict[str, Any] = {"names": tuple(signature(ours).parameters)}
    for name in ("inputs", "accepts", "picture"):
        with suppress(SourceError):
            more[name] = load_function(source, f"{puzzle}_{name}")
    return Judge(ours, **more)


# -- plans ---------------------------------------------------------------------------------------------------------


def _asked_once() -> Generator[Given]:
    yield ()


def _accepts_plan(record: Puzzle, answer: object) -> bool | str:
    """Tell whether a plan is possible, fits and meets the first goal in all runs of its puzzle; or why not."""
    from lib.plan.judge import Task, judge  # not above: it loads schedules, which answers must not see
    from lib.plan.records import GIB

    for number, run in enumerate(record.runs):
        fields = dict(run)
        allowed = fields.pop("allowed", record.goals[0].time)
        task = Task(**fields)
        judged = judge(task, answer, allowed, record.goals[0].memory * GIB)
        if judged.faults:
            where = "" if number == 0 else f"the same plan must also work for {task.words()}: "
            return where + " ".join([*judged.faults, *(f"Note: {warning}." for warning in judged.warnings)])
    return True


def _worth(record: Puzzle, answer: object) -> FunctionVerdict:
    """Return the verdict on a right plan: its seconds and GiB, and which goals it reaches."""
    from lib.plan.judge import Task, judge
    from lib.plan.records import GIB

    task = Task(**record.runs[0])
    judged = judge(task, answer)
    assert judged.step is not None, "it was judged before"
    seconds, memory = judged.step.seconds, judged.step.memory.total / GIB
    goals = tuple(goal._replace(reached=goal.allows(seconds, memory)) for goal in record.goals)
    worth = f"{seconds:.2f} s a step, {judged.step.mfu:.1%} of the peak, {memory:.1f} GiB."
    return FunctionVerdict(record.id, len(record.runs), goals=goals, worth=worth)


class _Late(BaseException):
    """Time is up. Not an Exception, as the function must not carry on."""


@contextmanager
def _in_time(puzzle: str) -> Generator[None]:
    """Limit the time of the block, if this system can interrupt it."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: object) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, PATIENCE, AGAIN)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _Late as late:
        spot = where(late)
        raise CheckError(
            f"{puzzle} did not end within {PATIENCE:g} seconds, so it was stopped" + (f" ({spot})" if spot else ""),
            fix="look for a loop that never ends, or one that is far too long",
        ) from None
    finally:
        signal.signal(signal.SIGALRM, before)


def where(error: BaseException) -> str:
    """Return the student's line that raised an error, in words; or, if a notebook's function rejects an argument by
    name, the line that made the argument. Empty if there is none."""
    codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__) if is_students(frame.f_code)]
    makes = re.compile(r"\s*(def {0}\(|{0} .*=)".format(re.escape(message_of(error).partition(" ")[0])))
    for code in codes[-2:-1] if isinstance(error, TypeError | ValueError) else ():
        lines = {line for *_, line in code.co_lines() if line and makes.match(getline(code.co_filename, line))}
        if lines:
            return str(place(code, max(lines)))
    return str(raised_at(error) or "")


# -- what is wrong with an answer, in words ------------------------------------------------------------------------


def wrong_answer(name: str, failure: Failure, fix: str = "") -> PuzzleError:
    """Return the mistake of the function `name` as an error. `fix` is its puzzle's, unless a better one is known."""
    shown = [*map(_shown, failure.given)]  # three or more need their names
    shown = [*map("=".join, zip(failure.names, shown, strict=True))] if len(shown) > 2 else shown
    call = f"{name}({', '.join(shown)})"
    got, expected = failure.got, failure.expected
    # If many answers are right, don't show what differs from ours: it may be right, too.
    if not failure.wanted and not got.raised and not expected.raised and len(_words(expected)) > WIDE:
        mine, right = _what_differs(got.value, expected.value)
        got, expected = got._replace(value=mine), expected._replace(value=right)
    return PuzzleError(
        f"{call} raises {got.raised}" if got.raised else f"{call} is not right",
        expected=failure.wanted or _words(expected),
        got=_words(got) + (f" ({got.where})" if got.where else ""),
        fix=_fix(failure) or fix or "work this one out by hand: it is the smallest input found that goes wrong",
    )


def _what_differs(mine: Any, right: Any) -> tuple[Any, Any]:
    """Return the parts that differ of two dicts with the same keys, recursively."""
    if _kind(mine) != "a dict" or _kind(right) != "a dict" or mine.keys() != right.keys():
        return mine, right
    pairs: dict[Any, tuple[Any, Any]]
    pairs = {key: _what_differs(mine[key], right[key]) for key in right if mine[key] != right[key]}
    return {key: pair[0] for key, pair in pairs.items()}, {key: pair[1] for key, pair in pairs.items()}


def _points(value: Any) -> list[float]:
    parts: Iterable[Any] = value.values() if _kind(value) == "a dict" else value if _kind(value) == "a list" else ()
    return [value] if isinstance(value, float) else [found for part in parts for found in _points(part)]


def _words(answer: Answer) -> str:
    if not answer.raised:
        return _shown(answer.value)
    return f"{answer.raised}: {answer.message[:LONGEST]}" if answer.message else answer.raised


def _shown(value: Any) -> str:
    if isinstance(value, frozenset):
        items = sorted(cast("frozenset[Any]", value), key=repr)
        value = set(items) or "set()"
    elif isinstance(value, dict):
        found = cast("dict[Any, Any]", value)
        names = all(isinstance(key, str) for key in found)
        value = found if names else {key: found[key] for key in sorted(found, key=_by_size)}
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _by_size(key: object) -> tuple[int, str]:
    return len(repr(key)), repr(key)


def _fix(failure: Failure) -> str:
    """The likely fix, judging by the two answers alone."""
    expected, got = failure.expected, failure.got
    if "coroutine" in got.message and got.raised == "TypeError":
        return "write `def` instead of `async def`: a plain function is called, and not awaited"
    if got.message.endswith("generator, which is not data"):
        return "`yield` gives one part at a time: append it to a list, and return that"
    if got.raised == "TypeError" and re.match(r"\w+\(\) (takes|missing) .*argument", got.message):
        return f"it is called with {counted(len(failure.given), 'argument')}: keep the line with `def` as it was given"
    parts = [one for one in _points(got.value) if not one.is_integer()] if expected.raised else []
    if parts or "'float' object cannot be interpreted" in got.message:
        such = f", such as {parts[0]}" if parts else ""
        return f"`/` gives a number with a point{such}: `//` divides whole numbers, and rounds down"
    if got.raised and expected.raised:
        return f"such an input is a mistake of the caller's: raise {expected.raised}, before anything else goes wrong"
    if found := re.fullmatch("'dict' object has no attribute '(\\w+)'", got.message):
        return f'what is in a dict is taken out with square brackets: ["{found[1]}"]'
    name, line = got.message.partition(" ")[0], got.where.partition(": ")[2]
    if got.raised == "TypeError" and line.startswith(("def ", "raise ")) and ": " in got.message:
        return got.message.rpartition(": ")[2]
    if got.raised == "ValueError" and line.startswith(f"{name} "):
        return f"this input has an answer, so `{line}` is wrong for it: work {name} out by hand"
    if got.raised:
        fix = "this input has an answer: the test that refuses it is too strict, or what it tests is wrong"
        if any(isinstance(one, dict) and -1 in one.values() for one in failure.given):
            fix += "; give its -1 a value before you look at the product of all sizes"
        return fix if got.raised == "ValueError" and "raise" in (line or "raise") else ""
    if failure.why:
        return failure.why
    if expected.raised:
        return f"such an input is a mistake of the caller's: raise {expected.raised}"
    if got.value is None:
        return "it returns nothing: end it with `return ...`"
    kind, right, value = _kind(expected.value), expected.value, got.value
    if kind != _kind(value):
        return f"return {kind}; this is {_kind(value).replace('a list', 'a list or a tuple')}"
    if kind == "a dict":
        if missing := [repr(key) for key in sorted(right.keys() - value.keys(), key=_by_size)]:
            return f"the answer has the key{'s' if len(missing) > 1 else ''} {', '.join(missing)}; this has not"
        more = [repr(key) for key in sorted(value.keys() - right.keys(), key=_by_size)]
        return f"there is no key {' and no key '.join(more)} in the answer" if more else ""
    if kind != "a list":
        right, value = [right], [value]
    elif len(value) != len(right):
        return f"the answer has {len(right)} items; this has {len(value)}"
    elif sorted(map(repr, right)) == sorted(map(repr, value)):
        return "the right items, in another order"
    if all(isinstance(one, int | float) and not isinstance(one, bool) for one in [*right, *value]):
        gaps = {theirs - ours for ours, theirs in zip(right, value, strict=True)}
        if gaps in ({1}, {-1}):
            many = "many" if gaps == {1} else "few"
            return f"one too {many}: does it count from 0, and up to but not including the end?"
    return ""


def _kind(value: Any) -> str:
    kinds = {bool: "True or False", int: "a number", float: "a number", str: "text", list: "a list", dict: "a dict"}
    return "None" if value is None else "a set" if isinstance(value, frozenset) else kinds[type(value)]
