"""Whose a file is, by what learning platforms make of names when all submissions are downloaded: a row for each.

A pattern is compared with the whole path, from the folder or archive that was given, with "/" between its parts. Its
groups say who handed it in (`student`), which of them (`id`), when (`time`) and what the file was called (`file`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from lib.grade.intake.archives import without_ending
from lib.grade.intake.names import stem_of

__all__ = ["PLATFORMS", "Owner", "Platform", "owner_of"]

LONGEST_PATH: Final = 2_000
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


@dataclass(frozen=True, slots=True)
class Owner:
    """Who handed in a file: `student`, and `id` where two may have one name; `time` of the attempt, as text that sorts,
    and `parts`, the path of the file within what they handed in. Nobody's files have the student ""."""

    student: str
    parts: tuple[str, ...]
    id: str = ""
    time: str = ""
    by_file: bool = False


@dataclass(frozen=True, slots=True)
class Platform:
    """How a platform names what it gives, with an `example`, and where that is written (`source`)."""

    name: str
    pattern: re.Pattern[str]
    example: str
    source: str


def _row(name: str, pattern: str, example: str, source: str) -> Platform:
    return Platform(name, re.compile(pattern, re.DOTALL), example, source)


PLATFORMS: Final = (
    _row(
        "Moodle",
        r"(?:.*/)?(?P<student>[^/]+)_(?P<id>\d+)_assignsubmission_[a-z]+(?:_?/|_)(?P<file>.+)",
        "hw1/Ann Lee_123456_assignsubmission_file_/05_fsdp.ipynb",
        "moodle/moodle, mod/assign: the full name with spaces for underscores, the participant's number, the plugin; "
        "a folder for each student, or without folders a prefix",
    ),
    _row(
        "Blackboard",
        r"(?:.*/)?[^/]*_(?P<student>[^/_]+)_attempt_(?P<time>\d{4}(?:-\d\d){5})(?:_(?P<file>.+)|\.txt)",
        "gradebook/Homework 1_alee7_attempt_2026-11-01-10-00-00_05_fsdp.ipynb",
        "kwurst/bb-file-cleanup, README: assignmentname_username_attempt_datetime_filename.ext, and a .txt beside it",
    ),
    _row(
        "Brightspace",
        r"(?:.*/)?(?P<id>\d+)-\d+ ?- (?P<student>[^/]+?) ?- (?P<time>\w+ \d+, \d{4} \d{1,2}:?\d\d ?[AP]M)"
        r"(?: - |/)(?P<file>.+)",
        "hw1/12345-67890 - Ann Lee - Nov 1, 2026 1000 AM - 05_fsdp.ipynb",
        "<student-id>-<submission-id> - <student-name> - <month> <day>, <year> <time> <AM/PM>, as parsers of "
        "Brightspace's downloads document it; newer versions make a folder of it",
    ),
    _row(
        "Gradescope",
        r"(?:.*/)?assignment_\d+_export/(?P<student>submission_(?P<id>\d+))/(?P<file>.+)",
        "assignment_9100_export/submission_212345678/05_fsdp.ipynb",
        "its export of submissions: a folder for each, and submission_metadata.yml, which says whose each is",
    ),
    _row(
        "Sakai",
        r"(?:.*/)?(?P<student>[^/]+)\((?P<id>[^/()]+)\)(?:/|_)Submission attachment\(s\)(?:/|_)(?P<file>.+)",
        "hw1/Lee, Ann(alee7)/Submission attachment(s)/05_fsdp.ipynb",
        "Sakai's assignments, Download All: <Last, First(id)>/Submission attachment(s)/, beside it grades.csv",
    ),
    _row(
        "nbgrader",
        r"(?:.*/)?submitted/(?P<student>[^/]+)/[^/]+/(?P<file>.+)",
        "submitted/alee7/hw1/05_fsdp.ipynb",
        "nbgrader's documentation: {nbgrader_step}/{student_id}/{assignment_id}/{notebook_id}.ipynb",
    ),
    _row(
        "GitHub Classroom",
        r"(?:.*/)?(?P<assignment>[^/]+)-submissions/(?P=assignment)-(?P<student>[^/]+)/(?P<file>.+)",
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
        r"(?:.*/)?(?P<student>[^/_]+)(?:_LATE)?_(?P<id>\d+)_\d+_(?P<file>.+)",
        "submissions/leeann_LATE_12345_6789012_05_fsdp-2.ipynb",
        "mikewesthad/canvas-unzipper, README: <lastfirst>_<user>_<submission>_<file>; LATE after the name of who was, "
        "and -1, -2 after that of a file that was handed in again",
    ),
    _row(
        "Google Classroom",
        r"[^/]+/(?P<student>[^/]+?) - (?P<file>[^/]+)",
        "Homework 1/Ann Lee - 05_fsdp.ipynb",
        "the folder of an assignment in Google Drive, in which each file has its student's name before it",
    ),
)
"""Each way in which a platform names a student's files; the first that fits counts."""


def owner_of(parts: tuple[str, ...], top: int = 1) -> Owner:
    """Whose a file is, from its path. Where no platform says it: the folder below the `top` parts, which lead to what
    holds all students; of a file that lies there itself what its name says besides its puzzle."""
    path = "/".join(parts)
    if len(path) <= LONGEST_PATH:
        for platform in PLATFORMS:
            if (found := platform.pattern.fullmatch(path)) and stem_of(found["student"]).puzzle is None:
                groups = found.groupdict()
                file = groups["file"] or parts[-1]
                rest = tuple(file.split("/"))
                return Owner(found["student"], rest, groups.get("id") or "", _sortable(groups.get("time") or ""))
    if len(parts) > top + 1:
        return Owner(without_ending(parts[top]), parts[top + 1 :])
    stem = stem_of(parts[-1])
    if stem.puzzle is None:
        return Owner(stem.rest, parts[-1:], by_file=True)
    return Owner(stem.rest or without_ending(parts[-2] if len(parts) > 1 else ""), parts[-1:], by_file=True)


def _sortable(time: str) -> str:
    """A time as text that sorts: that of Brightspace is turned round, others do already."""
    found = re.fullmatch(r"(\w+) (\d+), (\d{4}) (\d{1,2}):?(\d\d) ?([AP])M", time)
    if found is None:
        return time
    month, day, year, hour, minute, half = found.groups()
    number = MONTHS.index(month[:3].lower()) + 1 if month[:3].lower() in MONTHS else 0
    hours = int(hour) % 12 + (12 if half == "P" else 0)
    return f"{year}-{number:02d}-{int(day):02d}-{hours:02d}-{minute}"
