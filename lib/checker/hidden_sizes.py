"""Is a function right at the hidden sizes of its puzzle? What a check asks once it is right at the puzzle's own."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from math import inf
from typing import Any

from lib.checker.checker import check
from lib.checker.judging import counts
from lib.cluster.costs import Costs
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


def wrong_elsewhere(function: Callable[..., Any], record: Puzzle) -> PuzzleError | None:
    """Run a function at each hidden size, in silence. The mistake at the first where it is not right; None: there is
    none."""
    for hidden in record.hidden:
        # Whatever it prints is of another run than the one that the student looks at.
        with redirect_stdout(io.StringIO()):
            error = _wrong_at(function, record, hidden)
        if error is not None:
            there = Task(replace(record, **hidden._asdict())).size()
            error.before = f"right at {record.size.words()}, but not at {there}:"
            return error
    return None


def _wrong_at(function: Callable[..., Any], record: Puzzle, hidden: Hidden) -> PuzzleError | None:
    size = hidden._asdict()
    try:
        models = simulate(function, puzzle=record.id, **size)
    except PuzzleError as error:
        return error
    if isinstance(models, Unsolved):
        return CheckError(f"{record.id} raises NotSolved", expected="a function that runs to its end at every size")
    there = bare(record, **size)
    # Without figures first, as most are right; the verdict with its words is for the one that is wrong.
    if counts(models, there):
        return None
    verdict = check(models, there)
    if verdict.passed:
        return None
    error = CheckError(
        "this is not one correct training step" if verdict.faults else "this does not count",
        got="\n            ".join(verdict.faults or verdict.notes),
    )
    error.trace = trace_of(models, "")
    return error
