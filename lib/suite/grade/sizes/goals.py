"""A puzzle at another size: its record with the goals that are fair there.

A goal at the puzzle's own size is so many times what our reference takes: its slack. At another size the same goal is
that slack times what the reference takes there; time, memory and what is sent each by itself.

The first goal, by which a hidden size passes, is more generous. Other schedules than ours grow in other ways: one that
holds all batches at once needs more than ours where there are more of them. So it is never less than what any solution
of ours that reaches it at the puzzle's own size takes at the other (the reference, and those in
solutions/alternatives/), and a quarter more than that: a hidden size is there to find answers that are right at one
size only, and the puzzle's own size to measure how good they are.

No goal is below what the lower bound of the puzzle proves possible at that size (`lib.analysis.bounds`).
"""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

from lib.analysis.bounds.family import Family
from lib.analysis.bounds.puzzle_bounds import bound_of
from lib.analysis.bounds.shared_work import SharedWork
from lib.checker.checker import check
from lib.checker.verdict import Verdict
from lib.cluster.costs import as_written
from lib.errors.exceptions import PuzzleError
from lib.puzzles.records import PUZZLES, Goal, Puzzle
from lib.simulator.simulator import Unsolved, simulate
from lib.suite.course.solutions import alternatives
from lib.suite.grade.isolation.asked import AtSize
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference
from lib.trace.trace import Trace

__all__ = ["LEEWAY", "Unfit", "figures_at", "own_ways", "record_at", "reference_run"]

LEEWAY: Final = Fraction(5, 4)
"""How much more the first goal allows at another size than what our own solutions take there."""
HUNDREDTHS: Final = 100
ANY: Final = Goal("correct", float("inf"), float("inf"))


class Unfit(ValueError):
    """A size at which our own reference is not correct, so that nobody can be asked for it. Says why."""


class Figures(NamedTuple):
    """Time in time units, memory in elements on the rank with the highest peak, elements sent by the rank that sends
    most; and how many events all ranks record together."""

    time: float = 0.0
    memory: float = 0.0
    sent: float = 0.0
    events: int = 0


@cache
def own_ways(puzzle: str) -> tuple[Path, ...]:
    """The files of our solutions that reach the first goal of a puzzle, the reference first."""
    record = PUZZLES[puzzle]
    others = [path for path in alternatives(puzzle) if _verdict(path, record).passed]
    return (reference(puzzle), *others)


@cache
def figures_at(puzzle: str, size: AtSize) -> tuple[Figures, ...]:
    """What each of `own_ways` takes at a size, the reference first; those that are not correct there are left out.

    Unfit where the reference is not.
    """
    record = _bare(puzzle, size)
    ours, *others = own_ways(puzzle)
    first = _figures(ours, record)
    if isinstance(first, str):
        raise Unfit(f"our own solution of {puzzle} is not correct at {record.size.words()}: {first}")
    found = [_figures(path, record) for path in others]
    return (first, *(figures for figures in found if isinstance(figures, Figures)))


def record_at(puzzle: str, size: AtSize) -> Puzzle:
    """The record of a puzzle at another size, with its goals there. Unfit where our reference is not correct."""
    record = PUZZLES[puzzle]
    here = AtSize(*record.size, record.mesh)
    ours, *others = figures_at(puzzle, size)
    own = figures_at(puzzle, here)[0]
    least = _bound(_bare(puzzle, size))
    goals: list[Goal] = []
    for number, goal in enumerate(record.goals):

        def there(name: str, limit: float, first: bool = number == 0) -> float:
            mine, known = as_written(getattr(own, name)), as_written(getattr(ours, name))
            scaled = as_written(limit) / mine * known if mine else as_written(limit)
            if first:
                scaled = LEEWAY * max(scaled, known, *(as_written(getattr(way, name)) for way in others))
            # Rounded up, so that nobody misses it by what no picture shows.
            digits = HUNDREDTHS if name == "time" else 1
            return max(ceil(scaled * digits) / digits, getattr(least, name))

        sent = record.sent if goal.sent is None else goal.sent
        most = None if sent is None else there("sent", sent)
        goals.append(Goal(goal.name, there("time", goal.time), there("memory", goal.memory), sent=most))
    return replace(_bare(puzzle, size), goals=tuple(goals))


def _bare(puzzle: str, size: AtSize) -> Puzzle:
    """The record at a size, without its goals: all that is correct is within the one that is left."""
    record = PUZZLES[puzzle]
    costs = record.costs if size.costs is None else size.costs
    sizes = {"ranks": size.ranks, "layers": size.layers, "batches": size.batches, "mesh": size.mesh}
    return replace(record, **sizes, costs=costs, goals=(ANY,), hidden=(), sent=None)


def _figures(path: Path, record: Puzzle) -> Figures | str:
    """What one of our solutions takes; or in a line why it is not correct there."""
    try:
        trace = _run(path, record)
    except (PuzzleError, ValueError, LookupError, ArithmeticError) as error:
        return str(error).partition("\n")[0]
    verdict = check(trace, record)
    if not verdict.passed:  # nothing counts that leaves a rank out, however correct
        return (verdict.faults or verdict.notes or ("it does not count",))[0].partition("\n")[0]
    events = sum(len(program.events) for program in trace.programs)
    return Figures(verdict.time, verdict.memory, verdict.sent, events)


def reference_run(puzzle: str) -> Trace:
    """The run of our own solution at the puzzle's size."""
    return _run(reference(puzzle), PUZZLES[puzzle])


def _verdict(path: Path, record: Puzzle) -> Verdict:
    return check(_run(path, record), record)


def _run(path: Path, record: Puzzle) -> Trace:
    with redirect_stdout(io.StringIO()):
        models = simulate(
            load_function(path, record.id),
            puzzle=record.id,
            ranks=record.ranks,
            layers=record.layers,
            batches=record.batches,
            mesh=record.mesh,
            costs=record.costs,
        )
    assert not isinstance(models, Unsolved), "a solution of ours is solved"
    return Trace.of(models)


def _bound(record: Puzzle) -> Figures:
    """What no schedule of the puzzle's family is below at the size of a record; zeros where that is not known."""
    premise, mesh = record.bound, record.mesh
    if premise is None or premise.copies > 1 or premise.state_copies > 1:
        return Figures()
    if premise.work:
        return Figures(SharedWork.of(record).time(record.costs).value)
    stages = 1 if premise.stages == 1 else mesh.axes.get("stage", record.ranks) if mesh else record.ranks
    replicas = record.ranks // stages
    if record.ranks % stages or record.layers % stages or record.batches % replicas:
        return Figures()
    bound = bound_of(Family(*record.size, stages, premise.sharded, premise.grouping), record.costs)
    return Figures(bound.time.value, bound.memory.value, bound.sent.value)
