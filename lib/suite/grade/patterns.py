"""What students of a class have in common: the mistakes that many made, and solutions that are alike and unusual.

**Mistakes.** Each kind is there once, so that one comment serves all who made it. Two messages are of one kind if they
say the same but for what differs from student to student: which ranks, layers, batches and lines, how many, what is in
a store, what somebody called a function. What is compared is the first line of the message and the first line of its
fix, as the same thing happens for different reasons. The kinds of all puzzles are one list: who forgets an `await` in
one forgets it in another.

**Solutions.** Pairs to look at, weighed by how surprising they are, and never judged. Two students are alike in a
puzzle if what they handed in has the same schedule and the same normal form: code that differs in names, layout,
comments and order of helpers alone. How much that weighs is counted in bits, among the N who worked on the puzzle. If n
of them have the schedule, and m of these the normal form too,

    a = log2((N - 1) / (n - 1))     how surprising it is that somebody else has the schedule
    b = log2((n - 1) / (m - 1))     and, given the schedule, the code
    bits = a + min(a, b)

so that what everybody has weighs nothing, whatever its code, and a pair that shares what nobody else has weighs
log2(N - 1). A plain function has no schedule; its code alone weighs log2((N - 1) / (m - 1)) / 2, as there are few ways
to write ten lines. Several puzzles add up. What weighs nothing: a schedule or code of ours (the reference, to which the
hints lead, and our other solutions), a stub, and what came to no schedule at all.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import log2
from typing import Final, NamedTuple

from lib.errors.wording import counted
from lib.puzzles.records import PUZZLES
from lib.schedules.pipelines.action import PASSES, WEIGHTS
from lib.suite.course.solutions import files_of, run_of_file
from lib.suite.grade.gradebook import Gradebook, Score, schedule_of
from lib.suite.submissions.load import source_in

__all__ = ["INNOCENT", "Alike", "Shared", "Similarity", "Solutions", "kind_of", "mistakes", "similar", "solutions_of"]

# -- mistakes ------------------------------------------------------------------------------------------------------

MOST_TEXT: Final = 4000
"""Characters of a message that are looked at."""
LONGEST: Final = 400
"""Characters of a line that are."""
FIX: Final = "fix:"
VERDICTS: Final = ("Not one correct training step.", "Not right yet.")
RANK: Final = re.compile(r"rank \d+(?: \([^)]*\))?: ")
FILE: Final = re.compile(r"[^\n]*?\.(?:py|ipynb)(?:, code cell \d+)?(?:, line \d+:)? (?P<said>.*)")
"""A message that begins with the place in a file, and what it says of it."""
NO_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([^'\n]*)'")
QUOTED: Final = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|⟨[^⟩]*⟩")

ABSTRACT: Final = tuple(
    (re.compile(pattern), new)
    for pattern, new in (
        (r"\bgive [a-zA-Z_]\w* a value\b", "give … a value"),
        (r"\basync function [a-zA-Z_]\w*", "async function …"),
        (r"(\bin line \d+): .*[=(\[].*", r"\1"),  # the student's line
        (r"\((?:del|from) [^()]*(?:\([^()]*\))?[^()]*\)", "(…)"),
        (r"\b0x[0-9a-fA-F]+\b", "#"),
        (r"(?<=\w)\[[^\[\]]*\]", "[#]"),  # what is in a store, under whatever key
        (r"\[[^\[\]]*\]|\{[^{}]*\}", "#"),
        (r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?(?:-\d+)?", "#"),
        (r"\d+", "#"),
        (r"#(?:(?:, and |, | and | -> )#)+", "#"),
        (rf"#?({'|'.join(sorted(PASSES))})#", r"\1#"),
        (rf"#({'|'.join(sorted(WEIGHTS))})", r"\1"),
        (r"\b(batch|microbatch)es\b", r"\1"),
        (r"\b(action|activation|event|gradient|index|item|key|layer|member|rank|shard|stage|time|value)s\b", r"\1"),
        (r"\b(?:was|were)\b", "was"),
        (r"\b(?:has|have)\b", "has"),
        (r"\b(?:is|are)\b", "is"),
        (r"\s+", " "),
    )
)
"""What differs between students who made the same mistake, and what stands for it."""


@dataclass(frozen=True, slots=True)
class Case:
    """Somebody who made a mistake: in which puzzle, and at which size, in words."""

    student: str
    puzzle: str
    size: str


@dataclass(frozen=True, slots=True)
class Mistake:
    """A kind of mistake. `words` are the first line of one message and `fix` what that one says to do ("" where it says
    nothing), `example` is the whole of it; `cases` are all who made it, by puzzle and name."""

    words: str
    fix: str
    example: str
    cases: tuple[Case, ...]

    @property
    def students(self) -> tuple[str, ...]:
        """Return who made it, by name."""
        return tuple(sorted({case.student for case in self.cases}))

    @property
    def puzzles(self) -> tuple[str, ...]:
        """In which puzzles, in order."""
        return tuple(dict.fromkeys(case.puzzle for case in self.cases))


def mistakes(book: Gradebook, puzzle: str | None = None) -> tuple[Mistake, ...]:
    """Return what went wrong in a class, or in one puzzle of it: what most students did first.

    Of each student and puzzle there is one message: that of the puzzle's size, or else of the first other size that
    failed. What is not solved, and what is correct and not good enough, is no mistake.
    """
    found: defaultdict[tuple[str, str], list[tuple[Case, str]]] = defaultdict(list)
    for asked in book.asked:
        if puzzle is not None and asked.puzzle != puzzle:
            continue
        for name, score in sorted(book.of(asked.puzzle).items()):
            result = next((result for result in (score.own, *score.hidden) if result.state == "failed"), None)
            if result is not None:
                case = Case(name, asked.puzzle, result.size)
                message = result.message.removeprefix(f"At {result.size}: ")
                found[kind_of(message, asked.puzzle)].append((case, message))
    made = [Mistake(*_parts(cases[0][1]), cases[0][1], tuple(case for case, _ in cases)) for cases in found.values()]
    order = {asked.puzzle: place for place, asked in enumerate(book.asked)}
    return tuple(sorted(made, key=lambda one: (-len(one.students), order[one.cases[0].puzzle], one.words, one.fix)))


def kind_of(message: str, puzzle: str) -> tuple[str, str]:
    """Return what a message is about: the first lines of what happened and of the fix, without what differs from one
    student to another who made the same mistake."""
    happened, fix = _parts(message)
    names = [one[1:-1] for one in QUOTED.findall(happened)]
    module = NO_MODULE.search(happened)
    first = _abstract(_without_file(happened), puzzle, names)
    if module is not None:  # which one it is makes the difference
        first += f" {module[1]}"
    return first, _abstract(fix.partition("\n")[0], puzzle, names)


def _without_file(happened: str) -> str:
    """Return what is said of a file, without which one and without the student's line."""
    found = FILE.fullmatch(happened)
    if found is None:
        return happened
    said = found["said"].partition("; it has ")[0]
    kind, _, rest = said.partition(": ")
    return said if kind.endswith(("Error", "Exception")) or not rest else kind


def _parts(message: str) -> tuple[str, str]:
    """Return what happened, in a line, and the fix, in as many as it has."""
    lines = [line[:LONGEST] for line in message[:MOST_TEXT].split("\n")]
    if lines[0] in VERDICTS and len(lines) > 1:
        # The first fault of a verdict: its lines stand two to the right.
        lines = [line.removeprefix("  ") for line in lines[1:]]
        last = next((n for n, line in enumerate(lines) if n and not line.startswith(" ")), len(lines))
        lines = lines[:last]
    happened = RANK.sub("", lines[0].strip(), count=1) if RANK.match(lines[0].strip()) else lines[0].strip()
    fix: list[str] = []
    for line in lines[1:]:
        if line.strip().startswith(FIX):
            fix = [line.strip().removeprefix(FIX).strip()]
        elif fix and len(line) - len(line.lstrip()) > 8:
            fix.append(line.strip())
        elif fix:
            break
    return happened, "\n".join(fix)


def _abstract(text: str, puzzle: str, names: list[str]) -> str:
    """A line without what differs from one student to another."""
    text = re.sub(rf"\b{puzzle}\(.*\)(?= raises | is not right)", "this", text)
    text = re.sub(r"(?<=the answer has the key)s? .*(?=; this)|(?<=there is no key) .*(?= in the answer)", " #", text)
    for name in names:
        if name.isidentifier() and len(name) > 1:
            text = re.sub(rf"\b{name}\b", "…", text)
    text = QUOTED.sub("…", text)
    text = re.sub(rf"\b(?:{puzzle}|{'|'.join(PUZZLES)})\b(?=\W|$)", "this", text) if puzzle in text else text
    for pattern, new in ABSTRACT:
        text = pattern.sub(new, text)
    return text.strip()


# -- similarity ----------------------------------------------------------------------------------------------------

LEAST: Final = 1.0
"""Bits below which nothing is listed: less than that of a coin."""
FEW: Final = 8
"""So many students with the same are taken two by two; more are one group."""
INNOCENT: Final = (
    "the puzzle leaves few ways to write it, or the given code and the hints lead there",
    "they worked together where that is allowed, or handed in as a group",
    "both follow the same lecture, tutorial, book, study group or assistant",
    "one person handed in under two names, or a file was uploaded to the wrong place",
)
"""Why it may be as it should. A list of pairs comes with these words, and says of nobody who had it from whom."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A likeness of some students in one puzzle: the digests of the schedule ("" for a plain function) and of the
    normal form, how many `have` exactly this, of how many who worked on it, and how much it weighs."""

    puzzle: str
    schedule: str
    source: str
    have: int
    of: int
    bits: float

    def words(self) -> str:
        """It in words."""
        what = "the same code" if PUZZLES[self.puzzle].is_function else "the same schedule, from the same code"
        who = f"{self.have} of the {counted(self.of, 'student')} who worked on it have it"
        return f"{self.puzzle}: {what} but for names, layout and comments; {who} ({self.bits:.1f} bits)"


@dataclass(frozen=True, slots=True)
class Alike:
    """Students to look at together, two or more, what each two of them share, and how much that weighs, in bits."""

    students: tuple[str, ...]
    shared: tuple[Shared, ...]
    bits: float


@dataclass(frozen=True, slots=True)
class Ours:
    """Students whose code of a puzzle is that of one of our solutions, but for names, layout and comments. Anybody may
    read those, where the course shows them: it weighs nothing."""

    puzzle: str
    solution: str
    students: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Similarity:
    """The students who are alike, the most surprising first; and those whose code is ours."""

    alike: tuple[Alike, ...] = ()
    ours: tuple[Ours, ...] = ()


class Solutions(NamedTuple):
    """Our solutions of a puzzle: the digests of their schedules, and the names of their files by normal form."""

    schedules: frozenset[str]
    sources: dict[str, str]


@cache
def solutions_of(puzzle: str) -> Solutions:
    """Our solutions of a puzzle: the reference and the alternatives."""
    schedules: set[str] = set()
    sources: dict[str, str] = {}
    for path in files_of(puzzle).values():
        sources.setdefault(source_in(path).normalised(puzzle), path.name)
        if not PUZZLES[puzzle].is_function:
            schedules.add(schedule_of(run_of_file(path, puzzle)).digest)
    return Solutions(frozenset(schedules), sources)


def similar(book: Gradebook, solutions: Callable[[str], Solutions] = solutions_of) -> Similarity:
    """Return who in a class is alike. The same for the same gradebook, in whatever order its students are."""
    kinds: dict[str, dict[str, Shared]] = {}
    ours: list[Ours] = []
    for asked in book.asked:
        kinds[asked.puzzle], same = _kinds(asked.puzzle, book.of(asked.puzzle), solutions)
        ours += same
    return Similarity(tuple(_alike(kinds)), tuple(ours))


def _kinds(
    puzzle: str, scores: dict[str, Score], solutions: Callable[[str], Solutions]
) -> tuple[dict[str, Shared], list[Ours]]:
    """Return what each student shares with somebody, where that weighs something; and whose code is ours."""
    worked = {name: score for name, score in sorted(scores.items()) if score.state != "unsolved" and score.source}
    is_function = PUZZLES[puzzle].is_function
    having: defaultdict[str, list[str]] = defaultdict(list)
    writing: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, score in worked.items():
        having[score.own.schedule].append(name)
        writing[score.own.schedule, score.source].append(name)
    known = solutions(puzzle) if worked else Solutions(frozenset(), {})
    found: dict[str, Shared] = {}
    same: defaultdict[str, list[str]] = defaultdict(list)
    for (schedule, source), students in writing.items():
        if source in known.sources:
            same[known.sources[source]] += students
        elif len(students) > 1 and schedule not in known.schedules and (schedule or is_function):
            bits = _bits(len(worked), None if is_function else len(having[schedule]), len(students))
            if bits > 0:
                shared = Shared(puzzle, schedule, source, len(students), len(worked), bits)
                found.update(dict.fromkeys(students, shared))
    return found, [Ours(puzzle, solution, tuple(sorted(who))) for solution, who in sorted(same.items())]


def _bits(worked: int, having: int | None, writing: int) -> float:
    """Return how much it weighs. `having`: None for a plain function."""
    if having is None:
        return round(log2((worked - 1) / (writing - 1)) / 2, 6)
    schedule = log2((worked - 1) / (having - 1))
    return round(schedule + min(schedule, log2((having - 1) / (writing - 1))), 6)


def _alike(kinds: dict[str, dict[str, Shared]]) -> list[Alike]:
    """Students by what they share, the most surprising first. Pairs are made within a few students alone, so that there
    are never more than a few times as many as students."""
    of: defaultdict[Shared, list[str]] = defaultdict(list)
    for found in kinds.values():
        for name, shared in found.items():
            of[shared].append(name)
    groups: defaultdict[tuple[Shared, ...], set[str]] = defaultdict(set)
    pairs = {pair for students in of.values() if len(students) <= FEW for pair in combinations(sorted(students), 2)}
    for one, other in pairs:
        groups[_common(kinds, (one, other))].update((one, other))
    for students in {tuple(sorted(students)) for students in of.values() if len(students) > FEW}:
        groups[_common(kinds, students)].update(students)
    found = (
        Alike(tuple(sorted(who)), shared, round(sum(one.bits for one in shared), 6)) for shared, who in groups.items()
    )
    return sorted((one for one in found if one.bits >= LEAST), key=lambda one: (-one.bits, one.students))


def _common(kinds: dict[str, dict[str, Shared]], students: Iterable[str]) -> tuple[Shared, ...]:
    """Return what all of some students share, in the order of the puzzles."""
    first, *others = students
    shared = (found.get(first) for found in kinds.values())
    return tuple(
        one for one in shared if one is not None and all(kinds[one.puzzle].get(other) == one for other in others)
    )
