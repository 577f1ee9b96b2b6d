"""Writes what grading leaves in its folder for other programs: two files, and what a platform takes back.

scores.csv has a row for each student (COLUMNS lists the columns of a puzzle). It is UTF-8 with a byte order mark,
without which Excel assumes another encoding. A cell that begins like a formula gets an apostrophe in front. upload.csv
is the roster with the points in one of its columns, and feedback.zip has the pages under the platform's names.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from lib.files import ready, write_whole, zipped
from lib.suite.grade.gradebook import Asked, Gradebook, Mark, Score
from lib.suite.grade.intake.roster import Roster, written
from lib.suite.grade.intake.submission import Collected
from lib.suite.submissions.source import STATES

LONGEST: Final = 40  # letters of a name, enough to recognise it; the digest after it tells names apart
DIGITS: Final = 8


def file_names(students: Sequence[str]) -> list[str]:
    """Return the name of each student's file, without its ending: "anna-schmidt-1f0c2d3e".

    It depends only on the student's name, which is unique: digests are longer only if two begin alike. Letters are a-z,
    so nothing depends on a system's alphabet or capitals.
    """
    digests = [sha256(name.encode("utf-8", "surrogatepass")).hexdigest() for name in students]
    short = Counter(digest[:DIGITS] for digest in digests)
    found: list[str] = []
    for name, digest in zip(students, digests, strict=True):
        letters = unicodedata.normalize("NFKD", name[: 10 * LONGEST].casefold()).encode("ascii", "ignore").decode()
        plain = re.sub(r"[^a-z0-9]+", "-", letters).strip("-")[:LONGEST].strip("-") or "student"
        found.append(f"{plain}-{digest[:DIGITS] if short[digest[:DIGITS]] == 1 else digest}")
    return found


def is_ours(stem: str) -> bool:
    """Tell whether a file's name may come from `file_names`."""
    return re.fullmatch(rf"[a-z0-9-]+-([0-9a-f]{{{DIGITS}}}|[0-9a-f]{{64}})", stem) is not None


# -- scores --------------------------------------------------------------------------------------------------------

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a puzzle: its name after the puzzle's id, what it means, and what it holds."""

    name: str
    about: str
    of: Callable[[Score, Asked, Mark], Cell]


COLUMNS: Final[tuple[Column, ...]] = (
    Column("", f"its state: {', '.join([*STATES][:-1])} or {[*STATES][-1]}", lambda s, _, __: s.state),
    Column("goal", "the best goal reached at the puzzle's own size", lambda s, _, __: [None, *s.own.goals][-1]),
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
    """Return the text of scores.csv."""
    columns = [f"{one.puzzle} {column.name}".strip() for one in book.asked for column in COLUMNS]
    more = list(dict.fromkeys(heading for student in book.students for heading, _ in student.more))
    first = ["id", "student", "passed", "of", "points", "points of", *columns, "feedback", "comments", "notes"]
    rows: list[list[Cell]] = [[*first, *(f"roster: {one}" if one in first else one for one in more)]]
    for student, file in zip(book.students, file_names([student.name for student in book.students]), strict=True):
        row: list[Cell] = [student.id, student.name, student.passed, len(book.asked), student.points, student.of]
        for score, one in zip(student.scores, book.asked, strict=True):
            cells = (column.of(score, one, student.mark(one.puzzle)) for column in COLUMNS)
            row += (score.state, *[None] * (len(COLUMNS) - 1)) if score.state == "absent" else cells
        comments = (f"{mark.puzzle}: {mark.comment}".removeprefix(": ") for mark in student.marks if mark.comment)
        refused = (f"could not be graded: {one.file}: {one.why}" for one in book.refused_of(student))
        row += f"{file}.html", "; ".join(comments), "; ".join((*refused, *student.notes))
        for number, cell in enumerate(row := [*row, *map(dict(student.more).get, more)]):
            if isinstance(cell, float) and cell.is_integer():
                row[number] = int(cell)
        rows.append(row)
    return "\ufeff" + written(rows)


def write_results(book: Gradebook, out: str | Path) -> list[Path]:
    """Write a gradebook as a table and, with everything, as JSON. The same gradebook gives the same bytes."""
    texts = {Path(out, "scores.csv"): csv_of(book), Path(out, "gradebook.json"): book.to_json()}
    for path, text in texts.items():
        # A lone surrogate, which Python allows and UTF-8 does not, becomes a question mark.
        write_whole(ready(path), text.encode("utf-8", "replace"))
    return [*texts]


# -- back to a platform --------------------------------------------------------------------------------------------


def write_points(book: Gradebook, roster: Roster, column: str, out: Path) -> Path:
    """Write upload.csv: the roster's rows and cells as they were, with each student's points in a column."""
    points = {student.id: f"{student.points:.4f}".rstrip("0").rstrip(".") for student in book.students if student.id}
    filled = {one.line: {column: points[one.id]} for one in roster.people if one.id in points}
    cells = ({**row.cells, **filled.get(row.line, {})} for row in roster.rows)
    rows = ([row[heading] for heading in roster.headings] for row in cells)
    # No byte order mark: platforms take it for a part of the first heading.
    text = written([roster.headings, *rows], "\r\n")
    write_whole(ready(path := out / "upload.csv"), text.encode("utf-8", "replace"))
    return path


def write_feedback(book: Gradebook, collected: Collected, out: Path) -> Path | None:
    """Write feedback.zip: the pages of students whose files a platform named, under those names. Return None if it
    named none."""
    names = [student.name for student in book.students]
    pages = dict(zip(names, file_names(names), strict=True))
    # Moodle's folders become beginnings of names.
    files = {
        f"{re.sub('_/$', '_', one.before)}feedback.html": one.student for one in collected.submissions if one.before
    }
    path = out / "feedback.zip"
    if not files:
        path.unlink(missing_ok=True)
        return None
    named = {name.encode("utf-8", "replace").decode(): files[name] for name in sorted(files)}
    write_whole(path, zipped({n: (out / "feedback" / f"{pages[who]}.html").read_bytes() for n, who in named.items()}))
    return path
