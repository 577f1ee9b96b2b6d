"""One student's function, judged: run in isolation at its own size and at the hidden ones, and checked here.

What comes back of a run is a Trace, or answers: data that anybody may have made. `check` believes nothing of it. A
Trace counts at exactly the size, on the mesh and at the costs that were asked, which `Isolation` sees to and `check`
once more. Hidden sizes are run where the function came to its end at its own, right or wrong.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple, TypeVar

from lib.checker.checker import check
from lib.checker.verdict import FunctionVerdict
from lib.errors.wording import counted, message_of
from lib.puzzles.records import Puzzle, Task
from lib.suite.grade.assignment import INPUTS, Required
from lib.suite.grade.gradebook import Result, Schedule, Score, schedule_of
from lib.suite.grade.sizes import reference_run
from lib.suite.isolation.isolation import Isolation
from lib.suite.isolation.messages import MORE, AtSize, Limits, Sent
from lib.suite.submissions.function_check import judge_of, wrong_answer
from lib.suite.submissions.locations import reference
from lib.suite.submissions.source import Source
from lib.suite.submissions.table import Answer, Given, Judge, first_failure
from lib.trace.trace import Trace

__all__ = ["judge_source", "reference_result"]

MOST_TEXT: Final = 6000
"""Characters of a message that a gradebook keeps."""
LONGER: Final = 20
"""How many times the events of our own solution a run may have, and is still judged."""
KNOWN: Final = 2048
PACKED: Final = 2**18
"""Verdicts and schedules that a process keeps in mind, and the most bytes of one of those."""
ADDRESS: Final = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
"""Where something is in memory: another place each time."""


class Judged(NamedTuple):
    """A score, without the file, and the schedule at the puzzle's own size, where there is one."""

    score: Score
    schedule: Schedule | None = None


def judge_source(source: Source, required: Required, isolation: Isolation, limits: Limits) -> Judged:
    """Return what came of the function of one puzzle in a source. Nothing is raised for anything that the source
    does."""
    record = required.record
    stub = Result(_own_words(record), "unsolved", message=f"{record.id} is not solved: it still holds its stub.")
    opened = re.compile(rf"""\bhint\(\s*["']{re.escape(record.id)}["']\s*,\s*(\d{{1,3}})\s*\)""")
    hints = [min(int(number), len(record.hints)) for _, text in source.cells for number in opened.findall(text)]
    score = Score(record.id, "unsolved", stub, source=source.normalised(record.id), hints=max(hints, default=None))
    if source.untouched(record.id):
        return Judged(score)
    with isolation.one_after_another():
        return _judged(score, required, _Trial(source.only(record.id), isolation, limits))


def _judged(score: Score, required: Required, trial: _Trial) -> Judged:
    """Return what came of a function that somebody has worked on."""
    record = required.record
    if record.is_function:
        own = trial.answers(record, _own_words(record))
        sets = zip(required.seeds, required.sizes, strict=True) if trial.answered else ()
        hidden = [trial.answers(record, words, seed) for seed, words in sets]
        return Judged(_with(score, own, hidden))
    own, sent = trial.run(_Asked(record, _own_words(record), required.need, required.events[0], f"{required.key} own"))
    hidden = list[Result]()
    if sent is not None and sent.outcome == "trace":
        for number, at in enumerate(required.hidden):
            need = None if required.need is None else at.goals[0].name
            name, size = f"{required.key} {number}", AtSize(*at.size, at.mesh, at.costs)
            asked = _Asked(at, required.sizes[number], need, required.events[number + 1], name, size)
            hidden.append(trial.run(asked)[0])
    trace, name = (None, "") if sent is None else (sent.trace, sent.schedule)
    schedule = None if trace is None else _known(_schedules, name, lambda: _schedule(name, trace))
    own = own if schedule is None else replace(own, schedule=schedule.digest)
    return Judged(_with(score, own, hidden), schedule)


def reference_result(required: Required) -> Judged | None:
    """Return what our own solution gives at the puzzle's size; None for a plain function."""
    record = required.record
    if record.is_function:
        return None
    trace = reference_run(record.id)
    schedule = schedule_of(trace)
    own = _checked(trace, _Asked(record, _own_words(record), required.need))[0]
    own = replace(own, schedule=schedule.digest)
    return Judged(Score(record.id, own.state, own), schedule)


def _own_words(record: Puzzle) -> str:
    if record.is_function:
        return f"{counted(len(record.table), 'given input')} and {counted(record.draws, 'random one', ',')}"
    return Task(record).size()


def _with(score: Score, own: Result, hidden: Sequence[Result]) -> Score:
    """A score with its results: hidden sizes make it no better."""
    elsewhere = {result.state for result in hidden}
    state = own.state
    if own.correct and elsewhere:
        state = "partly" if elsewhere & {"failed", "unsolved"} else "missed" if "missed" in elsewhere else own.state
    return replace(score, own=own, hidden=tuple(hidden), state=state)


class _Asked(NamedTuple):
    """The question to one run: at the size of a record, which is `size` where it is not the puzzle's own. `need` is
    the goal that is needed, `events` how many our own solution records, and `name` what no other question has."""

    record: Puzzle
    words: str
    need: str | None = None
    events: int = 0
    name: str = ""
    size: AtSize | None = None

    def result(self, state: str, text: str) -> Result:
        """A result in words: at a size of which the student may not know, it is said first."""
        text = ADDRESS.sub("0x...", text if self.size is None else f"At {self.words}: {text}")
        return Result(self.words, state, message=text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + MORE)


_verdicts = OrderedDict[tuple[str, str], Result]()
"""What `check` said of a Trace, by its bytes and by what was asked: many students find the same schedule, and for the
same bytes it would say the same again. Only what names no line of the source is known for others."""
_schedules = OrderedDict[str, Schedule]()
"""The schedules of Traces, by their bytes."""
K = TypeVar("K")
T = TypeVar("T")


def _known(known: OrderedDict[K, T], key: K, made: Callable[[], tuple[T, bool]]) -> T:
    """Return what is kept in mind under a key, or else what is made, and whether that may be kept."""
    if key not in known:
        value, keep = made()
        if not keep:
            return value
        known[key] = value
        if len(known) > KNOWN:
            known.popitem(last=False)
    return known[key]


def _schedule(name: str, trace: Trace) -> tuple[Schedule, bool]:
    schedule = schedule_of(trace)
    return schedule, bool(name) and len(schedule.packed) <= PACKED


class _Trial:
    """The runs of one source."""

    def __init__(self, source: Source, isolation: Isolation, limits: Limits) -> None:
        self._source, self._isolation, self._limits = source, isolation, limits
        self.answered = False
        """Whether a plain function has answered."""

    def run(self, asked: _Asked) -> tuple[Result, Sent | None]:
        """Return what came of a run, and what was sent, if that is worth keeping."""
        sent = self._isolation.run(self._source, asked.record.id, asked.size, self._limits)
        trace = sent.trace
        if trace is not None and (why := _too_long(trace, asked)) is not None:
            return asked.result("failed", why), None
        if sent.outcome != "trace" or trace is None:
            return _without(sent, asked), sent

        def checked() -> tuple[Result, bool]:
            result, is_clear = _contained(lambda: _checked(trace, asked), asked)
            return result, is_clear and bool(sent.schedule)

        return _known(_verdicts, (sent.schedule, asked.name), checked), sent

    def answers(self, record: Puzzle, words: str, seed: str | None = None) -> Result:
        """Return what came of asking a plain function the inputs of its record, or random ones of a seed."""
        asked = _Asked(record, words)
        try:
            return _contained(lambda: (self._answered(asked, seed), False), asked)[0]
        except _Silent as silent:
            return _without(silent.sent, asked)

    def _answered(self, asked: _Asked, seed: str | None) -> Result:
        record = asked.record
        judge, puzzle = _judge_of(record.id), record.id

        def ask(inputs: Sequence[Given]) -> Sequence[Answer]:
            sent = self._isolation.answers(self._source, puzzle, inputs, self._limits)
            if sent.outcome != "answers":
                raise _Silent(sent)
            self.answered = True
            return sent.answers

        if seed is None:
            count, failure = first_failure(record.table, record.draws, judge, ask)
        else:
            count, failure = first_failure((), min(record.draws, INPUTS), judge, ask, seed)
        faults = () if failure is None else (str(wrong_answer(puzzle, failure, record.fix)),)
        verdict = FunctionVerdict(puzzle, count, faults)
        return asked.result("passed" if verdict.correct else "failed", verdict.text())


class _Silent(Exception):
    """A function that did not answer: what came instead."""

    def __init__(self, sent: Sent) -> None:
        super().__init__(sent.outcome)
        self.sent = sent


@cache
def _judge_of(puzzle: str) -> Judge:
    return judge_of(puzzle, reference(puzzle))


def _without(sent: Sent, asked: _Asked) -> Result:
    """The result of a function that came to no end."""
    if sent.outcome == "unsolved":
        return asked.result("unsolved", f"{asked.record.id} is not solved: it raises NotSolved.")
    return asked.result("failed", sent.text)


def _contained(judge: Callable[[], tuple[Result, bool]], asked: _Asked) -> tuple[Result, bool]:
    """A result, whatever a student's data does to those who judge it."""
    try:
        return judge()
    except _Silent:
        raise
    except (Exception, RecursionError, MemoryError) as error:
        why = f"({type(error).__name__}: {message_of(error)})"
        return asked.result("failed", f"what {asked.record.id} sent back cannot be judged {why}"), False


def _too_long(trace: Trace, asked: _Asked) -> str | None:
    """Why a run is not judged: it has far more events than any answer needs, and a check of them would take minutes."""
    events = sum(len(program.events) for program in trace.programs)
    if events <= LONGER * asked.events + LONGER:
        return None
    return (
        f"{asked.record.id} records {counted(events, 'operation', ',')}, and our own solution {asked.events:,}\n"
        "  fix:      look for a loop that does the same again and again"
    )


def _checked(trace: Trace, asked: _Asked) -> tuple[Result, bool]:
    """Return what `check` says of a Trace, and whether it says so without a word on the source."""
    verdict = check(trace, asked.record)
    if not verdict.correct:
        return asked.result("failed", replace(verdict, goals=()).text()), False  # no goal can be near yet
    goals = tuple(goal.name for goal in verdict.goals if goal.reached)
    state = "passed" if asked.need is None or asked.need in goals else "missed"
    figures = {"time": verdict.time, "memory": verdict.memory, "sent": verdict.sent, "rank": verdict.rank}
    return replace(asked.result(state, verdict.text()), goals=goals, **figures), not verdict.notes
