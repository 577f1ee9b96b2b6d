"""Arrows, straight and curved, as plain lines with a head."""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign, cos, hypot, pi, sin
from typing import Final

from drawing.canvas.scene import Poly, Scene

__all__ = ["Point", "arc", "arrow", "curve"]

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
