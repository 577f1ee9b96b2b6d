"""Is a function right, and fast, at its puzzle's hidden sizes? Checked once it is right at the puzzle's own size."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from copy import deepcopy
from functools import partial
from inspect import isawaitable
from math import inf
from typing import Any

from lib.analysis import figures
from lib.checker.faults import because, places, words_of
from lib.checker.judging import counts
from lib.checker.verdict import RIGHT_AT, Verdict, check, refusal
from lib.cluster.costs import LISTS, Costs
from lib.errors.exceptions import CheckError, PuzzleError
from lib.errors.source_lines import raised_at
from lib.errors.wording import counted, numbered
from lib.puzzles.puzzle import AtSize, Goal, Puzzle, Task
from lib.record import replace
from lib.simulator.model import Model
from lib.simulator.simulator import Unsolved, simulate
from lib.trace.trace import Trace, trace_of
from lib.values.operations import COMMUNICATION


def bare(record: Puzzle, *, costs: Costs | None = None, **size: Any) -> Puzzle:
    """Return the record at another size, with one goal that any correct run reaches. `costs` default to its own."""
    goals = (Goal("correct", inf, inf),)
    return replace(record, **size, costs=costs or record.costs, goals=goals, hidden=(), sent=None)


def tried_elsewhere(answer: Callable[..., Any], record: Puzzle, verdict: Verdict) -> tuple[Verdict, PuzzleError | None]:
    """Run a function silently at each hidden size and with each variant of its puzzle. Returns its updated verdict (a
    function that is too slow at some size does not reach the last goal), and its first mistake."""
    slow = ""
    for hidden in record.hidden:
        # What it prints here does not belong to the run that the student sees.
        with redirect_stdout(io.StringIO()):
            outcome = _tried_at(answer, record, hidden)
        there = Task(replace(record, **hidden.given())).size()
        lists = [f"{name}={value}" for name in LISTS if (value := getattr(hidden.costs, name, ()))]
        there += f", with {' and '.join(lists)}" if lists else ""
        if isinstance(outcome, PuzzleError):
            outcome.before = f"{RIGHT_AT} {record.size.words()}, but not at {there}:"
            return replace(verdict, correct=False, faults=(str(outcome),)), outcome
        if (end := figures.end(outcome)) > hidden.time and not slow:
            parts = {"goal": verdict.goals[-1].name, "there": there, "end": end, "possible": hidden.time}
            slow = because("slow_with_lists" if lists else "slow_at_a_size", **parts)
    if (error := wrong_with(answer, record)) is not None:
        error.before = f"{RIGHT_AT} {record.size.words()}, but not {error.before}"
        return replace(verdict, correct=False, faults=(str(error),)), error
    verdict = replace(verdict, elsewhere=len(record.hidden) + sum("sizes" in one.arguments for one in record.variants))
    if slow and verdict.goals[-1].reached:
        goals = (*verdict.goals[:-1], verdict.goals[-1]._replace(reached=False))
        verdict = replace(verdict, goals=goals, notes=(*verdict.notes, slow))
    return verdict, None


def wrong_with(function: Callable[..., Any], record: Puzzle) -> PuzzleError | None:
    """Run a function silently with each variant of its puzzle, and return its first mistake."""
    for variant in record.variants:
        size = variant.size(*record.size, record.mesh)
        given = partial(function, **{name: deepcopy(value) for name, value in variant.arguments.items()})
        with redirect_stdout(io.StringIO()):
            outcome = (_not_refused if variant.refused else _tried_at)(given, record, size)
        if isinstance(outcome, Trace) and variant.batches is not None:
            outcome = _given_otherwise(outcome, variant.batches)
        if isinstance(outcome, PuzzleError):
            outcome.before = f"with {', '.join(f'{name}={value!r}' for name, value in variant.arguments.items())}:"
            return outcome
    return None


def _given_otherwise(trace: Trace, batches: int) -> PuzzleError | None:
    """Say which rank takes more or fewer batches of data than these arguments call for."""
    for program in trace.programs:
        taken = [event for event in program.events if event.op == "get_activation"]
        if (count := sum(len(event.batches) for event in taken)) != batches:
            given, asked = counted(count, "batch"), counted(batches, "batch")
            words = words_of("given_otherwise", rank=program.rank, given=given, asked=asked)
            return CheckError(**words._asdict(), where=places([(program.rank, event) for event in taken[:1]]))
    return None


def _not_refused(function: Callable[..., Any], record: Puzzle, hidden: AtSize) -> PuzzleError | None:
    """Say which ranks do not refuse, though all should. A rank that refuses stops; the run shows what others do."""
    raised: dict[int, ValueError] = {}

    async def trying(model: Model) -> None:
        try:
            if isawaitable(running := function(model)):
                await running
        except ValueError as error:
            raised[model.rank] = error

    got, otherwise = None, False
    try:
        models = simulate(trying, puzzle=record.id, **hidden.given())
        trace = None if isinstance(models, Unsolved) else trace_of(models, "")
    except PuzzleError as error:
        got, trace = str(error).partition("\n")[0], error.trace
        otherwise = any(place.text.startswith("raise ") for _, place in error.where)
    programs = () if trace is None else trace.programs
    late = [one.rank for one in programs if one.rank in raised and any(e.op in COMMUNICATION for e in one.events)]
    if len(raised) == hidden.ranks and not late:
        return None
    case = "too_late" if late else "by_some" if raised else "otherwise" if otherwise else "by_none"
    words = words_of("not_refused", case, ranks=numbered("rank", late or sorted(raised)))
    error = CheckError(**words._replace(got=got or words.got)._asdict())
    error.where = [(rank, found) for rank in sorted(raised) if (found := raised_at(raised[rank])) is not None]
    error.trace = trace
    return error


def _tried_at(function: Callable[..., Any], record: Puzzle, hidden: AtSize) -> PuzzleError | Trace:
    """Return a run at a hidden size, or its mistake."""
    size = hidden.given()
    try:
        models = simulate(function, puzzle=record.id, **size)
    except PuzzleError as error:
        if any(one.refused for one in record.variants) and isinstance(error.__cause__, ValueError):
            error.fix = because("refuse_nothing")
        return error
    if isinstance(models, Unsolved):
        return CheckError(f"{record.id} raises NotSolved", expected="a function that runs to its end at every size")
    there, trace = bare(record, **size), trace_of(models, "")
    # Most runs are right, so first without figures; only a wrong one needs a verdict in words.
    if counts(models, there) or (verdict := check(models, there)).passed:
        return trace
    return refusal(verdict, trace)
