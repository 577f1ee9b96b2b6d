"""The gradebook, as plain data, and what a grading keeps in its folder: the journal, and each schedule once.

The gradebook says what came of every puzzle of every student. All reports read it, and nothing else. A schedule is what
ranks do, in which order, to which values: whoever finds the same one has the same digest.

The journal has what is finished, a line each, as soon as it is. Who is stopped goes on where it was.

    {"key": "...", "score": {...}, "isolation": ["..."]}

A key stands for the code, the puzzle, all that is required of it, the limits and the version of this package: what has
the same key need not run again. Lines are only ever added. One that was cut off, by a full disk or by a process that
was killed while it wrote, is left out when the journal is read, and what it was about is done again.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import sys
import zlib
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

from lib.errors.exceptions import NoTraceFile, TraceError
from lib.files import ROOT, ready, write_whole
from lib.suite.course.solutions import without_lines
from lib.suite.submissions.source import STATES
from lib.trace.json_format import MAX_BYTES, encode
from lib.trace.trace import Trace
from lib.trace.validation import decode

__all__ = [
    "Asked",
    "Entry",
    "Gradebook",
    "Journal",
    "Mark",
    "Refused",
    "Result",
    "Schedule",
    "Score",
    "Student",
    "Traces",
    "schedule_of",
    "version",
]

# -- gradebook -----------------------------------------------------------------------------------------------------

FORMAT: Final = "llm-training-puzzles gradebook"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a puzzle at one size. `size` is in words; that of a plain function says which inputs it was
    asked.

    `state` is one of STATES. `goals` are the names of those reached, easiest first, `time`, `memory` and `sent` the
    figures of a correct schedule, on the rank with the highest peak, `rank`. `message` is the verdict in words, or what
    went wrong. `schedule` names what ran: equal schedules have the same digest, and "" is for none.
    """

    size: str
    state: str
    goals: tuple[str, ...] = ()
    time: float | None = None
    memory: float | None = None
    sent: float | None = None
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
    def goal(self) -> str | None:
        """The best goal reached at the puzzle's size."""
        return self.own.goals[-1] if self.own.goals else None

    @property
    def hidden_passed(self) -> int:
        """At how many of the hidden sizes it passed."""
        return sum(result.state == "passed" for result in self.hidden)

    @property
    def correct(self) -> bool:
        """Tell whether it is correct at the puzzle's size."""
        return self.own.correct

    @property
    def message(self) -> str:
        """Return what to tell the student: of the puzzle's size; where all is well there, of the first size that
        failed."""
        wrong = (result.message for result in self.hidden if result.state != "passed")
        return self.own.message if self.own.state != "passed" else next(wrong, self.own.message)


@dataclass(frozen=True, slots=True)
class Mark:
    """The points for one puzzle, or for all that a student handed in (`puzzle` is ""): `points` that follow from the
    score, less what being late costs, which `late` says in words; `of` how many there are; and what a person adds."""

    puzzle: str
    points: float = 0.0
    of: float = 0.0
    late: str = ""
    by_hand: float | None = None
    comment: str = ""

    @property
    def total(self) -> float:
        """All points, never fewer than none."""
        return max(0.0, round(self.points + (self.by_hand or 0.0), 4)) if self.puzzle else self.by_hand or 0.0


@dataclass(frozen=True, slots=True)
class Student:
    """One row: a student, a score for each puzzle that is asked, in order, and what else is to be said of the files,
    such as attempts that a later one replaces.

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
        """The points of a puzzle, or what is said of the whole."""
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
    reached (None: correct is enough, as of a plain function), and the sizes besides, in words.

    `reference` is what our own solution gives at the puzzle's size; a plain function has none.
    """

    puzzle: str
    title: str
    number: int
    goals: tuple[tuple[str, float, float], ...] = ()
    need: str | None = None
    hidden: tuple[str, ...] = ()
    reference: Result | None = None


@dataclass(frozen=True, slots=True)
class Gradebook:
    """A class: what was asked, the students by name, and what could not be graded.

    `isolation` says what kept the code that ran apart from everything else, and `made_by` which version of this package
    wrote it; the report shows both, and `title`, what the exercise is called. `problems` are what is to be looked at in
    the files of who teaches, such as a row of the roster: each says where.
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
        return not (self.refused or self.problems) and all(
            student.passed == len(self.asked) for student in self.students
        )

    def refused_of(self, student: Student) -> tuple[Refused, ...]:
        """Return what a student handed in that cannot be graded."""
        return tuple(one for one in self.refused if one.student and one.student == student.name)

    def of(self, puzzle: str) -> dict[str, Score]:
        """The scores of one puzzle by student, without those who handed in no function for it."""
        found = {student.name: score for student in self.students for score in student.scores if score.puzzle == puzzle}
        return {name: score for name, score in found.items() if STATES[score.state].judged}

    def to_json(self) -> str:
        """As a JSON document, the same every time."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Gradebook:
        """Read one that `to_json` wrote. ValueError for anything else."""
        try:
            data = cast("dict[str, Any]", json.loads(text))
            if (data["format"], data["version"]) != (FORMAT, VERSION):
                raise ValueError(f"{data['format']}, version {data['version']}")
            return cls(
                tuple(map(_asked, data["asked"])),
                tuple(map(_student, data["students"])),
                tuple(Refused(**one) for one in data["refused"]),
                tuple(data.get("isolation", ())),
                data.get("made_by", ""),
                data.get("title", ""),
                tuple(data.get("problems", ())),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"this is no {FORMAT}, version {VERSION}: {error}") from None


# Each is made of its JSON: TypeError or KeyError for what is none.


def _result(data: dict[str, Any]) -> Result:
    return Result(**dict(data, goals=tuple(data["goals"])))


def _score(data: dict[str, Any]) -> Score:
    return Score(**dict(data, own=_result(data["own"]), hidden=tuple(map(_result, data["hidden"]))))


def _student(data: dict[str, Any]) -> Student:
    return Student(
        data["name"],
        tuple(map(_score, data["scores"])),
        tuple(data["notes"]),
        data.get("id", ""),
        tuple(Mark(**one) for one in data.get("marks", ())),
        tuple((heading, text) for heading, text in data.get("more", ())),
    )


def _asked(data: dict[str, Any]) -> Asked:
    reference = None if data["reference"] is None else _result(data["reference"])
    goals = tuple((name, time, memory) for name, time, memory in data["goals"])
    return Asked(**dict(data, goals=goals, hidden=tuple(data["hidden"]), reference=reference))


# -- traces --------------------------------------------------------------------------------------------------------

DIGEST: Final = re.compile("[0-9a-f]{16}")
STOPPED: Final = "this run stopped before its end"
"""In place of the text of an error, which is about one student's code: a run that failed is not one that is short."""


class Schedule(NamedTuple):
    """A schedule: its digest, and the Trace as packed JSON."""

    digest: str
    packed: bytes


def schedule_of(trace: Trace) -> Schedule:
    """The schedule of a Trace: without source places, the text of an error, and the name of the puzzle."""
    bare = replace(without_lines(trace), error=None if trace.error is None else STOPPED, puzzle=None)
    text = json.dumps(encode(bare), separators=(",", ":")).encode()
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0, filename="") as file:
        file.write(text)
    return Schedule(hashlib.sha256(text).hexdigest()[:16], packed.getvalue())


class Traces:
    """A folder of schedules by their digest."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def path(self, digest: str) -> Path:
        """The file of a schedule. ValueError for what is no digest."""
        if not DIGEST.fullmatch(digest):
            raise ValueError(f"the digest of a schedule has 16 hexadecimal digits; got {digest[:40]!r}")
        return self._folder / f"{digest}.json.gz"

    def __contains__(self, digest: str) -> bool:
        return self.path(digest).is_file()

    def load(self, digest: str) -> Trace:
        """The Trace of a schedule. TraceError where its file is damaged; NoTraceFile, an OSError too, where there is
        none."""
        path = self.path(digest)
        try:
            with gzip.open(path) as file:
                content = file.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise TraceError(f"{path.name} is larger than {MAX_BYTES // 2**20} MiB: that is no Trace of ours")
            return decode(json.loads(content))
        except FileNotFoundError:
            raise NoTraceFile(f"there is no schedule {digest} in {self._folder}: grade again, and it will be") from None
        except TraceError as error:
            raise TraceError(f"{path.name}: {error}") from None
        except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
            raise TraceError(f"{path.name} is damaged: {error}") from None

    def keep(self, schedule: Schedule) -> None:
        """Write a schedule, all of it or nothing, unless it is there."""
        path = self.path(schedule.digest)
        if not path.is_file():
            write_whole(ready(path), schedule.packed)


# -- journal -------------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """A score, without the file, and what kept its runs apart from everything else, in words."""

    score: Score
    isolation: tuple[str, ...]


class Journal:
    """A file of scores by key. Several processes may read it, one writes it: OSError where another one does."""

    def __init__(self, path: Path) -> None:
        self._path = ready(path)
        self._file: IO[bytes] = open(self._path, "a+b")  # noqa: SIM115  # `close` closes it
        try:
            _lock(self._file)
            if self._file.seek(0, os.SEEK_END):
                self._file.seek(-1, os.SEEK_END)
                if self._file.read(1) != b"\n":  # a line that was cut off is to spoil none but itself
                    self._file.write(b"\n")
                    self._file.flush()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Let others write."""
        self._file.close()

    def known(self, prefix: str) -> dict[str, Entry]:
        """Return what is there under keys that begin so, the latest of each."""
        found: dict[str, Entry] = {}
        with self._path.open("rb") as file:
            for line in file:
                try:
                    data = json.loads(line)
                    if data["key"].startswith(prefix):
                        found[data["key"]] = Entry(_score(data["score"]), tuple(data["isolation"]))
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                    continue
        return found

    def add(self, key: str, entry: Entry) -> None:
        """Write a score. It is in the file when this returns."""
        data = {"key": key, "score": asdict(entry.score), "isolation": entry.isolation}
        self._file.write(json.dumps(data, separators=(",", ":")).encode() + b"\n")
        self._file.flush()


def _lock(file: IO[bytes]) -> None:
    """Keep a file for this process until it is closed, or the process ends, however it does."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        folder = Path(file.name).parent.parent
        raise OSError(f"another process is grading into {folder}: wait for it, or take another folder") from None


@cache
def version() -> str:
    """A digest of this package and of its Python: other code may judge otherwise, and so nothing of it is reused."""
    found = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for top in ("lib", "solutions"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".py", ".toml"):
                found.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]
