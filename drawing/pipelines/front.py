"""draw_front: many schedules as dots, their time across and their memory up; those that nothing beats have a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from drawing.canvas.palette import ACCENT, ACCENT_INK, EDGE, INK, NONE, PAPER, SOFT
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit
from drawing.figures.curves import HIGH, LEFT, TOP, WIDTH, Frame, axes
from lib.errors.wording import exact

__all__ = ["Dot", "draw_front"]

LINE: Final = 18
NUMBERS: Final = ("time", "memory", "sent")


class Dot(NamedTuple):
    """A schedule: what it is called, when it ends, what it holds, and what it sends."""

    name: str
    time: float
    memory: float
    sent: float


def draw_front(dots: Sequence[Dot], best: Sequence[Dot], title: str, unit: str = "examples") -> Picture:
    """`dots` are all, and `best` those that no other beats in time, memory and what is sent, each with a number and a
    row below. What ends much later than all of these is left out. `unit` is that of memory and of what is sent."""
    if not best:
        raise ValueError("draw_front: there is no schedule to draw")
    low, high = min(dot.time for dot in best), max(dot.time for dot in best)
    high += 0.3 * (high - low)
    near = [dot for dot in dots if dot.time <= high]
    top = max(dot.memory for dot in (*near, *best))
    spread = high - low or 1.0
    right = WIDTH - 24.0
    frame = Frame(right, TOP + HIGH - 40, (low - 0.04 * spread, 0.0), (high + 0.04 * spread, 1.12 * top or 1.0))
    scene = Scene(WIDTH, TOP + HIGH + 50 + LINE * (len(best) + 1))
    scene.add(Text(LEFT, 22, fit(title, right - LEFT, TEXT + 2), TEXT + 2, INK, bold=True))
    scene.add(Rect(LEFT, TOP, frame.right - LEFT, frame.bottom - TOP, NONE, EDGE))
    axes(scene, frame, "time", f"memory, in {unit}")
    for dot in near:
        x, y = frame.at(dot.time, dot.memory)
        words = f"{dot.name}: time {exact(dot.time)}, memory {exact(dot.memory)}, sent {exact(dot.sent)}"
        scene.add(Rect(x - 2.5, y - 2.5, 5, 5, EDGE, radius=2.5, title=words))
    line = sorted(best, key=lambda dot: (dot.time, -dot.memory))
    corners: list[tuple[float, float]] = []
    lowest = float("inf")
    for dot in line:
        if dot.memory < lowest:
            if corners:
                corners.append(frame.at(dot.time, lowest))
            corners.append(frame.at(dot.time, dot.memory))
            lowest = dot.memory
    if len(corners) > 1:
        scene.add(Poly(corners, stroke=ACCENT, line=1.6))
    for number, dot in enumerate(best, 1):
        x, y = frame.at(dot.time, dot.memory)
        scene.add(Rect(x - 8, y - 8, 16, 16, ACCENT, PAPER, 1, radius=8, title=dot.name))
        scene.add(Text(x, y, str(number), SMALL, ACCENT_INK, "middle", bold=True))
    y = frame.bottom + 58
    columns = (LEFT, right - 200, right - 100, right)
    for x, words in zip(columns[1:], NUMBERS, strict=True):
        scene.add(Text(x, y, words, TEXT, SOFT, "end"))
    for number, dot in enumerate(best, 1):
        y += LINE
        scene.add(Text(LEFT - 10, y, str(number), TEXT, ACCENT, "end", bold=True))
        scene.add(Text(LEFT, y, fit(dot.name, columns[1] - LEFT - 60, TEXT), TEXT, INK))
        for x, figure in zip(columns[1:], dot[1:], strict=True):
            scene.add(Text(x, y, exact(round(float(figure), 3)), TEXT, INK, "end"))
    scene.height = y + 16
    said = "; ".join(f"{dot.name}: time {exact(dot.time)}, memory {exact(dot.memory)}" for dot in best)
    return Picture(scene, f"{title}. Nothing beats: {said}.")
