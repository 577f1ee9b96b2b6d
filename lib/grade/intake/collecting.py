"""Takes in what was handed in: whose each file is, which can be graded, and a row or a note for every other."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lib.grade.gradebook import Refused
from lib.grade.intake.names import is_gradable, readable
from lib.grade.intake.platforms import Owner, owner_of
from lib.grade.intake.reading import MOST_BYTES
from lib.grade.intake.submission import Collected, File, Submission
from lib.grade.intake.walking import Entry, walk

__all__ = ["collect"]

MOST_FILES: Final = 1_000
"""Notebooks and .py files of one student."""
MOST_TOGETHER: Final = 200_000_000
"""Bytes of them all."""
SHOWN: Final = 3
"""Names that a note lists."""


@dataclass(slots=True)
class _Pile:
    """What is known of one student while their files come in."""

    owner: Owner
    files: list[File] = field(default_factory=list[File])
    refused: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    others: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Name and reason of what cannot be graded, which is only worth a row where there is nothing else."""
    junk: list[str] = field(default_factory=list[str])


def collect(paths: Sequence[Path]) -> Collected:
    """All submissions in folders, archives and single files. FileNotFoundError where there is nothing at a path.

    Nothing is read that need not be: notebooks when they are graded. Each file that is there is a file of a submission,
    or named in a note, or refused, or lies in a folder of which that is so.
    """
    piles: dict[tuple[str, str], _Pile] = {}
    for number, path in enumerate(paths):
        if not path.exists():
            raise FileNotFoundError(f"there is nothing at {path}: name a folder, an archive, a notebook or a .py")
        for entry in walk(path):
            owner = owner_of(entry.parts)
            pile = piles.setdefault((_same(owner.student), owner.id), _Pile(owner))
            _put(pile, entry, owner, number)
    names = _names(piles)
    submissions: list[Submission] = []
    refused: list[Refused] = []
    for key, pile in piles.items():
        submission, rows = _submission(names[key], pile)
        submissions.append(submission)
        refused += rows
    submissions.sort(key=lambda submission: (submission.student.casefold(), submission.student))
    return Collected(tuple(submissions), tuple(sorted(refused, key=lambda one: (one.file, one.why))))


def _same(name: str) -> str:
    """Equal for names that are written with the same characters, however those are put together."""
    return unicodedata.normalize("NFC", name)


def _put(pile: _Pile, entry: Entry, owner: Owner, root: int) -> None:
    name = "/".join(map(readable, entry.parts))
    if entry.junk:
        pile.junk.append(name)
    elif entry.place is None:
        pile.refused.append((name, entry.why))
    elif not is_gradable(entry.parts[-1]):
        pile.others.append((name, "is neither a notebook (.ipynb) nor Python (.py)"))
    elif entry.size > MOST_BYTES:
        pile.refused.append((name, f"has {entry.size / 1e6:,.3g} MB; at most {MOST_BYTES / 1e6:.3g} are read"))
    else:
        pile.files.append(File(name, entry.place, entry.size, owner.parts, (owner.time, root, 0)))


def _names(piles: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """What each student is called: by name, and by id too where two have one name."""
    keys = sorted(piles)
    alike = Counter(name for name, _ in keys)
    found: dict[tuple[str, str], str] = {}
    taken: defaultdict[str, int] = defaultdict(int)
    for name, its_id in keys:
        shown = readable(f"{name} ({its_id})" if its_id and alike[name] > 1 else name)
        taken[shown] += 1
        found[name, its_id] = shown if taken[shown] == 1 else f"{shown} [{taken[shown]}]"
    return found


def _submission(student: str, pile: _Pile) -> tuple[Submission, list[Refused]]:
    refused = [Refused(name, why, student) for name, why in pile.refused]
    files = sorted(pile.files, key=lambda file: (file.attempt, file.parts, file.name))
    size = sum(file.size for file in files)
    if len(files) > MOST_FILES or size > MOST_TOGETHER:
        why = f"{len(files):,} notebooks and .py files of {size / 1e6:,.3g} MB were handed in; at most {MOST_FILES:,} "
        refused.append(Refused(files[0].name, f"{why} of {MOST_TOGETHER / 1e6:.3g} MB are read", student))
        files = []
    notes: list[str] = []
    if files or refused:
        notes += [f"{name} {why}" for name, why in pile.others]
    else:
        refused += [Refused(name, why, student) for name, why in pile.others]
    if pile.junk:
        notes.append(f"not looked at, as computers make it for themselves: {_several(pile.junk)}")
    return Submission(student, tuple(files), tuple(notes)), refused


def _several(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown
