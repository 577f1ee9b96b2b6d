"""Takes in hand-ins: finds each file's owner, keeps what can be graded, and has a row or a note for everything else.

platforms.toml says how each platform names the files of a download. Its pattern is matched against the whole path, from
the given folder or archive on, with "/" between its parts; its groups are the student's name (`student`) and id (`id`),
the time (`time`) and the file's own name (`file`).
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from lib.files import table
from lib.suite.grade.gradebook import Refused
from lib.suite.grade.intake.archives import KNOWN, Entry, Unreadable, walk, within, without_ending
from lib.suite.grade.intake.roster import moment
from lib.suite.grade.intake.submission import (
    Collected,
    File,
    Submission,
    decoded,
    ending,
    is_gradable,
    listed_names,
    readable,
    stem_of,
    told_apart,
)

LONGEST_PATH: Final = 1_000
ROSTER: Final = "submission_metadata.yml"
FEW_PEOPLE: Final = 3
FILES: Final[dict[str, Any]] = KNOWN["files"]
ATTEMPT, TIME = re.compile(FILES["attempt"]), re.compile(FILES["time"])


class Owner(NamedTuple):
    """The owner of a file: `student`, and `id`, as two may share a name; `student` is "" if the file has no owner.

    `parts` is the file's path within the submission; it is empty for a file that the platform made. `time` of the
    attempt is text that sorts, and `number` counts resubmissions. `platform` gave the name, marked it as `late`, and
    put `before` in front of the student's own part: feedback goes back under that name.
    """

    student: str
    parts: tuple[str, ...]
    id: str = ""
    time: str = ""
    number: int = 0
    platform: str = ""
    late: bool = False
    before: str = ""


class Platform(NamedTuple):
    """A platform: how it names files, with an `example`, and where that is documented (`source`). If `numbered`, files
    that are handed in again get a number: -1, -2."""

    name: str
    pattern: re.Pattern[str]
    example: str
    source: str
    numbered: bool = False


PLATFORMS: Final = tuple(
    Platform(**row | {"pattern": re.compile(row["pattern"], re.DOTALL)})
    for row in table("lib.suite.grade.intake", "platforms")["platform"]
)
"""All platforms' ways to name a student's files. The last is the loosest, and counts only if no other fits."""


def owner_of(parts: tuple[str, ...], top: int = 1) -> Owner:
    """Return a file's owner, from its path. If it fits no platform, the student is the folder below the `top` parts,
    which lead to all students; for a file right there, it is what its name has besides the puzzle."""
    path = "/".join(parts)
    fitting = [
        (found.start("file") if found["file"] else found.end(), number, found)
        for number, platform in enumerate(PLATFORMS if len(path) <= LONGEST_PATH else ())
        if (found := platform.pattern.fullmatch(path)) and stem_of(found["student"]).puzzle is None
    ]
    if not fitting:
        return _plain(parts, top)
    # The platform writes the beginning of a path; the student chooses the rest, which could hold another's name.
    start, number, found = min([one for one in fitting if PLATFORMS[one[1]] is not PLATFORMS[-1]] or fitting)
    platform, groups = PLATFORMS[number], found.groupdict()
    rest = tuple(groups["file"].split("/")) if groups["file"] else ()
    name = path.rfind("/", 0, min(found.start(one) for one in ("student", "id") if groups.get(one))) + 1
    when = groups.get("time") or ""
    at = moment(when)
    return Owner(
        found["student"],
        rest,
        groups.get("id") or "",
        when if at is None else f"{at:%Y-%m-%d-%H-%M}",
        stem_of(rest[-1]).copy if rest and platform.numbered else 0,
        platform.name,
        bool(groups.get("late")),
        path[name:start],
    )


def _plain(parts: tuple[str, ...], top: int) -> Owner:
    """Return a file's owner in folders of students, in folders of puzzles with students' files, or among files."""
    if len(parts) <= top + 1:
        name = without_ending(parts[-1])
        if not is_gradable(name) and name == parts[-1]:
            return Owner("", parts[-1:])
        return Owner(stem_of(name).rest or without_ending(parts[0]), parts[-1:])
    name = without_ending(parts[top])
    stem = stem_of(name)
    student, rest = name if stem.puzzle is None else stem.rest, parts[top + 1 :]
    if name in FILES["workplaces"]:
        student, rest = without_ending(parts[0]), parts[top:]
    elif not student:
        return _plain(parts, top + 1)
    time, number = "", 0
    for part in rest[:-1]:
        if found := ATTEMPT.fullmatch(part):
            number = int(found[1])
        elif TIME.fullmatch(part):
            time = part
    return Owner(student, rest, "", time, number)


def students_below(paths: Iterable[tuple[str, ...]]) -> int:
    """Return how many leading parts of the files' paths are common to all students: 1, for the given folder or archive;
    more if a single folder holds several students' folders, as zips often do; 0 if the given folder is one student's:
    it has no folders of students, and a notebook in it is named after its puzzle alone."""
    found = [path for path in paths if is_gradable(path[-1])]
    own = any(len(path) == 2 and (stem := stem_of(path[-1])).puzzle and not stem.rest for path in found)
    level = 1
    while not _several_students(found, level):
        if len({path[level] for path in found if len(path) > level + 1}) != 1 or any(
            len(path) == level + 1 for path in found
        ):
            return 0 if own else 1
        level += 1
    return level


def _several_students(paths: Sequence[tuple[str, ...]], level: int) -> bool:
    """Tell whether a level has folders of students, two of which hold the same notebook or puzzle (folders named like
    ours do not count); or files named after one puzzle and at least three people."""
    folders: dict[str, str] = {}
    people: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths:
        stem = stem_of(path[-1])
        if len(path) == level + 1 and stem.puzzle is not None:
            people[stem.puzzle].add(stem.rest)
        elif len(path) > level + 1 and (stem.puzzle is not None or ending(path[-1]) == ".ipynb"):
            folder = path[level]
            if folder in FILES["workplaces"] or ATTEMPT.fullmatch(folder) or TIME.fullmatch(folder):
                continue
            if folders.setdefault(stem.puzzle or path[-1], folder) != folder:
                return True
    return any(len(names) >= FEW_PEOPLE for names in people.values())


def names_in_roster(text: str) -> dict[str, str]:
    """Return the students of each folder in a Gradescope export, from its ROSTER. This reads only the YAML that
    Gradescope writes: the name of a folder, and below it a line for each member of the group."""
    found: dict[str, list[str]] = {}
    folder = ""
    for line in text.splitlines():
        if top := re.fullmatch(r"(\w[^:\s]*):\s*", line):
            folder = top[1]
        elif (name := re.fullmatch(r"\s+(?:- )?:name:\s+(.+?)\s*", line)) and folder:
            found.setdefault(folder, []).append(name[1].strip("'\""))
    return {folder: " & ".join(names) for folder, names in found.items()}


# -- everything ----------------------------------------------------------------------------------------------------

MOST_ROWS: Final = 50  # for one student; the last says how many more there would be
# A file that only this project has: in a copy of the project, our own files are not the student's work.
THIS_PROJECT: Final = ("lib", "puzzles", "chapters.toml")
AN_ENVIRONMENT: Final = "pyvenv.cfg"  # marks a virtual environment
NOT_GRADABLE: Final = "neither a notebook (.ipynb) nor Python (.py)"
LINK: Final = re.compile(KNOWN["files"]["link"].encode())
A_LINK: Final = "a link to a notebook elsewhere, and links are not followed (in Colab: File, Download, Download .ipynb)"
EMPTY: Final = "empty"


@dataclass(slots=True)
class _Pile:
    """A student's files while they come in. Of those that cannot be graded, `refused` always become rows, `others` only
    if there is nothing else."""

    files: list[File] = field(default_factory=list[File])
    refused: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    others: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    junk: list[str] = field(default_factory=list[str])
    owner: Owner | None = None
    late: bool = False


def collect(paths: Sequence[Path]) -> Collected:
    """Return all submissions in folders, archives and single files. FileNotFoundError if there is nothing at a path.

    Files are read only when needed: notebooks, when they are graded. Each file belongs to a submission, or is named in
    a note, or refused, or lies in a folder that is. A later path is a later attempt, unless a platform says when a
    file was handed in.
    """
    piles: dict[tuple[str, str], _Pile] = {}
    for number, path in enumerate(paths):
        if not path.exists():
            raise FileNotFoundError(f"there is nothing at {path}: name a folder, an archive, a notebook or a .py")
        entries = _without_ours(list(walk(path)))
        top = students_below(entry.parts for entry in entries if entry.place is not None)
        # Names from a platform's own roster file. One inside a submission is the student's, and does not count.
        names: dict[str, str] = {}
        for entry in entries:
            if entry.parts[-1] == ROSTER and entry.place is not None and not owner_of(entry.parts, top).student:
                with suppress(Unreadable):  # then students keep the names of their folders
                    names |= names_in_roster(decoded(entry.place.read())[0])
        for entry in entries:
            owner = owner_of(entry.parts, top)
            student = names.get(owner.student, owner.student)
            pile = piles.setdefault((unicodedata.normalize("NFC", student), owner.id), _Pile())
            _put(pile, entry, owner, number)
    notes, refused = _nobodys(piles.pop(("", ""), _Pile()))
    submissions: list[Submission] = []
    for key, name in zip(sorted(piles), told_apart(sorted(piles)), strict=True):
        submission, rows = _submission(name, piles[key])
        submissions.append(submission)
        refused += rows
    submissions.sort(key=lambda submission: (submission.student.casefold(), submission.student))
    refused.sort(key=lambda row: (row.student.casefold(), row.student, row.file, row.why))
    return Collected(tuple(submissions), tuple(refused), tuple(notes))


def _without_ours(entries: Sequence[Entry]) -> list[Entry]:
    """The entries, with each copy of this project's folders, and each virtual environment, as one entry of junk."""
    made = {entry.parts[:-1] for entry in entries if entry.parts[-1] == AN_ENVIRONMENT}
    for entry in entries:
        if entry.parts[-3:] == THIS_PROJECT:
            made.update((*entry.parts[:-3], folder) for folder in FILES["of_this_project"])
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


def _put(pile: _Pile, entry: Entry, owner: Owner, root: int) -> None:
    name, kind = "/".join(map(readable, entry.parts)), ending(entry.parts[-1])
    pile.owner, pile.late = pile.owner or owner, pile.late or owner.late
    if entry.junk or not owner.parts:
        pile.junk.append(name)
        return
    if entry.place is None:
        pile.refused.append((name, entry.why))
        return
    file = File(name, entry.place, entry.size, owner.parts, (owner.time, root, owner.number))
    if kind not in (".ipynb", ".py"):
        is_link = False
        if kind in FILES["with_links"]:
            with suppress(Unreadable):
                is_link = LINK.search(entry.place.read()) is not None
        pile.others.append((name, A_LINK if is_link else NOT_GRADABLE))
    elif entry.size == 0 and kind == ".py":  # such as __init__.py
        pile.others.append((name, EMPTY))
    else:
        try:
            within("bytes", entry.size)
            pile.files.append(file)
        except Unreadable as error:
            pile.refused.append((name, str(error)))


def _submission(student: str, pile: _Pile) -> tuple[Submission, list[Refused]]:
    files = sorted(pile.files, key=lambda file: (file.attempt, file.parts, file.name))
    rows = list(pile.refused)
    try:
        within("notebooks and .py files beside it", len(files) - 1)
        within("bytes with the student's other files", sum(file.size for file in files))
    except Unreadable as error:
        rows.append((files[0].name, str(error)))
        files = []
    notes = _by_reason(pile.others if files or rows else (), pile.junk)
    if not files and not rows:
        rows = [(name, f"is {why}; hand in the notebook itself") for name, why in pile.others]
    if len(rows) > MOST_ROWS:
        more = f"and {len(rows) - MOST_ROWS + 1:,} more of this student's files cannot be read, for reasons as above"
        rows[MOST_ROWS - 1 :] = [(rows[MOST_ROWS - 1][0], more)]
    owner = pile.owner or Owner(student, ())
    of = Submission(student, tuple(files), tuple(notes), owner.id, owner.platform, pile.late, owner.before)
    empty = {name for name, why in pile.others if why == EMPTY}
    return of, [Refused(name, why, student, "empty" if name in empty else "unreadable") for name, why in rows]


def _nobodys(pile: _Pile) -> tuple[list[str], list[Refused]]:
    """Notes and rows for files without an owner: a note for platforms' own; a row for any that may be a student's."""
    kept = [(file.name, "nobody's") for file in pile.files]
    rows = [Refused(name, why) for name, why in pile.refused]
    for name, why in pile.others:
        if ending(name) in FILES["of_platforms"]:
            kept.append((name, f"{why}, and nobody's"))
        else:
            rows.append(Refused(name, f"is {why}, and its name does not say whose it is"))
    return _by_reason(kept, pile.junk), rows


def _by_reason(others: Iterable[tuple[str, str]], junk: Sequence[str]) -> list[str]:
    """A note for each reason why files are not graded, and one for files made by software."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, why in others:
        found[why].append(name)
    notes = [f"{why}: {listed_names(names)}" for why, names in sorted(found.items())]
    return notes + ([f"ignored, as a computer made it for itself: {listed_names(junk)}"] if junk else [])
