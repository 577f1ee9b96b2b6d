"""Whose a file is, by the names that people and learning platforms gave it.

A name says which puzzle it is of, whether it is a copy, and what computers made for themselves. How a platform calls
the files of a download is a row of PLATFORMS. Its pattern is compared with the whole path, from the folder or archive
that was given, with "/" between its parts; its groups say who handed it in (`student`), which of them (`id`), when
(`time`) and what the file was called (`file`).
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Final, NamedTuple

from lib.puzzles.records import PUZZLES
from lib.suite.grade.intake.archives import without_ending

__all__ = [
    "NOTEBOOK",
    "PLATFORMS",
    "PYTHON",
    "ROSTER",
    "Owner",
    "Platform",
    "Stem",
    "ending",
    "is_gradable",
    "listed_names",
    "names_in_roster",
    "owner_of",
    "readable",
    "stem_of",
    "students_below",
]

# -- names ---------------------------------------------------------------------------------------------------------

NOTEBOOK: Final = ".ipynb"
PYTHON: Final = ".py"
LONGEST: Final = 120
"""Characters of a name that are shown."""
LONGEST_STEM: Final = 300
"""Characters of a name in which a puzzle is looked for: what compares patterns takes long with what is made for it."""
MOST_NAMES: Final = 20
"""Names that a sentence lists."""
JOINERS: Final = frozenset("\u200c\u200d") | frozenset(map(chr, range(0xE0020, 0xE0080)))
"""Invisible characters without which Persian, and some emoji, are not what they are."""
COPY: Final = re.compile(
    r"(?P<of>.+?)(?:[ _-]*\((?P<number>\d{1,4})\)|-(?P<dash>\d{1,4})|[ _-]+(?:copy|kopie|copie|copia)\d*(?: \d+)?)",
    re.IGNORECASE | re.DOTALL,
)
"""What browsers, systems, Jupyter and platforms make of a name that is taken: `x (1)`, `x-2`, `x - Copy`, `x-Copy1`."""


class Stem(NamedTuple):
    """A file's name without its ending, taken apart: the `puzzle` that it is called after, if any, the `rest` of it,
    and which `copy` it is: 0 where nothing says that it is one."""

    puzzle: str | None
    rest: str
    copy: int = 0


def readable(name: str) -> str:
    """A name as it is shown everywhere: one line, no control characters, nothing that turns the direction of writing,
    not too long, and encodable; a long one ends in a digest, so that two of them differ."""
    text = "".join(
        char if char in JOINERS or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp") else "\ufffd"
        for char in unicodedata.normalize("NFC", name)
    ).strip()
    if len(text) > LONGEST:
        digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
        return f"{text[: LONGEST - 8]}… {digest}"
    return text or "(no name)"


def listed_names(names: Sequence[str]) -> str:
    """Names in a sentence, of very many their beginning: "a, b and 3 more"."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def ending(name: str) -> str:
    """The ending of a file's name in small letters, with its dot; "" where it has none."""
    before, dot, after = name.rpartition(".")
    return f".{after.lower()}" if before and dot and len(after) <= 10 else ""


def is_gradable(name: str) -> bool:
    """Return whether a file of that name can be graded: a notebook or Python."""
    return ending(name) in (NOTEBOOK, PYTHON)


def stem_of(name: str) -> Stem:
    """Take a file's name apart: "05_fsdp_ann-2.ipynb" is puzzle fsdp, rest "ann", copy 2."""
    stem = name[: len(name) - len(ending(name))]
    if len(stem) > LONGEST_STEM:
        return Stem(None, stem)
    puzzle, rest = _puzzle_in(stem)
    if puzzle is not None and not rest:
        return Stem(puzzle, "")
    if copied := COPY.fullmatch(stem):
        puzzle, rest = _puzzle_in(copied["of"])
        return Stem(puzzle, rest, int(copied["number"] or copied["dash"] or 1))
    return Stem(puzzle, rest)


def _puzzle_in(stem: str) -> tuple[str | None, str]:
    """The puzzle that a name begins or ends with, and what else there is of the name."""
    before, after = _patterns()
    if found := before.fullmatch(stem) or after.fullmatch(stem):
        return found["puzzle"].lower(), (found["rest"] or "").strip(" _-.")
    return None, stem


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The name of a puzzle, with its number or without, at the beginning of a name and at its end."""
    ids = "|".join(sorted(PUZZLES, key=lambda puzzle: (-len(puzzle), puzzle)))
    puzzle = rf"(?:\d{{1,3}}[_ -])?(?P<puzzle>{ids})"
    flags = re.IGNORECASE | re.DOTALL
    return re.compile(rf"{puzzle}(?P<rest>[ _.-].*)?", flags), re.compile(rf"(?P<rest>.*[ _.-]){puzzle}", flags)


# -- platforms -----------------------------------------------------------------------------------------------------

LONGEST_PATH: Final = 1_000
ROSTER: Final = "submission_metadata.yml"
WORKPLACES: Final = frozenset({"my_puzzles", "puzzles", "notebooks", "src"})
"""Folders that are no student's name: what is in one belongs to whom the folder above it does."""
ATTEMPT: Final = re.compile(r"(?:attempt|try|submission|version|versuch|abgabe|v)[ _-]?(\d{1,6})", re.IGNORECASE)
TIME: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[ T_-]\d\d(?:[-:.]?\d\d){0,2})?.{0,12}")
"""Folders that are called after an attempt of a student."""
FEW_PEOPLE: Final = 3
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a file: `student`, and `id` where two may have one name; "" is for what is nobody's.

    `parts` is the path of the file within what they handed in; it is empty for a file that the platform made. `time` of
    the attempt is text that sorts, and `number` counts what was handed in again. `platform` gave the name, marked it as
    `late`, and wrote `before` in front of the student's own part of it: it takes feedback back under that name.
    """

    student: str
    parts: tuple[str, ...]
    id: str = ""
    time: str = ""
    number: int = 0
    platform: str = ""
    late: bool = False
    before: str = ""


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform, by how it names what it gives, with an `example`, and where that is written (`source`). With
    `numbered` files that are handed in again get a number: -1, -2."""

    name: str
    pattern: re.Pattern[str]
    example: str
    source: str
    numbered: bool = False


def _row(name: str, pattern: str, example: str, source: str, *, numbered: bool = False) -> Platform:
    return Platform(name, re.compile(pattern, re.DOTALL), example, source, numbered)


PLATFORMS: Final = (
    _row(
        "Moodle",
        r"(?:.*?/)?(?P<student>[^/]+?)_(?P<id>\d+)_assignsubmission_[a-z]+(?:_?/|_)(?P<file>.+)",
        "hw1/Ann Lee_123456_assignsubmission_file_/05_fsdp.ipynb",
        "moodle/moodle, mod/assign: the full name with spaces for underscores, the participant's number, the plugin; "
        "a folder for each student, or without folders a prefix",
    ),
    _row(
        "Blackboard",
        r"(?:.*?/)?[^/]*?_(?P<student>[^/_]+)_attempt_(?P<time>\d{4}(?:-\d\d){5})(?:_(?P<file>.+)|\.txt)",
        "gradebook/Homework 1_alee7_attempt_2026-11-01-10-00-00_05_fsdp.ipynb",
        "kwurst/bb-file-cleanup, README: assignmentname_username_attempt_datetime_filename.ext, and a .txt beside it",
    ),
    _row(
        "Brightspace",
        r"(?:.*?/)?(?P<id>\d+)-\d+ ?- (?P<student>[^/]+?) ?- (?P<time>\w+ \d+, \d{4} \d{1,2}:?\d\d ?[AP]M)"
        r"(?: - |/)(?P<file>.+)",
        "hw1/12345-67890 - Ann Lee - Nov 1, 2026 1000 AM - 05_fsdp.ipynb",
        "<student-id>-<submission-id> - <student-name> - <month> <day>, <year> <time> <AM/PM>, as parsers of "
        "Brightspace's downloads document it; newer versions make a folder of it",
    ),
    _row(
        "Gradescope",
        r"(?:.*?/)?assignment_\d+_export/(?P<student>submission_(?P<id>\d+))/(?P<file>.+)",
        "assignment_9100_export/submission_212345678/05_fsdp.ipynb",
        "its export of submissions: a folder for each, and submission_metadata.yml, which says whose each is",
    ),
    _row(
        "Sakai",
        r"(?:.*?/)?(?P<student>[^/]+?)\((?P<id>[^/()]+)\)(?:/|_)Submission attachment\(s\)(?:/|_)(?P<file>.+)",
        "hw1/Lee, Ann(alee7)/Submission attachment(s)/05_fsdp.ipynb",
        "Sakai's assignments, Download All: <Last, First(id)>/Submission attachment(s)/, beside it grades.csv",
    ),
    _row(
        "nbgrader",
        r"(?:.*?/)?submitted/(?P<student>[^/]+)/[^/]+/(?P<file>.+)",
        "submitted/alee7/hw1/05_fsdp.ipynb",
        "nbgrader's documentation: {nbgrader_step}/{student_id}/{assignment_id}/{notebook_id}.ipynb",
    ),
    _row(
        "GitHub Classroom",
        r"(?:.*?/)?(?P<assignment>[^/]+)-submissions/(?P=assignment)-(?P<student>[^/]+)/(?P<file>.+)",
        "hw1-submissions/hw1-alee7/05_fsdp.ipynb",
        "`gh classroom clone student-repos`: a folder for the assignment, in it a repository <assignment>-<user> each",
    ),
    _row(
        "ILIAS",
        r"(?:[^/]+/)?(?:(?:Abgaben|Submissions)/)?(?:Team[ _]?\d+/)?(?P<student>[^/_]+_[^/_]+_[^/_]+)_(?P<id>\d{3,})/"
        r"(?P<file>.+)",
        "Submissions/Lee_Ann_alee7_4711/05_fsdp.ipynb",
        "ILIAS' exercises: Lastname_Firstname_Login_ID/, those of a team below Team_ID/",
    ),
    _row(
        "Canvas",
        r"(?:.*?/)?(?P<student>[^/_]+)(?P<late>_LATE)?_(?P<id>\d{2,})_\d{2,}_(?P<file>[^/]+\.\w+(?:/.*)?)",
        "submissions/leeann_LATE_12345_6789012_05_fsdp-2.ipynb",
        "mikewesthad/canvas-unzipper, README: <lastfirst>_<user>_<submission>_<file>; LATE after the name of who was, "
        "and -1, -2 after that of a file that was handed in again",
        numbered=True,
    ),
    _row(
        "Google Classroom",
        r"[^/]+/(?P<student>[^/]+?) - (?P<file>[^/]+)",
        "Homework 1/Ann Lee - 05_fsdp.ipynb",
        "the folder of an assignment in Google Drive, in which each file has its student's name before it",
    ),
)
"""Each way in which a platform names a student's files. The last is the loosest, and counts where no other fits."""


def owner_of(parts: tuple[str, ...], top: int = 1) -> Owner:
    """Return whose a file is, from its path. Where no platform says it: the folder below the `top` parts, which lead
    to what holds all students; of a file that lies there itself what its name says besides its puzzle."""
    path = "/".join(parts)
    fitting = [
        (found.start("file") if found["file"] else found.end(), number, found)
        for number, platform in enumerate(PLATFORMS if len(path) <= LONGEST_PATH else ())
        if (found := platform.pattern.fullmatch(path)) and stem_of(found["student"]).puzzle is None
    ]
    if fitting:
        # What comes first in a path is the platform's; a student chooses what follows, and could write another's name.
        strict = [one for one in fitting if PLATFORMS[one[1]] is not PLATFORMS[-1]]
        start, number, found = min(strict or fitting)
        platform, groups = PLATFORMS[number], found.groupdict()
        rest = tuple(groups["file"].split("/")) if groups["file"] else ()
        name = path.rfind("/", 0, min(found.start(one) for one in ("student", "id") if groups.get(one))) + 1
        return Owner(
            found["student"],
            rest,
            groups.get("id") or "",
            _sortable(groups.get("time") or ""),
            stem_of(rest[-1]).copy if rest and platform.numbered else 0,
            platform.name,
            bool(groups.get("late")),
            path[name:start],
        )
    return _plain(parts, top)


def _plain(parts: tuple[str, ...], top: int) -> Owner:
    """Return whose a file is where no platform named it: folders of students, of puzzles with files of students, or
    files."""
    if len(parts) > top + 1:
        name = without_ending(parts[top])
        stem = stem_of(name)
        if name in WORKPLACES:
            return _attempted(without_ending(parts[0]), parts[top:])
        if stem.puzzle is not None and not stem.rest:
            return _plain(parts, top + 1)
        return _attempted(name if stem.puzzle is None else stem.rest, parts[top + 1 :])
    name = without_ending(parts[-1])
    if not is_gradable(name) and name == parts[-1]:
        return Owner("", parts[-1:])
    stem = stem_of(name)
    return Owner(stem.rest or without_ending(parts[0]), parts[-1:])


def _attempted(student: str, parts: tuple[str, ...]) -> Owner:
    """With the attempt that a folder within the submission is named after."""
    time, number = "", 0
    for part in parts[:-1]:
        if found := ATTEMPT.fullmatch(part):
            number = int(found[1])
        elif TIME.fullmatch(part):
            time = part
    return Owner(student, parts, "", time, number)


def students_below(paths: Iterable[tuple[str, ...]]) -> int:
    """Return how many parts of the paths of files lead to what holds all students: 1, the folder or archive that was
    given.

    It is more where a single folder holds folders of several students, as zips often do: two of them hold files of
    one name. It is 0 where the folder that was given is one student's: a notebook in it is called after its puzzle
    and nothing else, and there are no folders of students.
    """
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
    """Tell whether at a level there are folders of students, of which two hold one notebook or puzzle (those called
    after attempts, or as ours are, do not count); or files called after one puzzle and, in all, three people."""
    folders: dict[str, str] = {}
    people: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths:
        stem = stem_of(path[-1])
        if len(path) == level + 1 and stem.puzzle is not None:
            people[stem.puzzle].add(stem.rest)
        elif len(path) > level + 1 and (stem.puzzle is not None or ending(path[-1]) == NOTEBOOK):
            folder = path[level]
            if folder in WORKPLACES or ATTEMPT.fullmatch(folder) or TIME.fullmatch(folder):
                continue
            if folders.setdefault(stem.puzzle or path[-1], folder) != folder:
                return True
    return any(len(names) >= FEW_PEOPLE for names in people.values())


def names_in_roster(text: str) -> dict[str, str]:
    """The students of each folder of an export of Gradescope, from its ROSTER. Of YAML only what it writes is read:
    the name of a folder, and below it a line for each of those who handed in together."""
    found: dict[str, list[str]] = {}
    folder = ""
    for line in text.splitlines():
        if top := re.fullmatch(r"(\w[^:\s]*):\s*", line):
            folder = top[1]
        elif (name := re.fullmatch(r"\s+(?:- )?:name:\s+(.+?)\s*", line)) and folder:
            found.setdefault(folder, []).append(name[1].strip("'\""))
    return {folder: " & ".join(names) for folder, names in found.items()}


def _sortable(time: str) -> str:
    """A time as text that sorts: that of Brightspace is turned round, others do already."""
    found = re.fullmatch(r"(\w+) (\d+), (\d{4}) (\d{1,2}):?(\d\d) ?([AP])M", time)
    if found is None:
        return time
    month, day, year, hour, minute, half = found.groups()
    number = MONTHS.index(month[:3].lower()) + 1 if month[:3].lower() in MONTHS else 0
    hours = int(hour) % 12 + (12 if half == "P" else 0)
    return f"{year}-{number:02d}-{int(day):02d}-{hours:02d}-{minute}"
