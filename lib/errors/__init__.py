"""Every error that a student or a caller can meet, and how it explains itself.

    AssertionError
    └── PuzzleError          the schedule a student wrote is wrong
        ├── RuleError        an operation got values that it cannot work with
        ├── ForgottenAwait   a Work was used where its result belongs
        ├── MismatchError    the members of a collective, or two ends of a message, disagree
        ├── DeadlockError    every rank that is left waits for another
        ├── RankFailed       a rank raised an error of Python's, so it and those who wait for it cannot go on
        ├── BudgetError      a rank recorded more events than any sensible schedule has
        ├── CheckError       the run ended, but it is not one correct training step
        ├── AbsentKey        a store holds nothing under that key (a KeyError too)
        └── NotSolved        the puzzle still holds its stub
    ValueError
    └── TraceError           a Trace file or text is damaged, or is not one of ours
        └── NoTraceFile      there is no file to read there (an OSError too)

A PuzzleError is an AssertionError because the notebooks of the original catch that. Misuse of the library (a
negative number of ranks, a mesh of the wrong size) is a plain ValueError.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from types import CodeType, FrameType
from typing import Any, NamedTuple, cast

__all__ = [
    "AbsentKey",
    "BudgetError",
    "CheckError",
    "DeadlockError",
    "ForgottenAwait",
    "MismatchError",
    "NoTraceFile",
    "NotSolved",
    "Place",
    "PuzzleError",
    "RankFailed",
    "RuleError",
    "TraceError",
]

MOST_KEYS = 12
"""Keys of a store that a message lists."""
MOST_NUMBERS = 16
"""Numbers, or runs of them, that a message lists."""
MOST_LINES = 20
"""Lines of a statement that are put together."""
LONGEST = 160
"""Characters of source text that a message shows."""
_PYTHON = os.path.dirname(os.__file__) + os.sep
_LIBRARY = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


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
    lines = [linecache.getline(path, n) for n in range(line, max(line, last or line) + 1)]
    if lines[0].rstrip().endswith(":") and _open(lines[:1]) <= 0:  # the head of a loop, whose body is no part of it
        del lines[1:]
    while lines[-1] and len(lines) < MOST_LINES and _open(lines) > 0:  # it may end before its brackets do
        lines.append(linecache.getline(path, line + len(lines)))
    text = _one_line(lines)
    text = text if len(text) <= LONGEST else text[: LONGEST - 3].strip() + "..."
    function = next((part for part in reversed(code.co_qualname.split(".")) if part[:1] != "<"), code.co_name)
    return Place(name, line, function, text)


def _open(lines: Iterable[str]) -> int:
    """How many brackets some lines open and do not close."""
    whole = re.sub(r"'[^']*'|\"[^\"]*\"|#.*", "", "".join(lines))
    return sum(map(whole.count, "([{")) - sum(map(whole.count, ")]}"))


def _one_line(lines: Iterable[str]) -> str:
    """The lines of one statement as one, without the room that brackets get where they stand alone."""
    whole = ""
    for line in map(str.strip, lines):
        if line[:1] in (")", "]", "}"):
            whole = whole.removesuffix(",") + line
        else:
            whole += line if whole[-1:] in ("", "(", "[", "{") else f" {line}"
    return whole


def student_place() -> Place | None:
    """The innermost line on the stack that is not the library's own: the line the student wrote."""
    frame = student_frame()
    return None if frame is None else resolve(frame.f_code, frame.f_lasti)


def student_frame() -> FrameType | None:
    """The innermost frame on the stack that is neither the library's own nor Python's."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and not is_students(frame.f_code):
        frame = frame.f_back
    return frame


def resolve(code: CodeType, instruction: int) -> Place | None:
    """The lines of an instruction. Events keep the instruction: finding its line costs more than recording it."""
    found = next(islice(code.co_positions(), instruction // 2, None), None)
    if found is None or found[0] is None:
        return None
    return place(code, found[0], found[1])


def innermost(error: BaseException) -> tuple[FrameType, int] | None:
    """The innermost frame of a traceback that is neither the library's own nor Python's, and the instruction there."""
    found = None
    trace = error.__traceback__
    while trace is not None:
        if is_students(trace.tb_frame.f_code):
            found = trace.tb_frame, trace.tb_lasti
        trace = trace.tb_next
    return found


def is_students(code: CodeType) -> bool:
    """Whether code is neither the library's own nor Python's."""
    return not code.co_filename.startswith((_LIBRARY, _PYTHON, "<frozen"))


def raised_at(error: BaseException) -> Place | None:
    """The line of `innermost`."""
    found = innermost(error)
    return None if found is None else resolve(found[0].f_code, found[1])


def with_article(noun: str) -> str:
    """ "weight" -> "a weight", "activation" -> "an activation"."""
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"


def shown(key: Any) -> str:
    """A key as one writes it between square brackets: 1, "full"."""
    parts = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else ()
    if not parts:
        return repr(cast("object", key))
    return ", ".join(map(repr, parts)) + ("," if len(parts) == 1 else "")


def numbers(items: Iterable[int]) -> str:
    """A set of numbers in order, with runs shortened: {0, 2-5}."""
    return "{" + _runs(items) + "}"


def _runs(items: Iterable[int]) -> str:
    ordered = sorted(items)
    parts: list[str] = []
    i = 0
    while i < len(ordered):
        j = i
        while j + 1 < len(ordered) and ordered[j + 1] == ordered[j] + 1:
            j += 1
        if j - i < 2:
            parts.extend(str(n) for n in ordered[i : j + 1])
        else:
            parts.append(f"{ordered[i]}-{ordered[j]}")
        i = j + 1
    if len(parts) > MOST_NUMBERS:
        parts[MOST_NUMBERS // 2 : -1] = ["..."]
    return ", ".join(parts)


def listed(items: Sequence[int], most: int = MOST_NUMBERS) -> str:
    """A list of numbers in the order that it has, of a long one its beginning and end: [0, 2, ..., 98]."""
    parts = [str(item) for item in items]
    if len(parts) > most:
        parts[most // 2 : -1] = ["..."]
    return f"[{', '.join(parts)}]"


def these(noun: str, items: Iterable[int], plural: str | None = None) -> str:
    """Numbered things in words: "rank 0", "ranks 0 and 1", "batches 0, 2-5"."""
    ordered = sorted(items)
    if len(ordered) == 1:
        return f"{noun} {ordered[0]}"
    inside = f"{ordered[0]} and {ordered[1]}" if len(ordered) == 2 else _runs(ordered)
    return f"{plural or noun + 's'} {inside}"


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
        self.clue: tuple[Any, ...] = ()
        """Which rule was broken, in a word, and by which values: `advice` looks there for the likely reason."""

    def at(self, rank: int) -> PuzzleError:
        """Says which rank it was and which line of the student's code, unless that is known already."""
        if self.rank is None:
            self.rank = rank
        if not self.where and (found := student_place()) is not None:
            self.where.append((None, found))
        return self

    def __str__(self) -> str:
        lines = [self.what if self.rank is None else f"rank {self.rank}: {self.what}"]
        lines += _field("expected:", self.expected) + _field("got:", self.got)
        places: dict[Place, list[int | None]] = {}
        for rank, found in self.where:
            places.setdefault(found, []).append(rank)
        for found, ranks in places.items():
            known = [rank for rank in ranks if rank is not None]
            lines += _field(these("rank", known) + ":" if known else "where:", str(found))
        return "\n".join(lines + _field("fix:", self.fix))


INDENT = " " * 12


def _field(name: str, text: str | None) -> list[str]:
    """A part of a message under its name. Further lines stand below the first, whether they were moved there or not."""
    if text is None:
        return []
    first, *rest = text.splitlines() or [""]
    return [f"  {name:<9} {first}", *(INDENT + line.removeprefix(INDENT) for line in rest)]


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

    def left_over(self) -> None:
        """Tells instead that there is code already, and that it is this line that ends it."""
        self.what = f"{self.puzzle} still raises NotSolved, after your code has run"
        self.expected, self.got = "a function that runs to its end", None
        if (found := raised_at(self)) is not None:
            self.where = [(None, found)]
            self.fix = f"delete line {found.line}"


class AbsentKey(PuzzleError, KeyError):
    """Nothing is stored under a key. A KeyError too, and says what the store does hold: `held`."""

    def __init__(
        self, what: str, *, held: Sequence[Any], rank: int, expected: str | None = None, fix: str | None = None
    ) -> None:
        self.held = held
        keys = ", ".join(f"[{shown(key)}]" for key in held[:MOST_KEYS]) + (", ..." if len(held) > MOST_KEYS else "")
        got = f"the store holds {keys}" if held else "the store holds nothing"
        super().__init__(what, expected=expected, got=got, rank=rank, fix=fix)


class TraceError(ValueError):
    """A Trace file or text that is damaged, truncated, too large, or not a Trace at all."""


class NoTraceFile(TraceError, OSError):
    """Where a Trace was to be read there is no file, or one that cannot be read."""
