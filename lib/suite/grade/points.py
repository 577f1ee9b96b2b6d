"""Points: what a puzzle is worth, what being late costs, which attempt counts, and what a person adds.

    deadline = 2026-11-01T23:59:00
    attempts = "best"               # or "latest", if nothing is said

    [points]                        # of each puzzle: one number for each of TERMS, added up
    correct = 4
    hidden = 2
    by_hand = 2

    [late]
    percent = 10                    # of what the puzzle scored, for each day that is begun
    grace = 15                      # minutes that cost nothing
    days = 5                        # later than that, nothing counts

    [extension]                     # by id, or by name
    "410003" = 2026-11-08T23:59:00

It is a sum and no program: nothing of it is evaluated. Times are by the clock on the wall, as platforms write them.

Marks and comments by hand are in files that only people write, a row for a student and a puzzle. Without a puzzle a row
is about all that was handed in. Points are added, and negative ones taken away. Several people keep a file each. A file
that is not there yet is written with all rows to fill in; one that is there is never changed.

    id,student,puzzle,points,comment
    410003,Ann Lee,ddp,2,"A good sentence on why rank 0 waits."
    410003,Ann Lee,,,"Come to my office hours."
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from lib.errors.wording import counted
from lib.files import ready, write_whole
from lib.suite.grade.gradebook import Asked, Gradebook, Mark, Score, Student
from lib.suite.grade.intake.roster import Row, TableError, moment, neutral, read_table

__all__ = ["ATTEMPTS", "BY_HAND", "TERMS", "Late", "Rules", "by_hand", "of_puzzle", "to_fill_in"]

# -- points --------------------------------------------------------------------------------------------------------

ATTEMPTS: Final = ("latest", "best")
BY_HAND: Final = "by_hand"
"""The term that is no share of anything: how many points a person may give."""


@dataclass(frozen=True, slots=True)
class Term:
    """A reason for points: what it is called, what it means, how much of it a score has, and how much there is; a
    term of which a puzzle has nothing, such as hidden sizes, does not count there."""

    name: str
    about: str
    reached: Callable[[Score, Asked], float]
    there: Callable[[Asked], float]


def _always(_: Asked) -> float:
    return 1.0


def _has_goals(asked: Asked) -> float:
    return float(bool(asked.goals))


def _goal(score: Score, asked: Asked, which: int) -> float:
    return float(bool(asked.goals) and asked.goals[which][0] in score.own.goals)


TERMS: Final[tuple[Term, ...]] = (
    Term("passed", "all that is needed, at hidden sizes too", lambda s, _: float(s.state == "passed"), _always),
    Term("correct", "one correct training step at the puzzle's size", lambda s, _: float(s.correct), _always),
    Term(
        "hidden",
        "hidden sizes that passed, in proportion",
        lambda s, a: s.hidden_passed / len(a.hidden) if a.hidden and s.correct else 0.0,
        lambda a: float(bool(a.hidden)),
    ),
    Term("first", "the first goal, at the puzzle's size", lambda s, a: _goal(s, a, 0), _has_goals),
    Term("best", "the last goal, at the puzzle's size", lambda s, a: _goal(s, a, -1), _has_goals),
    Term(
        "goal",
        "each goal that is reached at the puzzle's size",
        lambda s, a: float(sum(name in s.own.goals for name, _, _ in a.goals)),
        lambda a: float(len(a.goals)),
    ),
)
PASSED: Final[Mapping[str, float]] = {"passed": 1.0}
"""Points where nothing is said: one for each puzzle that passed."""


@dataclass(frozen=True, slots=True)
class Late:
    """The price of being late: `percent` of the points for each day that is begun, after `grace` minutes; and after
    `days` (None: never) all of them."""

    percent: float = 0.0
    grace: float = 0.0
    days: float | None = None

    def factor(self, late: timedelta) -> float:
        """Return what is left of the points."""
        begun = _days(late, self.grace)
        if self.days is not None and begun > self.days:
            return 0.0
        return max(0.0, 1.0 - begun * self.percent / 100)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which points follow from results: points by puzzle ("" is for all others), the deadline, who has
    another, and what being late costs."""

    points: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: {"": PASSED})
    attempts: str = ATTEMPTS[0]
    deadline: datetime | None = None
    extensions: Mapping[str, datetime] = field(default_factory=dict[str, datetime])
    late: Late = Late()

    def weights(self, puzzle: str) -> Mapping[str, float]:
        """The points of each term for a puzzle."""
        return self.points.get(puzzle) or self.points.get("") or PASSED

    def due(self, its_id: str, name: str, said: str = "") -> datetime | None:
        """Return when a student has to hand in: as the file of the assignment says for one, or the roster (`said`),
        or for all."""
        return self.extensions.get(its_id) or self.extensions.get(name) or moment(said) or self.deadline

    def mark(self, score: Score, asked: Asked, handed_in: datetime | None, due: datetime | None, flag: bool) -> Mark:
        """The points of one score, of an attempt that came at `handed_in` (None: nobody says), where the platform says
        at least whether it was late (`flag`)."""
        points, of = of_puzzle(score, asked, self.weights(asked.puzzle))
        late = timedelta(0)
        if handed_in is not None and due is not None:
            late = handed_in - due
        elif flag:
            late = timedelta(minutes=self.late.grace, seconds=1)
        if not points or not _days(late, self.late.grace):
            return Mark(asked.puzzle, points, of)
        factor = self.late.factor(late)
        days = counted(_days(late, self.late.grace), "day") if handed_in is not None else "the platform's mark"
        cost = f"{100 - 100 * factor:g} percent less" if factor else "nothing of it counts"
        return Mark(asked.puzzle, round(points * factor, 4), of, f"late by {days}: {cost}")


def of_puzzle(score: Score, asked: Asked, weights: Mapping[str, float]) -> tuple[float, float]:
    """The points of a score, and how many there are, with those that a person gives."""
    points = sum(weights.get(term.name, 0.0) * term.reached(score, asked) for term in TERMS)
    most = sum(weights.get(term.name, 0.0) * term.there(asked) for term in TERMS)
    return round(points, 4), round(most + weights.get(BY_HAND, 0.0), 4)


def _days(late: timedelta, grace: float) -> int:
    """The days that are begun after the deadline and the minutes of grace."""
    if late <= timedelta(minutes=grace):
        return 0
    return math.ceil(late / timedelta(days=1))


# -- marks ---------------------------------------------------------------------------------------------------------

COLUMNS: Final = ("id", "student", "puzzle", "points", "comment")
LARGEST: Final = 10_000
LONGEST: Final = 10_000
"""Characters of a comment."""


@dataclass(slots=True)
class _Said:
    """The marks by hand of a student and a puzzle: points with the place that says so, and comments."""

    points: float | None = None
    place: str = ""
    comments: list[str] = field(default_factory=list[str])


def by_hand(book: Gradebook, paths: Sequence[Path], rules: Rules) -> Gradebook:
    """A gradebook with what the files say. A row that cannot be used is named in `problems`; all others count.

    TableError for a file from which no row can be read; OSError where there is none.
    """
    said: dict[tuple[str, str], _Said] = {}
    problems = list(book.problems)
    for path in paths:
        table = read_table(path)
        headings = {heading.casefold(): heading for heading in table.headings}
        if not {"id", "student"} & set(headings) or not {"points", "comment"} & set(headings):
            raise TableError(
                f"{path.name} has not the columns of marks\n  expected: {', '.join(COLUMNS)}\n"
                f"  got:      {', '.join(table.headings)[:200]}"
            )
        problems += table.problems
        for row in table.rows:
            cells = {name: row.cells[heading] for name, heading in headings.items() if name in COLUMNS}
            problem = _read(book, rules, path.name, row, cells, said)
            if problem:
                problems.append(f"{path.name}, line {row.line}: {problem}")
    students: list[Student] = []
    for student in book.students:
        marks = [mark for mark in student.marks if mark.puzzle]
        if (student.name, "") in said:
            marks.append(Mark(""))
        for place, mark in enumerate(marks):
            if (here := said.get((student.name, mark.puzzle))) is not None:
                marks[place] = replace(mark, by_hand=here.points, comment="\n".join(here.comments))
        students.append(replace(student, marks=tuple(marks)))
    return replace(book, students=tuple(students), problems=tuple(problems))


def _read(
    book: Gradebook, rules: Rules, name: str, row: Row, cells: Mapping[str, str], said: dict[tuple[str, str], _Said]
) -> str:
    """Take one row into `said`; why it is not used, or not all of it, or nothing."""
    points_text, comment, puzzle = (cells.get(one, "") for one in ("points", "comment", "puzzle"))
    if not points_text and not comment:
        return ""
    student = _student(book, cells.get("id", ""), cells.get("student", ""))
    if isinstance(student, str):
        return f"{student}; the row is not used"
    if puzzle and puzzle not in {asked.puzzle for asked in book.asked}:
        asked = ", ".join(one.puzzle for one in book.asked)
        return f"{puzzle!r} is not asked; the row is not used\n  expected: one of {asked}, or nothing for the whole"
    here = said.setdefault((student.name, puzzle), _Said())
    if comment:
        here.comments.append(comment[:LONGEST])
    if not points_text:
        return ""
    try:
        points = float(points_text.replace(",", "."))  # as spreadsheets of many countries write it
    except ValueError:
        points = math.nan
    most = rules.weights(puzzle).get(BY_HAND) if puzzle else None
    if not abs(points) <= LARGEST:
        return f"{points_text!r} is no number; the points are not used\n  expected: such as 2 or 1.5"
    if most is not None and points > most:
        return f"{points:g} points, of which there are {most:g} by hand; the points are not used"
    if here.points is not None:
        return f"{student.name} has {here.points:g} points there by {here.place}; these {points:g} are not used"
    here.points, here.place = points, f"{name}, line {row.line}"
    return ""


def _student(book: Gradebook, its_id: str, name: str) -> Student | str:
    """Return whom a row is about; or why nobody knows."""
    found = [student for student in book.students if (student.id == its_id if its_id else student.name == name)]
    if len(found) != 1:
        return f"there is no student {its_id or name!r}" if not found else f"there are several {its_id or name!r}"
    if its_id and name and neutral(name) != neutral(found[0].name):
        return f"the id {its_id} is that of {found[0].name}, and the row says {name}"
    return found[0]


def to_fill_in(book: Gradebook, path: Path) -> None:
    """Write a file of marks with a row for each student and puzzle that is there, for somebody to fill in."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for student in book.students:
        for score in student.scores:
            if score.state != "absent":
                writer.writerow([neutral(student.id), neutral(student.name), score.puzzle, "", ""])
    write_whole(ready(path), ("\ufeff" + text.getvalue()).encode("utf-8", "replace"))
