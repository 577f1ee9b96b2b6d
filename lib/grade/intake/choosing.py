"""Which of a student's files counts for each puzzle, when there are several, and what is said of the others.

The latest attempt counts. Within it the file that is called after the puzzle (`05_fsdp.ipynb`, `fsdp (1).py`) goes
before others, then one in which something was written before the untouched stub, then the one that is no copy, then
the first by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lib.grade.gradebook import Refused
from lib.grade.intake.archives import Unreadable
from lib.grade.intake.submission import File, Submission
from lib.submissions.source import Source

__all__ = ["Chosen", "chosen"]

IMPORTS: Final = re.compile(r"^[ \t]*(?:from|import)[ \t].*", re.MULTILINE)
MOST_MODULES: Final = 50
"""Modules that a file may bring."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is graded of one submission: the file and the code of each puzzle that is there, what is to be said of the
    rest, and a row for each file that could not be read."""

    of: Mapping[str, tuple[File, Source]]
    notes: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()


def chosen(submission: Submission, puzzles: Sequence[str]) -> Chosen:
    """Reads the files of a submission and says which one counts for each of `puzzles`."""
    sources: list[tuple[File, Source]] = []
    refused: list[Refused] = []
    for file, found in submission.sources():
        if isinstance(found, Refused):
            refused.append(found)
        else:
            sources.append((file, found))
    of: dict[str, tuple[File, Source]] = {}
    notes: list[str] = []
    defined = [set(source.puzzles()) for _, source in sources]
    for puzzle in puzzles:
        candidates = [one for one, its in zip(sources, defined, strict=True) if puzzle in its]
        if candidates:
            file, source = _first(candidates, puzzle)
            of[puzzle] = file, _with_modules(submission, file, source)
            if others := sorted(other.name for other, _ in candidates if other != file):
                notes.append(f"{puzzle}: {file.name} counts, and not {_several(others)}")
    return Chosen(of, tuple(notes), tuple(refused))


def _first(candidates: Sequence[tuple[File, Source]], puzzle: str) -> tuple[File, Source]:
    latest = max(file.attempt for file, _ in candidates)
    now = [one for one in candidates if one[0].attempt == latest]
    return min(now, key=lambda one: _rank(*one, puzzle))


def _rank(file: File, source: Source, puzzle: str) -> tuple[bool, bool, int, tuple[str, ...]]:
    """What goes before what, smallest first."""
    stem = file.stem
    return stem.puzzle != puzzle, source.untouched(puzzle), stem.copy, file.parts


def _several(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


# -- modules ----------------------------------------------------------------------------------------------------


def _with_modules(submission: Submission, file: File, source: Source) -> Source:
    """A source with the modules beside it that it imports, and that those import."""
    beside = {_dotted(other, file): other for other in submission.modules_of(file)}
    texts = [text for _, text in source.cells]
    taken: dict[str, str] = {}
    while texts and beside and len(taken) < MOST_MODULES:
        words = {word for line in IMPORTS.findall(texts.pop()) for word in re.findall(r"\w+", line)}
        for path in [path for path in beside if words.intersection(path.removesuffix(".py").split("/"))]:
            try:
                taken[path] = beside.pop(path).text()
            except Unreadable:  # it has its row already: `sources` gave it
                continue
            texts.append(taken[path])
    return Source(source.cells, tuple(sorted(taken.items())))


def _dotted(other: File, file: File) -> str:
    """The path of a module from the folder of a file, with its ending in small letters."""
    path = "/".join(other.parts[len(file.parts) - 1 :])
    return f"{path[:-3]}.py"
