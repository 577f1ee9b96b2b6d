"""What the pages say: how many goals, and what of a message may be said of a size that nobody is to know."""

from __future__ import annotations

import re
from typing import Final

from lib.suite.grade.gradebook import Asked, Result, Score

__all__ = ["goals_reached", "message_there", "remarks", "without_sizes"]


WITHHELD: Final = "…"
"""In place of a number."""


def goals_reached(asked: Asked, score: Score) -> int:
    """How many of the goals were reached at the puzzle's size, counted from the easiest."""
    return sum(name in score.own.goals for name, _, _ in asked.goals)


def remarks(message: str) -> str:
    """The notes in the verdict on a correct schedule: its state and its figures stand beside it, and better."""
    lines = message.splitlines()
    figures = next((place for place, line in enumerate(lines) if line.startswith("Time ")), len(lines))
    return "\n".join(lines[1:figures])


def message_there(result: Result) -> str:
    """The message of a result whose size stands beside it."""
    return result.message.removeprefix(f"At {result.size}: ")


def without_sizes(message: str) -> str:
    """A message for a student about a size that they are not to know: what went wrong, the line of their own, and how
    to mend it, without the numbers. What was expected and what came are left out."""
    kept: list[str] = []
    keeps = True
    for number, line in enumerate(message.splitlines()):
        label = re.match(r"\s{2}(\w+):\s", line)
        if label is not None:
            keeps = label[1] in ("where", "fix")
        elif not line.startswith("   "):
            keeps = number == 0
        if keeps:
            own = label is not None and label[1] == "where"
            kept.append(line if own else re.sub(r"\d[\d,.]*\d|\d", WITHHELD, line))
    return "\n".join(kept)
