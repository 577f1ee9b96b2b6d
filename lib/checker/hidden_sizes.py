"""Is a function right, and fast, at the hidden sizes of its puzzle? Asked once it is right at the puzzle's own size."""

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
from lib.checker.faults import places
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
    """Return the record at another size, with one goal that any correct run reaches. `costs` are else the record's."""
    goals = (Goal("correct", inf, inf),)
    return replace(record, **size, costs=costs or record.costs, goals=goals, hidden=(), sent=None)


def tried_elsewhere(answer: Callable[..., Any], record: Puzzle, verdict: Verdict) -> tuple[Verdict, PuzzleError | None]:
    """Run a function at each hidden size, and with the variants of its puzzle, in silence. Returns the verdict of its
    own run as it is then: what is too slow at a size does not reach the last goal. And the first mistake."""
    slow = ""
    for hidden in record.hidden:
        # Whatever it prints is of another run than the one that the student looks at.
        with redirect_stdout(io.StringIO()):
            outcome = _tried_at(answer, record, hidden)
        there = Task(replace(record, **hidden.given())).size()
        lists = [f"{name}={value}" for name in LISTS if (value := getattr(hidden.costs, name, ()))]
        there += f", with {' and '.join(lists)}" if lists else ""
        if isinstance(outcome, PuzzleError):
            outcome.before = f"{RIGHT_AT} {record.size.words()}, but not at {there}:"
            return replace(verdict, correct=False, faults=(str(outcome),)), outcome
        if (end := figures.end(outcome)) > hidden.time and not slow:
            slow = f"{verdict.goals[-1].name!r} has to hold at other sizes, too: at {there} yours ends at {end:g}, "
            ask = "Does each cut weigh layers and ranks?" if lists else "Is there a number that fits this size alone?"
            slow += f"where {hidden.time:g} is possible. {ask}"
    if (error := wrong_with(answer, record)) is not None:
        error.before = f"{RIGHT_AT} {record.size.words()}, but not {error.before}"
        return replace(verdict, correct=False, faults=(str(error),)), error
    verdict = replace(verdict, elsewhere=len(record.hidden) + sum("sizes" in one.arguments for one in record.variants))
    if slow and verdict.goals[-1].reached:
        goals = (*verdict.goals[:-1], verdict.goals[-1]._replace(reached=False))
        verdict = replace(verdict, goals=goals, notes=(*verdict.notes, slow))
    return verdict, None


def wrong_with(function: Callable[..., Any], record: Puzzle) -> PuzzleError | None:
    """Run a function with each of the variants of its puzzle, in silence. The first mistake."""
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
    """Say which rank is given more batches of the data, or fewer, than these arguments mean."""
    for program in trace.programs:
        taken = [event for event in program.events if event.op == "get_activation"]
        if (count := sum(len(event.batches) for event in taken)) != batches:
            what, expected = f"rank {program.rank} is given {counted(count, 'batch')}", counted(batches, "batch")
            where = places([(program.rank, event) for event in taken[:1]])
            fix = "does what you take depend on that argument?"
            return CheckError(what, expected=f"{expected} on each rank", where=where, fix=fix)
    return None


def _not_refused(function: Callable[..., Any], record: Puzzle, hidden: AtSize) -> PuzzleError | None:
    """Say which ranks do not refuse, though all should. One that refuses ends, so the others show what they do then."""
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
    what, fix = "no rank refuses these parts", "is a part too small to lend, or a window too wide? Ask `sizes`"
    fix = "it does refuse, but not with a ValueError: raise that" if otherwise else fix
    if late:
        what, fix = f"{numbered('rank', late)} refused too late", "refuse before the first exchange"
    elif raised:
        what = f"of all ranks, only {numbered('rank', sorted(raised))} refused these parts"
        fix = "let every rank decide by what all of them know: by `sizes`, and not by its own rows"
    got = got or (None if raised else "ranks that end without an error")
    error = CheckError(what, expected="a ValueError on every rank, before it sends anything", got=got, fix=fix)
    error.where = [(rank, found) for rank in sorted(raised) if (found := raised_at(raised[rank])) is not None]
    error.trace = trace
    return error


def _tried_at(function: Callable[..., Any], record: Puzzle, hidden: AtSize) -> PuzzleError | Trace:
    """The mistake of a run at a hidden size, or the run."""
    size = hidden.given()
    try:
        models = simulate(function, puzzle=record.id, **size)
    except PuzzleError as error:
        if any(one.refused for one in record.variants) and isinstance(error.__cause__, ValueError):
            error.fix = "here each rank has the rows that its neighbours need: let no rank refuse that"
        return error
    if isinstance(models, Unsolved):
        return CheckError(f"{record.id} raises NotSolved", expected="a function that runs to its end at every size")
    there, trace = bare(record, **size), trace_of(models, "")
    # Without figures first, as most are right; the verdict with its words is for the one that is wrong.
    if counts(models, there) or (verdict := check(models, there)).passed:
        return trace
    return refusal(verdict, trace)
