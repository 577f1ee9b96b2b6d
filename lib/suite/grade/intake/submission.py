"""One student's submission: its files as data, and which of them counts for each puzzle.

Nothing is held of a file but the place from which its text is read when it is wanted. The latest attempt counts. Within
it the file that is called after the puzzle (`05_fsdp.ipynb`, `fsdp (1).py`) goes before others, then one in which
something was written before the untouched stub, then the one that is no copy, then the first by name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from lib.suite.grade.gradebook import Refused
from lib.suite.grade.intake.archives import Place, Unreadable
from lib.suite.grade.intake.owners import PYTHON, Stem, ending, listed_names, readable, stem_of
from lib.suite.grade.intake.reading import MOST_BYTES, text_of
from lib.suite.submissions.source import Source, SourceError

__all__ = ["Chosen", "Collected", "File", "Submission", "chosen", "renamed_in"]

# -- submission ----------------------------------------------------------------------------------------------------

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
        """Return what its name says."""
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
    """A student's submission: the files that can be graded, earliest attempt first, and in words what became of all
    others (`notes`). `hints` is how many hints were opened of each puzzle, where their progress came along.

    The `platform` that named the files calls the student `id`, marked something of it as `late`, and wrote `before` in
    front of each name. The roster calls them `roster_id`, and `more` are its further columns.
    """

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


# -- choosing ------------------------------------------------------------------------------------------------------

IMPORTS: Final = re.compile(r"^[ \t]*(?:from|import)[ \t].*", re.MULTILINE)
MOST_MODULES: Final = 50
"""Modules that a file may bring."""
MOST_CODE_TOGETHER: Final = 8 * 2**20
"""Characters of code of one student that are held at once."""
REASONS: Final = (
    "passed over, as a later attempt counts",
    "passed over, as another file has the name of the puzzle",
    "passed over, as its gap still holds the stub",
    "passed over, as a copy",
    "passed over, as another file comes first by name",
)
"""Why a file does not count for a puzzle: by what in its rank is first not that of the file which counts."""
NOTHING: Final = "holds none of the puzzles that are graded"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The part of a submission that is graded: the file and the code of each puzzle that is there, what is to be
    said of the rest, and a row for each file that could not be read."""

    of: Mapping[str, tuple[File, Source]]
    notes: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()


def chosen(submission: Submission, puzzles: Sequence[str]) -> Chosen:
    """Read the files of a submission, and say which one counts for each of `puzzles`."""
    read, refused = _read(submission)
    modules = {file: _modules(submission, file, read) for file in read}
    sources = {
        file: replace(source, modules=tuple((path, read[other].cells[0][1]) for path, other in modules[file].items()))
        for file, source in read.items()
    }
    defined: dict[File, frozenset[str]] = {}
    of: dict[str, tuple[File, Source]] = {}
    passed: defaultdict[str, list[str]] = defaultdict(list)
    used: set[File] = set()
    for puzzle in puzzles:
        candidates = _candidates(puzzle, sources, defined)
        if not candidates:
            continue
        ranks = {file: _rank(file, sources[file], puzzle, candidates) for file in candidates}
        first = min(candidates, key=ranks.__getitem__)
        of[puzzle] = first, sources[first]
        used.update(candidates, modules[first].values())
        for file in candidates:
            if file != first:
                pairs = zip(REASONS, ranks[file], ranks[first], strict=True)
                why = next((reason for reason, its, best in pairs if its != best), REASONS[-1])
                passed[why].append(f"{puzzle} in {file.name}")
    lacking = [puzzle for puzzle in puzzles if puzzle not in of]
    refused += [row for file in sources for row in renamed_in(file, sources[file], lacking, submission.student)]
    named = {row.file for row in refused}
    passed[NOTHING] += [file.name for file in sources if file not in used and file.name not in named]
    notes = [f"{why}: {listed_names(names)}" for why, names in sorted(passed.items()) if names]
    return Chosen(of, tuple(notes), tuple(refused))


def renamed_in(file: File, source: Source, puzzles: Iterable[str], student: str = "") -> list[Refused]:
    """A row for each of some puzzles that a file is there for, and whose function it does not define. It is there for
    the puzzle that it is called after, else for those of whose notebooks it has text."""
    its = source.spoken_of() if file.stem.puzzle is None else {file.stem.puzzle}
    claims = [puzzle for puzzle in puzzles if puzzle in its]
    found = source.puzzles() if claims else ()
    rows: list[Refused] = []
    for puzzle in claims:
        try:
            if puzzle not in found:
                why = f"defines no function `{puzzle}`: {source.instead_of(puzzle)}; call yours `{puzzle}`"
                rows.append(Refused(file.name, f"{why}, and hand it in again", student, "renamed", puzzle))
        except SourceError as error:
            rows.append(Refused(file.name, f"cannot be read: {error}", student, puzzle=puzzle))
    return rows


def _read(submission: Submission) -> tuple[dict[File, Source], list[Refused]]:
    """The code of each file, and a row for each that has none."""
    sources: dict[File, Source] = {}
    refused: list[Refused] = []
    held = 0
    for file, found in submission.sources():
        if isinstance(found, Refused):
            refused.append(found)
            continue
        held += sum(len(text) for _, text in found.cells)
        if held > MOST_CODE_TOGETHER:
            why = f"and what comes after it is not read: there are more than {MOST_CODE_TOGETHER / 1e6:.2g} MB of code"
            refused.append(Refused(file.name, why, submission.student))
            break
        sources[file] = found
    return sources, refused


def _candidates(puzzle: str, sources: Mapping[File, Source], defined: dict[File, frozenset[str]]) -> list[File]:
    """The files that define the function of a puzzle. `defined` keeps what is known of each file.

    To know it for certain is to parse them, which takes most of the time of taking in a class. That is left out where
    a single file is called after the puzzle and writes `def` before its name, since that one counts in any case.
    """
    word = re.compile(rf"\b{puzzle}\b")
    named = [  # what is not ASCII may be another spelling of it
        file
        for file, source in sources.items()
        if any(not text.isascii() or (puzzle in text and word.search(text)) for _, text in source.cells)
    ]
    definition = re.compile(rf"^(?:async[ \t]+)?def[ \t]+{puzzle}[ \t]*\(", re.MULTILINE)
    plain = [file for file in named if any(definition.search(text) for _, text in sources[file].cells)]
    called = [file for file in named if file.stem.puzzle == puzzle]
    if len(called) == 1 and called[0] in plain and len({file.attempt for file in named}) == 1:
        return plain
    for file in named:
        if file not in defined:
            defined[file] = frozenset(sources[file].puzzles())
    return [file for file in named if puzzle in defined[file]]


Rank = tuple[bool, bool, bool, int, tuple[str, ...]]


def _rank(file: File, source: Source, puzzle: str, candidates: Sequence[File]) -> Rank:
    """Return what goes before what, smallest first; its places are those of REASONS."""
    stem = file.stem
    latest = max(other.attempt for other in candidates)
    untouched = len(candidates) > 1 and source.untouched(puzzle)
    return file.attempt != latest, stem.puzzle != puzzle, untouched, stem.copy, file.parts


def _modules(submission: Submission, file: File, sources: Mapping[File, Source]) -> dict[str, File]:
    """The modules beside a file that it imports, and that those import, by their path from it."""
    depth = len(file.parts) - 1
    beside = {
        f"{'/'.join(other.parts[depth:])[:-3]}.py": other  # whose ending may be in capitals
        for other in submission.modules_of(file)
        if other in sources
    }
    texts = [text for _, text in sources[file].cells]
    taken: dict[str, File] = {}
    while texts and beside and len(taken) < MOST_MODULES:
        words = {word for line in IMPORTS.findall(texts.pop()) for word in re.findall(r"\w+", line)}
        for path in [path for path in beside if words.intersection(path.removesuffix(".py").split("/"))]:
            taken[path] = beside.pop(path)
            texts += [text for _, text in sources[taken[path]].cells]
    return dict(sorted(taken.items()))
