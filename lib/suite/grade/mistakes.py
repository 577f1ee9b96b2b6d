"""What went wrong in a class, each kind of mistake once, so that one comment serves all who made it.

Two messages are of one kind if they say the same but for what differs from student to student: which ranks, layers,
batches and lines, how many, what is in a store, what somebody called a function. What is compared is the first line of
the message and the first line of its fix, as the same thing happens for different reasons. The kinds of all puzzles are
one list: who forgets an `await` in one forgets it in another.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from lib.puzzles.records import PUZZLES
from lib.schedules.pipelines.action import PASSES, WEIGHTS
from lib.suite.grade.gradebook import Gradebook, Result, Score

__all__ = ["Case", "Mistake", "kind_of", "mistakes"]

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
        """Who made it, by name."""
        return tuple(sorted({case.student for case in self.cases}))

    @property
    def puzzles(self) -> tuple[str, ...]:
        """In which puzzles, in order."""
        return tuple(dict.fromkeys(case.puzzle for case in self.cases))


def mistakes(book: Gradebook, puzzle: str | None = None) -> tuple[Mistake, ...]:
    """What went wrong in a class, or in one puzzle of it: what most students did first.

    Of each student and puzzle there is one message: that of the puzzle's size, or else of the first other size that
    failed. What is not solved, and what is correct and not good enough, is no mistake.
    """
    found: defaultdict[tuple[str, str], list[tuple[Case, str]]] = defaultdict(list)
    for asked in book.asked:
        if puzzle is not None and asked.puzzle != puzzle:
            continue
        for name, score in sorted(book.of(asked.puzzle).items()):
            result = _failed(score)
            if result is not None:
                case = Case(name, asked.puzzle, result.size)
                message = result.message.removeprefix(f"At {result.size}: ")
                found[kind_of(message, asked.puzzle)].append((case, message))
    made = [_mistake(cases) for cases in found.values()]
    order = {asked.puzzle: place for place, asked in enumerate(book.asked)}
    return tuple(sorted(made, key=lambda one: (-len(one.students), order[one.cases[0].puzzle], one.words, one.fix)))


def kind_of(message: str, puzzle: str) -> tuple[str, str]:
    """What a message is about: the first lines of what happened and of the fix, without what differs from one student
    to another who made the same mistake."""
    happened, fix = _parts(message)
    names = [one[1:-1] for one in QUOTED.findall(happened)]
    module = NO_MODULE.search(happened)
    first = _abstract(_without_file(happened), puzzle, names)
    if module is not None:  # which one it is makes the difference
        first += f" {module[1]}"
    return first, _abstract(fix.partition("\n")[0], puzzle, names)


def _without_file(happened: str) -> str:
    """What is said of a file, without which one and without the student's line."""
    found = FILE.fullmatch(happened)
    if found is None:
        return happened
    said = found["said"].partition("; it has ")[0]
    kind, _, rest = said.partition(": ")
    return said if kind.endswith(("Error", "Exception")) or not rest else kind


def _failed(score: Score) -> Result | None:
    """The result that tells what went wrong; None where nothing did."""
    return next((result for result in (score.own, *score.hidden) if result.state == "failed"), None)


def _mistake(cases: list[tuple[Case, str]]) -> Mistake:
    """A kind of mistake, by its first case."""
    example = cases[0][1]
    happened, fix = _parts(example)
    return Mistake(happened, fix, example, tuple(case for case, _ in cases))


def _parts(message: str) -> tuple[str, str]:
    """What happened, in a line, and the fix, in as many as it has."""
    lines = [line[:LONGEST] for line in message[:MOST_TEXT].split("\n")]
    if lines[0] in VERDICTS and len(lines) > 1:
        lines = _first_fault(lines[1:])
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


def _first_fault(lines: list[str]) -> list[str]:
    """The lines of the first fault of a verdict, which stand two to the right."""
    moved = [line.removeprefix("  ") for line in lines]
    last = next((n for n, line in enumerate(moved) if n and not line.startswith(" ")), len(moved))
    return moved[:last]


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
