"""The limits of a review: time and memory beside every tier, with a mark where the provable lower bound is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from drawing.canvas.palette import ALARM, EDGE, INK, SOFT, mix
from drawing.canvas.scene import Poly, Rect, Scene, Text, fit, text_width
from drawing.review.gaps import wrapped
from drawing.timeline.schedule import WIDTH
from lib.course.review import Review
from lib.errors.wording import amount

if TYPE_CHECKING:
    from lib.analysis.bounds.puzzle_bounds import Limit

__all__ = ["limits"]

GOOD: Final = "#2f8f6b"
MINE: Final = "#3d4654"
BOUND: Final = "#8a5a00"
NAMES: Final = 24.0
COLUMNS: Final = ((216.0, 272.0), (516.0, 290.0))
"""Where the bars of time and of memory begin, and how long they may be."""
ROW: Final = 20


class Figure(NamedTuple):
    """One of the two figures: yours, the limits of the tiers, and the lower bound where one is known."""

    name: str
    mine: float
    limits: Sequence[float]
    bound: Limit | None

    def scale(self, width: float) -> float:
        """Pixels a step or an element."""
        return width / (max(self.mine, *self.limits, self.bound.value if self.bound else 0.0) or 1.0)


def limits(scene: Scene, review: Review, y: float) -> float:
    """Bars for yours and for every tier, and below them what the lower bound is made of. Nothing where incorrect."""
    verdict = review.verdict
    if not verdict.correct:
        return y
    bound = None if review.excuse is not None else review.bound
    time = Figure("time steps", verdict.time, [tier.time for tier in verdict.tiers], bound and bound.time)
    memory = Figure(
        "elements on the fullest rank",
        verdict.memory,
        [tier.memory for tier in verdict.tiers],
        bound and bound.memory,
    )
    for row, tier in enumerate(verdict.tiers):
        _name(scene, tier.name, tier.reached, y + 19 + ROW * (row + 1))
    scene.add(Text(NAMES + 18, y + 19, "yours", 12, INK, bold=True))
    for figure, (left, width) in zip((time, memory), COLUMNS, strict=True):
        _bars(scene, figure, left, width, y)
    y += 14 + ROW * (len(verdict.tiers) + 1) + (18 if bound is not None else 0)
    for line in review.bounds():
        y = _told(scene, line, y) + 3
    for line in review.beside():
        scene.add(Text(NAMES, y + 8, line, 11, INK, bold=True))
        y += 16
    return y


def _told(scene: Scene, line: str, y: float) -> float:
    """One line about the lower bounds; those about one limit are indented, and get its mark."""
    limit = line.startswith(" ")
    left = NAMES + (16 if limit else 0)
    if limit:
        x, middle = NAMES + 5, y + 8
        scene.add(Poly(((x, middle - 4), (x + 4, middle), (x, middle + 4), (x - 4, middle)), fill=BOUND))
    for words in wrapped(line, WIDTH - left - 24, 11):
        scene.add(Text(left, y + 8, words, 11, INK if limit else SOFT))
        y += 15
    return y


def _name(scene: Scene, name: str, reached: bool, y: float) -> None:
    scene.add(Text(NAMES + 18, y, fit(name, 172, 12), 12, INK if reached else SOFT, bold=reached))
    if reached:
        scene.add(Poly(((NAMES, y), (NAMES + 4, y + 5), (NAMES + 12, y - 6)), stroke=GOOD, line=2.2))
    else:
        scene.add(Poly(((NAMES + 2, y), (NAMES + 10, y)), stroke=SOFT, line=2))


def _bars(scene: Scene, figure: Figure, left: float, width: float, y: float) -> None:
    """One figure: its bars under each other on one scale, so that what is longer is more."""
    scale = figure.scale(width)
    end, bottom = left + scale * figure.mine, y + 10 + ROW * (len(figure.limits) + 1)
    scene.add(Text(left, y + 1, figure.name, 10, SOFT))
    scene.add(Rect(left, y + 11, scale * figure.mine, 15, MINE, radius=2))
    words: list[Rect | Text] = [Text(left + 6, y + 19, amount(figure.mine), 10.5, "#ffffff", bold=True)]
    for row, limit in enumerate(figure.limits):
        top, long = y + 11 + ROW * (row + 1), scale * limit
        over = figure.mine - limit
        colour = ALARM if over > 0 else GOOD
        fill = mix(colour, "#ffffff", 0.8)
        scene.add(Rect(left, top, long, 15, fill, mix(colour, "#ffffff", 0.3), radius=2))
        said = amount(limit) + (f": {amount(round(over, 9))} over" if over > 0 else "")
        beside = text_width(said, 10.5) > long - 10  # then there is room after the bar: it is far below yours
        if not beside and figure.bound is not None:  # its line must not run through the words
            words.append(Rect(left + 3, top + 1.5, min(text_width(said, 10.5), long - 6), 12, fill))
        words.append(Text(left + (long if beside else 0) + 6, top + 8, said, 10.5, INK))
    scene.add(Poly(((end, y + 8), (end, bottom)), stroke=MINE, line=1, dash="2 2"))
    if figure.bound is not None:
        _bound(scene, figure.bound, left, left + scale * figure.bound.value, y + 8, bottom)
    scene.add(*words, Rect(left, y + 8, 0.8, bottom - y - 8, EDGE))


def _bound(scene: Scene, limit: Limit, left: float, x: float, top: float, bottom: float) -> None:
    """The lower bound: a line through the bars that begin at `left`, and its value below, on the side that has room."""
    scene.add(Poly(((x, top), (x, bottom)), stroke=BOUND, line=1.4))
    diamond = ((x, bottom - 1), (x + 5, bottom + 5), (x, bottom + 11), (x - 5, bottom + 5))
    scene.add(Poly(diamond, fill=BOUND, title=limit.proof))
    words = f"lower bound {amount(limit.value)}"
    before = x - left > text_width(words, 10) + 12
    scene.add(Text(x - 9 if before else x + 9, bottom + 6, words, 10, BOUND, "end" if before else "start"))
