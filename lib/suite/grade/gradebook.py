"""The gradebook, as plain data; the rules by which points follow; and what a grading keeps: schedules, and a journal.

The gradebook says what came of every puzzle of every student. All reports read it, and nothing else. Points are a sum
and no program: nothing of them is evaluated.

The journal has what is finished, a line each, as soon as it is: {"key": "...", "score": {...}, "isolation": ["..."]}. A
key stands for the code, the puzzle, all that is required of it, the limits and the version of this package: what has
the same key need not run again. A line that was cut off is left out, and what it was about is done again.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import IO, Final, NamedTuple

from lib.errors.exceptions import NoTraceFile, TraceError
from lib.errors.wording import counted
from lib.files import ROOT, ready, write_whole
from lib.suite.course.progress import locked
from lib.suite.submissions.source import STATES
from lib.trace.json_format import MAX_BYTES, encode
from lib.trace.trace import Trace
from lib.trace.validation import decode

FORMAT: Final = "llm-training-puzzles gradebook"
VERSION: Final = 1
Number = int | float  # and not float alone: 5 is read as 5, so that the same class gives the same bytes again


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a puzzle at one size, in words (of a plain function: of which inputs). `state` is one of STATES.

    `goals` are the names of those reached, easiest first, `time`, `memory` and `sent` the figures of a correct
    schedule, on the rank with the highest peak, `rank`. `message` is the verdict in words, or what went wrong.
    `schedule` is the digest of what ran: equal schedules have the same, and "" is for none.
    """

    size: str
    state: str
    goals: tuple[str, ...] = ()
    time: Number | None = None
    memory: Number | None = None
    sent: Number | None = None
    rank: int | None = None
    message: str = ""
    schedule: str = ""

    @property
    def correct(self) -> bool:
        """Tell whether it is one correct training step, or a right function."""
        return self.state in ("passed", "missed")


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one puzzle of one student: `own` at the puzzle's size, `hidden` at others.

    `file` is where it was found, and `source` the digest of its code, the same for code that differs in names, layout
    and comments alone. `hints` is how many hints were opened, if that is recorded in what was handed in.
    """

    puzzle: str
    state: str
    own: Result
    hidden: tuple[Result, ...] = ()
    file: str = ""
    source: str = ""
    hints: int | None = None

    @property
    def correct(self) -> bool:
        """Tell whether it is correct at the puzzle's size."""
        return self.own.correct

    @property
    def hidden_passed(self) -> int:
        """At how many of the hidden sizes it passed."""
        return sum(result.state == "passed" for result in self.hidden)

    @property
    def message(self) -> str:
        """Return what to tell the student: of the puzzle's size, or where all is well there of the first other."""
        return next(
            (result.message for result in (self.own, *self.hidden) if result.state != "passed"), self.own.message
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """The points for one puzzle, or for all that a student handed in (`puzzle` is ""): `points` that follow from the
    score, less what being late costs, which `late` says in words; `of` how many there are; and what a person adds."""

    puzzle: str
    points: Number = 0.0
    of: Number = 0.0
    late: str = ""
    by_hand: Number | None = None
    comment: str = ""

    @property
    def total(self) -> float:
        """All points, never fewer than none."""
        return max(0.0, round(self.points + (self.by_hand or 0.0), 4)) if self.puzzle else self.by_hand or 0.0


@dataclass(frozen=True, slots=True)
class Student:
    """One row: a student, a score for each puzzle that is asked, in order, and `notes` on the files.

    `id` is what the roster or the platform calls the student, and `more` are further columns of the roster. `marks` has
    the points of each puzzle in the same order, and at its end what a person says of the whole, if that is said.
    """

    name: str
    scores: tuple[Score, ...]
    notes: tuple[str, ...] = ()
    id: str = ""
    marks: tuple[Mark, ...] = ()
    more: tuple[tuple[str, str], ...] = ()

    @property
    def passed(self) -> int:
        """Return how many puzzles passed."""
        return sum(score.state == "passed" for score in self.scores)

    @property
    def points(self) -> float:
        """All points, never fewer than none."""
        return max(0.0, round(sum(mark.total for mark in self.marks), 4))

    @property
    def of(self) -> float:
        """Return how many points there are."""
        return round(sum(mark.of for mark in self.marks), 4)

    def mark(self, puzzle: str = "") -> Mark:
        """Return the points of a puzzle, or what is said of the whole."""
        return next((mark for mark in self.marks if mark.puzzle == puzzle), Mark(puzzle))


@dataclass(frozen=True, slots=True)
class Refused:
    """Something that was handed in and cannot be graded, and why. `student` is "" where nobody knows whose it is, and
    `puzzle` where nobody knows what it was for; `state` is one of STATES, in words."""

    file: str
    why: str
    student: str = ""
    state: str = "unreadable"
    puzzle: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """The questions of one puzzle: its goals at its own size as (name, time, memory), `need`, the one that has to be
    reached (None: correct is enough), the sizes besides, in words, and what our own solution gives: a plain function's
    nothing."""

    puzzle: str
    title: str
    number: int
    goals: tuple[tuple[str, Number, Number], ...] = ()
    need: str | None = None
    hidden: tuple[str, ...] = ()
    reference: Result | None = None


@dataclass(frozen=True, slots=True)
class Gradebook:
    """A class: what was asked, the students by name, and what could not be graded.

    `isolation` says what kept the code that ran apart from everything else, `made_by` which version of this package
    wrote it, and `title` what the exercise is called. `problems` are found in the teacher's
    own files.
    """

    asked: tuple[Asked, ...]
    students: tuple[Student, ...]
    refused: tuple[Refused, ...] = ()
    isolation: tuple[str, ...] = ()
    made_by: str = ""
    title: str = ""
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Tell whether every student passed every puzzle, nothing was refused, and no file has a problem."""
        everybody = all(student.passed == len(self.asked) for student in self.students)
        return everybody and not (self.refused or self.problems)

    def refused_of(self, student: Student) -> tuple[Refused, ...]:
        """Return what a student handed in that cannot be graded."""
        return tuple(one for one in self.refused if one.student and one.student == student.name)

    def of(self, puzzle: str) -> dict[str, Score]:
        """Return the scores of one puzzle by student, without those who handed in no function for it."""
        found = {student.name: score for student in self.students for score in student.scores if score.puzzle == puzzle}
        return {name: score for name, score in found.items() if STATES[score.state].judged}

    def to_json(self) -> str:
        """As a JSON document, the same every time."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"


# -- points --------------------------------------------------------------------------------------------------------

ATTEMPTS: Final = ("latest", "best")
BY_HAND: Final = "by_hand"  # the term that is no share of anything: how many points a person may give


@dataclass(frozen=True, slots=True)
class Term:
    """A reason for points: what it is called, how much of it a score has, and how much there is; a term of which a
    puzzle has nothing, such as hidden sizes, does not count there."""

    name: str
    reached: Callable[[Score, Asked], float]
    there: Callable[[Asked], float] = lambda _: 1.0


def _goal(which: int) -> Callable[[Score, Asked], float]:
    return lambda score, asked: bool(asked.goals) and asked.goals[which][0] in score.own.goals


def _of_hidden(score: Score, asked: Asked) -> float:
    """In proportion to the hidden sizes that passed."""
    return score.hidden_passed / len(asked.hidden) if asked.hidden and score.correct else 0.0


TERMS: Final[tuple[Term, ...]] = (
    Term("passed", lambda score, _: score.state == "passed"),  # at hidden sizes too
    Term("correct", lambda score, _: score.correct),  # at the puzzle's size, as all that follow but `hidden`
    Term("hidden", _of_hidden, lambda asked: bool(asked.hidden)),
    Term("first", _goal(0), lambda asked: bool(asked.goals)),
    Term("best", _goal(-1), lambda asked: bool(asked.goals)),
    Term("goal", lambda s, asked: sum(name in s.own.goals for name, _, _ in asked.goals), lambda a: len(a.goals)),
)
PASSED: Final[Mapping[str, float]] = {"passed": 1.0}  # where nothing is said: a point for each puzzle that passed


@dataclass(frozen=True, slots=True)
class Late:
    """The price of being late: `percent` for each day begun, after `grace` minutes; all after `days` (None: never)."""

    percent: float = 0.0
    grace: float = 0.0
    days: float | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which points follow from results: points by puzzle ("" is for all others), the deadline, who has
    another, and what being late costs. Times are by the clock on the wall, as platforms write them."""

    points: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: {"": PASSED})
    attempts: str = ATTEMPTS[0]
    deadline: datetime | None = None
    extensions: Mapping[str, datetime] = field(default_factory=dict[str, datetime])
    late: Late = Late()

    def weights(self, puzzle: str) -> Mapping[str, float]:
        """Return the points of each term for a puzzle."""
        return self.points.get(puzzle) or self.points.get("") or PASSED

    def due(self, its_id: str, name: str, said: datetime | None = None) -> datetime | None:
        """Return when a student has to hand in: by the assignment's file, by the roster (`said`), or as all others."""
        return self.extensions.get(its_id) or self.extensions.get(name) or said or self.deadline

    def mark(self, score: Score, asked: Asked, handed_in: datetime | None, due: datetime | None, flag: bool) -> Mark:
        """Return the points of one score, of an attempt that came at `handed_in` (None: nobody says), where the
        platform says at least whether it was late (`flag`)."""
        points, of = of_puzzle(score, asked, self.weights(asked.puzzle))
        grace, late = timedelta(minutes=self.late.grace), timedelta(0)
        if handed_in is not None and due is not None:
            late = handed_in - due
        elif flag:
            late = grace + timedelta(seconds=1)
        if not points or late <= grace:
            return Mark(asked.puzzle, points, of)
        begun = math.ceil(late / timedelta(days=1))
        over = self.late.days is not None and begun > self.late.days
        factor = 0.0 if over else max(0.0, 1.0 - begun * self.late.percent / 100)
        days = counted(begun, "day") if handed_in is not None else "the platform's mark"
        cost = f"{100 - 100 * factor:g} percent less" if factor else "nothing of it counts"
        return Mark(asked.puzzle, round(points * factor, 4), of, f"late by {days}: {cost}")


def of_puzzle(score: Score, asked: Asked, weights: Mapping[str, float]) -> tuple[float, float]:
    """Return the points of a score, and how many there are, with those that a person gives."""
    points = sum(weights.get(term.name, 0.0) * term.reached(score, asked) for term in TERMS)
    most = sum(weights.get(term.name, 0.0) * term.there(asked) for term in TERMS)
    return round(points, 4), round(most + weights.get(BY_HAND, 0.0), 4)


# -- traces --------------------------------------------------------------------------------------------------------


class Schedule(NamedTuple):
    """A schedule: its digest, and the Trace as packed JSON."""

    digest: str
    packed: bytes


def schedule_of(trace: Trace) -> Schedule:
    """Return the schedule of a Trace: what ranks do, in which order, to which values; without source places, the text
    of an error, and the name of the puzzle. Whoever finds the same one has the same digest."""
    # The text of an error is about one student's code; and a run that failed is not one that is short.
    error = None if trace.error is None else "this run stopped before its end"
    bare = replace(trace, error=error, puzzle=None)
    text = json.dumps(encode(bare, lines=False), separators=(",", ":")).encode()
    return Schedule(hashlib.sha256(text).hexdigest()[:16], gzip.compress(text, compresslevel=6, mtime=0))


class Traces:
    """A folder of schedules by their digest."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def path(self, digest: str) -> Path:
        """Return the file of a schedule. ValueError where it is not a digest."""
        if not re.fullmatch("[0-9a-f]{16}", digest):
            raise ValueError(f"the digest of a schedule has 16 hexadecimal digits; got {digest[:40]!r}")
        return self._folder / f"{digest}.json.gz"

    def __contains__(self, digest: str) -> bool:
        return self.path(digest).is_file()

    def load(self, digest: str) -> Trace:
        """Return the Trace of a schedule. TraceError where it is damaged; NoTraceFile (an OSError) where there is
        none."""
        path = self.path(digest)
        try:
            with gzip.open(path) as file:
                return decode(json.loads(file.read(MAX_BYTES)))  # what is larger is cut off, and so damaged
        except FileNotFoundError:
            raise NoTraceFile(f"there is no schedule {digest} in {self._folder}: grade again, and it will be") from None
        except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
            raise TraceError(f"{path.name} is damaged: {error}") from None

    def keep(self, schedule: Schedule) -> None:
        """Write a schedule, all of it or nothing, unless it is there."""
        if schedule.digest not in self:
            write_whole(ready(self.path(schedule.digest)), schedule.packed)


# -- journal -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A score, without the file, and what kept its runs apart from everything else, in words."""

    score: Score
    isolation: tuple[str, ...]


class Journal:
    """A file of scores by key. Several processes may read it, one writes it: OSError where another one does."""

    def __init__(self, path: Path) -> None:
        self._path = ready(path)
        self._file: IO[bytes] = open(self._path, "ab")  # noqa: SIM115  # `close` closes it
        if not locked(self._file):
            self._file.close()
            raise OSError(f"another process is grading into {path.parent.parent}: wait for it, or take another folder")
        if self._path.read_bytes()[-1:] not in (b"", b"\n"):  # a line that was cut off is to spoil none but itself
            self._file.write(b"\n")

    def close(self) -> None:
        """Let others write."""
        self._file.close()

    def known(self, prefix: str) -> dict[str, Entry]:
        """Return what is there under keys that begin so, the latest of each."""
        from msgspec import convert  # here and not above: what takes in files alone needs no extra

        found: dict[str, Entry] = {}
        with self._path.open("rb") as file:
            for line in file:
                try:
                    data = json.loads(line)
                    if data["key"].startswith(prefix):
                        found[data["key"]] = convert(data, Entry)
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                    continue
        return found

    def add(self, key: str, entry: Entry) -> None:
        """Write a score. It is in the file when this returns."""
        self._file.write(json.dumps({"key": key, **asdict(entry)}, separators=(",", ":")).encode() + b"\n")
        self._file.flush()


@cache
def version() -> str:
    """Return a digest of this package and of its Python: other code may judge otherwise, and so nothing of it is
    reused."""
    found = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for top in ("lib", "solutions"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".py", ".toml"):
                found.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]
