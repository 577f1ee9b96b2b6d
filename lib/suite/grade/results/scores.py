"""scores.csv: a row for each student, for a spreadsheet.

The first columns are of the student, the next ones of each puzzle in turn, called after it (`fsdp`, `fsdp goal`, ...;
COLUMNS says what they hold). Then come the name of the student's file in feedback/, what people wrote, and notes: on
files that could not be graded, and on what was passed over. At the end are further columns of the roster. A cell of a
puzzle that says nothing is empty. The file is UTF-8 with a byte order mark, without which Excel takes names for another
encoding. What begins like a formula has an apostrophe before it, so that no spreadsheet runs what a student is called.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from lib.suite.grade.gradebook import Asked, Gradebook, Mark, Score, Student
from lib.suite.grade.people.tables import neutral
from lib.suite.grade.results.names import file_names
from lib.suite.submissions.states import STATES

__all__ = ["COLUMNS", "csv_of"]

MARK: Final = "\ufeff"
Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a puzzle: what stands behind the puzzle's id, what it means, and what it holds of a score and its
    points."""

    name: str
    about: str
    of: Callable[[Score, Asked, Mark], Cell]


COLUMNS: Final[tuple[Column, ...]] = (
    Column("", f"its state: {', '.join([*STATES][:-1])} or {[*STATES][-1]}", lambda s, _, __: s.state),
    Column("goal", "the best goal reached at the puzzle's own size", lambda s, _, __: s.goal),
    Column(
        "hidden passed",
        "hidden sizes, or sets of inputs, that passed",
        lambda s, a, _: s.hidden_passed if a.hidden else None,
    ),
    Column("hidden of", "hidden sizes, or sets of inputs, that are asked", lambda s, a, _: len(a.hidden) or None),
    Column("time", "when a correct run ends, in time units", lambda s, _, __: s.own.time),
    Column("memory", "elements on the rank with the highest peak", lambda s, _, __: s.own.memory),
    Column("sent", "elements that the rank sends that sends most", lambda s, _, __: s.own.sent),
    Column("points", "points, with those by hand", lambda _, __, m: m.total),
    Column("hints", "hints opened, if that is recorded", lambda s, _, __: s.hints),
)


def csv_of(book: Gradebook) -> str:
    """The text of scores.csv."""
    text = io.StringIO()
    text.write(MARK)
    writer = csv.writer(text, lineterminator="\n")
    columns = [f"{one.puzzle} {column.name}".strip() for one in book.asked for column in COLUMNS]
    more = list(dict.fromkeys(heading for student in book.students for heading, _ in student.more))
    first = ["id", "student", "passed", "of", "points", "points of", *columns, "feedback", "comments", "notes"]
    writer.writerow([*first, *(neutral(f"roster: {one}" if one in first else one) for one in more)])
    for student, file in zip(book.students, file_names([student.name for student in book.students]), strict=True):
        cells = dict(student.more)
        writer.writerow([_safe(cell) for cell in (*_row(book, student, file), *(cells.get(one) for one in more))])
    return text.getvalue()


def _row(book: Gradebook, student: Student, file: str) -> Iterator[Cell]:
    yield student.id
    yield student.name
    yield student.passed
    yield len(book.asked)
    yield student.points
    yield student.of
    for score, one in zip(student.scores, book.asked, strict=True):
        for column in COLUMNS:
            yield None if score.state == "absent" and column.name else column.of(score, one, student.mark(one.puzzle))
    yield f"{file}.html"
    said = ((mark.puzzle, mark.comment) for mark in student.marks if mark.comment)
    yield "; ".join(f"{puzzle}: {comment}" if puzzle else comment for puzzle, comment in said)
    refused = (f"could not be graded: {one.file}: {one.why}" for one in book.refused_of(student))
    yield "; ".join((*refused, *student.notes))


def _safe(cell: Cell) -> Cell:
    """A cell of one line that no spreadsheet takes for a formula, with whole numbers written as such."""
    if isinstance(cell, str):
        return neutral(cell)
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell
