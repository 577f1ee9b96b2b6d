"""The goals of a puzzle as bars to scale, and above them one's own figures, where there are any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from drawing.canvas.axes import compact
from drawing.canvas.palette import ACCENT, ALARM, GOOD, INK, MINE, PAPER, mix
from drawing.canvas.scene import Scene
from drawing.figures.bars import HIGH, PITCH, Bar, Bound, Column, Part, columns, row_name
from lib.errors.wording import amount
from lib.puzzles.records import Goal

__all__ = ["LIMITLESS", "Figure", "goals", "may_send"]

LIMITLESS: Final = 2.0**60
"""Limits from here on are none: the caller asked for time only, or for memory only."""
NAMES: Final = 186.0
"""Pixels for the names of the rows."""
BETWEEN: Final = 16.0


def may_send(wanted: Sequence[Goal], others: float | None = None) -> list[float]:
    """How many elements may be sent per rank for each goal; `others` is for those that do not say."""
    limits = [others if goal.sent is None else goal.sent for goal in wanted]
    return [LIMITLESS if limit is None else limit for limit in limits]


class Figure(NamedTuple):
    """A figure: its name, the limits of the goals, one's own with what it is made of, and a lower bound."""

    name: str
    limits: Sequence[float]
    mine: float | None = None
    parts: Sequence[Part] = ()
    bound: Bound | None = None

    @property
    def column(self) -> Column:
        """Its bars: one's own first, if there are figures of one's own."""
        bars: list[Bar | None] = []
        if self.mine is not None:
            parts = self.parts or [Part(self.mine, MINE)]
            bars.append(Bar(parts, amount(self.mine), bold=True))
        bars += [None if limit >= LIMITLESS else _goal(limit, self.mine) for limit in self.limits]
        return Column(self.name, bars, self.mine, self.bound)


def _goal(limit: float, mine: float | None) -> Bar:
    """A limit: green where one's own figure is within it, red where it is over, and then by how much."""
    over = 0.0 if mine is None else round(mine - limit, 9)
    colour = ACCENT if mine is None else ALARM if over > 0 else GOOD
    words = amount(limit)
    if over > 0:
        words += f": {compact(over) if over >= 1000 else amount(over)} over"
    return Bar([Part(limit, mix(colour, PAPER, 0.8), mix(colour, PAPER, 0.3))], words, ink=ALARM if over > 0 else INK)


def goals(
    scene: Scene, wanted: Sequence[Goal], figures: Sequence[Figure], left: float, right: float, y: float, judged: bool
) -> float:
    """Paints a row for each goal, and one above for one's own where there is one; returns where they end.

    `judged`: whether names have a tick where a goal is reached and a dash where it is not.
    """
    own = any(figure.mine is not None for figure in figures)
    names = min(NAMES, (right - left) * 0.28)
    middle = y + 16 + HIGH / 2
    if own:
        row_name(scene, "yours", left + 18, middle, names)
    for row, goal in enumerate(wanted):
        row_name(scene, goal.name, left, middle + PITCH * (row + own), names, goal.reached if judged else None)
    start, width = left + names, (right - left - names) / max(1, len(figures)) - BETWEEN
    placed = [(figure.column, start + place * (width + BETWEEN), width) for place, figure in enumerate(figures)]
    return columns(scene, placed, y)
