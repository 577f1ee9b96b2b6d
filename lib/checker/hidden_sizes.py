"""Is a function right, and fast, at the hidden sizes of its puzzle? Asked once it is right at the puzzle's own size."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from math import inf
from typing import Any

from lib.analysis import figures
from lib.checker.checker import check, counts
from lib.checker.verdict import Verdict
from lib.cluster.costs import LISTS, Costs
from lib.errors.exceptions import CheckError, PuzzleError
from lib.puzzles.goals import Goal, Hidden
from lib.puzzles.puzzle import Puzzle, Task
from lib.simulator.simulator import Unsolved, simulate
from lib.trace.trace import trace_of


def bare(record: Puzzle, *, costs: Costs | None = None, **size: Any) -> Puzzle:
    """Return the record at another size, with one goal: whatever is correct there and counts is within it. `costs` are
    the record's where none are given."""
    goals = (Goal("correct", inf, inf),)
    return replace(record, **size, costs=costs or record.costs, goals=goals, hidden=(), sent=None)


def tried_elsewhere(
    function: Callable[..., Any], record: Puzzle, verdict: Verdict
) -> tuple[Verdict, PuzzleError | None]:
    """Run a function at each hidden size, in silence, whose run has this verdict. Returns the verdict as it is then:
    what is too slow at a size does not reach the last goal. And the mistake at the first size where it is not right."""
    slow = ""
    for hidden in record.hidden:
        # Whatever it prints is of another run than the one that the student looks at.
        with redirect_stdout(io.StringIO()):
            outcome = _tried_at(function, record, hidden)
        there = Task(replace(record, **hidden.given())).size()
        lists = [f"{name}={value}" for name in LISTS if (value := getattr(hidden.costs, name, ()))]
        there += f", with {' and '.join(lists)}" if lists else ""
        if isinstance(outcome, PuzzleError):
            outcome.before = f"right at {record.size.words()}, but not at {there}:"
            return replace(verdict, correct=False, faults=(str(outcome),)), outcome
        if outcome > hidden.time and not slow:
            slow = (
                f"{verdict.goals[-1].name!r} is for what is as good at other sizes: at {there} yours ends at "
                f"{outcome:g}, and {hidden.time:g} can be had. Is there a number that fits this size alone?"
            )
    verdict = replace(verdict, elsewhere=len(record.hidden))
    if slow and verdict.goals[-1].reached:
        goals = (*verdict.goals[:-1], verdict.goals[-1]._replace(reached=False))
        verdict = replace(verdict, goals=goals, notes=(*verdict.notes, slow))
    return verdict, None


def _tried_at(function: Callable[..., Any], record: Puzzle, hidden: Hidden) -> PuzzleError | float:
    """The mistake of a run at a hidden size, or its end."""
    size = hidden.given()
    try:
        models = simulate(function, puzzle=record.id, **size)
    except PuzzleError as error:
        return error
    if isinstance(models, Unsolved):
        return CheckError(f"{record.id} raises NotSolved", expected="a function that runs to its end at every size")
    there = bare(record, **size)
    # Without figures first, as most are right; the verdict with its words is for the one that is wrong.
    if counts(models, there):
        return figures.end(trace_of(models, ""))
    verdict = check(models, there)
    if verdict.passed:
        return verdict.time
    error = CheckError(
        "this is not one correct training step" if verdict.faults else "this does not count",
        got="\n            ".join(verdict.faults or verdict.notes),
    )
    error.trace = trace_of(models, "")
    return error
