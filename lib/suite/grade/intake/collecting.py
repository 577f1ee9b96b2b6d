"""Takes in what was handed in: whose each file is, which can be graded, and a row or a note for every other."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lib.suite.course.progress import MAX_BYTES, standings
from lib.suite.grade.gradebook import Refused
from lib.suite.grade.intake.archives import Entry, Unreadable, walk
from lib.suite.grade.intake.owners import (
    PYTHON,
    ROSTER,
    Owner,
    ending,
    is_gradable,
    listed_names,
    names_in_roster,
    owner_of,
    readable,
    students_below,
)
from lib.suite.grade.intake.reading import MOST_BYTES, decoded
from lib.suite.grade.intake.submission import Collected, File, Submission

__all__ = ["collect"]

MOST_FILES: Final = 1_000
"""Notebooks and .py files of one student."""
MOST_TOGETHER: Final = 200_000_000
"""Bytes of them all."""
MOST_ROWS: Final = 50
"""Rows about what one student handed in; the last says how many more there would be."""
PROGRESS: Final = "progress.json"
THIS_PROJECT: Final = ("lib", "puzzles", "chapters.toml")
"""A file that only this project has: who hands in a copy of all of it did not write what is in OURS."""
OURS: Final = frozenset({"lib", "drawing", "solutions", "tests", "benchmarks", "prototypes"})
AN_ENVIRONMENT: Final = "pyvenv.cfg"
"""A file that lies in a virtual environment."""
OF_PLATFORMS: Final = ".csv .xml .html .htm .yml .yaml .txt .json .xlsx .xls .toml .md"
"""What platforms and instructors put beside submissions; anything else that is nobody's may be one."""
NOT_GRADABLE: Final = "neither a notebook (.ipynb) nor Python (.py)"
LINK: Final = re.compile(
    rb"https?://(?:colab\.research\.google|drive\.google|docs\.google|1drv|[\w.-]*dropbox)\.\w+/", re.I
)
WITH_LINKS: Final = (".html", ".htm", ".txt", ".url", ".webloc", ".md", ".rtf")
"""Files in which platforms and browsers write a link."""
A_LINK: Final = "a link to a notebook elsewhere, and links are not followed (in Colab: File, Download, Download .ipynb)"
EMPTY: Final = "empty"


@dataclass(slots=True)
class _Pile:
    """A student's pile while their files come in. Of what cannot be graded: `refused` are rows in any case, `others`
    where there is nothing else; `hints` are progress files, latest last."""

    files: list[File] = field(default_factory=list[File])
    refused: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    others: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    junk: list[str] = field(default_factory=list[str])
    progress: list[File] = field(default_factory=list[File])
    owner: Owner | None = None
    late: bool = False


def collect(paths: Sequence[Path]) -> Collected:
    """All submissions in folders, archives and single files. FileNotFoundError where there is nothing at a path.

    Nothing is read that need not be: notebooks when they are graded. Each file that is there is a file of a submission,
    or named in a note, or refused, or lies in a folder of which that is so. Of two paths the later one is the later
    attempt, where no platform says when a file was handed in.
    """
    piles: dict[tuple[str, str], _Pile] = {}
    for number, path in enumerate(paths):
        if not path.exists():
            raise FileNotFoundError(f"there is nothing at {path}: name a folder, an archive, a notebook or a .py")
        entries = _without_ours(list(walk(path)))
        top = students_below(entry.parts for entry in entries if entry.place is not None)
        roster = _roster(entries, top)
        for entry in entries:
            owner = owner_of(entry.parts, top)
            student = roster.get(owner.student, owner.student)
            pile = piles.setdefault((unicodedata.normalize("NFC", student), owner.id), _Pile())
            _put(pile, entry, owner, number)
    nobodys = piles.pop(("", ""), _Pile())
    notes, refused = _nobodys(nobodys)
    submissions: list[Submission] = []
    for key, name in _names(piles).items():
        submission, rows = _submission(name, piles[key])
        submissions.append(submission)
        refused += rows
    submissions.sort(key=lambda submission: (submission.student.casefold(), submission.student))
    refused.sort(key=lambda row: (row.student.casefold(), row.student, row.file, row.why))
    return Collected(tuple(submissions), tuple(refused), tuple(notes))


# -- one place --------------------------------------------------------------------------------------------------


def _without_ours(entries: Sequence[Entry]) -> list[Entry]:
    """The entries with all that a copy of this project, or a virtual environment, brings as one entry of junk each."""
    made: set[tuple[str, ...]] = set()
    for entry in entries:
        if entry.parts[-3:] == THIS_PROJECT:
            made.update((*entry.parts[:-3], folder) for folder in OURS)
        elif entry.parts[-1] == AN_ENVIRONMENT:
            made.add(entry.parts[:-1])
    if not made:
        return list(entries)
    found: list[Entry] = []
    said: set[tuple[str, ...]] = set()
    for entry in entries:
        above = next((entry.parts[:n] for n in range(1, len(entry.parts)) if entry.parts[:n] in made), None)
        if above is None:
            found.append(entry)
        elif above not in said:
            said.add(above)
            found.append(Entry(above, junk=True))
    return found


def _roster(entries: Iterable[Entry], top: int) -> dict[str, str]:
    """The names of students that a platform gives in a file of its own, by what it calls them elsewhere. One that lies
    in what a student handed in is theirs, and says nothing about anybody."""
    found: dict[str, str] = {}
    for entry in entries:
        if entry.parts[-1] == ROSTER and entry.place is not None and not owner_of(entry.parts, top).student:
            try:
                found |= names_in_roster(decoded(entry.place.read(MOST_BYTES)))
            except Unreadable:
                continue  # then they are called as the platform calls their folders
    return found


def _put(pile: _Pile, entry: Entry, owner: Owner, root: int) -> None:
    """Put one entry where it belongs."""
    name = "/".join(map(readable, entry.parts))
    pile.owner, pile.late = pile.owner or owner, pile.late or owner.late
    if entry.junk or not owner.parts:
        pile.junk.append(name)
        return
    if entry.place is None:
        pile.refused.append((name, entry.why))
        return
    file = File(name, entry.place, entry.size, owner.parts, (owner.time, root, owner.number))
    if entry.parts[-1] == PROGRESS:
        pile.progress.append(file)
    elif not is_gradable(entry.parts[-1]):
        pile.others.append((name, A_LINK if _is_link(entry) else NOT_GRADABLE))
    elif entry.size == 0 and ending(entry.parts[-1]) == PYTHON:  # such as __init__.py
        pile.others.append((name, EMPTY))
    elif entry.size > MOST_BYTES:
        pile.refused.append((name, f"has {entry.size / 1e6:,.1f} MB; at most {MOST_BYTES / 1e6:,.0f} are read"))
    else:
        pile.files.append(file)


def _is_link(entry: Entry) -> bool:
    """Return whether a file is the address of a notebook that somebody shares."""
    if entry.place is None or ending(entry.parts[-1]) not in WITH_LINKS or entry.size > MAX_BYTES:
        return False
    try:
        return LINK.search(entry.place.read(MAX_BYTES)) is not None
    except Unreadable:
        return False


# -- one student ------------------------------------------------------------------------------------------------


def _names(keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return what each student is called, by name and id: with the id where two have one name, and never as another
    is."""
    ordered = sorted(keys)
    alike = Counter(name for name, _ in ordered)
    found: dict[tuple[str, str], str] = {}
    taken: defaultdict[str, int] = defaultdict(int)
    for name, its_id in ordered:
        shown = readable(f"{name} ({its_id})" if its_id and alike[name] > 1 else name)
        taken[shown] += 1
        found[name, its_id] = shown if taken[shown] == 1 else f"{shown} [{taken[shown]}]"
    return found


def _submission(student: str, pile: _Pile) -> tuple[Submission, list[Refused]]:
    files = sorted(pile.files, key=lambda file: (file.attempt, file.parts, file.name))
    rows = list(pile.refused)
    size = sum(file.size for file in files)
    if len(files) > MOST_FILES or size > MOST_TOGETHER:
        what = f"is one of {len(files):,} notebooks and .py files of {size / 1e6:,.1f} MB together; at most "
        rows.append((files[0].name, f"{what}{MOST_FILES:,} of {MOST_TOGETHER / 1e6:,.0f} MB are read of one student"))
        files = []
    hints, notes = _hints(pile.progress)
    if files or rows:
        notes += _by_reason(pile.others)
    else:
        rows += [(name, f"is {why}; hand in the notebook itself") for name, why in pile.others]
    if pile.junk:
        notes.append(f"ignored, as a computer made it for itself: {listed_names(pile.junk)}")
    if len(rows) > MOST_ROWS:
        more = f"and {len(rows) - MOST_ROWS + 1:,} more of this student's files cannot be read, for reasons as above"
        rows = [*rows[: MOST_ROWS - 1], (rows[MOST_ROWS - 1][0], more)]
    owner = pile.owner or Owner(student, ())
    of = Submission(student, tuple(files), tuple(notes), hints, owner.id, owner.platform, pile.late, owner.before)
    empty = {name for name, why in pile.others if why == EMPTY}
    return of, [Refused(name, why, student, "empty" if name in empty else "unreadable") for name, why in rows]


def _by_reason(others: Iterable[tuple[str, str]]) -> list[str]:
    """A note for each reason for which files are not graded."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, why in others:
        found[why].append(name)
    return [f"{why}: {listed_names(names)}" for why, names in sorted(found.items())]


def _hints(progress: Iterable[File]) -> tuple[dict[str, int], list[str]]:
    """Return how many hints were opened of each puzzle, as the latest progress file says that is one; and notes on
    them."""
    hints: dict[str, int] = {}
    notes: list[str] = []
    for file in sorted(progress, key=lambda file: (file.attempt, file.parts)):
        try:
            found = standings(file.place.read(MAX_BYTES), Path(file.parts[-1]))
        except ValueError as error:
            notes.append(f"{file.name} is not used: {error}")
        else:
            hints = {puzzle: standing.hints for puzzle, standing in found.items()}
            notes.append(f"{file.name} says how many hints were opened")
    return hints, notes


def _nobodys(pile: _Pile) -> tuple[list[str], list[Refused]]:
    """Notes and rows for what is nobody's: platforms' own files are a note; all else may be somebody's."""
    kept: list[tuple[str, str]] = []
    rows = [Refused(name, why) for name, why in pile.refused]
    for name, why in pile.others:
        if ending(name) in OF_PLATFORMS.split():
            kept.append((name, f"{why}, and nobody's"))
        else:
            rows.append(Refused(name, f"is {why}, and its name does not say whose it is"))
    notes = _by_reason([*kept, *((file.name, "nobody's") for file in [*pile.progress, *pile.files])])
    if pile.junk:
        notes.append(f"ignored, as a computer made it for itself: {listed_names(pile.junk)}")
    return notes, rows
