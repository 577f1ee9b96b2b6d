"""The roster: everybody in the class, from a list of your own or from a platform's export, and whose each hand-in is.

It is a table that people and platforms write: CSV of any dialect and encoding, in which a damaged row costs that row
alone. It has a heading for an id and one for a name, as in HEADINGS; all other columns are kept. Two of them are read:
`deadline`, an extension for one person, and when they handed in (SUBMITTED), for platforms that say it nowhere else.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from lib.suite.grade.gradebook import Refused
from lib.suite.grade.intake.owners import readable
from lib.suite.grade.intake.submission import Collected, Submission

__all__ = [
    "ALIAS",
    "DEADLINE",
    "SUBMITTED",
    "Roster",
    "Row",
    "TableError",
    "enrolled",
    "moment",
    "neutral",
    "plain",
    "read_roster",
    "read_table",
]

# -- tables --------------------------------------------------------------------------------------------------------

MOST_BYTES: Final = 20_000_000
MOST_LINES: Final = 200
"""Lines of one row: an open quotation mark takes no more with it."""
DELIMITERS: Final = ",;\t"
CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
FORMULA: Final = ("=", "+", "-", "@", "|", "%")
"""How a cell begins that a spreadsheet might work out."""
HARMLESS: Final = re.compile(r"-|[+-]?\d+(?:[.,]\d+)?%?")
"""What begins so and is none: a number, and the dash that platforms write where there is nothing."""

MOMENTS: Final = (
    "%A, %d %B %Y, %I:%M %p",
    "%A, %d %B %Y, %H:%M",
    "%d %B %Y, %I:%M %p",
    "%d %B %Y, %H:%M",
    "%Y-%m-%d-%H-%M-%S",
    "%Y-%m-%d-%H-%M",
)
"""How platforms write a time, besides ISO 8601: Moodle's worksheet in English, and names of files."""


class TableError(ValueError):
    """A file from which no table can be read. Says which, what was expected and how to mend it."""


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a row by their headings, and the line of the file on which it begins."""

    line: int
    cells: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """The headings of a table, its rows, and in words what of it could not be read, with the line."""

    name: str
    headings: tuple[str, ...]
    rows: tuple[Row, ...]
    problems: tuple[str, ...] = ()


def neutral(text: str) -> str:
    """A cell of one line that no spreadsheet takes for a formula."""
    text = CONTROLS.sub(" ", text).strip()
    return f"'{text}" if text.startswith(FORMULA) and not HARMLESS.fullmatch(text) else text


def plain(text: str) -> str:
    """The text of which `neutral` made this."""
    return text[1:] if text.startswith("'") and text[1:].startswith(FORMULA) else text


def moment(text: str) -> datetime | None:
    """A time, by the clock on the wall of who wrote it; None for what is none."""
    text = text.strip()
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        pass
    for form in MOMENTS:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    return None


def read_table(path: Path) -> Table:
    """Read a table whose first row has headings. TableError where there is none; OSError where there is no file."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise TableError(f"{path.name} has more than {MOST_BYTES // 1_000_000} MB: that is no table of a class")
    if data.startswith(b"PK\3\4"):
        raise TableError(f"{path.name} is a workbook (.xlsx)\n  fix: save it as CSV, in UTF-8 if you are asked")
    text, problems = _decoded(path.name, data)
    lines = list(io.StringIO(text, newline=""))
    first = next((line for line in lines if line.strip()), "")
    delimiter = max(DELIMITERS, key=first.count)
    found = _records(path.name, lines, delimiter, problems)
    _, headings = next(found, (0, list[str]()))
    names, seen = list[str](), Counter[str]()
    for cell in headings:
        name = CONTROLS.sub(" ", plain(cell)).strip()
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    if len(names) < 2:
        raise TableError(f"{path.name} has no headings\n  expected: a first row such as id,name\n  got: {first[:60]!r}")
    rows: list[Row] = []
    for line, cells in found:
        if len(cells) > len(names) and any(cell.strip() for cell in cells[len(names) :]):
            problems.append(
                f"{path.name}, line {line}: has {len(cells)} cells under {len(names)} headings; what is behind the "
                "last heading is not used\n  fix: put quotation marks around a cell that has a comma in it"
            )
        padded = [*cells, *[""] * (len(names) - len(cells))]
        rows.append(Row(line, {name: plain(cell.strip()) for name, cell in zip(names, padded, strict=False)}))
    return Table(path.name, tuple(names), tuple(rows), tuple(problems))


def _decoded(name: str, data: bytes) -> tuple[str, list[str]]:
    """The text of a file, and what is to be said of its encoding."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):  # what Excel calls Unicode text
        return data.decode("utf-16", "replace"), []
    try:
        return data.decode("utf-8-sig"), []
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        where = f"{name}, line {line}: is not UTF-8 and is read as Windows-1252; look at the letters with accents"
        return data.decode("cp1252", "replace"), [f"{where}\n  fix: save the file as CSV UTF-8"]


def _records(name: str, lines: list[str], delimiter: str, problems: list[str]) -> Iterator[tuple[int, list[str]]]:
    """The rows with the lines on which they begin. A line that is none is named, and the next one is read."""
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

HEADINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "id": ("id", "identifier", "orgdefinedid", "student id", "student number", "sid", "username"),
    "name": ("name", "full name", "student", "student name"),
}
"""What the columns may be called, in capitals or not; a first and a last name will do for a name."""
FIRST_AND_LAST: Final = (("first name", "last name"), ("first", "last"), ("given name", "surname"))
LOGINS: Final = ("username", "login", "sis login id", "sis user id", "email", "email address", "github", "student id")
"""Other columns by which platforms call people."""
SUBMITTED: Final = ("submitted", "last modified (submission)")
DEADLINE: Final = "deadline"
ALIAS: Final = "alias"
"""How somebody wants to be called where the class sees it."""
NO_STUDENT: Final = ("points possible", "")
"""What stands for a student in Canvas's rows that are about columns."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody in the roster: `id` and `name` as the file has them, all cells of the row, and the line it is on."""

    id: str
    name: str
    cells: Mapping[str, str] = field(default_factory=dict[str, str])
    line: int = 0

    def cell(self, *names: str) -> str:
        """The first cell under one of these headings, in capitals or not, in which something stands."""
        every = {heading.casefold(): text for heading, text in self.cells.items()}
        return next((every[name] for name in names if every.get(name)), "")


@dataclass(frozen=True, slots=True)
class Roster:
    """The people of a class in the order of their file, its headings, the rows that are about columns and not people,
    and what of it is to be looked at."""

    people: tuple[Person, ...] = ()
    headings: tuple[str, ...] = ()
    others: tuple[Row, ...] = ()
    problems: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    """The headings that are the id and the name."""


def read_roster(path: Path) -> Roster:
    """The roster of a file. TableError where it has no column for ids or none for names; OSError where there is none.

    A row that is damaged, or has the id of another, is named in `problems`; nobody is left out for it.
    """
    table = read_table(path)
    names = _names(table.headings)
    id_heading = _heading(table.headings, "id")
    if id_heading is None or not names:
        missing = "ids" if id_heading is None else "names"
        expected = ", ".join(HEADINGS["id" if id_heading is None else "name"])
        raise TableError(
            f"{path.name} has no column of {missing}\n  expected: a heading such as {expected}\n"
            f"  got:      {', '.join(table.headings)[:200]}\n  fix:      rename a heading; a platform's export needs "
            "its language set to English"
        )
    problems, people, others = list(table.problems), list[Person](), list[Row]()
    taken: dict[str, Person] = {}
    for row in table.rows:
        name = " ".join(filter(None, (row.cells[one] for one in names)))
        # Platforms write something around it: `Participant 12345` (Moodle), `#12345` (Brightspace).
        its_id = row.cells[id_heading]
        its_id = bare[1] if (bare := re.fullmatch(r"(?:\D* )?(\d+)", its_id)) else its_id.removeprefix("#")
        where = f"{path.name}, line {row.line}"
        if not its_id and name.casefold() in NO_STUDENT:
            others.append(row)
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
        for heading in (DEADLINE, *SUBMITTED):
            said = person.cell(heading)
            if said not in ("", "-") and moment(said) is None:
                problems.append(f"{where}: {said!r} is no time that is understood, such as 2026-11-01 23:59")
    return Roster(tuple(people), table.headings, tuple(others), tuple(problems), (id_heading, *names))


def _heading(headings: Iterable[str], what: str) -> str | None:
    by_name = {heading.casefold(): heading for heading in reversed(list(headings))}
    return next((by_name[name] for name in HEADINGS[what] if name in by_name), None)


def _names(headings: Sequence[str]) -> tuple[str, ...]:
    """The columns that make a name, in the order in which it is said."""
    if (name := _heading(headings, "name")) is not None:
        return (name,)
    by_name = {heading.casefold(): heading for heading in headings}
    return next((tuple(by_name[one] for one in both) for both in FIRST_AND_LAST if set(both) <= set(by_name)), ())


# -- whose each hand-in is --------------------------------------------------------------------------------------


def enrolled(collected: Collected, roster: Roster) -> tuple[Collected, tuple[str, ...]]:
    """The hand-ins of a class by its roster: everybody is there, under the name and id of the roster, with nothing
    where nothing came. Second, in words, what belongs to nobody in the roster, or cannot be told apart."""
    by_id = _index(roster.people, lambda person: [_key(person.id)])

    def logins(person: Person) -> list[str]:
        every = [person.id, *(person.cell(login) for login in LOGINS)]
        return [_key(text) for one in every for text in (one, one.partition("@")[0])]

    by_login = _index(roster.people, logins)
    by_name = _index(roster.people, lambda person: [_words(person.name)])
    found: dict[int, list[Submission]] = defaultdict(list)
    strangers: list[Submission] = []
    problems: list[str] = []
    for submission in collected.submissions:
        shown = re.sub(r" \([^()]*\)$| \[\d+\]$", "", submission.student) if submission.id else submission.student
        ids = by_id.get(_key(submission.id)) or by_login.get(_key(submission.id or shown), [])
        ids = ids if len(ids) == 1 else []
        names = by_name.get(_words(shown), [])
        if ids and not names and not _may_be(roster.people[ids[0]].name, shown):
            problems.append(
                f"{submission.student} handed in under the id {submission.id}, which is that of "
                f"{roster.people[ids[0]].name} in the roster; nobody gets it\n  fix: put the right id or name there"
            )
            ids = []
        elif ids and len(names) == 1 and ids != names:
            problems.append(
                f"{submission.student} has the name of line {roster.people[names[0]].line} of the roster and the id "
                f"of line {roster.people[ids[0]].line}; nobody gets it\n  fix: put the right id there"
            )
            ids, names = [], []
        person = ids[0] if ids else names[0] if len(names) == 1 else None
        if person is None:
            strangers.append(submission)
            why = "has a name that several in the roster have" if len(names) > 1 else "is not in the roster"
            problems.append(f"{submission.student} handed something in and {why}; the row is marked")
        else:
            found[person].append(submission)
    names_of = _shown_names(roster.people, strangers)
    renamed: dict[str, str] = {}
    submissions: list[Submission] = []
    for number, person in enumerate(roster.people):
        several = found.get(number, [Submission(person.name, ())])
        renamed |= {one.student: names_of[number] for one in several}
        more = tuple((heading, text) for heading, text in person.cells.items() if heading not in roster.own)
        submissions.append(replace(_together(several, names_of[number], person), more=more))
    for number, stranger in enumerate(strangers, len(roster.people)):
        renamed[stranger.student] = names_of[number]
        submissions.append(replace(stranger, student=names_of[number], notes=(*stranger.notes, "not in the roster")))
    submissions.sort(key=lambda one: (one.student.casefold(), one.student))
    refused = tuple(Refused(one.file, one.why, renamed.get(one.student, one.student)) for one in collected.refused)
    return Collected(tuple(submissions), refused, collected.notes), tuple(problems)


def _index(people: Sequence[Person], keys: Callable[[Person], Iterable[object]]) -> dict[object, list[int]]:
    """The people by each of their keys; what two have is none."""
    found: dict[object, list[int]] = defaultdict(list)
    for number, person in enumerate(people):
        for key in dict.fromkeys(keys(person)):
            if key:
                found[key].append(number)
    return found


def _key(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip().removeprefix("#").casefold()


def _words(name: str) -> tuple[str, ...]:
    """A name in whatever order and with whatever between its words: `Lee, Ann` is `Ann Lee`."""
    return tuple(sorted(re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", name).casefold())))


def _may_be(name: str, shown: str) -> bool:
    """Tell whether a platform may call somebody so: a word is the same, or all of them stand in it together, or it
    hides who it is."""
    letters = "".join(re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", shown).casefold()))
    words = _words(name)
    long = [word for word in words if len(word) > 1 or not word.isascii()]
    return not re.search(r"[^\W\d_]", shown) or "participant" in letters or any(word in letters for word in long)


def _shown_names(people: Sequence[Person], strangers: Sequence[Submission]) -> list[str]:
    """Return what each row is called; no two are alike."""
    alike = Counter(readable(person.name) for person in people)
    found: list[str] = []
    taken = Counter[str]()
    for number in range(len(people) + len(strangers)):
        if number < len(people):
            person = people[number]
            name = readable(person.name)
            name = f"{name} ({person.id})" if person.id and alike[name] > 1 else name
        else:
            name = strangers[number - len(people)].student
        taken[name] += 1
        found.append(name if taken[name] == 1 else f"{name} [{taken[name]}]")
    return found


def _together(several: Sequence[Submission], name: str, person: Person) -> Submission:
    """Return what one person handed in, in one place or, as of two platforms, in several."""
    first = next((one for one in several if one.id), several[0])
    return replace(
        first,
        student=name,
        files=tuple(file for one in several for file in one.files),
        notes=tuple(note for one in several for note in one.notes),
        hints={puzzle: count for one in several for puzzle, count in one.hints.items()},
        roster_id=person.id,
        late=any(one.late for one in several),
    )
