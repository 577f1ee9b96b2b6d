"""The leaderboard: a page to show to a class. Every distinct correct schedule once, with how many students have it.

It is made of schedules, counts, and the names that the roster has under `alias`: nothing else of a student gets here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lib.analysis.figures import bubbles
from lib.errors.exceptions import TraceError
from lib.errors.wording import counted, visible
from lib.suite.cli.grading.report.pages import render
from lib.suite.cli.grading.report.pictures import MOST_EVENTS, Traces
from lib.suite.cli.grading.report.puzzles import ClassPuzzle, Kind
from lib.suite.cli.templates import markup
from lib.suite.grade.gradebook import Gradebook, Result, Student
from lib.suite.grade.intake.roster import ALIAS
from lib.trace.trace import Trace

__all__ = ["leaderboard"]

PLACES: Final = 30
"""Schedules of a puzzle."""
LONGEST: Final = 40
"""Characters of a name that somebody chose."""


def leaderboard(book: Gradebook, puzzles: Sequence[ClassPuzzle], traces: Traces) -> str:
    """The page: of each puzzle the schedules that are correct at all sizes, the best first."""
    boards = [_board(book, puzzle, traces) for puzzle in puzzles if puzzle.asked.goals]
    fills = {mark.fill for board in boards for mark in board.pop("marks")}
    from drawing.canvas.scene import sheet  # here: a class of plain functions needs none

    night, style = sheet(fills, set(), titles=False)
    return render(
        "leaderboard.html",
        title=visible(book.title, lines=False),
        boards=boards,
        night=night,
        night_style=markup(style),
    )


def _board(book: Gradebook, puzzle: ClassPuzzle, traces: Traces) -> dict[str, Any]:
    from drawing.canvas.scene import Scene
    from drawing.comparing.overview import HIGH, WIDE, thumbnails

    reference = puzzle.reference
    kinds = [kind for kind in puzzle.kinds if kind.everywhere]
    shown: list[tuple[Kind | None, Result]] = [(kind, kind.result) for kind in kinds[:PLACES]]
    if reference is not None and all(result.schedule != reference.schedule for _, result in shown):
        shown.append((None, reference))
    runs = {result.schedule: run for _, result in shown if (run := _run(traces, result.schedule)) is not None}
    small = dict(zip(runs, thumbnails([*runs.values()]) if runs else (), strict=True))
    best = (
        {name: min(getattr(result, name) or 0.0 for _, result in shown) for name in ("time", "memory", "sent")}
        if shown
        else {}
    )
    rows: list[dict[str, Any]] = []
    for place, (kind, result) in enumerate(shown, 1):
        run = runs.get(result.schedule)
        marks = small.get(result.schedule)
        words = f"schedule {place} of {puzzle.asked.puzzle}"
        rows.append(
            {
                "place": place if kind is not None else None,
                "who": _who([book.students[row] for row in kind.students]) if kind is not None else "",
                "reference": reference is not None and result.schedule == reference.schedule,
                "goals": kind.goals if kind is not None else None,
                "result": result,
                "best": [name for name in best if getattr(result, name) == best[name]],
                "computing": None if run is None else 1 - bubbles(run).makespan,
                "picture": ""
                if marks is None
                else markup(Scene(WIDE, HIGH, marks, paper=False).svg(label=words, night=False)),
            }
        )
    return {
        "asked": puzzle.asked,
        "rows": rows,
        "more": len(kinds) - len(kinds[:PLACES]),
        "students": sum(len(kind.students) for kind in kinds),
        "marks": [mark for marks in small.values() for mark in marks],
    }


def _run(traces: Traces, digest: str) -> Trace | None:
    """A schedule, where it can be read and is not too large to be drawn."""
    try:
        run = traces.load(digest)
    except (OSError, TraceError, ValueError):
        return None
    return run if sum(len(program.events) for program in run.programs) <= MOST_EVENTS else None


def _who(students: Sequence[Student]) -> str:
    """How many have a schedule, by the names that they chose where they did."""
    chosen = sorted(filter(None, (_alias(dict(student.more)) for student in students)))
    others = len(students) - len(chosen)
    if not chosen:
        return counted(others, "student")
    return ", ".join(chosen) + (f" and {others} more" if others else "")


def _alias(cells: Mapping[str, str]) -> str:
    said = next((text for heading, text in cells.items() if heading.casefold() == ALIAS), "")
    return visible(said, lines=False).strip()[:LONGEST]
