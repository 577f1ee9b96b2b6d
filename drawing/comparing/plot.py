"""Plots: runs as points of time and memory, with the regions that goals allow and no schedule can reach; and curves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import log2
from typing import Any, Final, NamedTuple, cast

from drawing.canvas import palette
from drawing.canvas.layout import compact, nice
from drawing.canvas.palette import ACCENT, EDGE, GOOD, GRID, INK, MINE, PAPER, SOFT, TRACK, mix
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit, text_width
from drawing.comparing.bars import diamond
from lib.errors.wording import exact
from lib.puzzles.puzzle import Goal

At = tuple[float, float]
Curve = Sequence[At]
Number = tuple[float, str]  # on an axis: where it stands, and how it is written

WIDTH, LEFT, TOP = 840, 66.0, 40.0
"""Pixels of a plot in a picture of its own: its width, the room for numbers on its left, and for its title."""
LINE: Final = 15.0


class Frame(NamedTuple):
    """The place of a plot on the paper, and the numbers at its lowest and highest corners."""

    left: float
    top: float
    right: float
    bottom: float
    low: At
    high: At

    def x(self, value: float) -> float:
        """Return the place of a number on the horizontal axis."""
        return self.left + (value - self.low[0]) / (self.high[0] - self.low[0]) * (self.right - self.left)

    def y(self, value: float) -> float:
        """Return the place of a number on the vertical axis."""
        return self.bottom - (value - self.low[1]) / (self.high[1] - self.low[1]) * (self.bottom - self.top)

    def at(self, x: float, y: float) -> At:
        """Return the place of a point."""
        return self.x(x), self.y(y)

    def edge(self) -> Rect:
        """Return the rectangle around the plot."""
        return Rect(self.left, self.top, self.right - self.left, self.bottom - self.top, stroke=EDGE)

    def dot(self, place: At, size: float, fill: str, stroke: str, line: float = 1, title: str = "") -> Rect:
        """Return a round mark at a place, of a radius in pixels."""
        x, y = self.at(*place)
        return Rect(x - size, y - size, 2 * size, 2 * size, fill, stroke, line, radius=size, title=title)

    def across(self, scene: Scene, numbers: Iterable[Number], words: str, grid: bool = False, tick: float = 0) -> None:
        """Write numbers below the plot, on lines through it (a `grid`) or at ticks, and their meaning."""
        for value, number in numbers:
            x = self.x(value)
            if grid or tick:
                ends = (self.top, self.bottom) if grid else (self.bottom, self.bottom + tick)
                scene.add(Poly([(x, end) for end in ends], stroke=GRID if grid else SOFT))
            scene.add(Text(x, self.bottom + 12, number, SMALL, SOFT, "middle"))
        scene.add(Text((self.left + self.right) / 2, self.bottom + 29, words, TEXT, SOFT, "middle"))

    def up(self, scene: Scene, numbers: Iterable[Number], words: str, tick: float = 0) -> None:
        """Write numbers left of the plot, on lines through it or at ticks, and their meaning."""
        for value, number in numbers:
            y, ends = self.y(value), (self.left - tick, self.left if tick else self.right)
            scene.add(Poly([(end, y) for end in ends], stroke=SOFT if tick else GRID))
            scene.add(Text(self.left - 8, y, number, SMALL, SOFT, "end"))
        scene.add(Text(self.left - 46, (self.top + self.bottom) / 2, words, TEXT, SOFT, "middle", turned=True))

    def names(self, scene: Scene, ends: Iterable[tuple[float, int, str]], of: int, room: float) -> None:
        """Write names of curves right of the plot, coloured by number among `of`, at their ends or a bit lower."""
        y = self.top - LINE
        for end, number, name in sorted(ends):
            y = max(y + LINE, end)
            scene.add(Rect(self.right + 10, y - 4, 8, 8, palette.origin_colour(number, of), radius=4))
            scene.add(Text(self.right + 23, y, fit(name, room, TEXT), TEXT, INK))


def chart(title: str, high: float, below: float, low: At, top: At, right: float = 24.0) -> tuple[Scene, Frame]:
    """Return a scene with a title, and its plot, `high` pixels from its lowest to its highest corner."""
    frame = Frame(LEFT, TOP, WIDTH - right, TOP + high, low, top)
    scene = Scene(WIDTH, frame.bottom + below)
    scene.add(Text(LEFT, 22, fit(title, WIDTH - LEFT - 24, TEXT + 2), TEXT + 2, INK, bold=True))
    return scene, frame


def numbers(low: float, high: float, most: int, step: float = 0) -> Iterator[float]:
    """Yield the round numbers to write at an axis, about `most` at most, or all that are a `step` apart."""
    step = step or nice((high - low) / most)
    for number in range(int(-(-low // step)), int((high + 1e-9) // step) + 1):
        yield round(number * step, 9)


def axes(scene: Scene, frame: Frame) -> None:
    """Write the numbers of time and memory, and their meaning."""
    (first, least), (last, most) = frame.low, frame.high
    moments, amounts = ([n for n in some if n > 0] for some in (numbers(first, last, 6), numbers(least, most, 5)))
    frame.across(scene, [(time, exact(time)) for time in moments], "time (better: left)", tick=4)
    frame.up(scene, [(amount, compact(amount)) for amount in amounts], "memory (better: down)", tick=4)


def front_line(scene: Scene, frame: Frame, places: Iterable[At]) -> None:
    """Draw a line along the places that no other place beats in time and memory."""
    corners, lowest = list[At](), float("inf")
    for time, memory in sorted(places):
        if memory < lowest:
            corners += [*([frame.at(time, lowest)] if corners else []), frame.at(time, memory)]
            lowest = memory
    if len(corners) > 1:
        scene.add(Poly(corners, stroke=ACCENT, line=1.6))


def corner(scene: Scene, frame: Frame, goal: Goal) -> Sequence[At]:
    """Paint the corner of a goal, which allows everything left of it and below; return the line."""
    x, y = frame.at(goal.time, goal.memory)
    line = (frame.left, y), (x, y), (x, frame.bottom)
    colour = mix(GOOD, PAPER, 0.25) if goal.reached else mix(SOFT, PAPER, 0.3)
    scene.add(Poly(line, stroke=colour, dash="" if goal.reached else "4 3"))
    return line


Box = tuple[float, float, float, float]
FARTHEST: Final = 6  # distances at which words look for room


class Labels:
    """Words beside places, where nothing else stands: clear of all that is `taken`, and of lines where possible.

    Below an `edge` lies the region where no schedule can be.
    """

    def __init__(self, frame: Frame, edge: Curve = ()) -> None:
        self.frame, self.edge, self.taken, self.lines = frame, edge, list[Box](), list[Box]()

    def take(self, place: At, size: float) -> None:
        """Keep words away from a mark at a place."""
        x, y = self.frame.at(*place)
        self.taken.append((x - size, y - size, x + size, y + size))

    def line(self, points: Curve) -> None:
        """Keep words away, where possible, from a line of level and upright parts."""
        for (ax, ay), (bx, by) in pairwise(points):
            self.lines.append((min(ax, bx) - 2, min(ay, by) - 2, max(ax, bx) + 2, max(ay, by) + 2))

    def write(
        self, scene: Scene, words: str, place: At, colour: str = INK, bold: bool = False, apart: float = 10
    ) -> None:
        """Write words above or below, right or left of a place, `apart` from it; where others stand, farther away at
        the end of a thin line. Writes nothing where there is no room at all."""
        (x, y), frame, size = self.frame.at(*place), self.frame, TEXT if bold else SMALL
        wide = text_width(words, size) * (1.08 if bold else 1.0)
        for farther in range(FARTHEST if words else 0):
            gap = apart + 13 * farther
            sides = [(dx, dy) for dx in (gap, -gap - wide) for dy in ((-gap, gap) if farther else (0, -12, 12))]
            sides += [(-wide / 2, -gap - 5), (-wide / 2, gap + 5)]
            boxes = [(x + dx - 1, y + dy - 7, x + dx + wide + 1, y + dy + 7) for dx, dy in sides]
            free = [
                box
                for box in boxes
                if frame.left + 2 < box[0] and box[2] < frame.right - 2 and frame.top < box[1] and box[3] < frame.bottom
                if not _hits(box, self.taken)
            ]
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

    def _ground(self, box: Box) -> str:
        """Return the colour below the middle of a box: paper, or the region where no schedule can be."""
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        below = [top for (ax, top), (bx, _) in pairwise(self.edge) if ax <= x <= bx and ax < bx]
        return TRACK if self.edge and (x < self.edge[0][0] or (below and y > max(below))) else PAPER


def _hits(box: Box, others: Sequence[Box]) -> bool:
    return any(box[0] < o[2] and o[0] < box[2] and box[1] < o[3] and o[1] < box[3] for o in others)


HIGH: Final = 232.0  # pixels of the plot's height, with its axes


class Point(NamedTuple):
    """A run: its name, its end, its peak. `look` is "mine", "reference", "other" or "best"; `inside` is false for a
    run of another kind, to which the lower bounds do not apply."""

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
    steps: Curve = ()


class Plot(NamedTuple):
    """The contents of a plot."""

    points: Sequence[Point]
    goals: Sequence[Goal] = ()
    limits: Limits | None = None


def plot(scene: Scene, shown: Plot, left: float, width: float, y: float) -> float:
    """Paint the plot; return where it ends. The learner's run is large, the reference a ring, others are small, and
    hollow where the bounds do not apply."""
    limits = shown.limits
    places = [(point.time, point.memory) for point in shown.points]
    places += [(goal.time, goal.memory) for goal in shown.goals]
    places += [] if limits is None else [(limits.time, limits.memory), *limits.steps]
    times, memories = zip(*places, strict=True)
    long, large = (max(some) - min(some) or max(some) * 0.2 or 1.0 for some in (times, memories))
    low = min(times) - 0.14 * long, min(memories) - 0.2 * large
    high = max(times) + 0.18 * long, max(memories) + 0.14 * large
    frame = Frame(left + 54, y + 6, left + width, y + HIGH - 34, low, high)
    scene.add(frame.edge())
    border: list[At] = []
    if limits is not None:  # down at the fastest, then by the steps to the one with the least memory
        border = [(limits.time, frame.high[1])]
        for time, memory in (*limits.steps[1:], (frame.high[0], limits.memory)):
            border += [(border[-1][0], memory), (time, memory)]
    labels = Labels(frame, [frame.at(*place) for place in border])
    if limits is not None:  # the region where no schedule can be, with its border
        below = [(frame.right, frame.bottom), (frame.left, frame.bottom), (frame.left, frame.top)]
        scene.add(Poly([*labels.edge, *below], fill=TRACK), Poly(labels.edge, stroke=palette.BOUND, line=1.4))
        labels.line(labels.edge)
        diamond(scene, frame.x(limits.time), frame.top, 5, 6, f"lower bound of the time: {exact(limits.time)}")
        words = f"lower bound of the memory: {compact(limits.memory)}"
        diamond(scene, frame.right, frame.y(limits.memory), 5, 6, words)
    axes(scene, frame)
    for goal in shown.goals:
        labels.line(corner(scene, frame, goal))
    if limits is not None:  # lines stop beside its name
        words, right, middle = "no schedule of this kind", frame.right - 8, (frame.y(limits.memory) + frame.bottom) / 2
        wide = text_width(words, SMALL) + 6
        labels.taken.append((right + 3 - wide, middle - 7, right + 3, middle + 7))
        scene.add(Rect(right + 3 - wide, middle - 7, wide, 14, TRACK), Text(right, middle, words, SMALL, SOFT, "end"))
    looks = {"mine": (5.5, MINE, PAPER), "best": (4.0, palette.BOUND, PAPER), "reference": (8.0, palette.NONE, MINE)}
    points = sorted(shown.points, key=lambda point: point.look == "mine")
    for point in points:
        look = looks.get(point.look, (4.0, SOFT, PAPER) if point.inside else (4.0, palette.NONE, MINE))
        title = f"{point.name}: time {exact(point.time)}, memory {point.memory:,.0f}"
        labels.take((point.time, point.memory), 7)
        scene.add(frame.dot((point.time, point.memory), *look, 1.6, title))
    for point in reversed(points):
        labels.write(scene, point.name, (point.time, point.memory), bold=point.look == "mine")
    for goal in reversed(shown.goals):
        labels.write(scene, goal.name, (goal.time, goal.memory), INK if goal.reached else SOFT)
    return y + HIGH


CURVES: Final = 220.0
RIGHT: Final = 150.0  # pixels of the plot of curves, and for their names
ALIKE: Final = 1e-9  # heights that differ by less are equal


class Crossing(NamedTuple):
    """A place where another curve becomes the lowest: x and y, and the lowest before and after it."""

    x: float
    y: float
    before: str
    after: str


def draw_curves(
    curves: Mapping[str, Curve], across: str, up: str = "time", title: str = "", *,
    lowest: bool = True, doublings: bool = False,
) -> Picture:  # fmt: skip
    """Draw curves by name, each a list of (x, y) with the same x in ascending order. `across` and `up` name x and y.

    With `lowest`, rings mark where another curve becomes the lowest, or where a single curve is lowest. With
    `doublings` each doubling of x is as wide as the one before it.
    """
    found = _checked(curves)
    if doublings:
        if min(x for curve in found.values() for x, _ in curve) <= 0:
            raise ValueError("draw_curves(doublings=True): there are no doublings of 0, or of less")
        found = {name: [(log2(x), y) for x, y in curve] for name, curve in found.items()}

    def number(x: float) -> str:
        x = round(2**x, 3) if doublings else x
        return exact(x if x < 100 else round(x))

    places, heights = zip(*[point for curve in found.values() for point in curve], strict=True)
    low, high = min(heights), max(heights)
    spread, title = high - low or abs(high) or 1.0, title or f"{up} by {across}"
    edges = (min(places), low - 0.12 * spread), (max(places), high + 0.08 * spread)
    scene, frame = chart(title, CURVES, 66 if lowest else 46, *edges, RIGHT)
    scene.add(frame.edge())
    said = "; ".join(f"{name}: {exact(curve[0][1])} to {exact(curve[-1][1])}" for name, curve in found.items())
    told, turns = f"{title}. Across: {across}. {said}.", ""
    rings: list[tuple[At, str]] = []
    if lowest:
        first = min(found, key=lambda name: found[name][0][1])
        for x, y, before, after in crossings(found):
            rings.append(((x, y), f"{before} up to {number(x)}, then {after}"))
            turns += f"{'; ' if turns else ''}{before} is lowest up to {number(x)}, then {after}"
        if len(found) == 1:
            x, y = min(found[first], key=lambda point: point[1])
            turns = f"{first} is lowest at {number(x)}, with {exact(y)}"
            rings.append(((x, y), turns))
        alike = all(curve == found[first] for curve in found.values())
        turns = f"{turns or ('the curves coincide' if alike else f'{first} is lowest everywhere')}."
    free = [
        (x, exact(2**x if doublings else x))
        for x in numbers(frame.low[0], frame.high[0], 8, float(doublings))
        if all(abs(frame.x(x) - frame.x(ring)) >= LINE for (ring, _), _ in rings)
    ]
    frame.across(scene, free, across)
    frame.up(scene, [(y, exact(y)) for y in numbers(frame.low[1], frame.high[1], 6)], up)
    for place, curve in enumerate(found.values()):
        scene.add(
            Poly([frame.at(*point) for point in curve], stroke=palette.origin_colour(place, len(found)), line=2.4)
        )
    ends = [(frame.y(curve[-1][1]), place, name) for place, (name, curve) in enumerate(found.items())]
    frame.names(scene, ends, len(found), RIGHT - 30)
    for place, words in rings:
        x, y = frame.at(*place)
        scene.add(Poly(((x, y), (x, frame.bottom)), stroke=INK, dash="3 3"))
        scene.add(frame.dot(place, 6, PAPER, INK, 2, words))
        scene.add(Text(x, frame.bottom + 12, number(place[0]), TEXT, INK, "middle", bold=True))
    if lowest:
        scene.add(Text(LEFT, frame.bottom + 52, turns, TEXT, INK))
    return Picture(scene, f"{told} {turns}" if lowest else told)


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
    """Yield the curves that get below a curve in the rest of a part: the place, the height at its end, and the name."""
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
            for name, points in cast("Mapping[Any, Curve]", curves).items()
        }
    except (TypeError, ValueError):
        raise ValueError(f"{wanted}; got {curves!r}") from None
    places = [x for x, _ in next(iter(found.values()))]
    for name, curve in found.items():
        if [x for x, _ in curve] != places or len(places) < 2 or any(a >= b for a, b in pairwise(places)):
            raise ValueError(f"{wanted}, each with the same two x or more, in ascending order; {name!r} has other ones")
    return found
