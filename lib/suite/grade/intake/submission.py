"""One student's submission: what the name of a file says, its text, and which file counts for each puzzle.

Nothing is held of a file but the place from which its text is read when it is wanted. The latest attempt counts. Within
it the file that is called after the puzzle (`05_fsdp.ipynb`, `fsdp (1).py`) goes before others, then one in which
something was written before the untouched stub, then the one that is no copy, then the first by name.
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
# Characters of a name in which a puzzle is looked for: what compares patterns takes long with what is made for it.
LONGEST_STEM: Final = 300
MOST_NAMES: Final = 20  # names that a sentence lists
# Invisible characters without which Persian, and some emoji, are not what they are.
JOINERS: Final = frozenset("\u200c\u200d") | frozenset(map(chr, range(0xE0020, 0xE0080)))
COPY: Final = re.compile(KNOWN["files"]["copy"])


class Stem(NamedTuple):
    """A file's name without its ending: the `puzzle` that it is called after, the `rest`, and which `copy` it is."""

    puzzle: str | None
    rest: str
    copy: int = 0


def readable(name: str) -> str:
    """Return a name as it is shown everywhere: one line, no control characters, nothing that turns the direction of
    writing, not too long, and encodable; a long one ends in a digest, so that two of them differ."""
    text = unicodedata.normalize("NFC", name)
    odd = {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - JOINERS
    text = "".join("\ufffd" if char in odd else char for char in text).strip()
    if len(text) > LONGEST:
        return f"{text[: LONGEST - 8]}… {sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"
    return text or "(no name)"


def told_apart(people: Iterable[tuple[str, str]], others: Iterable[str] = ()) -> list[str]:
    """Return what each is called, of whom there are name and id: with the id where two have one name, and never as
    another is. `others` come after them, and are called so already."""
    people = list(people)
    alike, taken = Counter(name for name, _ in people), Counter[str]()
    found: list[str] = []
    for name in (*(f"{name} ({its_id})" if its_id and alike[name] > 1 else name for name, its_id in people), *others):
        shown = readable(name)
        taken[shown] += 1
        found.append(shown if taken[shown] == 1 else f"{shown} [{taken[shown]}]")
    return found


def listed_names(names: Sequence[str]) -> str:
    """Names in a sentence, of very many their beginning: "a, b and 3 more"."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def ending(name: str) -> str:
    """Return the ending of a file's name in small letters, with its dot; "" where it has none."""
    before, dot, after = name.rpartition(".")
    return f".{after.lower()}" if before and dot and len(after) <= 10 else ""


def is_gradable(name: str) -> bool:
    """Return whether a file of that name can be graded: a notebook or Python."""
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


# -- text ----------------------------------------------------------------------------------------------------------

SIGNATURES: Final = {mark.encode("latin-1"): kind for kind, marks in KNOWN["signatures"].items() for mark in marks}
CONTROLS: Final = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def decoded(data: bytes) -> tuple[str, int | None]:
    """Read bytes as text in UTF-8, UTF-16 or UTF-32, as a mark at their beginning says, or which of the first are 0;
    else in Windows-1252, and then return the place of the first byte that does not fit, too."""
    try:
        return data.decode(json.detect_encoding(data)), None
    except UnicodeDecodeError as error:
        return data.decode("cp1252", "replace"), error.start


def source_of(name: str, data: bytes) -> Source:
    """Return the code of a file called `name` that can be graded. Unreadable, with a sentence for people, where there
    is none."""
    is_notebook = ending(name) == ".ipynb"
    wanted = "a notebook" if is_notebook else "Python"
    if (kind := next((kind for mark, kind in SIGNATURES.items() if data.startswith(mark)), None)) is not None:
        raise Unreadable(f"is {kind}, and not {wanted}, whatever it is called; hand in the file itself")
    text, _ = decoded(data)
    if CONTROLS.search(text):
        raise Unreadable("is binary, and no text; hand in the notebook or .py itself, saved in UTF-8")
    if text.lstrip()[:200].lower().startswith(("<!doctype", "<html", "<?xml", "<head", "<body")):
        raise Unreadable(f"is a web page, and not {wanted}: perhaps the page of a login was saved in its place")
    if is_notebook:  # each value begins with a bracket, or comes after a comma
        within("brackets and commas", sum(map(text.count, "[{,")), "clear its outputs, and hand it in again")
    shown = readable(name)
    shown = shown[: len(shown) - len(ending(name))] + ending(name)
    try:
        return Source.of(shown, text)
    except SourceError as error:
        raise Unreadable(f"{str(error).removeprefix(f'{shown} ')}; hand it in again", error.state) from None


# -- submission ----------------------------------------------------------------------------------------------------

# When a file was handed in, later ones being greater: the time that the platform says, which of the paths that were
# given, and a number that the platform put behind the name of a file that was handed in again.
Attempt = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class File:
    """A notebook or .py that was handed in. `name` is its path as people know it, `parts` that within the submission.
    Its text is read from its `place`: Unreadable where that is no longer possible."""

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
        """Its code. Unreadable where there is none."""
        return source_of(self.parts[-1], self.place.read())


@dataclass(frozen=True, slots=True)
class Submission:
    """A student's submission: the files that can be graded, earliest attempt first, and in words what became of all
    others (`notes`).

    The `platform` that named the files calls the student `id`, marked something of it as `late`, and wrote `before` in
    front of each name. The roster calls them `roster_id`, and `more` are its further columns.
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
        """Yield each file with its code; with a row for the report where it has none that can be read."""
        for file in self.files:
            try:
                yield file, file.source()
            except Unreadable as error:
                yield file, Refused(file.name, str(error), self.student, error.state, file.stem.puzzle or "")


@dataclass(frozen=True, slots=True)
class Collected:
    """All that was handed in: a submission for each student, by name; what cannot be graded; and `notes` on files that
    are nobody's, such as the platform's own."""

    submissions: tuple[Submission, ...]
    refused: tuple[Refused, ...] = ()
    notes: tuple[str, ...] = ()


# -- choosing ------------------------------------------------------------------------------------------------------

IMPORTS: Final = re.compile(r"^[ \t]*(?:from|import)[ \t].*", re.MULTILINE)
MOST_MODULES: Final = 50  # modules that a file may bring
MOST_CODE_TOGETHER: Final = 8 * 2**20  # characters of code of one student that are held at once
REASONS: Final[list[str]] = KNOWN["files"]["passed_over"]


class Chosen(NamedTuple):
    """The part of a submission that is graded: the file and the code of each puzzle that is there, what is to be
    said of the rest, and a row for each file that could not be read."""

    of: Mapping[str, tuple[File, Source]]
    notes: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()


def chosen(submission: Submission, puzzles: Sequence[str]) -> Chosen:
    """Read the files of a submission, and say which one counts for each of `puzzles`."""
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
        ranks = {  # smallest first, by place of REASONS
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
    """Return a row for each of some puzzles that a file is there for, and whose function it does not define. It is
    there for the puzzle that it is called after, else for those of whose notebooks it has text."""
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
    """The .py in a file's folder and below, of its attempt, that it imports, and that those import, by path from it."""
    folder = file.parts[:-1]
    beside = {
        f"{'/'.join(other.parts[len(folder) :])[:-3]}.py": other  # whose ending may be in capitals
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
