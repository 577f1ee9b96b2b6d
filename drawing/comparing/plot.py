"""Plots: runs as points of time and memory with what the goals allow and no schedule can reach, and curves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import log2
from typing import Any, Final, NamedTuple, cast

from drawing.canvas.layout import compact, listed, nice
from drawing.canvas.palette import (
    ACCENT,
    ACCENT_INK,
    BOUND,
    EDGE,
    GOOD,
    GRID,
    INK,
    MINE,
    NONE,
    PAPER,
    SOFT,
    TRACK,
    Colour,
    mix,
    origin_colour,
)
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit, text_width
from drawing.comparing.bars import diamond
from lib.errors.wording import exact
from lib.puzzles.records import Goal

At = tuple[float, float]

HIGH: Final = 232.0
"""Pixels that the plot is high, with its axes."""


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
    """The contents of a plot."""

    points: Sequence[Point]
    goals: Sequence[Goal] = ()
    limits: Limits | None = None


class Frame(NamedTuple):
    """The place of a plot on the paper, and its edges in time and elements."""

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

    def at(self, x: float, y: float) -> At:
        """The place of both."""
        return self.x(x), self.y(y)


Box = tuple[float, float, float, float]
FARTHEST: Final = 6
"""Distances at which words look for room."""


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
        """Words above or below, right or left of a place, so far from it; where others stand farther away, at the end
        of a thin line. Nothing where there is no room at all."""
        size = TEXT if bold else SMALL
        wide = text_width(words, size) * (1.08 if bold else 1.0)
        for farther in range(FARTHEST if words else 0):
            gap = apart + 13 * farther
            sides = [(dx, dy) for dx in (gap, -gap - wide) for dy in ((-gap, gap) if farther else (0, -12, 12))]
            sides += [(-wide / 2, -gap - 5), (-wide / 2, gap + 5)]
            boxes = [(x + dx - 1, y + dy - 7, x + dx + wide + 1, y + dy + 7) for dx, dy in sides]
            free = [box for box in boxes if self._is_inside(box) and not _hits(box, self.taken)]
            if free:
                left, top, right, bottom = box = next((box for box in free if not _hits(box, self.lines)), free[0])
                if farther:
                    near = min(max(x, left), right), min(max(y, top), bottom)
                    scene.add(Poly(((x, y), near), stroke=SOFT, line=0.7))
                if _hits(box, self.lines):
                    scene.add(Rect(left, top + 1, right - left, bottom - top - 2, self._ground(box)))
                self.taken.append(box)
                scene.add(Text(left + 1, (top + bottom) / 2, words, size, colour, bold=bold))
                return

    def below(self, scene: Scene, right: float, y: float) -> None:
        """Name the region where no schedule can be; lines stop beside the words."""
        words = "no schedule of this kind"
        box = (right - text_width(words, SMALL) - 3, y - 7, right + 3, y + 7)
        self.taken.append(box)
        scene.add(Rect(box[0], box[1], box[2] - box[0], box[3] - box[1], TRACK))
        scene.add(Text(right, y, words, SMALL, SOFT, "end"))

    def _is_inside(self, box: Box) -> bool:
        frame = self.frame
        return frame.left + 2 < box[0] and box[2] < frame.right - 2 and frame.top < box[1] and box[3] < frame.bottom

    def _ground(self, box: Box) -> Colour:
        """Return the colour below the middle of a box: paper, or the region where no schedule can be."""
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        below = [top for (ax, top), (bx, _) in pairwise(self.edge) if ax <= x <= bx and ax < bx]
        return TRACK if self.edge and (x < self.edge[0][0] or (below and y > max(below))) else PAPER


def _hits(box: Box, others: Sequence[Box]) -> bool:
    return any(box[0] < o[2] and o[0] < box[2] and box[1] < o[3] and o[1] < box[3] for o in others)


def plot(scene: Scene, shown: Plot, left: float, width: float, y: float) -> float:
    """Paints the plot; returns where it ends."""
    frame = _frame(shown, left, width, y)
    labels = Labels(frame, [] if shown.limits is None else _edge(frame, shown.limits))
    scene.add(Rect(frame.left, frame.top, frame.right - frame.left, frame.bottom - frame.top, NONE, EDGE))
    if (limits := shown.limits) is not None:  # the region where no schedule can be, with its border
        below = [(frame.right, frame.bottom), (frame.left, frame.bottom), (frame.left, frame.top)]
        scene.add(Poly([*labels.edge, *below], fill=TRACK), Poly(labels.edge, stroke=BOUND, line=1.4))
        labels.line(labels.edge)
        diamond(scene, frame.x(limits.time), frame.top, 5, 6, f"lower bound of the time: {exact(limits.time)}")
        words = f"lower bound of the memory: {compact(limits.memory)}"
        diamond(scene, frame.right, frame.y(limits.memory), 5, 6, words)
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
    across, below = (54.0, 34.0)
    return Frame(left + across, y + 6, left + width, y + HIGH - below, low, high)


def front_line(scene: Scene, frame: Frame, places: Iterable[At]) -> None:
    """A line along the places that no other one beats in time and memory."""
    corners, lowest = list[At](), float("inf")
    for time, memory in sorted(places):
        if memory < lowest:
            corners += [*([frame.at(time, lowest)] if corners else []), frame.at(time, memory)]
            lowest = memory
    if len(corners) > 1:
        scene.add(Poly(corners, stroke=ACCENT, line=1.6))


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
    scene.add(Text((frame.left + frame.right) / 2, frame.bottom + 27, "time (better: left)", TEXT, SOFT, "middle"))
    middle = (frame.top + frame.bottom) / 2
    scene.add(Text(frame.left - 46, middle, "memory (better: down)", TEXT, SOFT, "middle", turned=True))


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


def corner(scene: Scene, frame: Frame, goal: Goal) -> Sequence[tuple[float, float]]:
    """Paint the corner of a goal, which allows everything left of it and below; return the line."""
    x, y = frame.x(goal.time), frame.y(goal.memory)
    line = (frame.left, y), (x, y), (x, frame.bottom)
    colour = mix(GOOD, PAPER, 0.25) if goal.reached else mix(SOFT, PAPER, 0.3)
    scene.add(Poly(line, stroke=colour, dash="" if goal.reached else "4 3"))
    return line


def _dot(frame: Frame, point: Point) -> Iterator[Rect]:
    """A run: one's own is large, the reference a ring, others are small, and hollow where the bounds speak of none."""
    x, y = frame.x(point.time), frame.y(point.memory)
    size = {"mine": 5.5, "reference": 8.0}.get(point.look, 4.0)
    looks = {"mine": (MINE, PAPER), "best": (BOUND, PAPER), "reference": (NONE, MINE)}
    fill, border = looks.get(point.look, (SOFT, PAPER) if point.inside else (NONE, MINE))
    title = f"{point.name}: time {exact(point.time)}, memory {point.memory:,.0f}"
    yield Rect(x - size, y - size, 2 * size, 2 * size, fill, border, 1.6, radius=size, title=title)


WIDTH: Final = 840
CURVES: Final = 260.0
LEFT: Final = 66.0
RIGHT: Final = 150.0
TOP: Final = 40.0
"""Pixels for the numbers on the left, the names of the curves on the right, and the heading."""
ALIKE: Final = 1e-9
"""Heights that differ by less are equal."""
LINE: Final = 15.0
Curve = Sequence[At]


class Crossing(NamedTuple):
    """A place where another curve becomes the lowest: x and y, and the lowest before and behind it."""

    x: float
    y: float
    before: str
    after: str


def draw_curves(
    curves: Mapping[str, Sequence[At]],
    across: str,
    up: str = "time",
    title: str = "",
    *,
    lowest: bool = True,
    doublings: bool = False,
) -> Picture:
    """Curves by name, each a list of (x, y) with the same x in ascending order. `across` and `up` say what x and y are.

    Rings mark where the lowest of the curves becomes another one, or on a curve alone where it is lowest, if `lowest`
    is what matters. With `doublings` each doubling of x is as wide as the one before it.
    """
    found = _checked(curves)
    if doublings:
        if min(x for curve in found.values() for x, _ in curve) <= 0:
            raise ValueError("draw_curves(doublings=True): there are no doublings of 0, or of less")
        found = {name: [(log2(x), y) for x, y in curve] for name, curve in found.items()}

    def number(x: float) -> str:
        return exact(round(2**x, 3) if doublings else x)

    places, heights = zip(*[point for curve in found.values() for point in curve], strict=True)
    low, high = min(heights), max(heights)
    spread = high - low or abs(high) or 1.0
    edges = (min(places), low - 0.12 * spread), (max(places), high + 0.08 * spread)
    frame = Frame(LEFT, TOP, WIDTH - RIGHT, TOP + CURVES - 40, *edges)
    scene = Scene(WIDTH, CURVES + (66 if lowest else 46))
    title = title or f"{up} by {across}"
    scene.add(Text(LEFT, 22, title, TEXT + 2, INK, bold=True))
    scene.add(Rect(LEFT, TOP, frame.right - LEFT, frame.bottom - TOP, NONE, EDGE))
    where = crossings(found) if lowest else []
    scales(scene, frame, across, up, doublings, [crossing.x for crossing in where])
    for place, curve in enumerate(found.values()):
        scene.add(Poly([frame.at(*point) for point in curve], stroke=origin_colour(place, len(found)), line=2.4))
    _names(scene, frame, found)
    for crossing in where:
        words = f"{crossing.before} up to {number(crossing.x)}, then {crossing.after}"
        _ring(scene, frame, (crossing.x, crossing.y), number(crossing.x), words)
    said = "; ".join(f"{name}: {exact(curve[0][1])} to {exact(curve[-1][1])}" for name, curve in found.items())
    told = f"{title}. Across: {across}. {said}."
    if lowest:
        turns = "; ".join(f"{c.before} is lowest up to {number(c.x)}, then {c.after}" for c in where)
        first = min(found, key=lambda name: found[name][0][1])
        if len(found) == 1:
            x, y = min(found[first], key=lambda point: point[1])
            turns = f"{first} is lowest at {number(x)}, with {exact(y)}"
            _ring(scene, frame, (x, y), number(x), turns)
        turns = turns or f"{first} is lowest everywhere"
        scene.add(Text(LEFT, CURVES + 52, f"{turns}.", TEXT, INK))
        told += f" {turns}."
    return Picture(scene, told)


def _ring(scene: Scene, frame: Frame, place: At, number: str, words: str) -> None:
    x, y = frame.at(*place)
    scene.add(Poly(((x, y), (x, frame.bottom)), stroke=INK, dash="3 3"))
    scene.add(Rect(x - 6, y - 6, 12, 12, PAPER, INK, 2, radius=6, title=words))
    scene.add(Text(x, frame.bottom + 12, number, TEXT, INK, "middle", bold=True))


def crossings(curves: Mapping[str, Curve]) -> list[Crossing]:
    """Return the places where another curve becomes the lowest, from left to right; curves have straight parts."""
    now, found = min(curves, key=lambda name: (curves[name][0][1], curves[name][1][1])), list[Crossing]()
    for at, (begin, end) in enumerate(pairwise(next(iter(curves.values())))):
        x, right = begin[0], end[0]
        while cuts := list(_cuts(curves, now, at, x, right)):
            x, _, after = min(cuts)
            found.append(Crossing(round(x, 9), round(_height(curves[now], at, x), 9), now, after))
            now = after
    return found


def _cuts(curves: Mapping[str, Curve], now: str, at: int, x: float, right: float) -> Iterator[tuple[float, float, str]]:
    """Yield who gets below a curve in the rest of a part: the place, the height at its end, and the name."""
    for name, curve in curves.items():
        gap = _height(curve, at, x) - _height(curves[now], at, x)
        then = curve[at + 1][1] - curves[now][at + 1][1]
        if name != now and gap > -ALIKE and then < -ALIKE:
            gap = max(gap, 0.0)
            yield x + (right - x) * gap / (gap - then), then, name


def _height(curve: Curve, at: int, x: float) -> float:
    (left, low), (right, high) = curve[at], curve[at + 1]
    return low + (high - low) * (x - left) / (right - left)


def _checked(curves: object) -> dict[str, Curve]:
    wanted = 'draw_curves takes curves by name, such as {"full": [(0, 1.2), (1, 3)]}'
    if not isinstance(curves, Mapping) or not curves:
        raise ValueError(f"{wanted}; got {curves!r}")
    try:
        found: dict[str, Curve] = {
            str(name): [(float(x), float(y)) for x, y in points]
            for name, points in cast("Mapping[Any, Sequence[At]]", curves).items()
        }
    except (TypeError, ValueError):
        raise ValueError(f"{wanted}; got {curves!r}") from None
    places = [x for x, _ in next(iter(found.values()))]
    for name, curve in found.items():
        if [x for x, _ in curve] != places or len(places) < 2 or any(a >= b for a, b in pairwise(places)):
            raise ValueError(f"{wanted}, each with the same two x or more, in ascending order; {name!r} has other ones")
    return found


def scales(
    scene: Scene, frame: Frame, across: str, up: str, doublings: bool = False, marked: Sequence[float] = ()
) -> None:
    """The numbers of both axes, and what they are. With `doublings` x is a logarithm of base 2. Where an x is `marked`
    another number will stand."""
    rings = [frame.at(one, 0)[0] for one in marked]
    for dim, most in ((0, 8), (1, 6)):
        low, high = frame.low[dim], frame.high[dim]
        step = 1.0 if doublings and dim == 0 else nice((high - low) / most)
        for number in range(int(-(-low // step)), int((high + 1e-9) // step) + 1):
            value = round(number * step, 9)
            x, y = frame.x(value), frame.y(value)
            if dim:
                scene.add(Poly(((LEFT, y), (frame.right, y)), stroke=GRID))
                scene.add(Text(LEFT - 8, y, exact(value), SMALL, SOFT, "end"))
            elif all(abs(x - ring) >= LINE for ring in rings):
                shown = exact(2**value if doublings else value)
                scene.add(Text(x, frame.bottom + 12, shown, SMALL, SOFT, "middle"))
    scene.add(Text((LEFT + frame.right) / 2, frame.bottom + 30, across, TEXT, SOFT, "middle"))
    scene.add(Text(LEFT - 46, (TOP + frame.bottom) / 2, up, TEXT, SOFT, "middle", turned=True))


def _names(scene: Scene, frame: Frame, curves: Mapping[str, Curve]) -> None:
    ends = sorted((frame.at(*curve[-1])[1], number, name) for number, (name, curve) in enumerate(curves.items()))
    y = TOP - LINE
    for end, number, name in ends:
        y = max(y + LINE, end)
        scene.add(Rect(frame.right + 10, y - 4, 8, 8, origin_colour(number, len(curves)), radius=4))
        scene.add(Text(frame.right + 23, y, fit(name, RIGHT - 30, TEXT), TEXT, INK))


ROW: Final = 18


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
    edges = (low - 0.04 * spread, 0.0), (high + 0.04 * spread, 1.12 * top or 1.0)
    frame = Frame(LEFT, TOP, right, TOP + CURVES - 40, *edges)
    scene = Scene(WIDTH, TOP + CURVES + 50 + ROW * (len(best) + 1))
    scene.add(Text(LEFT, 22, fit(title, right - LEFT, TEXT + 2), TEXT + 2, INK, bold=True))
    scene.add(Rect(LEFT, TOP, frame.right - LEFT, frame.bottom - TOP, NONE, EDGE))
    scales(scene, frame, "time", f"memory, in {unit}")
    for dot in near:
        x, y = frame.at(dot.time, dot.memory)
        words = f"{dot.name}: time {exact(dot.time)}, memory {exact(dot.memory)}, sent {exact(dot.sent)}"
        scene.add(Rect(x - 2.5, y - 2.5, 5, 5, EDGE, radius=2.5, title=words))
    front_line(scene, frame, [(dot.time, dot.memory) for dot in best])
    for number, dot in enumerate(best, 1):
        x, y = frame.at(dot.time, dot.memory)
        scene.add(Rect(x - 8, y - 8, 16, 16, ACCENT, PAPER, 1, radius=8, title=dot.name))
        scene.add(Text(x, y, str(number), SMALL, ACCENT_INK, "middle", bold=True))
    y = frame.bottom + 58
    for number, _ in enumerate(best, 1):
        scene.add(Text(LEFT - 10, y + ROW * number, str(number), TEXT, ACCENT, "end", bold=True))
    cells = [(dot.name, *(exact(round(float(figure), 3)) for figure in dot[1:])) for dot in best]
    rows = listed([("", "time", "memory", "sent"), *cells], (right - LEFT - 260, 60, 100, 100), ROW)
    scene.add(*rows.at(LEFT, y - ROW / 2))
    scene.height = y + ROW * len(best) + 16
    said = "; ".join(f"{dot.name}: time {exact(dot.time)}, memory {exact(dot.memory)}" for dot in best)
    return Picture(scene, f"{title}. Nothing beats: {said}.")
