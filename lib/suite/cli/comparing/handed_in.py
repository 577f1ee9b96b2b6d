"""What a class handed in, as things to run: of each student the file that counts for a puzzle. It runs kept apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lib.errors.wording import counted
from lib.suite.grade.intake.collecting import collect
from lib.suite.grade.intake.submission import chosen
from lib.suite.submissions.source import Source
from lib.trace.validation import FORMAT

__all__ = ["HandedIn", "handed_in", "traces_in"]

BEGINNING = 200
"""Characters at the beginning of a file in which a saved Trace says that it is one."""
REFUSED = 5
"""Files that cannot be read that are named; of more it says how many."""


@dataclass(frozen=True, slots=True)
class HandedIn:
    """The code of each student who handed in a puzzle, by name, and what is to be said of the rest."""

    of: tuple[tuple[str, Source], ...]
    notes: tuple[str, ...] = ()


def handed_in(paths: Sequence[Path], puzzle: str) -> HandedIn:
    """Reads folders, zips and files that were handed in. Nothing of them runs. FileNotFoundError for a path at which
    there is nothing."""
    collected = collect(paths)
    found: list[tuple[str, Source]] = []
    refused = [*collected.refused]
    without: list[str] = []
    for submission in collected.submissions:
        of_student = chosen(submission, (puzzle,))
        refused += of_student.refused
        if puzzle in of_student.of:
            found.append((submission.student, of_student.of[puzzle][1]))
        else:
            without.append(submission.student)
    notes = [f"{one.file} is left out: it {one.why}" for one in refused[:REFUSED]]
    if len(refused) > REFUSED:
        notes.append(f"{len(refused) - REFUSED} more files are left out; `puzzles grade` says of each why")
    said = {one.student for one in refused}
    if silent := sum(student not in said for student in without):
        notes.append(f"{counted(silent, 'student')} handed in nothing for {puzzle}")
    return HandedIn(tuple(found), tuple(notes))


def traces_in(folder: Path) -> list[Path]:
    """The saved Traces that lie in a folder, by name."""
    return [path for path in sorted(folder.glob("*.json")) if path.is_file() and _says_so(path)]


def _says_so(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return FORMAT in file.read(BEGINNING)
