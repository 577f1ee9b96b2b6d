"""What students of a class have in common: the mistakes that many made, and solutions that are alike and unusual.

**Mistakes.** Each kind is listed once, so that one comment serves all who made it. Two messages are of one kind if the
first lines of what happened and of the fix agree except in what varies between students: which ranks, layers and
lines, how many, what is in a store, the name of a function. All puzzles share one list of kinds.

**Solutions.** Pairs to look at, weighed by how surprising they are, and never judged. Two students are alike in a
puzzle if what they handed in has the same schedule and the same normal form. That weighs a number of bits among the N
who worked on the puzzle. If n of them have the schedule, and m of these the normal form too,

    a = log2((N - 1) / (n - 1))     how surprising it is that another student has the schedule
    b = log2((n - 1) / (m - 1))     and, given the schedule, the code
    bits = a + min(a, b)

so that a schedule that everybody has weighs nothing, whatever its code, and a pair that shares a unique one weighs
log2(N - 1). A plain function has no schedule; its code alone weighs log2((N - 1) / (m - 1)) / 2, as there are few ways
to write ten lines. What the same students share in several puzzles adds up. Nothing is weighed for a schedule or code
of ours (the reference, to which the hints lead, and our other solutions), a stub, or code that made no schedule.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from math import log2
from typing import Any, Final, NamedTuple

from lib.checker.verdict import WRONG, WRONG_ELSEWHERE, WRONG_FUNCTION
from lib.errors.wording import counted
from lib.files import table
from lib.puzzles.records import PUZZLES
from lib.suite.course.solutions import files_of, run_of_file
from lib.suite.grade.gradebook import Gradebook, schedule_of
from lib.suite.submissions.load import source_in

RANK: Final = re.compile(r"rank \d+(?: \([^)]*\))?: ")
# A message that begins with a place in a file, and what it says about that, without the student's line.
FILE: Final = re.compile(r"[^\n]*?\.(?:py|ipynb)(?:, code cell \d+)?(?:, line \d+:)? (?P<said>.*)")
QUOTED: Final = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|⟨[^⟩]*⟩")
KINDS: Final[dict[str, Any]] = table("lib.suite.grade", "kinds")
# What differs between students who made the same mistake, and what replaces it.
ABSTRACT: Final = tuple((re.compile(one["pattern"]), one["becomes"]) for one in KINDS["abstract"])


class Case(NamedTuple):
    """A student who made a mistake, in which puzzle, and at which size, in words."""

    student: str
    puzzle: str
    size: str


class Mistake(NamedTuple):
    """A kind of mistake. `words` is the first line of one message, `fix` its advice ("" if it has none), and `example`
    all of it; `cases` are all who made the mistake, by puzzle and name."""

    words: str
    fix: str
    example: str
    cases: tuple[Case, ...]

    @property
    def students(self) -> tuple[str, ...]:
        """Return the students who made it, by name."""
        return tuple(sorted({case.student for case in self.cases}))

    @property
    def puzzles(self) -> tuple[str, ...]:
        """Return the puzzles it was made in, in order."""
        return tuple(dict.fromkeys(case.puzzle for case in self.cases))


def mistakes(book: Gradebook) -> tuple[Mistake, ...]:
    """Return the mistakes of a class, the most common first. Each student and puzzle counts with one message, from the
    first size that failed. A puzzle left unsolved, or a missed goal, is not a mistake."""
    found: defaultdict[tuple[str, str], list[tuple[Case, str]]] = defaultdict(list)
    order = [asked.puzzle for asked in book.asked]
    for one in order:
        for name, score in sorted(book.of(one).items()):
            result = next((result for result in (score.own, *score.hidden) if result.state == "failed"), None)
            if result is not None:
                message = result.message.removeprefix(f"At {result.size}: ")
                found[kind_of(message, one)].append((Case(name, one, result.size), message))
    made = [Mistake(*_parts(cases[0][1]), cases[0][1], tuple(case for case, _ in cases)) for cases in found.values()]
    return tuple(
        sorted(made, key=lambda one: (-len(one.students), order.index(one.cases[0].puzzle), one.words, one.fix))
    )


def kind_of(message: str, puzzle: str) -> tuple[str, str]:
    """Return the kind of a message: the first lines of what happened and of the fix, without what varies between
    students who made the same mistake."""
    happened, fix = _parts(message)
    quoted = [one[1:-1] for one in QUOTED.findall(happened)]
    names = [name for name in quoted if name.isidentifier() and len(name) > 1]
    said, kind = happened, ""
    if of_file := FILE.fullmatch(happened):
        said = of_file["said"].partition("; it has ")[0]
        kind, _, rest = said.partition(": ")
        said = said if kind.endswith(("Error", "Exception")) or not rest else kind
    texts: list[str] = []
    for text in (said, fix.partition("\n")[0]):
        text = re.sub(rf"\b{puzzle}\(.*\)(?= raises | is not right)", "this", text)
        text = re.sub(r"(?<=the answer has the key)s? .*(?=; this)|(?<=there is no key) .*(?= in the answer)", "", text)
        text = re.sub(rf"\b(?:{'|'.join(names)})\b", "…", text) if names else text
        text = re.sub(rf"\b(?:{'|'.join((puzzle, *PUZZLES))})\b", "this", QUOTED.sub("…", text))
        for pattern, new in ABSTRACT:
            text = pattern.sub(new, text)
        texts.append(" ".join(text.split()))
    # Different modules are different mistakes.
    return f"{texts[0]} {quoted}" if kind == "ModuleNotFoundError" else texts[0], texts[1]


def _parts(message: str) -> tuple[str, str]:
    """Return what happened, in a line, and the fix, with all its lines."""
    lines = [line[:400] for line in message[:4000].split("\n")]  # crafted text could make patterns slow
    if lines[0] in (WRONG, WRONG_ELSEWHERE, WRONG_FUNCTION) and len(lines) > 1:
        # The first fault of a verdict: its lines are indented by two.
        lines = [line.removeprefix("  ") for line in lines[1:]]
        lines = lines[: next((n for n, line in enumerate(lines) if n and not line.startswith(" ")), len(lines))]
    first, fix = RANK.sub("", lines[0].strip(), count=1), list[str]()
    for line in lines[1:]:
        if line.strip().startswith("fix:"):
            fix = [line.strip().removeprefix("fix:").strip()]
        elif fix and len(line) - len(line.lstrip()) > 8:
            fix.append(line.strip())
        elif fix:
            break
    return first, "\n".join(fix)


# -- similarity ----------------------------------------------------------------------------------------------------

# Innocent reasons to be alike. They go with every list of pairs, which never says who copied from whom.
INNOCENT: Final[list[str]] = KINDS["innocent"]


class Shared(NamedTuple):
    """A likeness of students in one puzzle: the digests of the schedule ("" for a plain function) and of the normal
    form, how many students `have` both, `of` how many who worked on it, and its weight in bits."""

    puzzle: str
    schedule: str
    source: str
    have: int
    of: int
    bits: float

    def words(self) -> str:
        """Say it in words."""
        what = "the same code" if PUZZLES[self.puzzle].is_function else "the same schedule, from the same code"
        who = f"{self.have} of the {counted(self.of, 'student')} who worked on it have it"
        return f"{self.puzzle}: {what} but for names, layout and comments; {who} ({self.bits:.1f} bits)"


class Alike(NamedTuple):
    """Two or more students to look at together, what only they share, and its weight in bits."""

    students: tuple[str, ...]
    shared: tuple[Shared, ...]
    bits: float


class Ours(NamedTuple):
    """Students whose code for a puzzle is one of our solutions, except for names, layout and comments. That weighs
    nothing, as anybody may read those where the course shows them."""

    puzzle: str
    solution: str
    students: tuple[str, ...]


class Similarity(NamedTuple):
    """The students who are alike, the most surprising first; and those whose code is ours."""

    alike: tuple[Alike, ...] = ()
    ours: tuple[Ours, ...] = ()


Solutions = tuple[frozenset[str], dict[str, str]]
"""Our solutions of a puzzle: the digests of their schedules, and the names of their files by normal form."""


@cache
def solutions_of(puzzle: str) -> Solutions:
    """Return our solutions of a puzzle: the reference and the alternatives."""
    paths = list(files_of(puzzle).values())
    runs = [] if PUZZLES[puzzle].is_function else [run_of_file(path, puzzle) for path in paths]
    sources = {source_in(path).normalised(puzzle): path.name for path in reversed(paths)}  # the first wins
    return frozenset(schedule_of(run).digest for run in runs), sources


def similar(book: Gradebook, solutions: Callable[[str], Solutions] = solutions_of) -> Similarity:
    """Return the students of a class who are alike, independent of their order in the gradebook."""
    groups: dict[Shared, list[str]] = {}
    ours: list[Ours] = []
    for puzzle in (asked.puzzle for asked in book.asked):
        writing: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for name, score in sorted(book.of(puzzle).items()):
            if score.state != "unsolved" and score.source:
                writing[score.own.schedule, score.source].append(name)
        schedules, sources = solutions(puzzle) if writing else (frozenset[str](), dict[str, str]())
        worked = sum(map(len, writing.values()))
        same: defaultdict[str, list[str]] = defaultdict(list)
        for (schedule, source), students in writing.items():
            if source in sources:
                same[sources[source]] += students
            elif len(students) > 1 and schedule not in schedules:
                having = (
                    sum(len(names) for (its, _), names in writing.items() if its == schedule) if schedule else worked
                )
                rare, code = log2((worked - 1) / (having - 1)), log2((having - 1) / (len(students) - 1))
                bits = rare + min(rare, code) if schedule else code / 2 if PUZZLES[puzzle].is_function else 0.0
                if bits > 0:
                    groups[Shared(puzzle, schedule, source, len(students), worked, round(bits, 6))] = students
        ours += (Ours(puzzle, solution, tuple(sorted(who))) for solution, who in sorted(same.items()))
    together: defaultdict[tuple[str, ...], list[Shared]] = defaultdict(list)
    for shared, students in groups.items():
        together[tuple(sorted(students))].append(shared)
    alike = [
        Alike(who, tuple(several), round(sum(one.bits for one in several), 6)) for who, several in together.items()
    ]
    # What weighs less than a coin toss is not listed.
    listed = sorted((one for one in alike if one.bits >= 1), key=lambda one: (-one.bits, one.students))
    return Similarity(tuple(listed), tuple(ours))
