"""One student's submission: what the name of a file says, its text, and which file counts for each puzzle.

Only a file's place is kept, and its text is read from there when needed. The latest attempt counts. Within it, a file
named after the puzzle (`05_fsdp.ipynb`, `fsdp (1).py`) precedes others, then one that was worked on precedes an
untouched stub, then an original precedes a copy, then the first by name wins.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from typing import Final, NamedTuple

from lib.puzzles.records import PUZZLES
from lib.suite.grade.gradebook import Refused
from lib.suite.grade.intake.archives import KNOWN, Place, Unreadable, within
from lib.suite.submissions.source import Source, SourceError

LONGEST: Final = 120  # characters of a name that are shown
# Characters of a name that are searched for a puzzle: crafted names could make patterns slow.
LONGEST_STEM: Final = 300
MOST_NAMES: Final = 20  # names that a sentence lists
# Invisible characters that Persian and some emoji need.
JOINERS: Final = frozenset("\u200c\u200d") | frozenset(map(chr, range(0xE0020, 0xE0080)))
COPY: Final = re.compile(KNOWN["files"]["copy"])


class Stem(NamedTuple):
    """A file's name without its ending: the `puzzle` it is named after, the `rest`, and the number of the `copy`."""

    puzzle: str | None
    rest: str
    copy: int = 0


def readable(name: str) -> str:
    """Return a name as it is shown everywhere: one line, no control characters, nothing that changes the direction of
    writing, not too long, and encodable; a long one ends in a digest, so that different names stay different."""
    text = unicodedata.normalize("NFC", name)
    odd = {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - JOINERS
    text = "".join("\ufffd" if char in odd else char for char in text).strip()
    if len(text) > LONGEST:
        return f"{text[: LONGEST - 8]}… {sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"
    return text or "(no name)"


def told_apart(people: Iterable[tuple[str, str]], others: Iterable[str] = ()) -> list[str]:
    """Return a unique name for each person, given name and id: the id is added if several share the name. `others`
    come after them, and have their names already."""
    people = list(people)
    alike, taken = Counter(name for name, _ in people), Counter[str]()
    found: list[str] = []
    for name in (*(f"{name} ({its_id})" if its_id and alike[name] > 1 else name for name, its_id in people), *others):
        shown = readable(name)
        taken[shown] += 1
        found.append(shown if taken[shown] == 1 else f"{shown} [{taken[shown]}]")
    return found


def listed_names(names: Sequence[str]) -> str:
    """List names in a sentence, but only the first ones of many: "a, b and 3 more"."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def ending(name: str) -> str:
    """Return the ending of a file's name in lower case, with its dot; "" if it has none."""
    before, dot, after = name.rpartition(".")
    return f".{after.lower()}" if before and dot and len(after) <= 10 else ""


def is_gradable(name: str) -> bool:
    """Tell whether a file of that name can be graded: a notebook or Python."""
    return ending(name) in (".ipynb", ".py")


def stem_of(name: str) -> Stem:
    """Take a file's name apart: "05_fsdp_ann-2.ipynb" is puzzle fsdp, rest "ann", copy 2."""
    stem = name[: len(name) - len(ending(name))]
    if len(stem) > LONGEST_STEM:
        return Stem(None, stem)
    puzzle, rest = _puzzle_in(stem)
    if (puzzle is None or rest) and (copied := COPY.fullmatch(stem)):
        return Stem(*_puzzle_in(copied["of"]), int(copied["number"] or copied["dash"] or 1))
    return Stem(puzzle, rest)


def _puzzle_in(stem: str) -> tuple[str | None, str]:
    """The puzzle that a name begins or ends with, and the rest of the name."""
    before, after = _patterns()
    if found := before.fullmatch(stem) or after.fullmatch(stem):
        return found["puzzle"].lower(), (found["rest"] or "").strip(" _-.")
    return None, stem


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns for a puzzle's name, with or without its number, at the beginning and at the end of a name."""
    ids = "|".join(sorted(PUZZLES, key=lambda puzzle: (-len(puzzle), puzzle)))
    puzzle = rf"(?:\d{{1,3}}[_ -])?(?P<puzzle>{ids})"
    flags = re.IGNORECASE | re.DOTALL
    return re.compile(rf"{puzzle}(?P<rest>[ _.-].*)?", flags), re.compile(rf"(?P<rest>.*[ _.-]){puzzle}", flags)


# -- text ----------------------------------------------------------------------------------------------------------

SIGNATURES: Final = {mark.encode("latin-1"): kind for kind, marks in KNOWN["signatures"].items() for mark in marks}
CONTROLS: Final = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def decoded(data: bytes) -> tuple[str, int | None]:
    """Read bytes as UTF-8, UTF-16 or UTF-32, by a byte order mark or by zeros among the first bytes; else as
    Windows-1252, and then also return the index of the first byte that did not fit."""
    try:
        return data.decode(json.detect_encoding(data)), None
    except UnicodeDecodeError as error:
        return data.decode("cp1252", "replace"), error.start


def source_of(name: str, data: bytes) -> Source:
    """Return the code of a gradable file called `name`. Unreadable, with a sentence for people, if there is none."""
    is_notebook = ending(name) == ".ipynb"
    wanted = "a notebook" if is_notebook else "Python"
    if (kind := next((kind for mark, kind in SIGNATURES.items() if data.startswith(mark)), None)) is not None:
        raise Unreadable(f"is {kind}, and not {wanted}, whatever it is called; hand in the file itself")
    text, _ = decoded(data)
    if CONTROLS.search(text):
        raise Unreadable("is binary, and no text; hand in the notebook or .py itself, saved in UTF-8")
    if text.lstrip()[:200].lower().startswith(("<!doctype", "<html", "<?xml", "<head", "<body")):
        raise Unreadable(f"is a web page, and not {wanted}: perhaps the page of a login was saved in its place")
    if is_notebook:  # each value begins with a bracket or follows a comma
        within("brackets and commas", sum(map(text.count, "[{,")), "clear its outputs, and hand it in again")
    shown = readable(name)
    shown = shown[: len(shown) - len(ending(name))] + ending(name)
    try:
        return Source.of(shown, text)
    except SourceError as error:
        raise Unreadable(f"{str(error).removeprefix(f'{shown} ')}; hand it in again", error.state) from None


# -- submission ----------------------------------------------------------------------------------------------------

# When a file was handed in, later is greater: the platform's time, the index of the given path, and the number that
# the platform appended to the name of a resubmitted file.
Attempt = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class File:
    """A notebook or .py that was handed in. `name` is its path as shown to people, `parts` the one within the
    submission. Its text is read from its `place`: Unreadable if that is no longer possible."""

    name: str
    place: Place
    size: int
    parts: tuple[str, ...]
    attempt: Attempt = ("", 0, 0)

    @property
    def stem(self) -> Stem:
        """Return what its name says."""
        return stem_of(self.parts[-1])

    def source(self) -> Source:
        """Return its code. Unreadable if there is none."""
        return source_of(self.parts[-1], self.place.read())


@dataclass(frozen=True, slots=True)
class Submission:
    """A student's submission: the files that can be graded, earliest attempt first, and `notes` on all others.

    The `platform` that named the files gave the student an `id`, marked some file as `late`, and put `before` in front
    of each name. The roster has `roster_id` for the student, and `more` are its further columns.
    """

    student: str
    files: tuple[File, ...]
    notes: tuple[str, ...] = ()
    id: str = ""
    platform: str = ""
    late: bool = False
    before: str = ""
    roster_id: str = ""
    more: tuple[tuple[str, str], ...] = ()

    def sources(self) -> Iterator[tuple[File, Source | Refused]]:
        """Yield each file with its code, or with a row for the report if it cannot be read."""
        for file in self.files:
            try:
                yield file, file.source()
            except Unreadable as error:
                yield file, Refused(file.name, str(error), self.student, error.state, file.stem.puzzle or "")


@dataclass(frozen=True, slots=True)
class Collected:
    """All that was handed in: a submission for each student, by name; what cannot be graded; and `notes` on files
    without an owner, such as the platform's own."""

    submissions: tuple[Submission, ...]
    refused: tuple[Refused, ...] = ()
    notes: tuple[str, ...] = ()


# -- choosing ------------------------------------------------------------------------------------------------------

IMPORTS: Final = re.compile(r"^[ \t]*(?:from|import)[ \t].*", re.MULTILINE)
MOST_MODULES: Final = 50  # modules that a file may bring
MOST_CODE_TOGETHER: Final = 8 * 2**20  # characters of one student's code held at once
REASONS: Final[list[str]] = KNOWN["files"]["passed_over"]


class Chosen(NamedTuple):
    """The part of a submission that is graded: the file and code for each puzzle found, notes on the rest, and a row
    for each file that could not be read or lacks its puzzle's function."""

    of: Mapping[str, tuple[File, Source]]
    notes: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()


def chosen(submission: Submission, puzzles: Sequence[str]) -> Chosen:
    """Read the files of a submission, and choose the one that counts for each of `puzzles`."""
    read: dict[File, Source] = {}
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
        read[file] = found
    modules = {file: _modules(file, read) for file in read}
    sources = {
        file: replace(source, modules=tuple((path, read[other].cells[0][1]) for path, other in modules[file].items()))
        for file, source in read.items()
    }
    defined = {file: source.puzzles(puzzles) for file, source in sources.items()}
    of: dict[str, tuple[File, Source]] = {}
    passed: defaultdict[str, list[str]] = defaultdict(list)
    used: set[File] = set()
    for puzzle in puzzles:
        if not (candidates := [file for file in sources if puzzle in defined[file]]):
            continue
        latest = max(file.attempt for file in candidates)
        ranks = {  # smallest first, in the order of REASONS
            file: (
                file.attempt != latest,
                file.stem.puzzle != puzzle,
                len(candidates) > 1 and sources[file].untouched(puzzle),
                file.stem.copy,
                file.parts,
            )
            for file in candidates
        }
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
    unused = [file.name for file in sources if file not in used and file.name not in named]
    passed |= {"holds none of the puzzles that are graded": unused} if unused else {}
    notes = [f"{why}: {listed_names(names)}" for why, names in sorted(passed.items())]
    return Chosen(of, tuple(notes), tuple(refused))


def renamed_in(file: File, source: Source, puzzles: Iterable[str], student: str = "") -> list[Refused]:
    """Return a row for each of `puzzles` that a file is for, but whose function it does not define. It is for the
    puzzle it is named after, else for those whose notebooks' text it contains."""
    its = source.spoken_of() if file.stem.puzzle is None else {file.stem.puzzle}
    claims = [puzzle for puzzle in puzzles if puzzle in its]
    found = source.puzzles(claims)
    rows: list[Refused] = []
    for puzzle in claims:
        try:
            if puzzle not in found:
                why = f"defines no function `{puzzle}`: {source.instead_of(puzzle)}; call yours `{puzzle}`"
                rows.append(Refused(file.name, f"{why}, and hand it in again", student, "renamed", puzzle))
        except SourceError as error:
            rows.append(Refused(file.name, f"cannot be read: {error}", student, puzzle=puzzle))
    return rows


def _modules(file: File, sources: Mapping[File, Source]) -> dict[str, File]:
    """The .py files of the same attempt, in a file's folder or below, that it imports, even indirectly, by path."""
    folder = file.parts[:-1]
    beside = {
        f"{'/'.join(other.parts[len(folder) :])[:-3]}.py": other  # the ending may be in upper case
        for other in sources
        if other != file
        and ending(other.parts[-1]) == ".py"
        and other.attempt[:2] == file.attempt[:2]
        and other.parts[: len(folder)] == folder
    }
    texts = [text for _, text in sources[file].cells]
    taken: dict[str, File] = {}
    while texts and beside and len(taken) < MOST_MODULES:
        words = {word for line in IMPORTS.findall(texts.pop()) for word in re.findall(r"\w+", line)}
        for path in [path for path in beside if words.intersection(path.removesuffix(".py").split("/"))]:
            taken[path] = beside.pop(path)
            texts += [text for _, text in sources[taken[path]].cells]
    return dict(sorted(taken.items()))
