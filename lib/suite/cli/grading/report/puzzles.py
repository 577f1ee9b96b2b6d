"""What a class made of one puzzle: the states, the distinct schedules with their students, and the best of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from lib.errors.wording import amount, counted, exact, visible
from lib.suite.grade.gradebook import Asked, Gradebook, Result, Score
from lib.suite.submissions.states import STATES, State

__all__ = ["ClassPuzzle", "Kind", "puzzles_of"]

NAMED: Final = 12
"""Students that the pointer names at a dot."""


@dataclass(frozen=True)
class Kind:
    """A schedule that is correct at the puzzle's size, and who handed it in: rows of the students, in order.

    `passes` and `everywhere`: whether it passed for one of them, and whether it was correct at all other sizes.
    """

    result: Result
    goals: int
    passes: bool
    everywhere: bool
    students: tuple[int, ...]


@dataclass(frozen=True)
class ClassPuzzle:
    """One puzzle of a class. `scores` are those of the students by their rows; who did not hand it in has none."""

    asked: Asked
    scores: Mapping[int, Score]
    counts: Mapping[str, int]
    kinds: tuple[Kind, ...]
    picture: str = ""

    @property
    def states(self) -> list[tuple[State, int]]:
        """How many students are in each state, those that nobody is in left out."""
        return [(state, self.counts[name]) for name, state in STATES.items() if self.counts.get(name)]

    @property
    def best(self) -> Result | None:
        """The best of the class that is correct at all sizes: the most goals, the shortest time, the least memory."""
        return next((kind.result for kind in self.kinds if kind.everywhere), None)

    @property
    def reference(self) -> Result | None:
        """What our own solution gives."""
        return self.asked.reference


def puzzles_of(book: Gradebook) -> list[ClassPuzzle]:
    """The puzzles that were asked, in order."""
    rows = [{score.puzzle: score for score in student.scores} for student in book.students]
    return [
        _puzzle(book, asked, {row: scores[asked.puzzle] for row, scores in enumerate(rows) if asked.puzzle in scores})
        for asked in book.asked
    ]


def _puzzle(book: Gradebook, asked: Asked, scores: Mapping[int, Score]) -> ClassPuzzle:
    counts = Counter(STATES[score.state].word for score in scores.values())
    counts["absent"] += len(book.students) - len(scores)
    found = ClassPuzzle(asked, scores, counts, _kinds(asked, scores))
    return replace(found, picture=_spread(book, found))


def _kinds(asked: Asked, scores: Mapping[int, Score]) -> tuple[Kind, ...]:
    """The distinct schedules, the best first. Of equal ones a state may differ, by what they do at other sizes."""
    students: dict[str, list[int]] = {}
    for row, score in scores.items():
        if score.correct and score.own.schedule and score.own.time is not None:
            students.setdefault(score.own.schedule, []).append(row)
    found = [
        Kind(
            scores[rows[0]].own,
            sum(name in scores[rows[0]].own.goals for name, _, _ in asked.goals),
            any(scores[row].state == "passed" for row in rows),
            any(scores[row].state in ("passed", "missed") for row in rows),
            tuple(rows),
        )
        for rows in students.values()
    ]
    return tuple(sorted(found, key=_rank))


def _rank(kind: Kind) -> tuple[float, ...] | tuple[float | str, ...]:
    own = kind.result
    return (not kind.everywhere, -kind.goals, own.time or 0.0, own.memory or 0.0, own.sent or 0.0, own.schedule)


def _spread(book: Gradebook, puzzle: ClassPuzzle) -> str:
    """The picture of time against memory, as markup; nothing where all correct schedules, if any, are at one place."""
    from drawing.comparing.dots import Handed, draw_spread  # here: a class of plain functions needs none
    from lib.puzzles.records import Goal

    places: dict[tuple[float, float], list[Kind]] = {}
    for kind in puzzle.kinds:
        places.setdefault((kind.result.time or 0.0, kind.result.memory or 0.0), []).append(kind)
    if len(places) < 2:
        return ""
    dots = [
        Handed(
            time,
            memory,
            sum(len(kind.students) for kind in here),
            any(kind.passes for kind in here),
            _title(book, time, memory, here),
        )
        for (time, memory), here in places.items()
    ]
    goals = [Goal(name, time, memory) for name, time, memory in puzzle.asked.goals]
    reference, best = _place(puzzle.reference), _place(puzzle.best)
    picture = draw_spread(f"{puzzle.asked.title}: time against memory", dots, goals, reference, best)
    return picture.svg().strip()


def _place(result: Result | None) -> tuple[float, float] | None:
    if result is None or result.time is None or result.memory is None:
        return None
    return result.time, result.memory


def _title(book: Gradebook, time: float, memory: float, here: list[Kind]) -> str:
    rows = sorted(row for kind in here for row in kind.students)
    names = [visible(book.students[row].name, lines=False)[:60] for row in rows[:NAMED]]
    more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    head = f"time {exact(time)}, memory {amount(memory)}: {counted(len(rows), 'student')}"
    schedules = f", {counted(len(here), 'schedule')}" if len(here) > 1 else ""
    return f"{head}{schedules}\n{', '.join(names)}{more}"
