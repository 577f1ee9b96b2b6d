"""The gradebook, as plain data; the rules for points; and what a grading keeps on disk: schedules, and a journal.

The gradebook has the result of every puzzle of every student. All reports read it, and nothing else. Points are a
weighted sum: no rule for points is ever evaluated as code.

The journal gets a line for each result as soon as there is one: {"key": "...", "score": {...}, "isolation": ["..."]}. A
key stands for the code, the puzzle, its requirements, the limits and the version of this package: work with a known
key need not run again. A line that was cut off is ignored, and its work is done again.
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
Number = int | float  # not just float: 5 must be read back as 5, so that the same class gives the same bytes again


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a puzzle at one `size`, in words (for a plain function: its inputs). `state` is one of STATES.

    `goals` are the names of those reached, easiest first; `time`, `memory` and `sent` the figures of a correct
    schedule; `rank` the rank with the highest peak. `message` is the verdict in words, or what went wrong.
    `schedule` is the digest of what ran: equal schedules have the same, and "" means none.
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

    `file` is where it was found, and `source` the digest of its code, the same for code that differs only in names,
    layout and comments. `hints` is the number of hints opened, if the submission records it.
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
        """Return the number of hidden sizes that passed."""
        return sum(result.state == "passed" for result in self.hidden)

    @property
    def message(self) -> str:
        """Return the message for the student: from the first size that did not pass, else from the puzzle's own."""
        return next(
            (result.message for result in (self.own, *self.hidden) if result.state != "passed"), self.own.message
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """The points for one puzzle, or for a whole submission (`puzzle` is ""): `points` for the score, less the penalty
    that `late` explains; `of`, the most there are; and what a person adds."""

    puzzle: str
    points: Number = 0.0
    of: Number = 0.0
    late: str = ""
    by_hand: Number | None = None
    comment: str = ""

    @property
    def total(self) -> float:
        """All points, at least zero for a puzzle."""
        return max(0.0, round(self.points + (self.by_hand or 0.0), 4)) if self.puzzle else self.by_hand or 0.0


@dataclass(frozen=True, slots=True)
class Student:
    """One row: a student, a score for each required puzzle, in order, and `notes` on the files.

    `id` is the student's id in the roster or on the platform, and `more` are further columns of the roster. `marks` has
    the points of each puzzle in the same order, followed by a person's mark for the whole, if there is one.
    """

    name: str
    scores: tuple[Score, ...]
    notes: tuple[str, ...] = ()
    id: str = ""
    marks: tuple[Mark, ...] = ()
    more: tuple[tuple[str, str], ...] = ()

    @property
    def passed(self) -> int:
        """Return the number of puzzles passed."""
        return sum(score.state == "passed" for score in self.scores)

    @property
    def points(self) -> float:
        """All points, at least zero."""
        return max(0.0, round(sum(mark.total for mark in self.marks), 4))

    @property
    def of(self) -> float:
        """Return the most points there are to get."""
        return round(sum(mark.of for mark in self.marks), 4)

    def mark(self, puzzle: str = "") -> Mark:
        """Return the mark for a puzzle, or for the whole submission."""
        return next((mark for mark in self.marks if mark.puzzle == puzzle), Mark(puzzle))


@dataclass(frozen=True, slots=True)
class Refused:
    """Something that was handed in and cannot be graded, and why. `student` is "" if its owner is unknown, and `puzzle`
    is "" if its puzzle is; `state` is one of STATES, in words."""

    file: str
    why: str
    student: str = ""
    state: str = "unreadable"
    puzzle: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """The requirements of one puzzle: its goals at its own size as (name, time, memory); `need`, the goal to reach
    (None: correct is enough); the `hidden` sizes, in words; and our own solution's result (None for a plain
    function)."""

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

    `isolation` lists what kept the students' code apart from everything else, `made_by` is the version of this package
    that wrote it, and `title` is the exercise's name. `problems` are those found in the teacher's own files.
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
        """Return what cannot be graded of a student's files."""
        return tuple(one for one in self.refused if one.student and one.student == student.name)

    def of(self, puzzle: str) -> dict[str, Score]:
        """Return the scores of one puzzle by student, without those who handed in no function for it."""
        found = {student.name: score for student in self.students for score in student.scores if score.puzzle == puzzle}
        return {name: score for name, score in found.items() if STATES[score.state].judged}

    def to_json(self) -> str:
        """Return a JSON document, the same every time."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"


# -- points --------------------------------------------------------------------------------------------------------

ATTEMPTS: Final = ("latest", "best")
BY_HAND: Final = "by_hand"  # the term that is not computed: how many points a person may give


@dataclass(frozen=True, slots=True)
class Term:
    """A reason for points: its name, how much of it a score has reached, and how much there is. A term that a puzzle
    lacks, such as hidden sizes, does not count there."""

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
    Term("correct", lambda score, _: score.correct),  # at the puzzle's size, as are all below except `hidden`
    Term("hidden", _of_hidden, lambda asked: bool(asked.hidden)),
    Term("first", _goal(0), lambda asked: bool(asked.goals)),
    Term("best", _goal(-1), lambda asked: bool(asked.goals)),
    Term("goal", lambda s, asked: sum(name in s.own.goals for name, _, _ in asked.goals), lambda a: len(a.goals)),
)
PASSED: Final[Mapping[str, float]] = {"passed": 1.0}  # the default: a point for each puzzle that passed


@dataclass(frozen=True, slots=True)
class Late:
    """The penalty for being late: `percent` per day begun, after `grace` minutes; all after `days` (None: never)."""

    percent: float = 0.0
    grace: float = 0.0
    days: float | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for points: points by puzzle ("" is for all others), which attempt counts, the deadline, extensions of
    it, and the penalty for being late. Times are local and without a time zone, as platforms write them."""

    points: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: {"": PASSED})
    attempts: str = ATTEMPTS[0]
    deadline: datetime | None = None
    extensions: Mapping[str, datetime] = field(default_factory=dict[str, datetime])
    late: Late = Late()

    def weights(self, puzzle: str) -> Mapping[str, float]:
        """Return the points of each term for a puzzle."""
        return self.points.get(puzzle) or self.points.get("") or PASSED

    def due(self, its_id: str, name: str, said: datetime | None = None) -> datetime | None:
        """Return a student's deadline: from the assignment's file, the roster (`said`), or everybody's."""
        return self.extensions.get(its_id) or self.extensions.get(name) or said or self.deadline

    def mark(self, score: Score, asked: Asked, handed_in: datetime | None, due: datetime | None, flag: bool) -> Mark:
        """Return the mark of one score for an attempt that came at `handed_in` (None: unknown). Without that time or a
        deadline, `flag` says whether the platform marked it as late."""
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
    """Return the points of a score, and the most there are, including those that a person may give."""
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
    of an error, and the name of the puzzle. Equal schedules have equal digests."""
    # The text of an error is about one student's code; still, a failed run must differ from a short one.
    error = None if trace.error is None else "this run stopped before its end"
    bare = replace(trace, error=error, puzzle=None)
    text = json.dumps(encode(bare, lines=False), separators=(",", ":")).encode()
    return Schedule(hashlib.sha256(text).hexdigest()[:16], gzip.compress(text, compresslevel=6, mtime=0))


class Traces:
    """A folder of schedules by their digest."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def path(self, digest: str) -> Path:
        """Return the file of a schedule. ValueError if `digest` is not one."""
        if not re.fullmatch("[0-9a-f]{16}", digest):
            raise ValueError(f"the digest of a schedule has 16 hexadecimal digits; got {digest[:40]!r}")
        return self._folder / f"{digest}.json.gz"

    def __contains__(self, digest: str) -> bool:
        return self.path(digest).is_file()

    def load(self, digest: str) -> Trace:
        """Return the Trace of a schedule. TraceError if it is damaged; NoTraceFile (an OSError) if there is none."""
        path = self.path(digest)
        try:
            with gzip.open(path) as file:
                return decode(json.loads(file.read(MAX_BYTES)))  # anything larger is cut off, and so damaged
        except FileNotFoundError:
            raise NoTraceFile(f"there is no schedule {digest} in {self._folder}: grade again, and it will be") from None
        except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
            raise TraceError(f"{path.name} is damaged: {error}") from None

    def keep(self, schedule: Schedule) -> None:
        """Write a schedule atomically, unless it is there."""
        if schedule.digest not in self:
            write_whole(ready(self.path(schedule.digest)), schedule.packed)


# -- journal -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A score, without the file, and what isolated its runs, in words."""

    score: Score
    isolation: tuple[str, ...]


class Journal:
    """A file of scores by key. Many processes may read it, but only one may write: OSError if another one does."""

    def __init__(self, path: Path) -> None:
        self._path = ready(path)
        self._file: IO[bytes] = open(self._path, "ab")  # noqa: SIM115  # `close` closes it
        if not locked(self._file):
            self._file.close()
            raise OSError(f"another process is grading into {path.parent.parent}: wait for it, or take another folder")
        if self._path.read_bytes()[-1:] not in (b"", b"\n"):  # so that a line cut off doesn't spoil the next
            self._file.write(b"\n")

    def close(self) -> None:
        """Close the file, so that other processes can write."""
        self._file.close()

    def known(self, prefix: str) -> dict[str, Entry]:
        """Return the latest entry of each key that begins with `prefix`."""
        from msgspec import convert  # not above: taking in files must work without this extra

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
        """Write a score, which is in the file when this returns."""
        self._file.write(json.dumps({"key": key, **asdict(entry)}, separators=(",", ":")).encode() + b"\n")
        self._file.flush()


@cache
def version() -> str:
    """Return a digest of this package and of its Python: other code may judge otherwise, so its results are not
    reused."""
    found = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for top in ("lib", "solutions"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".py", ".toml"):
                found.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]
