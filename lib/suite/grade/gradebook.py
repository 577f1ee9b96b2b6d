"""The gradebook: what came of every puzzle of every student, as plain data. All reports read it, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

from lib.suite.submissions.states import STATES

__all__ = ["Asked", "Gradebook", "Mark", "Refused", "Result", "Score", "Student", "result_from", "score_from"]

FORMAT: Final = "llm-training-puzzles gradebook"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a puzzle at one size. `size` is in words; that of a plain function says which inputs it was asked.

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
        """Whether it is one correct training step, or a right function."""
        return self.state in ("passed", "missed")


@dataclass(frozen=True, slots=True)
class Score:
    """What came of one puzzle of one student: `own` at the puzzle's size, `hidden` at others.

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
        """Whether it is correct at the puzzle's size."""
        return self.own.correct

    @property
    def message(self) -> str:
        """What to tell the student: of the puzzle's size; where all is well there, of the first size that failed."""
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
        """How many puzzles passed."""
        return sum(score.state == "passed" for score in self.scores)

    @property
    def points(self) -> float:
        """All points, never fewer than none."""
        return max(0.0, round(sum(mark.total for mark in self.marks), 4))

    @property
    def of(self) -> float:
        """How many points there are."""
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
    """What is asked of one puzzle: its goals at its own size as (name, time, memory), `need`, the one that has to be
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
        """Whether every student passed every puzzle, nothing was refused, and no file has a problem."""
        return not (self.refused or self.problems) and all(
            student.passed == len(self.asked) for student in self.students
        )

    def refused_of(self, student: Student) -> tuple[Refused, ...]:
        """What a student handed in that cannot be graded."""
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
        """Reads one that `to_json` wrote. ValueError for anything else."""
        try:
            data = cast("dict[str, Any]", json.loads(text))
            if (data["format"], data["version"]) != (FORMAT, VERSION):
                raise ValueError(f"{data['format']}, version {data['version']}")
            return cls(
                tuple(_asked(one) for one in data["asked"]),
                tuple(_student(one) for one in data["students"]),
                tuple(Refused(**one) for one in data["refused"]),
                tuple(data.get("isolation", ())),
                data.get("made_by", ""),
                data.get("title", ""),
                tuple(data.get("problems", ())),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"this is no {FORMAT}, version {VERSION}: {error}") from None


def result_from(data: Mapping[str, Any]) -> Result:
    """A Result from its JSON. TypeError or KeyError for what is none."""
    return Result(**_with(data, goals=tuple(data["goals"])))


def score_from(data: Mapping[str, Any]) -> Score:
    """A Score from its JSON. TypeError or KeyError for what is none."""
    hidden = tuple(result_from(one) for one in data["hidden"])
    return Score(**_with(data, own=result_from(data["own"]), hidden=hidden))


def _student(data: Mapping[str, Any]) -> Student:
    return Student(
        data["name"],
        tuple(score_from(one) for one in data["scores"]),
        tuple(data["notes"]),
        data.get("id", ""),
        tuple(Mark(**one) for one in data.get("marks", ())),
        tuple((heading, text) for heading, text in data.get("more", ())),
    )


def _asked(data: Mapping[str, Any]) -> Asked:
    reference = None if data["reference"] is None else result_from(data["reference"])
    goals = tuple((name, time, memory) for name, time, memory in data["goals"])
    return Asked(**_with(data, goals=goals, hidden=tuple(data["hidden"]), reference=reference))


def _with(data: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {**data, **fields}
