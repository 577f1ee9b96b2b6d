"""Reads the tables that people write: the roster, which assigns hand-ins to people, and marks by hand.

A table is CSV of any dialect and encoding; a damaged row costs only that row. The roster lists everybody in the class,
from a list of your own or from a platform's export. It has a heading for an id and one for a name, as in names.toml;
all other columns are kept. Two of them are read: `deadline`, an extension for one person, and SUBMITTED.
Marks by hand have a row per student and puzzle, or without a puzzle for the whole submission. Points are added.

    id,student,puzzle,points,comment
    410003,Ann Lee,ddp,2,"A good sentence on why rank 0 waits."
"""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from lib.files import ready, write_whole
from lib.suite.grade.gradebook import BY_HAND, Gradebook, Mark, Refused, Rules, Student
from lib.suite.grade.intake.archives import KNOWN
from lib.suite.grade.intake.submission import Collected, Submission, decoded, readable, told_apart

MOST_BYTES: Final = 20_000_000
MOST_LINES: Final = 200  # of one row: the most that an unclosed quotation mark can swallow
DELIMITERS: Final = ",;\t"
CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
FORMULA: Final = ("=", "+", "-", "@", "|", "%")  # beginnings of cells that a spreadsheet might evaluate
# Cells that begin so but are not formulas: a number, and the dash that platforms write for an empty cell.
HARMLESS: Final = re.compile(r"-|[+-]?\d+(?:[.,]\d+)?%?")


class TableError(ValueError):
    """A file that holds no readable table. Says which, what was expected and how to fix it."""


class Row(NamedTuple):
    """The cells of a row by heading, and the line of the file where it begins."""

    line: int
    cells: Mapping[str, str]


class Table(NamedTuple):
    """The headings of a table, its rows, and `problems`: what could not be read, and on which line."""

    headings: tuple[str, ...]
    rows: tuple[Row, ...]
    problems: tuple[str, ...]


def neutral(text: str) -> str:
    """Return a cell's text on one line, safe from being taken for a formula."""
    text = CONTROLS.sub(" ", text).strip()
    return f"'{text}" if text.startswith(FORMULA) and not HARMLESS.fullmatch(text) else text


def written(rows: Iterable[Sequence[object]], end: str = "\n") -> str:
    """Return the text of a table whose cells no spreadsheet takes for formulas."""
    text = io.StringIO()
    safe = ([neutral(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    csv.writer(text, lineterminator=end).writerows(safe)
    return text.getvalue()


def plain(text: str) -> str:
    """Return the text that `neutral` turned into this."""
    return text[1:] if text.startswith("'") and text[1:].startswith(FORMULA) else text


def moment(text: str) -> datetime | None:
    """Return a time without its time zone; None if the text is not a time."""
    text = text.strip()
    for form in (None, *KNOWN["times"]["forms"]) if text else ():  # most texts are empty
        try:
            found = datetime.fromisoformat(text) if form is None else datetime.strptime(text, form)
        except ValueError:
            continue
        return found.replace(tzinfo=None)
    return None


def read_table(path: Path) -> Table:
    """Read a table whose first row has headings. TableError if there is none; OSError if there is no file."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise TableError(f"{path.name} has more than {MOST_BYTES // 1_000_000} MB: that is not a table of a class")
    if data.startswith(b"PK\3\4"):
        raise TableError(f"{path.name} is a workbook (.xlsx)\n  fix: save it as CSV, in UTF-8 if you are asked")
    text, odd = decoded(data)
    problems: list[str] = []
    if odd is not None:
        line = data.count(b"\n", 0, odd) + 1
        also = "is not UTF-8 and is read as Windows-1252; look at the letters with accents"
        problems.append(f"{path.name}, line {line}: {also}\n  fix: save the file as CSV UTF-8")
    lines = list(io.StringIO(text, newline=""))
    first = next((line for line in lines if line.strip()), "")
    found = _records(path.name, lines, max(DELIMITERS, key=first.count), problems)
    names, seen = list[str](), Counter[str]()
    for cell in next(found, (0, list[str]()))[1]:
        name = CONTROLS.sub(" ", plain(cell)).strip()
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    if len(names) < 2:
        raise TableError(f"{path.name} has no headings\n  expected: a first row such as id,name\n  got: {first[:60]!r}")
    rows: list[Row] = []
    for line, cells in found:
        if any(cell.strip() for cell in cells[len(names) :]):
            problems.append(
                f"{path.name}, line {line}: has {len(cells)} cells under {len(names)} headings; what is behind the "
                "last heading is not used\n  fix: put quotation marks around a cell that has a comma in it"
            )
        padded = [*cells, *[""] * (len(names) - len(cells))]
        rows.append(Row(line, {name: plain(cell.strip()) for name, cell in zip(names, padded, strict=False)}))
    return Table(tuple(names), tuple(rows), tuple(problems))


def _records(name: str, lines: list[str], delimiter: str, problems: list[str]) -> Iterator[tuple[int, list[str]]]:
    """The rows with the lines where they begin. A line that is not a row is reported, and reading goes on."""
    at = 0
    while at < len(lines):
        reader = csv.reader(lines[at : at + MOST_LINES], delimiter=delimiter, strict=True)
        try:
            cells = next(reader)
        except csv.Error as error:
            problems.append(
                f"{name}, line {at + 1}: is not used: {error}\n  got: {lines[at].strip()[:60]!r}\n"
                "  fix: a cell that begins with a quotation mark ends with one, and those inside it are doubled"
            )
            at += 1
            continue
        if any(cell.strip() for cell in cells):
            yield at + 1, cells
        at += reader.line_num


# -- roster --------------------------------------------------------------------------------------------------------

COLUMNS: Final[dict[str, list[str]]] = KNOWN["columns"]
NAMES: Final = (*((name,) for name in COLUMNS["name"]), *KNOWN["columns"]["names"])
SUBMITTED: Final = ("submitted", "last modified (submission)")
DEADLINE: Final = "deadline"
ALIAS: Final = "alias"  # the name a student wants the class to see
NO_STUDENT: Final = ("points possible", "")  # the student's name in Canvas's rows about columns


@dataclass(frozen=True, slots=True)
class Person:
    """A person in the roster: `id` and `name`, all cells of the row, and its line."""

    id: str
    name: str
    cells: Mapping[str, str] = field(default_factory=dict[str, str])
    line: int = 0

    def cell(self, *names: str) -> str:
        """Return the first cell under one of these lower-case headings, in any case, that is not empty."""
        every = {heading.casefold(): text for heading, text in self.cells.items()}
        return next((every[name] for name in names if every.get(name)), "")


class Roster(NamedTuple):
    """The people of a class in the file's order, its headings, its rows as they were, its `problems`, and the headings
    of the id and the name (`own`)."""

    people: tuple[Person, ...] = ()
    headings: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    problems: tuple[str, ...] = ()
    own: tuple[str, ...] = ()


def read_roster(path: Path) -> Roster:
    """Read the roster in a file. A row that is damaged, or has another's id, is named in `problems`. TableError if
    there is no column for ids or none for names; OSError if there is no file."""
    table = read_table(path)
    by_name = {heading.casefold(): heading for heading in reversed(table.headings)}
    id_heading = next((by_name[name] for name in COLUMNS["ids"] if name in by_name), None)
    names = next((tuple(by_name[one] for one in several) for several in NAMES if set(several) <= set(by_name)), ())
    if id_heading is None or not names:
        what, like = ("ids", COLUMNS["ids"]) if id_heading is None else ("names", COLUMNS["name"])
        raise TableError(
            f"{path.name} has no column of {what}\n  expected: a heading such as {', '.join(like)}\n"
            f"  got:      {', '.join(table.headings)[:200]}\n"
            "  fix:      rename a heading; a platform's export needs its language set to English"
        )
    problems, people = list(table.problems), list[Person]()
    taken: dict[str, Person] = {}
    for row in table.rows:
        name = " ".join(filter(None, (row.cells[one] for one in names)))
        # Platforms decorate ids: `Participant 12345` (Moodle), `#12345` (Brightspace).
        its_id = row.cells[id_heading]
        its_id = bare[1] if (bare := re.fullmatch(r"(?:\D* )?(\d+)", its_id)) else its_id.removeprefix("#")
        where = f"{path.name}, line {row.line}"
        if not its_id and name.casefold() in NO_STUDENT:
            continue
        if not its_id:
            problems.append(f"{where}: {name} has no id, and is known by name alone")
        elif (before := taken.get(_key(its_id))) is not None:
            same = _words(before.name) == _words(name)
            kept = "is not used" if same else f"{name} is known by name alone"
            problems.append(f"{where}: the id {its_id} is that of line {before.line}, {before.name}; {kept}")
            if same:
                continue
            its_id = ""
        person = Person(its_id, name or its_id, row.cells, row.line)
        taken.setdefault(_key(its_id), person)
        people.append(person)
        problems += (
            f"{where}: {said!r} is not a time that is understood, such as 2026-11-01 23:59"
            for said in map(person.cell, (DEADLINE, *SUBMITTED))
            if said not in ("", "-") and moment(said) is None
        )
    return Roster(tuple(people), table.headings, table.rows, tuple(problems), (id_heading, *names))


# -- owners of hand-ins -----------------------------------------------------------------------------------------


def enrolled(collected: Collected, roster: Roster) -> tuple[Collected, tuple[str, ...]]:
    """Assign hand-ins by the roster. Return one for everybody in it, under its name and id, empty if nothing came; and,
    in words, what belongs to nobody in the roster, or is ambiguous."""
    people = roster.people
    by_id, by_login, by_name = (defaultdict[object, list[int]](list) for _ in range(3))
    for number, person in enumerate(people):
        logins = [person.id, *(person.cell(login) for login in COLUMNS["logins"])]
        logins = dict.fromkeys(_key(text) for one in logins for text in (one, one.partition("@")[0]))
        for index, keys in ((by_id, [_key(person.id)]), (by_login, logins), (by_name, [_words(person.name)])):
            for key in filter(None, keys):
                index[key].append(number)
    theirs: dict[int, list[Submission]] = defaultdict(list)
    strangers: list[Submission] = []
    problems: list[str] = []
    for submission in collected.submissions:
        student = submission.student
        shown = re.sub(r" \([^()]*\)$| \[\d+\]$", "", student) if submission.id else student
        ids = by_id.get(_key(submission.id)) or by_login.get(_key(submission.id or shown), [])
        ids = ids if len(ids) == 1 else []  # an id that several share is nobody's
        names = by_name.get(_words(shown), [])
        if ids and not names and not _may_be(people[ids[0]].name, shown):
            problems.append(
                f"{student} handed in under the id {submission.id}, which is that of {people[ids[0]].name} in the "
                "roster; nobody gets it\n  fix: put the right id or name there"
            )
            ids = []
        elif ids and len(names) == 1 and ids != names:
            problems.append(
                f"{student} has the name of line {people[names[0]].line} of the roster and the id of line "
                f"{people[ids[0]].line}; nobody gets it\n  fix: put the right id there"
            )
            ids, names = [], []
        if ids or len(names) == 1:
            theirs[(ids or names)[0]].append(submission)
        else:
            strangers.append(submission)
            why = "has a name that several in the roster have" if len(names) > 1 else "is not in the roster"
            problems.append(f"{student} handed something in and {why}; the row is marked")
    shown_names = told_apart([(readable(one.name), one.id) for one in people], [one.student for one in strangers])
    renamed: dict[str, str] = {}
    submissions: list[Submission] = []
    for number, (person, name) in enumerate(zip(people, shown_names, strict=False)):
        several = theirs.get(number, [Submission(person.name, ())])
        renamed |= {one.student: name for one in several}
        more = tuple((heading, text) for heading, text in person.cells.items() if heading not in roster.own)
        # Handed in in one place or in several, such as two platforms.
        together = replace(
            next((one for one in several if one.id), several[0]),
            student=name,
            files=tuple(file for one in several for file in one.files),
            notes=tuple(note for one in several for note in one.notes),
            roster_id=person.id,
            late=any(one.late for one in several),
            more=more,
        )
        submissions.append(together)
    for stranger, name in zip(strangers, shown_names[len(people) :], strict=True):
        renamed[stranger.student] = name
        submissions.append(replace(stranger, student=name, notes=(*stranger.notes, "not in the roster")))
    submissions.sort(key=lambda one: (one.student.casefold(), one.student))
    refused = tuple(Refused(one.file, one.why, renamed.get(one.student, one.student)) for one in collected.refused)
    return Collected(tuple(submissions), refused, collected.notes), tuple(problems)


def _key(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip().removeprefix("#").casefold()


def _words(name: str) -> tuple[str, ...]:
    """A name's words, whatever their order and punctuation: `Lee, Ann` is `Ann Lee`."""
    return tuple(sorted(re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", name).casefold())))


def _may_be(name: str, shown: str) -> bool:
    """Tell whether a platform may show this name for a person: it contains a word of theirs, or is anonymous."""
    letters = "".join(re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", shown).casefold()))
    long = [word for word in _words(name) if len(word) > 1 or not word.isascii()]
    return not re.search(r"[^\W\d_]", shown) or "participant" in letters or any(word in letters for word in long)


# -- marks by hand -------------------------------------------------------------------------------------------------

OF_MARKS: Final = ("id", "student", "puzzle", "points", "comment")
LARGEST: Final = 10_000
LONGEST: Final = 10_000  # characters of a comment


def by_hand(book: Gradebook, paths: Sequence[Path], rules: Rules) -> Gradebook:
    """Return a gradebook with the marks in the files. A row that cannot be used is named in `problems`; all others
    count. TableError for a file without readable rows; OSError if there is no file."""
    said: dict[tuple[str, str], Mark] = {}
    places: dict[tuple[str, str], str] = {}
    asked = [one.puzzle for one in book.asked]

    def take(cells: Mapping[str, str], place: str) -> str:
        """Put one row into `said`, and the place of its points into `places`; return why it is not used in full."""
        its_id, name, puzzle, points_text, comment = (cells[column] for column in OF_MARKS)
        if not points_text and not comment:
            return ""
        found = [student for student in book.students if (student.id == its_id if its_id else student.name == name)]
        if len(found) != 1:
            return f"there {'are several' if found else 'is no student'} {its_id or name!r}; the row is not used"
        if its_id and name and neutral(name) != neutral(found[0].name):
            return f"the id {its_id} is that of {found[0].name}, and the row says {name}; the row is not used"
        if puzzle and puzzle not in asked:
            expected = f"one of {', '.join(asked)}, or nothing for the whole"
            return f"{puzzle!r} is not asked; the row is not used\n  expected: {expected}"
        here = said.setdefault(key := (found[0].name, puzzle), Mark(puzzle))
        if comment:
            here = said[key] = replace(here, comment="\n".join(filter(None, (here.comment, comment[:LONGEST]))))
        if not points_text:
            return ""
        try:
            points = float(points_text.replace(",", "."))  # many countries' spreadsheets write a comma
        except ValueError:
            points = math.nan
        most = rules.weights(puzzle).get(BY_HAND) if puzzle else None
        if not abs(points) <= LARGEST:
            return f"{points_text!r} is not a number; the points are not used\n  expected: such as 2 or 1.5"
        if most is not None and points > most:
            return f"{points:g} points, of which there are {most:g} by hand; the points are not used"
        if here.by_hand is not None:
            return f"{key[0]} has {here.by_hand:g} points there by {places[key]}; these {points:g} are not used"
        said[key], places[key] = replace(here, by_hand=points), place
        return ""

    problems = list(book.problems)
    for path in paths:
        table = read_table(path)
        headings = {heading.casefold(): heading for heading in table.headings}
        if not {"id", "student"} & set(headings) or not {"points", "comment"} & set(headings):
            got = f"{', '.join(table.headings)[:200]}"
            expected = f"expected: {', '.join(OF_MARKS)}\n  got:      {got}"
            raise TableError(f"{path.name} has not the columns of marks\n  {expected}")
        problems += table.problems
        for row in table.rows:
            cells = {name: row.cells[headings[name]] if name in headings else "" for name in OF_MARKS}
            if problem := take(cells, place := f"{path.name}, line {row.line}"):
                problems.append(f"{place}: {problem}")
    students: list[Student] = []
    for student in book.students:
        marks = {mark.puzzle: mark for mark in student.marks if mark.puzzle}
        for puzzle in (*marks, ""):
            if (here := said.get((student.name, puzzle))) is not None:
                marks[puzzle] = replace(marks.get(puzzle, here), by_hand=here.by_hand, comment=here.comment)
        students.append(replace(student, marks=tuple(marks.values())))
    return replace(book, students=tuple(students), problems=tuple(problems))


def to_fill_in(book: Gradebook, path: Path) -> None:
    """Write a file of marks to fill in by hand, with a row for each student and puzzle handed in."""
    rows: list[Sequence[str]] = [OF_MARKS]
    for student in book.students:
        there = [score.puzzle for score in student.scores if score.state != "absent"]
        rows += ([student.id, student.name, puzzle, "", ""] for puzzle in there)
    write_whole(ready(path), ("\ufeff" + written(rows)).encode("utf-8", "replace"))
