"""The time axis that all panels of a picture share, and legends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor, log10
from typing import NamedTuple

from drawing.canvas.palette import GRID, INK, SOFT
from drawing.canvas.scene import SMALL, TEXT, Mark, Poly, Rect, Scene, Text, moved, text_width
from lib.cluster.costs import ticks
from lib.errors.wording import exact

__all__ = ["Axis", "compact", "few", "legend", "named_every", "nice", "swatch"]


class Axis(NamedTuple):
    """Where time lies on the paper: from `left` on, `end` ticks over `width` pixels."""

    left: float
    width: float
    end: int

    def x(self, time: int) -> float:
        """The place of a moment."""
        return self.left + self.width * time / max(1, self.end)

    def moments(self) -> list[float]:
        """The moments to write down, in time units."""
        last = self.end / ticks(1)
        step = nice(last / (self.width / 70))
        return [round(step * i, 9) for i in range(floor(last / step + 1e-9) + 1)]

    def grid(self, scene: Scene, top: float, bottom: float) -> None:
        """Thin lines at the moments, to be painted before what stands on them."""
        for moment in self.moments():
            x = self.x(ticks(moment))
            scene.add(Poly(((x, top), (x, bottom)), stroke=GRID))

    def numbers(self, scene: Scene, y: float, end: int, words: str) -> float:
        """The numbers at the moments, and words at the end of the run (ticks); returns where they end."""
        last = self.x(end)
        room = text_width(words, TEXT) * 1.08 + 16
        for moment in self.moments():
            x = self.x(ticks(moment))
            if not last - room < x < last + room:
                scene.add(Text(x, y + 9, exact(moment), SMALL, SOFT, "middle"))
        if last - room < self.left:
            scene.add(Text(last, y + 9, words, TEXT, INK, bold=True))
        else:
            scene.add(Text(min(last + 10, self.left + self.width), y + 9, words, TEXT, INK, "end", bold=True))
        scene.add(Text(self.left - 10, y + 9, "time", SMALL, SOFT, "end"))
        return y + 20


def named_every(height: float) -> int:
    """Every row has its name beside it where there is room for that, else every second or fourth."""
    return 1 if height >= 11 else 2 if height >= 9 else 4


def nice(size: float) -> float:
    """The smallest of 1, 2, 5, 10, 20, 50, ... (and of 0.1, 0.2, 0.5, ...) that is not below a size."""
    if size <= 0:
        return 1.0
    power = 10.0 ** floor(log10(size))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= size * (1 - 1e-9))


def compact(elements: float) -> str:
    """A number of elements in few letters: 1.84 M, 262 k."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if elements >= size:
            return f"{elements / size:.3g} {unit}"
    return f"{elements:.3g}"


Entry = tuple[Sequence[Mark], float, str]
"""A sample drawn with its top left corner at (0, 0), the room it takes, and what it means."""


def swatch(fill: str, stroke: str = "none", text: str = "", width: float = 16, dash: str = "") -> Entry:
    """A legend entry: a small box. The caller replaces the words."""
    inset = 0 if stroke == "none" else 0.5
    marks: list[Mark] = [Rect(inset, inset, width - 2 * inset, 12 - 2 * inset, fill, stroke, dash=dash, radius=1.5)]
    return marks, width, text


def legend(scene: Scene, left: float, top: float, right: float, entries: Iterable[Entry]) -> float:
    """Writes entries from left to right, on as many lines as they need; returns where they end."""
    x, y = left, top
    for marks, width, words in entries:
        room = width + 5 + text_width(words, TEXT) + 14
        if x > left and x + room > right:
            x, y = left, y + 20
        scene.add(*(moved(mark, x, y) for mark in marks))
        scene.add(Text(x + width + 5, y + 6, words, TEXT, SOFT))
        x += room
    return y + 20


def few(count: int, most: int) -> list[int | None]:
    """The numbers below a count, of many the first and the last with None between."""
    return [*range(count)] if count <= most else [*range(most - 2), None, count - 1]
