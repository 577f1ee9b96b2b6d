"""Bars to scale: how a figure of a run, its goals and its lower bound look beside each other, in every picture.

A column is one figure. Its bars stand under each other on one scale, so that what is longer is more, and what each is
worth stands beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from drawing.canvas.palette import BOUND, EDGE, GOOD, INK, MINE, NONE, PAPER, SOFT, Colour, ink_on
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit, text_width

__all__ = ["HIGH", "PITCH", "Bar", "Bound", "Column", "Part", "columns", "diamond", "row_name", "stack"]

HIGH: Final = 15
"""Pixels that a bar is high, and from one to the next."""
PITCH: Final = 20
BESIDE: Final = 6
"""Pixels between a bar and what is said of it."""


class Part(NamedTuple):
    """A part of a bar. Of `labels` the first one that fits is written in it; `title` is what the pointer shows."""

    amount: float
    fill: Colour
    border: Colour = NONE
    labels: Sequence[str] = ()
    title: str = ""


class Bar(NamedTuple):
    """A bar: how much, what is written beside it, and what it is made of. `good` puts a tick after the words."""

    parts: Sequence[Part]
    words: str
    bold: bool = False
    ink: Colour = INK
    good: bool = False

    @property
    def amount(self) -> float:
        """All parts together."""
        return sum(part.amount for part in self.parts)

    @property
    def beside(self) -> float:
        """Pixels that the words take, with the tick."""
        wide = text_width(self.words, TEXT) * (1.08 if self.bold else 1.0)
        return BESIDE + wide + (20 if self.good else 4)


class Bound(NamedTuple):
    """A lower bound, marked by a line through the bars and a diamond below them. `title` is what the pointer shows."""

    amount: float
    words: str
    title: str = ""


class Column(NamedTuple):
    """One figure: its name, its bars, one for each row (or none), and its lower bound where one is known.

    `line` is drawn dashed through all bars: where one's own ends.
    """

    name: str
    bars: Sequence[Bar | None]
    line: float | None = None
    bound: Bound | None = None

    def scale(self, width: float) -> float:
        """Pixels an element or a unit of time, so that every bar has room with its words."""
        shown = [(bar.amount, width - bar.beside) for bar in self.bars if bar is not None and bar.amount > 0]
        if self.bound is not None and self.bound.amount > 0:
            shown.append((self.bound.amount, width))
        return min((room / amount for amount, room in shown), default=0.0)


def columns(
    scene: Scene, shown: Sequence[tuple[Column, float, float]], y: float, pitch: float = PITCH, high: float = HIGH
) -> float:
    """Paints columns, each from its left on in its width, their bars from y + 16 on; returns where they end."""
    ends = [_column(scene, column, left, width, y, pitch, high) for column, left, width in shown]
    return max(ends, default=y)


def _column(scene: Scene, column: Column, left: float, width: float, y: float, pitch: float, high: float) -> float:
    scale = column.scale(width)
    top, bottom = y + 16, y + 16 + pitch * len(column.bars) - (pitch - high) + 3
    scene.add(Text(left, y + 5, fit(column.name, width, TEXT), TEXT, SOFT))
    if column.line is not None:
        end = left + scale * column.line
        scene.add(Poly(((end, top - 3), (end, bottom)), stroke=MINE, dash="2 2"))
    for row, bar in enumerate(column.bars):
        if bar is not None:
            _bar(scene, bar, left, top + pitch * row, scale, high)
    scene.add(Rect(left - 0.8, top - 3, 0.8, bottom - top + 3, EDGE))
    if column.bound is not None:
        return _bound(scene, column.bound, left, width, scale, top - 3, bottom)
    return bottom


def _bar(scene: Scene, bar: Bar, left: float, top: float, scale: float, high: float) -> None:
    end = stack(scene, bar.parts, left, top, scale, high)
    middle, wide = top + high / 2, bar.beside - BESIDE
    scene.add(Rect(end + 3, top, wide, high, PAPER))  # lines that go through all bars must not run through words
    scene.add(Text(end + BESIDE, middle, bar.words, TEXT, bar.ink, bold=bar.bold))
    if bar.good:
        tick(scene, end + BESIDE + wide - 15, middle)


def stack(scene: Scene, parts: Sequence[Part], left: float, top: float, scale: float, high: float) -> float:
    """The parts of a bar one after the other, each with its label where there is room; returns where they end."""
    x = left
    for part in parts:
        width = scale * part.amount
        if part.amount <= 0:
            continue
        gap = 0.8 if width > 3 else 0.0
        inset = 0.5 if part.border != NONE and width > 3 else 0.0
        border = part.border if inset else NONE
        box = (x + inset, top + inset, max(0.6, width - gap - 2 * inset), high - 2 * inset)
        scene.add(Rect(*box, part.fill, border, title=part.title))
        label = next((label for label in part.labels if text_width(label, SMALL) <= width - 4), "")
        if label and high >= 12:
            scene.add(Text(x + (width - gap) / 2, top + high / 2, label, SMALL, ink_on(part.fill), "middle"))
        x += width
    return x


def _bound(scene: Scene, bound: Bound, left: float, width: float, scale: float, top: float, bottom: float) -> float:
    """A line through the bars, a diamond, and its words: beside the diamond where there is room, else below it."""
    x, wide = left + scale * bound.amount, text_width(bound.words, TEXT)
    scene.add(Poly(((x, top), (x, bottom + 2)), stroke=BOUND, line=1.4))
    diamond(scene, x, bottom + 7, 5, 6, bound.title)
    if x + 9 + wide <= left + width:
        scene.add(Text(x + 9, bottom + 8, bound.words, TEXT, BOUND))
    elif x - 9 - wide >= left - 4:
        scene.add(Text(x - 9, bottom + 8, bound.words, TEXT, BOUND, "end"))
    else:
        scene.add(Text(left, bottom + 22, bound.words, TEXT, BOUND))
        return bottom + 30
    return bottom + 16


def diamond(scene: Scene, x: float, y: float, wide: float, high: float, title: str = "") -> None:
    """The mark of a lower bound, on its line and beside what it says."""
    scene.add(Poly(((x, y - high), (x + wide, y), (x, y + high), (x - wide, y)), fill=BOUND, title=title))


def tick(scene: Scene, left: float, y: float) -> None:
    """A check mark, 12 pixels wide."""
    scene.add(Poly(((left, y), (left + 4, y + 5), (left + 12, y - 6)), stroke=GOOD, line=2.2))


def row_name(scene: Scene, name: str, left: float, y: float, room: float, reached: bool | None = None) -> None:
    """The name of a row of bars: with a tick and bold where it is reached, with a dash where it is not."""
    shift = 0.0 if reached is None else 18.0
    strong = reached is not False
    size = TEXT * (1.08 if strong else 1.0)
    scene.add(Text(left + shift, y, fit(name, room - shift, size), TEXT, INK if strong else SOFT, bold=strong))
    if reached:
        tick(scene, left, y)
    elif reached is not None:
        scene.add(Poly(((left + 2, y), (left + 10, y)), stroke=SOFT, line=2))
