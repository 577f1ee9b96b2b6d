"""Time against memory: where runs lie, what the goals allow, and where no schedule of their kind can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from drawing.canvas.axes import compact, nice
from drawing.canvas.palette import BOUND, EDGE, GOOD, INK, MINE, NONE, PAPER, SOFT, TRACK, Colour, mix
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, text_width
from drawing.figures.bars import diamond
from lib.errors.wording import exact
from lib.puzzles.records import Goal

__all__ = ["Frame", "Labels", "Limits", "Plot", "Point", "axes", "corner", "plot", "ticks"]

HIGH: Final = 232.0
"""Pixels that the plot is high, with its axes."""
MARGIN: Final = (54.0, 34.0)
"""Pixels left of it and below it, for the numbers of the axes."""


class Point(NamedTuple):
    """A run: what it is called, its end, its peak. `look` is "mine", "reference", "other" or "best"; `inside` is
    false for one of another kind, of which the lower bounds do not speak."""

    name: str
    time: float
    memory: float
    look: str
    inside: bool = True


class Limits(NamedTuple):
    """The lower bounds of time and memory. `steps` are proved corners between them, the fastest first: no schedule
    with no more memory than one of them ends before it."""

    time: float
    memory: float
    steps: Sequence[tuple[float, float]] = ()


class Plot(NamedTuple):
    """What is plotted."""

    points: Sequence[Point]
    goals: Sequence[Goal] = ()
    limits: Limits | None = None


class Frame(NamedTuple):
    """Where the plot lies, and what its edges are in time and elements."""

    left: float
    top: float
    right: float
    bottom: float
    low: tuple[float, float]
    high: tuple[float, float]

    def x(self, time: float) -> float:
        """The place of a moment."""
        share = (time - self.low[0]) / (self.high[0] - self.low[0])
        return self.left + share * (self.right - self.left)

    def y(self, memory: float) -> float:
        """The place of so many elements."""
        share = (memory - self.low[1]) / (self.high[1] - self.low[1])
        return self.bottom - share * (self.bottom - self.top)


Box = tuple[float, float, float, float]


class Labels:
    """Words beside places, where nothing else stands."""

    def __init__(self, frame: Frame, edge: Sequence[tuple[float, float]]) -> None:
        self.frame = frame
        self.edge = edge
        self.taken: list[Box] = []
        self.lines: list[Box] = []

    def line(self, points: Sequence[tuple[float, float]]) -> None:
        """A line of level and upright parts, which words keep away from if they can."""
        for (ax, ay), (bx, by) in pairwise(points):
            self.lines.append((min(ax, bx) - 2, min(ay, by) - 2, max(ax, bx) + 2, max(ay, by) + 2))

    def write(
        self, scene: Scene, words: str, x: float, y: float, colour: Colour, bold: bool = False, apart: float = 10
    ) -> None:
        """Words above or below, right or left of a place, so far from it. Nothing where there is no room."""
        size = TEXT if bold else SMALL
        wide = text_width(words, size) * (1.08 if bold else 1.0)
        sides = [(dx, dy) for dx in (apart, -apart - wide) for dy in (0, -12, 12)]
        sides += [(-wide / 2, -apart - 5), (-wide / 2, apart + 5)]
        boxes = [(x + dx - 1, y + dy - 7, x + dx + wide + 1, y + dy + 7) for dx, dy in sides]
        free = [box for box in boxes if self._is_inside(box) and not _hits(box, self.taken)]
        if words and free:
            box = next((box for box in free if not _hits(box, self.lines)), free[0])
            if _hits(box, self.lines):
                left, top, right, bottom = box
                scene.add(Rect(left, top + 1, right - left, bottom - top - 2, self._ground(box)))
            self.taken.append(box)
            scene.add(Text(box[0] + 1, (box[1] + box[3]) / 2, words, size, colour, bold=bold))

    def below(self, scene: Scene, right: float, y: float) -> None:
        """What the region is where nothing can be; lines stop beside the words."""
        words = "no schedule of this kind"
        box = (right - text_width(words, SMALL) - 3, y - 7, right + 3, y + 7)
        self.taken.append(box)
        scene.add(Rect(box[0], box[1], box[2] - box[0], box[3] - box[1], TRACK))
        scene.add(Text(right, y, words, SMALL, SOFT, "end"))

    def _is_inside(self, box: Box) -> bool:
        frame = self.frame
        return frame.left + 2 < box[0] and box[2] < frame.right - 2 and frame.top < box[1] and box[3] < frame.bottom

    def _ground(self, box: Box) -> Colour:
        """What is below the middle of a box: paper, or the region where no schedule can be."""
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        below = [top for (ax, top), (bx, _) in pairwise(self.edge) if ax <= x <= bx and ax < bx]
        return TRACK if self.edge and (x < self.edge[0][0] or (below and y > max(below))) else PAPER


def _hits(box: Box, others: Sequence[Box]) -> bool:
    return any(box[0] < o[2] and o[0] < box[2] and box[1] < o[3] and o[1] < box[3] for o in others)


def plot(scene: Scene, shown: Plot, left: float, width: float, y: float) -> float:
    """Paints the plot; returns where it ends."""
    frame = _frame(shown, left, width, y)
    edge = [] if shown.limits is None else _edge(frame, shown.limits)
    labels = Labels(frame, edge)
    scene.add(Rect(frame.left, frame.top, frame.right - frame.left, frame.bottom - frame.top, NONE, EDGE))
    if shown.limits is not None:
        _impossible(scene, frame, shown.limits, labels)
    axes(scene, frame)
    for goal in shown.goals:
        labels.line(corner(scene, frame, goal))
    if shown.limits is not None:
        labels.below(scene, frame.right - 8, (frame.y(shown.limits.memory) + frame.bottom) / 2)
    points = sorted(shown.points, key=lambda point: point.look == "mine")
    for point in points:
        x, y_ = frame.x(point.time), frame.y(point.memory)
        labels.taken.append((x - 7, y_ - 7, x + 7, y_ + 7))
        scene.add(*_dot(frame, point))
    for point in reversed(points):
        labels.write(scene, point.name, frame.x(point.time), frame.y(point.memory), INK, point.look == "mine")
    for goal in reversed(shown.goals):
        colour = INK if goal.reached else SOFT
        labels.write(scene, goal.name, frame.x(goal.time), frame.y(goal.memory), colour)
    return y + HIGH


def _frame(shown: Plot, left: float, width: float, y: float) -> Frame:
    places = [(point.time, point.memory) for point in shown.points]
    places += [(goal.time, goal.memory) for goal in shown.goals]
    if shown.limits is not None:
        places += [(shown.limits.time, shown.limits.memory), *shown.limits.steps]
    times, memories = [time for time, _ in places], [memory for _, memory in places]
    spread = [max(found) - min(found) or max(found) * 0.2 or 1.0 for found in (times, memories)]
    low = min(times) - 0.14 * spread[0], min(memories) - 0.2 * spread[1]
    high = max(times) + 0.18 * spread[0], max(memories) + 0.14 * spread[1]
    across, below = MARGIN
    return Frame(left + across, y + 6, left + width, y + HIGH - below, low, high)


def axes(scene: Scene, frame: Frame) -> None:
    """The numbers of both axes, and what they are."""
    for moment in ticks(frame.low[0], frame.high[0], 6):
        x = frame.x(moment)
        scene.add(Poly(((x, frame.bottom), (x, frame.bottom + 4)), stroke=SOFT))
        scene.add(Text(x, frame.bottom + 11, exact(moment), SMALL, SOFT, "middle"))
    for amount in ticks(frame.low[1], frame.high[1], 5):
        y = frame.y(amount)
        scene.add(Poly(((frame.left - 4, y), (frame.left, y)), stroke=SOFT))
        scene.add(Text(frame.left - 7, y, compact(amount), SMALL, SOFT, "end"))
    scene.add(Text((frame.left + frame.right) / 2, frame.bottom + 27, "time", TEXT, SOFT, "middle"))
    scene.add(Text(frame.left - 46, (frame.top + frame.bottom) / 2, "memory", TEXT, SOFT, "middle", turned=True))


def ticks(low: float, high: float, most: int) -> Iterator[float]:
    """The numbers to write at an axis, about so many at most."""
    step = nice((high - low) / most)
    number = int(low // step) + 1
    while number * step < high:
        if number > 0:
            yield round(number * step, 9)
        number += 1


def _edge(frame: Frame, limits: Limits) -> list[tuple[float, float]]:
    """The border of where no schedule can be: down at the fastest, then by the steps to the one with least memory."""
    edge = [(limits.time, frame.high[1])]
    for time, memory in (*limits.steps[1:], (frame.high[0], limits.memory)):
        edge += [(edge[-1][0], memory), (time, memory)]
    return [(frame.x(time), frame.y(memory)) for time, memory in edge]


def _impossible(scene: Scene, frame: Frame, limits: Limits, labels: Labels) -> None:
    """The region where no schedule can be: left of the fastest, below the leanest, and below the steps between."""
    corner = [(frame.right, frame.bottom), (frame.left, frame.bottom), (frame.left, frame.top)]
    scene.add(Poly([*labels.edge, *corner], fill=TRACK), Poly(labels.edge, stroke=BOUND, line=1.4))
    labels.line(labels.edge)
    diamond(scene, frame.x(limits.time), frame.top, 5, 6, f"lower bound of the time: {exact(limits.time)}")
    diamond(scene, frame.right, frame.y(limits.memory), 5, 6, f"lower bound of the memory: {compact(limits.memory)}")


def corner(scene: Scene, frame: Frame, goal: Goal) -> Sequence[tuple[float, float]]:
    """What a goal allows is left of and below its corner; gives the line."""
    x, y = frame.x(goal.time), frame.y(goal.memory)
    line = (frame.left, y), (x, y), (x, frame.bottom)
    colour = mix(GOOD, PAPER, 0.25) if goal.reached else mix(SOFT, PAPER, 0.3)
    scene.add(Poly(line, stroke=colour, dash="" if goal.reached else "4 3"))
    return line


def _dot(frame: Frame, point: Point) -> Iterator[Rect]:
    """A run: one's own is large, the reference a ring, others are small, and hollow where the bounds speak of none."""
    x, y = frame.x(point.time), frame.y(point.memory)
    size = {"mine": 5.5, "reference": 8.0}.get(point.look, 4.0)
    fill, border = _look(point)
    title = f"{point.name}: time {exact(point.time)}, memory {point.memory:,.0f}"
    yield Rect(x - size, y - size, 2 * size, 2 * size, fill, border, 1.6, radius=size, title=title)


def _look(point: Point) -> tuple[Colour, Colour]:
    if point.look == "mine":
        return MINE, PAPER
    if point.look == "best":
        return BOUND, PAPER
    if point.look == "reference" or not point.inside:
        return NONE, MINE
    return SOFT, PAPER
