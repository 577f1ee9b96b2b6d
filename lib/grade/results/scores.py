"""scores.csv: a row for each student, for a spreadsheet.

The first columns are of the student, the next ones of each puzzle in turn, called after it (`fsdp`, `fsdp goal`, ...;
COLUMNS says what they hold), and the last two have the name of the student's file in feedback/, and notes: on files
that could not be graded, and on what was passed over. A cell of a puzzle that says nothing is empty. The file is UTF-8
with a byte order mark, without which Excel takes names for another encoding. What begins like a formula has an
apostrophe before it, so that no spreadsheet runs what a student is called.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from lib.grade.gradebook import Asked, Gradebook, Score, Student
from lib.grade.results.names import file_names

__all__ = ["COLUMNS", "csv_of"]

MARK: Final = "\ufeff"
CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
FORMULA: Final = ("=", "+", "-", "@", "|", "%")
"""How a cell begins that a spreadsheet might work out."""
Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a puzzle: what stands behind the puzzle's id, what it means, and what it holds of a score."""

    name: str
    about: str
    of: Callable[[Score, Asked], Cell]


COLUMNS: Final[tuple[Column, ...]] = (
    Column("", "passed, missed (correct, and not what is needed), unsolved, failed or absent", lambda s, _: s.state),
    Column("goal", "the best goal reached at the puzzle's own size", lambda s, _: s.goal),
    Column(
        "hidden passed",
        "hidden sizes, or sets of inputs, that passed",
        lambda s, a: s.hidden_passed if a.hidden else None,
    ),
    Column("hidden of", "hidden sizes, or sets of inputs, that are asked", lambda s, a: len(a.hidden) or None),
    Column("time", "when a correct run ends, in time units", lambda s, _: s.own.time),
    Column("memory", "elements on the rank with the highest peak", lambda s, _: s.own.memory),
    Column("sent", "elements that the rank sends that sends most", lambda s, _: s.own.sent),
    Column("hints", "hints opened, if that is recorded", lambda s, _: s.hints),
)


def csv_of(book: Gradebook) -> str:
    """The text of scores.csv."""
    text = io.StringIO()
    text.write(MARK)
    writer = csv.writer(text, lineterminator="\n")
    columns = [f"{one.puzzle} {column.name}".strip() for one in book.asked for column in COLUMNS]
    writer.writerow(["student", "passed", "of", *columns, "feedback", "notes"])
    for student, file in zip(book.students, file_names([student.name for student in book.students]), strict=True):
        writer.writerow([_safe(cell) for cell in _row(book, student, file)])
    return text.getvalue()


def _row(book: Gradebook, student: Student, file: str) -> Iterator[Cell]:
    yield student.name
    yield student.passed
    yield len(book.asked)
    for score, one in zip(student.scores, book.asked, strict=True):
        for column in COLUMNS:
            yield None if score.state == "absent" and column.name else column.of(score, one)
    yield f"{file}.html"
    refused = (f"could not be graded: {one.file}: {one.why}" for one in book.refused_of(student))
    yield "; ".join((*refused, *student.notes))


def _safe(cell: Cell) -> Cell:
    """A cell of one line that no spreadsheet takes for a formula, with whole numbers written as such."""
    if isinstance(cell, str):
        text = CONTROLS.sub(" ", cell).strip()
        return f"'{text}" if text.startswith(FORMULA) else text
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell
