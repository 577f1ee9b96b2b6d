"""draw_curves: times as a function of something else, and where the fastest way becomes another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import log2
from typing import Any, Final, NamedTuple, cast

from drawing.canvas.axes import nice
from drawing.canvas.palette import EDGE, GRID, INK, NONE, PAPER, SOFT, origin_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit
from lib.errors.wording import exact

__all__ = ["HIGH", "LEFT", "TOP", "WIDTH", "Frame", "axes", "crossings", "draw_curves"]

WIDTH: Final = 840
HIGH: Final = 260.0
LEFT: Final = 66.0
RIGHT: Final = 150.0
TOP: Final = 40.0
"""Pixels for the numbers on the left, the names of the curves on the right, and the heading."""
ALIKE: Final = 1e-9
"""Heights that differ by less are equal."""
LINE: Final = 15.0
At = tuple[float, float]
Curve = Sequence[At]


class Crossing(NamedTuple):
    """Where the fastest way becomes another one: x and y, who is fastest before it, and who behind it."""

    x: float
    y: float
    before: str
    after: str


class Frame(NamedTuple):
    """Where the curves lie on the paper, and their numbers at its edges."""

    right: float
    bottom: float
    low: At
    high: At

    def at(self, x: float, y: float) -> At:
        across = (x - self.low[0]) / (self.high[0] - self.low[0])
        up = (y - self.low[1]) / (self.high[1] - self.low[1])
        return LEFT + across * (self.right - LEFT), self.bottom - up * (self.bottom - TOP)


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

    every = [point for curve in found.values() for point in curve]
    scene = Scene(WIDTH, HIGH + (66 if lowest else 46))
    frame = _frame(every)
    title = title or f"{up} by {across}"
    scene.add(Text(LEFT, 22, title, TEXT + 2, INK, bold=True))
    scene.add(Rect(LEFT, TOP, frame.right - LEFT, frame.bottom - TOP, NONE, EDGE))
    where = crossings(found) if lowest else []
    axes(scene, frame, across, up, doublings, [crossing.x for crossing in where])
    for place, curve in enumerate(found.values()):
        scene.add(Poly([frame.at(*point) for point in curve], stroke=origin_colour(place, len(found)), line=2.4))
    _names(scene, frame, found)
    for crossing in where:
        words = f"{crossing.before} up to {number(crossing.x)}, then {crossing.after}"
        _ring(scene, frame, (crossing.x, crossing.y), number(crossing.x), words)
    said = "; ".join(f"{name}: {exact(curve[0][1])} to {exact(curve[-1][1])}" for name, curve in found.items())
    turns = [f"{c.before} is lowest up to {number(c.x)}, then {c.after}" for c in where]
    told = f"{title}. Across: {across}. {said}."
    if lowest and len(found) == 1:
        ((name, curve),) = found.items()
        least = min(curve, key=lambda point: point[1])
        turns = [f"{name} is lowest at {number(least[0])}, with {exact(least[1])}"]
        _ring(scene, frame, least, number(least[0]), turns[0])
    if lowest:
        turns = turns or [f"{_lowest(found, 0)} is lowest everywhere"]
        scene.add(Text(LEFT, HIGH + 52, f"{'; '.join(turns)}.", TEXT, INK))
        told += f" {'; '.join(turns)}."
    return Picture(scene, told)


def _ring(scene: Scene, frame: Frame, place: At, number: str, words: str) -> None:
    """A ring around a place, and its x in bold below it."""
    x, y = frame.at(*place)
    scene.add(Poly(((x, y), (x, frame.bottom)), stroke=INK, dash="3 3"))
    scene.add(Rect(x - 6, y - 6, 12, 12, PAPER, INK, 2, radius=6, title=words))
    scene.add(Text(x, frame.bottom + 12, number, TEXT, INK, "middle", bold=True))


def crossings(curves: Mapping[str, Curve]) -> list[Crossing]:
    """Where the lowest of some curves of straight parts becomes another one, from left to right."""
    now, found = min(curves, key=lambda name: (curves[name][0][1], curves[name][1][1])), list[Crossing]()
    for at, (begin, end) in enumerate(pairwise(next(iter(curves.values())))):
        x, right = begin[0], end[0]
        while cuts := list(_cuts(curves, now, at, x, right)):
            x, _, after = min(cuts)
            found.append(Crossing(round(x, 9), round(_height(curves[now], at, x), 9), now, after))
            now = after
    return found


def _cuts(curves: Mapping[str, Curve], now: str, at: int, x: float, right: float) -> Iterator[tuple[float, float, str]]:
    """Where others get below one in what is left of a part: the place, how high they end, and who."""
    for name, curve in curves.items():
        gap = _height(curve, at, x) - _height(curves[now], at, x)
        then = curve[at + 1][1] - curves[now][at + 1][1]
        if name != now and gap > -ALIKE and then < -ALIKE:
            gap = max(gap, 0.0)
            yield x + (right - x) * gap / (gap - then), then, name


def _height(curve: Curve, at: int, x: float) -> float:
    (left, low), (right, high) = curve[at], curve[at + 1]
    return low + (high - low) * (x - left) / (right - left)


def _lowest(curves: Mapping[str, Curve], at: int) -> str:
    return min(curves, key=lambda name: curves[name][at][1])


def _checked(curves: object) -> dict[str, Curve]:
    """The curves as numbers. ValueError where they are none."""
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


def _frame(points: Sequence[At]) -> Frame:
    low_x, high_x = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    spread = high - low or abs(high) or 1.0
    return Frame(WIDTH - RIGHT, TOP + HIGH - 40, (low_x, low - 0.12 * spread), (high_x, high + 0.08 * spread))


def axes(
    scene: Scene, frame: Frame, across: str, up: str, doublings: bool = False, marked: Sequence[float] = ()
) -> None:
    """The numbers of both axes, and what they are. With `doublings` x is a logarithm of base 2. Where an x is `marked`
    another number will stand."""
    rings = [frame.at(one, 0)[0] for one in marked]
    for dim, most in ((0, 8), (1, 6)):
        step = 1.0 if doublings and dim == 0 else nice((frame.high[dim] - frame.low[dim]) / most)
        number = -(-frame.low[dim] // step)
        while number * step <= frame.high[dim] + 1e-9:
            value = round(number * step, 9)
            x, y = frame.at(value, frame.low[1]) if dim == 0 else frame.at(frame.low[0], value)
            if dim == 0:
                if all(abs(x - ring) >= LINE for ring in rings):
                    shown = exact(2**value if doublings else value)
                    scene.add(Text(x, frame.bottom + 12, shown, SMALL, SOFT, "middle"))
            else:
                scene.add(Poly(((LEFT, y), (frame.right, y)), stroke=GRID))
                scene.add(Text(LEFT - 8, y, exact(value), SMALL, SOFT, "end"))
            number += 1
    scene.add(Text((LEFT + frame.right) / 2, frame.bottom + 30, across, TEXT, SOFT, "middle"))
    scene.add(Text(LEFT - 46, (TOP + frame.bottom) / 2, up, TEXT, SOFT, "middle", turned=True))


def _names(scene: Scene, frame: Frame, curves: Mapping[str, Curve]) -> None:
    """The name of each curve beside its end, apart from each other."""
    ends = sorted((frame.at(*curve[-1])[1], number, name) for number, (name, curve) in enumerate(curves.items()))
    y = TOP - LINE
    for end, number, name in ends:
        y = max(y + LINE, end)
        scene.add(Rect(frame.right + 10, y - 4, 8, 8, origin_colour(number, len(curves)), radius=4))
        scene.add(Text(frame.right + 23, y, fit(name, RIGHT - 30, TEXT), TEXT, INK))
