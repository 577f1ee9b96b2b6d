"""What pictures are laid out with: arrows, the time axis that panels share, and legends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import copysign, cos, floor, hypot, log10, pi, sin
from typing import Final, NamedTuple

from drawing.canvas.palette import GRID, INK, SOFT
from drawing.canvas.scene import SMALL, TEXT, Mark, Poly, Rect, Scene, Text, moved, text_width
from lib.cluster.costs import ticks
from lib.errors.wording import exact

__all__ = ["Axis", "Entry", "Point", "arrow", "compact", "curve", "few", "legend", "named_every", "nice", "swatch"]

HEAD: Final = 8.0
"""Length of an arrow's head; it is three quarters as wide."""
BENDS: Final = 14

Point = tuple[float, float]


def curve(start: Point, end: Point) -> list[Point]:
    """A line that leaves and arrives upright: a cubic Bezier curve, in short pieces."""
    (x0, y0), (x1, y1) = start, end
    if abs(x0 - x1) < 0.5:
        return [start, end]
    last = y1 - copysign(min(HEAD, abs(y1 - y0) / 4), y1 - y0)  # straight below the head
    middle = (y0 + last) / 2
    found: list[Point] = []
    for bend in range(BENDS + 1):
        t = bend / BENDS
        a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
        found.append(((a + b) * x0 + (c + d) * x1, a * y0 + (b + c) * middle + d * last))
    return [*found, end]


def arc(middle: Point, radius: Point, begin: float, end: float) -> list[Point]:
    """A part of an ellipse, from angle to angle (in turns, from the top, clockwise)."""
    found: list[Point] = []
    for bend in range(BENDS + 1):
        angle = 2 * pi * (begin + (end - begin) * bend / BENDS)
        found.append((middle[0] + radius[0] * sin(angle), middle[1] - radius[1] * cos(angle)))
    return found


def arrow(scene: Scene, points: Sequence[Point], colour: str, line: float = 2, title: str = "", dash: str = "") -> None:
    """Paints a line with a head at its end."""
    (x0, y0), (x1, y1) = _direction(points), points[-1]
    length = hypot(x1 - x0, y1 - y0) or 1.0
    dx, dy = (x1 - x0) / length, (y1 - y0) / length
    size = HEAD + line
    neck = (x1 - dx * size, y1 - dy * size)
    body = [*points[:-1], (x1 - dx * size * 0.8, y1 - dy * size * 0.8)]
    scene.add(Poly(body, stroke=colour, line=line, title=title, dash=dash))
    side = size * 0.42
    head = ((x1, y1), (neck[0] - dy * side, neck[1] + dx * side), (neck[0] + dy * side, neck[1] - dx * side))
    scene.add(Poly(head, colour))


def _direction(points: Sequence[Point]) -> Point:
    """A point before the end that says from where an arrow arrives."""
    x1, y1 = points[-1]
    for point in reversed(points[:-1]):
        if hypot(point[0] - x1, point[1] - y1) > HEAD:
            return point
    return points[0]


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
