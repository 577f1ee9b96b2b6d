"""Points: what a puzzle is worth, what being late costs, which attempt counts, and what a person adds.

    deadline = 2026-11-01T23:59:00
    attempts = "best"               # or "latest", if nothing is said

    [points]                        # of each puzzle: one number for each of TERMS, added up
    correct = 4
    hidden = 2
    by_hand = 2

    [late]
    percent = 10                    # of what the puzzle scored, for each day that is begun
    grace = 15                      # minutes that cost nothing
    days = 5                        # later than that, nothing counts

    [extension]                     # by id, or by name
    "410003" = 2026-11-08T23:59:00

It is a sum and no program: nothing of it is evaluated. Times are by the clock on the wall, as platforms write them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from lib.errors.wording import counted
from lib.suite.grade.gradebook import Asked, Mark, Score
from lib.suite.grade.people.tables import moment

__all__ = ["ATTEMPTS", "BY_HAND", "PASSED", "TERMS", "Late", "Rules", "Term", "of_puzzle"]

ATTEMPTS: Final = ("latest", "best")
BY_HAND: Final = "by_hand"
"""The term that is no share of anything: how many points a person may give."""


@dataclass(frozen=True, slots=True)
class Term:
    """What points are given for: what it is called, what it means, how much of it a score has, and how much there is;
    a term of which a puzzle has nothing, such as hidden sizes, does not count there."""

    name: str
    about: str
    reached: Callable[[Score, Asked], float]
    there: Callable[[Asked], float]


def _always(_: Asked) -> float:
    return 1.0


def _has_goals(asked: Asked) -> float:
    return float(bool(asked.goals))


def _goal(score: Score, asked: Asked, which: int) -> float:
    return float(bool(asked.goals) and asked.goals[which][0] in score.own.goals)


TERMS: Final[tuple[Term, ...]] = (
    Term("passed", "all that is needed, at hidden sizes too", lambda s, _: float(s.state == "passed"), _always),
    Term("correct", "one correct training step at the puzzle's size", lambda s, _: float(s.correct), _always),
    Term(
        "hidden",
        "hidden sizes that passed, in proportion",
        lambda s, a: s.hidden_passed / len(a.hidden) if a.hidden and s.correct else 0.0,
        lambda a: float(bool(a.hidden)),
    ),
    Term("first", "the first goal, at the puzzle's size", lambda s, a: _goal(s, a, 0), _has_goals),
    Term("best", "the last goal, at the puzzle's size", lambda s, a: _goal(s, a, -1), _has_goals),
    Term(
        "goal",
        "each goal that is reached at the puzzle's size",
        lambda s, a: float(sum(name in s.own.goals for name, _, _ in a.goals)),
        lambda a: float(len(a.goals)),
    ),
)
PASSED: Final[Mapping[str, float]] = {"passed": 1.0}
"""Points where nothing is said: one for each puzzle that passed."""


@dataclass(frozen=True, slots=True)
class Late:
    """What it costs to be late: `percent` of the points for each day that is begun, after `grace` minutes; and after
    `days` (None: never) all of them."""

    percent: float = 0.0
    grace: float = 0.0
    days: float | None = None

    def factor(self, late: timedelta) -> float:
        """What is left of the points."""
        begun = _days(late, self.grace)
        if self.days is not None and begun > self.days:
            return 0.0
        return max(0.0, 1.0 - begun * self.percent / 100)


@dataclass(frozen=True, slots=True)
class Rules:
    """How points follow from what came of the puzzles: points by puzzle ("" is for all others), the deadline, who has
    another, and what being late costs."""

    points: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: {"": PASSED})
    attempts: str = ATTEMPTS[0]
    deadline: datetime | None = None
    extensions: Mapping[str, datetime] = field(default_factory=dict[str, datetime])
    late: Late = Late()

    def weights(self, puzzle: str) -> Mapping[str, float]:
        """The points of each term for a puzzle."""
        return self.points.get(puzzle) or self.points.get("") or PASSED

    def due(self, its_id: str, name: str, said: str = "") -> datetime | None:
        """When a student has to hand in: as the file of the assignment says for one, or the roster (`said`), or for
        all."""
        return self.extensions.get(its_id) or self.extensions.get(name) or moment(said) or self.deadline

    def mark(self, score: Score, asked: Asked, handed_in: datetime | None, due: datetime | None, flag: bool) -> Mark:
        """The points of one score, of an attempt that came at `handed_in` (None: nobody says), where the platform says
        at least whether it was late (`flag`)."""
        points, of = of_puzzle(score, asked, self.weights(asked.puzzle))
        late = timedelta(0)
        if handed_in is not None and due is not None:
            late = handed_in - due
        elif flag:
            late = timedelta(minutes=self.late.grace, seconds=1)
        if not points or not _days(late, self.late.grace):
            return Mark(asked.puzzle, points, of)
        factor = self.late.factor(late)
        days = counted(_days(late, self.late.grace), "day") if handed_in is not None else "the platform's mark"
        cost = f"{100 - 100 * factor:g} percent less" if factor else "nothing of it counts"
        return Mark(asked.puzzle, round(points * factor, 4), of, f"late by {days}: {cost}")


def of_puzzle(score: Score, asked: Asked, weights: Mapping[str, float]) -> tuple[float, float]:
    """The points of a score, and how many there are, with those that a person gives."""
    points = sum(weights.get(term.name, 0.0) * term.reached(score, asked) for term in TERMS)
    most = sum(weights.get(term.name, 0.0) * term.there(asked) for term in TERMS)
    return round(points, 4), round(most + weights.get(BY_HAND, 0.0), 4)


def _days(late: timedelta, grace: float) -> int:
    """The days that are begun after the deadline and the minutes of grace."""
    if late <= timedelta(minutes=grace):
        return 0
    return math.ceil(late / timedelta(days=1))
