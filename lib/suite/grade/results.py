"""What grading leaves in its folder for other programs: a row of FORMS for each file, of RETURNS for each platform.

scores.csv has a row for each student, for a spreadsheet: columns of the student; of each puzzle in turn, called after
it (`fsdp`, `fsdp goal`, ...; COLUMNS says what they hold); the name of the file in feedback/, what people wrote, and
notes; and further columns of the roster. It is UTF-8 with a byte order mark, without which Excel takes names for
another encoding. What begins like a formula has an apostrophe before it: no spreadsheet runs what a student is called.

Learning platforms take back points in a CSV with their columns, and feedback in a zip with their names. Where the
roster is the platform's own export, its rows and cells are kept as they are and the points are filled in; else the
columns that it needs are made of what the names of its files say.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from lib.files import ready, write_whole
from lib.suite.grade.gradebook import Asked, Gradebook, Mark, Score, Student
from lib.suite.grade.intake.roster import CONTROLS, Roster, neutral
from lib.suite.grade.intake.submission import Collected, Submission
from lib.suite.submissions.source import STATES

# -- names ---------------------------------------------------------------------------------------------------------

LONGEST: Final = 40  # letters of a name that a person can recognise; the digest behind it tells names apart
DIGITS: Final = 8


def file_names(students: Sequence[str]) -> list[str]:
    """The name of the file of each student, without its ending: "anna-schmidt-1f0c2d3e".

    It follows from the student's name alone: only where two digests begin alike they are longer. Letters are a-z, so
    nothing depends on a system's alphabet or capitals. Two rows of one name are numbered in their order.
    """
    digests = [sha256(name.encode("utf-8", "surrogatepass")).hexdigest() for name in students]
    short = Counter(digest[:DIGITS] for digest in dict.fromkeys(digests))
    seen = Counter[str]()
    found: list[str] = []
    for name, digest in zip(students, digests, strict=True):
        seen[digest] += 1
        letters = unicodedata.normalize("NFKD", name[: 10 * LONGEST].casefold()).encode("ascii", "ignore").decode()
        plain = re.sub(r"[^a-z0-9]+", "-", letters).strip("-")[:LONGEST].strip("-") or "student"
        kept = digest[:DIGITS] if short[digest[:DIGITS]] == 1 else digest
        found.append(f"{plain}-{kept}" if seen[digest] == 1 else f"{plain}-{kept}-{seen[digest]}")
    return found


def is_ours(stem: str) -> bool:
    """Return whether a file was called so by `file_names`."""
    return re.fullmatch(rf"[a-z0-9-]+-([0-9a-f]{{{DIGITS}}}|[0-9a-f]{{64}})(-\d+)?", stem) is not None


# -- scores --------------------------------------------------------------------------------------------------------

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a puzzle: what stands behind the puzzle's id, what it means, and what it holds."""

    name: str
    about: str
    of: Callable[[Score, Asked, Mark], Cell]


COLUMNS: Final[tuple[Column, ...]] = (
    Column("", f"its state: {', '.join([*STATES][:-1])} or {[*STATES][-1]}", lambda s, _, __: s.state),
    Column(
        "goal",
        "the best goal reached at the puzzle's own size",
        lambda s, _, __: s.own.goals[-1] if s.own.goals else None,
    ),
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
    writer = csv.writer(text, lineterminator="\n")
    columns = [f"{one.puzzle} {column.name}".strip() for one in book.asked for column in COLUMNS]
    more = list(dict.fromkeys(heading for student in book.students for heading, _ in student.more))
    first = ["id", "student", "passed", "of", "points", "points of", *columns, "feedback", "comments", "notes"]
    writer.writerow([*first, *(neutral(f"roster: {one}" if one in first else one) for one in more)])
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
        writer.writerow(neutral(cell) if isinstance(cell, str) else cell for cell in row)
    return "\ufeff" + text.getvalue()


# -- junit ---------------------------------------------------------------------------------------------------------

# Characters that no XML may have, not even escaped.
ILLEGAL: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_of(book: Gradebook) -> str:
    """The text of junit.xml, which CI systems read: a suite for each student, a test for each puzzle, and a suite of
    what is refused. Whatever did not pass is a failure, also what is absent; what is refused is an error."""
    asked, count = len(book.asked), len(book.refused)
    failures = sum(asked - student.passed for student in book.students)
    counts = f'tests="{asked * len(book.students) + count}" failures="{failures}" errors="{count}"'
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f'<testsuites name="puzzles grade" {counts}>']
    for student in book.students:
        name, failures = _attribute(student.name), asked - student.passed
        lines.append(f'  <testsuite name={name} tests="{asked}" failures="{failures}" errors="0">')
        for score in student.scores:
            case = f"    <testcase classname={name} name={_attribute(score.puzzle)}"
            if score.state == "passed":
                lines.append(f"{case}/>")
                continue
            first, text = _attribute(score.message.partition("\n")[0]), escape(ILLEGAL.sub("\ufffd", score.message))
            failure = f"      <failure type={_attribute(score.state)} message={first}>{text}</failure>"
            lines += f"{case}>", failure, "    </testcase>"
        lines.append("  </testsuite>")
    if book.refused:
        lines.append(f'  <testsuite name="refused" tests="{count}" failures="0" errors="{count}">')
        for one in book.refused:
            case = f"    <testcase classname={_attribute(one.student or 'refused')} name={_attribute(one.file)}>"
            lines += case, f'      <error type="refused" message={_attribute(one.why)}/>', "    </testcase>"
        lines.append("  </testsuite>")
    return "\n".join((*lines, "</testsuites>", ""))


def _attribute(text: str) -> str:
    """Between quotes, on one line."""
    return quoteattr(ILLEGAL.sub("\ufffd", text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


# -- forms ---------------------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """A file, what it is for, and what makes its text of a gradebook."""

    file: str
    about: str
    text_of: Callable[[Gradebook], str]


FORMS: Final[tuple[Form, ...]] = (
    Form("scores.csv", "a row for each student, for a spreadsheet", csv_of),
    Form("gradebook.json", "everything, for programs", Gradebook.to_json),
    Form("junit.xml", "a test for each puzzle of each student, for CI", junit_of),
)


def write_results(book: Gradebook, out: str | Path) -> list[Path]:
    """Write a gradebook in every form, each file whole or not at all. The same gradebook gives the same bytes."""
    written = [Path(out, form.file) for form in FORMS]
    for path, form in zip(written, FORMS, strict=True):
        # Half a character, which Python has and UTF-8 has not, becomes a question mark.
        write_whole(ready(path), form.text_of(book).encode("utf-8", "replace"))
    return written


# -- platforms -----------------------------------------------------------------------------------------------------

TITLE: Final = "LLM Training Puzzles"
LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)  # the time of every file in a zip: the same bytes every time


@dataclass(frozen=True, slots=True)
class Class:
    """A graded class with what a platform needs to know of it: the roster, and by name what was handed in."""

    book: Gradebook
    roster: Roster
    submissions: Mapping[str, Submission]

    @property
    def title(self) -> str:
        """Return what the exercise is called."""
        return CONTROLS.sub(" ", self.book.title).strip() or TITLE

    def own(self, platform: str) -> bool:
        """Return whether the roster is an export of this platform."""
        return platform in {one.platform for one in RETURNS if one.headings <= set(self.roster.headings)}

    def rows(self, platform: str) -> list[tuple[Mapping[str, str], str, Student]]:
        """The students whose id a platform knows, with their cells in the roster and that id, in its order. The ids of
        a roster are the platform's where no name of a file says otherwise."""
        people = {person.id: person.cells for person in self.roster.people if person.id}
        order = {its_id: number for number, its_id in enumerate(people)}
        given = {
            name: one.id
            for name, one in self.submissions.items()
            if one.platform == platform and one.id and one.id != one.roster_id
        }
        own = self.own(platform)
        other = any(self.submissions[name].roster_id for name in given)

        def known_as(student: Student) -> str:
            if own:
                return student.id if student.id in people else ""
            return given.get(student.name) or ("" if other else student.id)

        students = sorted(self.book.students, key=lambda student: order.get(student.id, len(order)))
        return [(people.get(one.id, {}), its_id, one) for one in students if (its_id := known_as(one))]


Table = list[list[str]]


class Return(NamedTuple):
    """A platform: what it is called, as in the names of files; the headings by which its own export is known; the table
    that it takes back; what stands before the name of a file that goes to a student ("": no way is known); and where
    the forms of both are `documented`."""

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


def _moodle(group: Class) -> Table:
    own = group.roster.headings if group.own("Moodle") else ()
    headings = own or ("Identifier", "Full name", "Grade", "Maximum Grade", "Last modified (grade)")
    table = [[*headings, *(() if "Feedback comments" in headings else ("Feedback comments",))]]
    for cells, its_id, student in group.rows("Moodle"):
        said = (f"{mark.puzzle}: {mark.comment}".removeprefix(": ") for mark in student.marks if mark.comment)
        points = f"{_number(student.points)} of {_number(student.of)} points."
        filled = {
            "Identifier": f"Participant {its_id}",
            "Full name": student.name,
            "Maximum Grade": _number(student.of),
            "Last modified (grade)": "-",
            **(cells if own else {}),
            "Feedback comments": CONTROLS.sub(" ", " ".join([points, *said])),
        }
        filled["Grade"] = _scaled(student.points, student.of, filled["Maximum Grade"])
        table.append([filled.get(heading, "") for heading in table[0]])
    return table


def _canvas(group: Class) -> Table:
    first = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
    title = re.compile(rf"{re.escape(group.title)} \(\d+\)")
    column = next((heading for heading in group.roster.headings if title.fullmatch(heading)), group.title)
    of_columns = (row.cells for row in group.roster.others if row.cells.get("Student") == "Points Possible")
    students = group.book.students
    most = next(of_columns, dict[str, str]()).get(column) or _number(students[0].of if students else 0.0)
    table = [[*first, column], ["    Points Possible", "", "", "", "", most]]
    for cells, its_id, student in group.rows("Canvas"):
        known = {"Student": student.name, "ID": its_id, **(cells if group.own("Canvas") else {})}
        table.append([*(known.get(heading, "") for heading in first), _scaled(student.points, student.of, most)])
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


# It is found by the names of its files, or by its own export.
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


def returning(collected: Collected, roster: Roster, also: Sequence[str] = ()) -> list[Return]:
    """The platforms to which a class goes back: that named its files, whose export the roster is, or that are named."""
    known = {name.casefold() for name in (*also, *(submission.platform for submission in collected.submissions))}
    return [one for one in RETURNS if one.platform.casefold() in known or one.headings <= set(roster.headings)]


def write_returns(group: Class, platforms: Sequence[Return], out: Path) -> list[Path]:
    """Write what each platform takes back, of the feedback that is there, and take away what an earlier grading wrote
    for others. The same class gives the same bytes."""
    names = [student.name for student in group.book.students]
    pages = dict(zip(names, (out / "feedback" / f"{file}.html" for file in file_names(names)), strict=True))
    written: list[Path] = []
    for one in RETURNS:
        rows = one.table(group) if one in platforms and one.table is not None else []
        known = [(student, its_id) for _, its_id, student in group.rows(one.platform)] if one in platforms else []
        befores = ((one.before(student, its_id, group.submissions[student.name]), student) for student, its_id in known)
        files = {f"{before}feedback.html": pages[student.name] for before, student in befores if before}
        name = one.platform.casefold()
        for path, data in ((out / f"{name}.csv", _csv(rows)), (out / f"feedback-{name}.zip", _zip(files))):
            if data:
                write_whole(ready(path), data)
                written.append(path)
            else:
                path.unlink(missing_ok=True)
    return written


def _csv(rows: Table) -> bytes:
    """A table without a byte order mark, which platforms take for a part of the first heading."""
    if len(rows) < 2:
        return b""
    text = io.StringIO()
    cells = ([cell if cell.startswith("    ") else neutral(cell) for cell in row] for row in rows)
    csv.writer(text, lineterminator="\r\n").writerows(cells)
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
