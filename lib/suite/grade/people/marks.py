"""Marks and comments by hand, in files that only people write: a row for a student and a puzzle.

    id,student,puzzle,points,comment
    410003,Ann Lee,ddp,2,"A good sentence on why rank 0 waits."
    410003,Ann Lee,,,"Come to my office hours."

Without a puzzle a row is about all that was handed in. Points are added, and negative ones taken away. Several people
keep a file each. A file that is not there yet is written with all rows to fill in; one that is there is never changed.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from lib.files import ready, write_whole
from lib.suite.grade.gradebook import Gradebook, Mark, Student
from lib.suite.grade.people.points import BY_HAND, Rules
from lib.suite.grade.people.tables import Row, TableError, neutral, read_table

__all__ = ["COLUMNS", "by_hand", "to_fill_in"]

COLUMNS: Final = ("id", "student", "puzzle", "points", "comment")
LARGEST: Final = 10_000
LONGEST: Final = 10_000
"""Characters of a comment."""


@dataclass(slots=True)
class _Said:
    """What is said of a student and a puzzle: points with the place that says so, and comments."""

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
    students = tuple(_with(student, said) for student in book.students)
    return replace(book, students=students, problems=tuple(problems))


def _read(
    book: Gradebook, rules: Rules, name: str, row: Row, cells: Mapping[str, str], said: dict[tuple[str, str], _Said]
) -> str:
    """Takes one row into `said`; why it is not used, or not all of it, or nothing."""
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
    points = _number(points_text)
    most = rules.weights(puzzle).get(BY_HAND) if puzzle else None
    if points is None:
        return f"{points_text!r} is no number; the points are not used\n  expected: such as 2 or 1.5"
    if most is not None and points > most:
        return f"{points:g} points, of which there are {most:g} by hand; the points are not used"
    if here.points is not None:
        return f"{student.name} has {here.points:g} points there by {here.place}; these {points:g} are not used"
    here.points, here.place = points, f"{name}, line {row.line}"
    return ""


def _student(book: Gradebook, its_id: str, name: str) -> Student | str:
    """Whom a row is about; or why nobody knows."""
    found = [student for student in book.students if (student.id == its_id if its_id else student.name == name)]
    if len(found) != 1:
        return f"there is no student {its_id or name!r}" if not found else f"there are several {its_id or name!r}"
    if its_id and name and neutral(name) != neutral(found[0].name):
        return f"the id {its_id} is that of {found[0].name}, and the row says {name}"
    return found[0]


def _number(text: str) -> float | None:
    """A number as spreadsheets write it, with a comma too."""
    try:
        number = float(text.replace(",", "."))
    except ValueError:
        return None
    return number if math.isfinite(number) and abs(number) <= LARGEST else None


def _with(student: Student, said: Mapping[tuple[str, str], _Said]) -> Student:
    marks = [mark for mark in student.marks if mark.puzzle]
    if (student.name, "") in said:
        marks.append(Mark(""))
    return replace(student, marks=tuple(_marked(mark, said.get((student.name, mark.puzzle))) for mark in marks))


def _marked(mark: Mark, said: _Said | None) -> Mark:
    return mark if said is None else replace(mark, by_hand=said.points, comment="\n".join(said.comments))


def to_fill_in(book: Gradebook, path: Path) -> None:
    """Writes a file of marks with a row for each student and puzzle that is there, for somebody to fill in."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for student in book.students:
        for score in student.scores:
            if score.state != "absent":
                writer.writerow([neutral(student.id), neutral(student.name), score.puzzle, "", ""])
    write_whole(ready(path), ("\ufeff" + text.getvalue()).encode("utf-8", "replace"))
