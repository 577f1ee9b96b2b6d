"""The limits of a review: time and memory beside every goal, with a mark where the provable lower bound is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from drawing.canvas.palette import ALARM, BOUND, EDGE, GOOD, INK, MINE, PAPER, SOFT, ink_on, mix
from drawing.canvas.scene import TEXT, Poly, Rect, Scene, Text, text_width
from drawing.timeline.panel import WIDTH
from drawing.verdict import goal_name
from lib.course.review import Review
from lib.errors.wording import amount

if TYPE_CHECKING:
    from lib.analysis.bounds.limits import Limit  # only a review needs the bounds: `import drawing` should be quick

__all__ = ["limits"]

NAMES: Final = 24.0
COLUMNS: Final = ((216.0, 272.0), (516.0, 290.0))
"""Where the bars of time and of memory begin, and how long they may be."""
ROW: Final = 20


class Figure(NamedTuple):
    """One of the two figures: yours, the limits of the goals, and the lower bound where one is known."""

    name: str
    mine: float
    limits: Sequence[float]
    bound: Limit | None

    def scale(self, width: float) -> float:
        """Pixels a time unit or an element."""
        return width / (max(self.mine, *self.limits, self.bound.value if self.bound else 0.0) or 1.0)


def limits(scene: Scene, review: Review, y: float) -> float:
    """Bars for yours and for every goal, and below them what the lower bound is made of. Nothing where incorrect."""
    verdict = review.verdict
    if not verdict.correct:
        return y
    bound = None if review.excuse is not None else review.bound
    time = Figure("time", verdict.time, [goal.time for goal in verdict.goals], bound and bound.time)
    memory = Figure(
        "elements on the rank with the highest peak",
        verdict.memory,
        [goal.memory for goal in verdict.goals],
        bound and bound.memory,
    )
    for row, goal in enumerate(verdict.goals):
        goal_name(scene, goal.name, goal.reached, NAMES, y + 19 + ROW * (row + 1))
    scene.add(Text(NAMES + 18, y + 19, "yours", 12, INK, bold=True))
    for figure, (left, width) in zip((time, memory), COLUMNS, strict=True):
        _bars(scene, figure, left, width, y)
    y += 14 + ROW * (len(verdict.goals) + 1) + (18 if bound is not None else 0)
    if (premise := review.premise()) is not None:
        y = scene.paragraph(NAMES, y + 8, premise, WIDTH - NAMES - 24, 16, SOFT) - 5
    for limit in review.limits():
        _diamond(scene, NAMES + 5, y + 8, 4, 4)
        y = scene.paragraph(NAMES + 16, y + 8, limit, WIDTH - NAMES - 40, 16) - 5
    scene.add(Text(NAMES, y + 8, review.beside(), TEXT, INK, bold=True))
    return y + 16


def _diamond(scene: Scene, x: float, y: float, wide: float, high: float, title: str = "") -> None:
    """The mark of a lower bound, on its line and beside what it says."""
    corners = ((x, y - high), (x + wide, y), (x, y + high), (x - wide, y))
    scene.add(Poly(corners, fill=BOUND, title=title))


def _bars(scene: Scene, figure: Figure, left: float, width: float, y: float) -> None:
    """One figure: its bars under each other on one scale, so that what is longer is more."""
    scale = figure.scale(width)
    end, bottom = left + scale * figure.mine, y + 10 + ROW * (len(figure.limits) + 1)
    scene.add(Text(left, y + 1, figure.name, TEXT, SOFT))
    scene.add(Rect(left, y + 11, scale * figure.mine, 15, MINE, radius=2))
    words: list[Rect | Text] = [Text(left + 6, y + 19, amount(figure.mine), TEXT, ink_on(MINE), bold=True)]
    for row, limit in enumerate(figure.limits):
        top, long = y + 11 + ROW * (row + 1), scale * limit
        over = figure.mine - limit
        colour = ALARM if over > 0 else GOOD
        fill = mix(colour, PAPER, 0.8)
        scene.add(Rect(left, top, long, 15, fill, mix(colour, PAPER, 0.3), radius=2))
        said = amount(limit) + (f": {amount(round(over, 9))} over" if over > 0 else "")
        beside = text_width(said, TEXT) > long - 10  # then there is room after the bar: it is far below yours
        if not beside and figure.bound is not None:  # its line must not run through the words
            words.append(Rect(left + 3, top + 1.5, min(text_width(said, TEXT), long - 6), 12, fill))
        words.append(Text(left + (long if beside else 0) + 6, top + 8, said, TEXT, INK))
    scene.add(Poly(((end, y + 8), (end, bottom)), stroke=MINE, line=1, dash="2 2"))
    if figure.bound is not None:
        _bound(scene, figure.bound, left, left + scale * figure.bound.value, y + 8, bottom)
    scene.add(*words, Rect(left, y + 8, 0.8, bottom - y - 8, EDGE))


def _bound(scene: Scene, limit: Limit, left: float, x: float, top: float, bottom: float) -> None:
    """The lower bound: a line through the bars that begin at `left`, and its value below, on the side that has room."""
    scene.add(Poly(((x, top), (x, bottom)), stroke=BOUND, line=1.4))
    _diamond(scene, x, bottom + 5, 5, 6, limit.proof)
    words = f"lower bound {amount(limit.value)}"
    before = x - left > text_width(words, TEXT) + 12
    scene.add(Text(x - 9 if before else x + 9, bottom + 6, words, TEXT, BOUND, "end" if before else "start"))
