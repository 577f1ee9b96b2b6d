"""One student's submission as data: its files, each with the place from which its text is read when it is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from lib.suite.grade.gradebook import Refused
from lib.suite.grade.intake.archives import Unreadable
from lib.suite.grade.intake.names import PYTHON, Stem, ending, readable, stem_of
from lib.suite.grade.intake.places import Place
from lib.suite.grade.intake.reading import MOST_BYTES, text_of
from lib.suite.submissions.source import Source, SourceError

__all__ = ["Attempt", "Collected", "File", "Submission"]

Attempt = tuple[str, int, int]
"""When a file was handed in, later ones being greater: the time that the platform says, which of the paths that were
given, and a number that the platform put behind the name of a file that was handed in again."""


@dataclass(frozen=True, slots=True)
class File:
    """A notebook or .py that was handed in. `name` is its path as people know it, `parts` that within the submission.

    Nothing of it is held: `text` and `digest` read it from its `place`. Unreadable where that is no longer possible.
    """

    name: str
    place: Place
    size: int
    parts: tuple[str, ...]
    attempt: Attempt = ("", 0, 0)

    @property
    def stem(self) -> Stem:
        """What its name says."""
        return stem_of(self.parts[-1])

    def text(self) -> str:
        """Its text; that of a notebook has nothing but its code. Unreadable where it is damaged, or something else."""
        return text_of(self.parts[-1], self.place.read(MOST_BYTES))

    def digest(self) -> str:
        """The same for the same bytes: whoever keeps it knows whether something else lies there now."""
        return sha256(self.place.read(MOST_BYTES)).hexdigest()[:16]

    def source(self) -> Source:
        """Its code. Unreadable where there is none."""
        kind = ending(self.parts[-1])
        shown = readable(self.parts[-1])
        try:
            return Source.of(shown[: len(shown) - len(kind)] + kind, self.text())
        except SourceError as error:
            raise Unreadable(str(error), error.state) from None


@dataclass(frozen=True, slots=True)
class Submission:
    """What one student handed in: the files that can be graded, earliest attempt first, and in words what became of
    all others (`notes`). `hints` is how many hints were opened of each puzzle, where their progress came along.

    The `platform` that named the files calls the student `id`, marked something of it as `late`, and wrote `before` in
    front of each name. The roster calls them `roster_id`, and `more` are its further columns."""

    student: str
    files: tuple[File, ...]
    notes: tuple[str, ...] = ()
    hints: Mapping[str, int] = field(default_factory=dict[str, int])
    id: str = ""
    platform: str = ""
    late: bool = False
    before: str = ""
    roster_id: str = ""
    more: tuple[tuple[str, str], ...] = ()

    def sources(self) -> Iterator[tuple[File, Source | Refused]]:
        """Each file with its code; with a row for the report where it has none that can be read."""
        for file in self.files:
            try:
                yield file, file.source()
            except Unreadable as error:
                yield file, Refused(file.name, str(error), self.student, error.state, file.stem.puzzle or "")

    def modules_of(self, file: File) -> tuple[File, ...]:
        """The other .py files of the same attempt in the folder of a file, and below it, which it may import."""
        folder = file.parts[:-1]
        return tuple(
            other
            for other in self.files
            if other != file
            and ending(other.parts[-1]) == PYTHON
            and other.attempt[:2] == file.attempt[:2]
            and other.parts[: len(folder)] == folder
        )


@dataclass(frozen=True, slots=True)
class Collected:
    """All that was handed in: a submission for each student, by name; what cannot be graded; and `notes` on files that
    are nobody's, such as the platform's own."""

    submissions: tuple[Submission, ...]
    refused: tuple[Refused, ...] = ()
    notes: tuple[str, ...] = ()
