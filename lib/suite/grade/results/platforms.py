"""What learning platforms take back: points in a CSV with their columns, and feedback in a zip with their names.

A platform is a row of RETURNS. Where the roster is the platform's own export, its rows and cells are kept as they are
and the points are filled in; else the columns that it needs are made of what the names of its files say.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from lib.files import ready, write_whole
from lib.suite.grade.gradebook import Gradebook, Student
from lib.suite.grade.intake.submission import Collected, Submission
from lib.suite.grade.people.roster import Roster
from lib.suite.grade.people.tables import CONTROLS, neutral
from lib.suite.grade.results.names import file_names

__all__ = ["RETURNS", "Class", "Return", "returning", "write_returns"]

TITLE: Final = "LLM Training Puzzles"
FEEDBACK: Final = "feedback.html"
LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file in a zip: the same bytes every time."""


@dataclass(frozen=True, slots=True)
class Class:
    """A graded class with what a platform needs to know of it: the roster, and what was handed in, by the names of the
    students."""

    book: Gradebook
    roster: Roster
    submissions: Mapping[str, Submission]

    @property
    def title(self) -> str:
        """What the exercise is called."""
        return CONTROLS.sub(" ", self.book.title).strip() or TITLE

    @property
    def of(self) -> float:
        """How many points there are."""
        return self.book.students[0].of if self.book.students else 0.0

    def own(self, platform: str) -> bool:
        """Whether the roster is an export of this platform."""
        return any(one.platform == platform and one.headings <= set(self.roster.headings) for one in RETURNS)

    def rows(self, platform: str) -> list[tuple[Mapping[str, str], str, Student]]:
        """The students whose id a platform knows, with their cells in the roster and that id, in its order.

        The ids of a roster are the platform's where no name of a file says otherwise.
        """
        people = {person.id: person.cells for person in self.roster.people if person.id}
        order = {its_id: number for number, its_id in enumerate(people)}
        given = {
            name: one.id
            for name, one in self.submissions.items()
            if one.platform == platform and one.id and one.id != one.roster_id
        }
        own = self.own(platform)
        other = not own and any(self.submissions[name].roster_id for name in given)
        found: list[tuple[Mapping[str, str], str, Student]] = []
        for student in sorted(self.book.students, key=lambda student: order.get(student.id, len(order))):
            if own:
                known_as = student.id if student.id in people else ""
            else:
                known_as = given.get(student.name) or ("" if other else student.id)
            if known_as:
                found.append((people.get(student.id, {}), known_as, student))
        return found


Table = list[list[str]]


class Return(NamedTuple):
    """A platform: what it is called, as in the names of files; the headings by which its own export is known; the table
    that it takes back, and what stands before the name of a file that goes to a student ("": no way is known).

    `documented` says where the forms of both are written.
    """

    platform: str
    headings: frozenset[str]
    table: Callable[[Class], Table] | None
    before: Callable[[Student, str, Submission], str]
    documented: tuple[str, ...]


def _number(points: float) -> str:
    return f"{points:.4f}".rstrip("0").rstrip(".")


def _scaled(points: float, of: float, most: str) -> str:
    """Points as the platform counts them, which has a maximum of its own for the exercise."""
    try:
        maximum = float(most.replace(",", "."))
    except ValueError:
        return _number(points)
    return _number(round(points / of * maximum, 4)) if of > 0 and maximum > 0 else _number(points)


def _comments(student: Student) -> str:
    """What people wrote, for a platform's field of comments."""
    said = [f"{mark.puzzle}: {mark.comment}" if mark.puzzle else mark.comment for mark in student.marks if mark.comment]
    return CONTROLS.sub(" ", " ".join([f"{_number(student.points)} of {_number(student.of)} points.", *said]))


def _moodle(group: Class) -> Table:
    own = group.roster.headings if group.own("Moodle") else ()
    headings = own or ("Identifier", "Full name", "Grade", "Maximum Grade", "Last modified (grade)")
    headings = (*headings, *(() if "Feedback comments" in headings else ("Feedback comments",)))
    table = [[*headings]]
    for cells, its_id, student in group.rows("Moodle"):
        filled = {
            "Identifier": f"Participant {its_id}",
            "Full name": student.name,
            "Maximum Grade": _number(student.of),
            "Last modified (grade)": "-",
            **(cells if own else {}),
            "Feedback comments": _comments(student),
        }
        filled["Grade"] = _scaled(student.points, student.of, filled["Maximum Grade"])
        table.append([filled.get(heading, "") for heading in headings])
    return table


def _canvas(group: Class) -> Table:
    first = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
    title = re.compile(rf"{re.escape(group.title)} \(\d+\)")
    column = next((heading for heading in group.roster.headings if title.fullmatch(heading)), group.title)
    others = group.roster.others
    of_columns = next((row.cells for row in others if row.cells.get("Student") == "Points Possible"), dict[str, str]())
    most = of_columns.get(column) or _number(group.of)
    table = [[*first, column], ["    Points Possible", "", "", "", "", most]]
    own = group.own("Canvas")
    for cells, its_id, student in group.rows("Canvas"):
        known = {"Student": student.name, "ID": its_id, **(cells if own else {})}
        points = _scaled(student.points, student.of, most)
        table.append([*(known.get(heading, "") for heading in first), points])
    return table


def _brightspace(group: Class) -> Table:
    first = [heading for heading in ("OrgDefinedId", "Username") if heading in group.roster.headings]
    table = [[*first, f"{group.title} Points Grade", "End-of-Line Indicator"]]
    for cells, _, student in group.rows("Brightspace"):
        table.append([*(cells.get(heading, "") for heading in first), _number(student.points), "#"])
    return table


def _moodle_name(student: Student, its_id: str, _: Submission) -> str:
    """Moodle takes the number between the first two underscores for the participant, whatever the name is."""
    name = re.sub(r"[^\w .,'()-]+|_", " ", student.name).strip()[:60] or "student"
    return f"{name}_{its_id}_assignsubmission_file_" if its_id.isdecimal() else ""


def _as_downloaded(_: Student, __: str, submission: Submission) -> str:
    """Canvas and Brightspace know a file by what they wrote before its name, and so only where something came."""
    return submission.before


RETURNS: Final[tuple[Return, ...]] = (
    Return(
        "Moodle",
        frozenset({"Identifier", "Full name", "Grade"}),
        _moodle,
        _moodle_name,
        (
            "https://github.com/moodle/moodle/blob/main/mod/assign/feedback/offline/importgradeslib.php",
            "https://github.com/moodle/moodle/blob/main/mod/assign/feedback/file/importziplib.php",
        ),
    ),
    Return(
        "Canvas",
        frozenset({"Student", "ID", "SIS Login ID", "Section"}),
        _canvas,
        _as_downloaded,
        (
            "https://community.canvaslms.com/t5/Instructor-Guide/How-do-I-import-grades-in-the-Gradebook/ta-p/807",
            "https://github.com/instructure/canvas-lms, app/models/assignment.rb: infer_comment_context_from_filename",
        ),
    ),
    Return(
        "Brightspace",
        frozenset({"OrgDefinedId", "End-of-Line Indicator"}),
        _brightspace,
        _as_downloaded,
        ("https://community.d2l.com/brightspace/kb/articles/3538-importing-grades",),
    ),
)
"""A row for each platform that takes something back. It is found by the names of its files, or by its own export."""


def returning(collected: Collected, roster: Roster, also: Sequence[str] = ()) -> list[Return]:
    """The platforms to which a class goes back: that named its files, whose export the roster is, or that are named."""
    used = {submission.platform for submission in collected.submissions} | set(also)
    known = {name.casefold() for name in used}
    return [one for one in RETURNS if one.platform.casefold() in known or one.headings <= set(roster.headings)]


def write_returns(group: Class, platforms: Sequence[Return], out: Path) -> list[Path]:
    """Writes what each platform takes back, of the feedback that is there, and takes away what an earlier grading wrote
    for others. The same class gives the same bytes."""
    written: list[Path] = []
    for one in RETURNS:
        name = one.platform.casefold()
        table, feedback = out / f"{name}.csv", out / f"feedback-{name}.zip"
        rows = one.table(group) if one in platforms and one.table is not None else []
        files = _feedback(group, one, out) if one in platforms else {}
        for path, data in ((table, _csv(rows)), (feedback, _zip(files))):
            if data:
                write_whole(ready(path), data)
                written.append(path)
            else:
                path.unlink(missing_ok=True)
    return written


def _feedback(group: Class, one: Return, out: Path) -> dict[str, Path]:
    """The files of feedback by the names that a platform knows them by."""
    files = file_names([student.name for student in group.book.students])
    found: dict[str, Path] = {}
    pages = {
        student.name: out / "feedback" / f"{file}.html"
        for file, student in zip(files, group.book.students, strict=True)
    }
    for _, its_id, student in group.rows(one.platform):
        if before := one.before(student, its_id, group.submissions[student.name]):
            found[f"{before}{FEEDBACK}"] = pages[student.name]
    return found


def _csv(rows: Table) -> bytes:
    """A table without a byte order mark, which platforms take for a part of the first heading."""
    if len(rows) < 2:
        return b""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(
        [cell if cell.startswith("    ") else neutral(cell) for cell in row] for row in rows
    )
    return text.getvalue().encode("utf-8", "replace")


def _zip(files: Mapping[str, Path]) -> bytes:
    if not files:
        return b""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(files.items()):
            info = zipfile.ZipInfo(name.encode("utf-8", "replace").decode(), LONG_AGO)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())
    return data.getvalue()
