"""The puzzles by the kind of their answer; our ways to solve them, and what these come to."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from lib import PUZZLES, Layer, Trace, Verdict, check, simulate
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import home, reference

__all__ = ["FUNCTIONS", "SCHEDULES", "came_to_goal", "figures", "in_parts", "judged", "way", "with_rows"]

SCHEDULES = [puzzle for puzzle, record in PUZZLES.items() if not record.is_function]
FUNCTIONS = [puzzle for puzzle, record in PUZZLES.items() if record.is_function]


@cache
def way(puzzle: str, name: str = "") -> Any:
    """The function of a reference, or of another way by its name."""
    other = home() / "solutions" / "alternatives" / f"{puzzle}_{name}.py"
    return load_function(other if name else reference(puzzle), puzzle)


def in_parts(puzzle: str, name: str, parts: Mapping[str, Sequence[int] | None], batches: int = 4, **more: Any) -> Trace:
    """A correct run of a way whose function takes the parts of its ranks: rows= or columns= or sizes=, None for those
    that the puzzle has."""
    record, function = PUZZLES[puzzle], partial(way(puzzle, name), **parts)
    ranks = max((len(each) for each in parts.values() if each is not None), default=4)
    sizes: dict[str, Any] = {"layers": list(record.last), "ranks": ranks, "batches": batches, "costs": record.costs}
    trace = Trace.of(simulate(function, **(sizes | more)))
    assert check(trace).correct
    return trace


def with_rows(puzzle: str, rows: int) -> list[Layer]:
    """The layers that a puzzle describes, with texts of so many tokens."""
    return [replace(layer, rows=rows) for layer in PUZZLES[puzzle].last]


def judged(function: Any, puzzle: str) -> Verdict:
    """The verdict of a puzzle on a correct step."""
    verdict = check(Trace.of(simulate(function, puzzle=puzzle)), puzzle)
    assert verdict.correct, verdict.faults
    return verdict


def figures(function: Any, puzzle: str) -> tuple[float, float, str | None]:
    verdict = judged(function, puzzle)
    return verdict.time, verdict.memory, verdict.best


def came_to_goal(function: Any, puzzle: str) -> str:
    time, memory, best = figures(function, puzzle)
    return f"time {time:g}, memory {memory:,.0f}: {best or 'no goal'}"
