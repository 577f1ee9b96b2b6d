"""Every error that a student or a caller can meet, and how it explains itself.

    AssertionError
    └── PuzzleError          the schedule a student wrote is wrong
        ├── RuleError        an operation got values that it cannot work with
        ├── ForgottenAwait   a Work was used where its result belongs
        ├── MismatchError    the members of a collective, or two ends of a message, disagree
        ├── DeadlockError    every rank that is left waits for another
        ├── RankFailed       a rank raised, so the ranks that wait for it cannot go on
        ├── BudgetError      a rank recorded more events than any sensible schedule has
        ├── CheckError       the run ended, but it is not one correct training step
        └── NotSolved        the puzzle still holds its stub
    KeyError
    └── AbsentKey            a store holds nothing under that key
    ValueError
    └── TraceError           a Trace file or text is damaged, or is not one of ours

A PuzzleError is an AssertionError because the notebooks of the original catch that. Misuse of the library (a
negative number of ranks, a mesh of the wrong size) is a plain ValueError.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Sequence
from itertools import islice
from types import CodeType, FrameType
from typing import Any, NamedTuple

__all__ = [
    "AbsentKey",
    "BudgetError",
    "CheckError",
    "DeadlockError",
    "ForgottenAwait",
    "MismatchError",
    "NotSolved",
    "Place",
    "PuzzleError",
    "RankFailed",
    "RuleError",
    "TraceError",
]

LONGEST = 160
"""Characters of source text that a message shows."""
_PYTHON = os.path.dirname(os.__file__) + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Place(NamedTuple):
    """A line of a student's code: file (or "notebook cell"), line number, function, and the line's text."""

    file: str
    line: int
    function: str
    text: str

    def __str__(self) -> str:
        inside = "" if self.function == "<module>" else f", in {self.function}"
        return f"{self.file}, line {self.line}{inside}: {self.text}" if self.text else f"{self.file}, line {self.line}"


def place(code: CodeType, line: int, last: int | None = None) -> Place:
    """The Place of a line of `code`, with the text of all lines of a call that ends on line `last`.

    Paths are cut to the file's name: nothing saved may depend on the machine.
    """
    path = code.co_filename
    cell = "ipykernel" in path or path.startswith("<ipython-input")
    name = "notebook cell" if cell else os.path.basename(path)
    text = " ".join(linecache.getline(path, n).strip() for n in range(line, max(line, last or line) + 1))
    text = text.strip() if len(text) <= LONGEST else text[: LONGEST - 3].strip() + "..."
    return Place(name, line, code.co_qualname.rpartition("<locals>.")[2], text)


def student_place() -> Place | None:
    """The innermost line on the stack that is not the library's own: the line the student wrote."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARY):
        frame = frame.f_back
    return None if frame is None else resolve(frame.f_code, frame.f_lasti)


def resolve(code: CodeType, instruction: int) -> Place | None:
    """The lines of an instruction. Events keep the instruction: finding its line costs more than recording it."""
    found = next(islice(code.co_positions(), instruction // 2, None), None)
    if found is None or found[0] is None:
        return None
    return place(code, found[0], found[1])


def raised_at(error: BaseException) -> Place | None:
    """The innermost line of a traceback that is neither the library's own nor Python's."""
    found = None
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith((_LIBRARY, _PYTHON)):
            found = resolve(trace.tb_frame.f_code, trace.tb_lasti)
        trace = trace.tb_next
    return found


def with_article(noun: str) -> str:
    """ "weight" -> "a weight", "activation" -> "an activation"."""
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"


def is_awaitable(thing: object) -> bool:
    """Whether a thing wants to be awaited: the usual reason why it is not the value that it should be."""
    return hasattr(type(thing), "__await__")


class PuzzleError(AssertionError):
    """A student's mistake. `what` happened, what was `expected`, what was `got`, and the likely `fix`.

    `rank` and `where` (Places, with the rank each belongs to) are added by whoever knows them. `trace` is the
    Trace up to the failure, where a run had begun; `import drawing` makes notebooks show it below the message.
    """

    def __init__(
        self,
        what: str,
        *,
        expected: str | None = None,
        got: str | None = None,
        fix: str | None = None,
        rank: int | None = None,
        where: Sequence[tuple[int | None, Place]] = (),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.expected = expected
        self.got = got
        self.fix = fix
        self.rank = rank
        self.where = list(where)
        self.trace: Any = None

    def at(self, rank: int) -> PuzzleError:
        """Says which rank it was and which line of the student's code, unless that is known already."""
        if self.rank is None:
            self.rank = rank
        if not self.where and (found := student_place()) is not None:
            self.where.append((None, found))
        return self

    def __str__(self) -> str:
        lines = [self.what if self.rank is None else f"rank {self.rank}: {self.what}"]
        for name, text in (("expected", self.expected), ("got", self.got)):
            if text is not None:
                lines.append(f"  {name + ':':<10}{text}")
        for rank, found in self.where:
            lines.append(f"  {'where:' if rank is None else f'rank {rank}:':<10}{found}")
        if self.fix is not None:
            first, *rest = self.fix.splitlines()
            lines.append(f"  {'fix:':<10}{first}")
            lines.extend(f"  {'':<10}{line}" for line in rest)
        return "\n".join(lines)


class RuleError(PuzzleError):
    """An operation got values that it cannot work with."""


class ForgottenAwait(PuzzleError, AttributeError):
    """A Work was used where its result belongs. An AttributeError too, so that hasattr() answers no."""


class MismatchError(PuzzleError):
    """The members of a collective, or the two ends of a message, do not agree. `ranks` names the two."""

    ranks: tuple[int, ...] = ()


class DeadlockError(PuzzleError):
    """Every rank that has not finished waits for another, and none of them can go on."""


class RankFailed(PuzzleError):
    """Another rank raised an error, so what this rank waits for can never happen."""


class BudgetError(PuzzleError):
    """A rank recorded more events than its budget: nearly always a loop that does not end."""


class CheckError(PuzzleError):
    """The run ended, but what it computed is not one correct training step."""


class NotSolved(PuzzleError):
    """The puzzle still holds its stub."""

    def __init__(self, puzzle: str) -> None:
        super().__init__(
            f"{puzzle} is not solved yet",
            expected="your code in place of the line that raises NotSolved",
            fix="read the text above the cell, replace that line, and run the cell again",
        )
        self.puzzle = puzzle


class AbsentKey(KeyError):
    """Nothing is stored under a key. Stays a KeyError, and says what the store does hold."""

    def __init__(self, what: str, *, held: Sequence[Any], rank: int) -> None:
        super().__init__(what)
        self.held = held
        self.rank = rank

    def __str__(self) -> str:
        held = ", ".join(map(repr, self.held)) if self.held else "nothing at all"
        return f"rank {self.rank}: {self.args[0]}; the store holds {held}"


class TraceError(ValueError):
    """A Trace file or text that is damaged, truncated, too large, or not a Trace at all."""
