"""The layout of pictures: pieces beside and below each other, arrows, the time axis that panels share, and legends.

A piece is a rectangle with marks in it, and only that rectangle counts to others, as with chalk's diagrams (chalk's own
`hcat` takes 300 times as long, as its envelopes may have any shape). All pictures but timelines are built from pieces
wherever things just stand side by side; things drawn to scale have coordinates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import copysign, floor, hypot, log10
from typing import Final, NamedTuple

from drawing.canvas.palette import EDGE, GRID, INK, PAPER, SOFT, ink_on
from drawing.canvas.scene import SMALL, TEXT, Mark, Poly, Rect, Scene, Text, fit, moved, text_width
from lib.cluster.costs import ticks
from lib.errors.wording import exact

MARGIN: Final = 18.0  # pixels of paper around a picture built from pieces
HEAD: Final = 8.0  # length of an arrow's head; it is three quarters as wide

Point = tuple[float, float]
Entry = tuple[Sequence[Mark], float, str]
"""An entry of a legend: a sample with its top left corner at (0, 0), the room it takes, and its meaning."""


class Box(NamedTuple):
    """A place on the paper."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> Point:
        """Return its centre."""
        return self.x + self.width / 2, self.y + self.height / 2


class Piece(NamedTuple):
    """A part of a picture: marks, and other pieces, in a rectangle whose top left corner is (0, 0)."""

    width: float
    height: float
    marks: Sequence[Mark | Inner] = ()

    def at(self, x: float, y: float) -> Iterator[Mark]:
        """Yield its marks with its top left corner at a point: each is moved once, however deep it lies."""
        for mark in self.marks:
            if isinstance(mark, Inner):
                yield from mark.piece.at(x + mark.x, y + mark.y)
            else:
                yield moved(mark, x, y)


class Inner(NamedTuple):
    """A piece inside another one, and where in it its top left corner is."""

    piece: Piece
    x: float
    y: float


def hcat(pieces: Iterable[Piece], gap: float = 0.0, align: float = 0.5) -> Piece:
    """Put pieces beside each other: `align` 0 puts their tops on one level, 1 their bottoms, 0.5 their middles."""
    every, x, inside = [*pieces], 0.0, list[Inner]()
    high = max((piece.height for piece in every), default=0.0)
    for piece in every:
        inside.append(Inner(piece, x, align * (high - piece.height)))
        x += piece.width + gap
    return Piece(x - gap if every else 0.0, high, inside)


def vcat(pieces: Iterable[Piece], gap: float = 0.0, align: float = 0.0) -> Piece:
    """Put pieces below each other: `align` 0 aligns their left edges, 1 their right ones, 0.5 their middles."""
    every = [*pieces]
    wide, y, inside = max((piece.width for piece in every), default=0.0), 0.0, list[Inner]()
    for piece in every:
        inside.append(Inner(piece, align * (wide - piece.width), y))
        y += piece.height + gap
    return Piece(wide, y - gap if every else 0.0, inside)


def flow(pieces: Iterable[Piece], room: float, gap: float = 0.0, below: float = 0.0) -> Piece:
    """Put pieces beside each other, on as many lines as they need within `room` pixels."""
    lines: list[list[Piece]] = []
    for piece in pieces:
        if lines and sum(before.width + gap for before in lines[-1]) + piece.width <= room:
            lines[-1].append(piece)
        else:
            lines.append([piece])
    return vcat((hcat(line, gap, 0) for line in lines), below)


def pad(piece: Piece, left: float = 0.0, top: float = 0.0, right: float = 0.0, bottom: float = 0.0) -> Piece:
    """Return a piece with room around it; negative room lets marks stick out of it."""
    return Piece(piece.width + left + right, piece.height + top + bottom, [Inner(piece, left, top)])


def label(
    words: str, width: float | None = None, size: float = TEXT, fill: str = INK, *,
    bold: bool = False, anchor: str = "start", height: float = 15,
) -> Piece:  # fmt: skip
    """Return a line of text: as wide as it is, or cut to a `width`, to stand at its end or in its middle."""
    wide = text_width(words, size) if width is None else width
    x = {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
    words = words if width is None else fit(words, width, size)
    marks = [Text(x, height / 2, words, size, fill, anchor, bold)]
    return Piece(wide, height, marks if words else ())


def heading(title: str, told: str, room: float) -> Piece:
    """Return the title of a picture, and below it a line about how to read it."""
    return vcat([label(title, room, TEXT * 1.05, bold=True, height=18), label(told, room, fill=SOFT, height=18)])


def card(
    width: float, height: float, fill: str, lines: Sequence[str] = (), *, radius: float = 6, title: str = ""
) -> Piece:
    """Return a rectangle around lines of text, the first of them bold. One as pale as paper has an edge."""
    plain = fill == PAPER
    marks: list[Mark] = [Rect(0, 0, width, height, fill, EDGE if plain else "none", radius=radius, title=title)]
    y, ink = (height - 15 * (len(lines) - 1)) / 2, INK if plain else ink_on(fill)
    for number, line in enumerate(lines):
        marks.append(Text(width / 2, y + 15 * number, line, TEXT, ink, "middle", bold=not number))
    return Piece(width, height, marks)


def listed(rows: Sequence[Sequence[str]], widths: Sequence[float], step: float) -> Piece:
    """Return words in columns of these widths below their names: the first aligned left, the others right."""
    columns = (
        vcat(label(row[at], width, fill=INK if number else SOFT, anchor="end" if at else "start", height=step)
             for number, row in enumerate(rows))
        for at, width in enumerate(widths)
    )  # fmt: skip
    return hcat(columns, align=0)


def curve(start: Point, end: Point) -> list[Point]:
    """Return a line that leaves and arrives upright: a cubic Bezier curve, in short pieces."""
    (x0, y0), (x1, y1) = start, end
    if abs(x0 - x1) < 0.5:
        return [start, end]
    last = y1 - copysign(min(HEAD, abs(y1 - y0) / 4), y1 - y0)  # straight below the head
    middle, points = (y0 + last) / 2, list[Point]()
    for t in (bend / 14 for bend in range(15)):
        a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
        points.append(((a + b) * x0 + (c + d) * x1, a * y0 + (b + c) * middle + d * last))
    return [*points, end]


def arrow(scene: Scene, points: Sequence[Point], colour: str, line: float = 2, title: str = "") -> None:
    """Paint a line with a head at its end, which points away from the last point that is not below the head."""
    x1, y1 = points[-1]
    far = (point for point in points[-2::-1] if hypot(point[0] - x1, point[1] - y1) > HEAD)
    x0, y0 = next(far, points[0])
    length = hypot(x1 - x0, y1 - y0) or 1.0
    dx, dy = (x1 - x0) / length, (y1 - y0) / length
    size = HEAD + line
    neck, side = (x1 - dx * size, y1 - dy * size), size * 0.42
    body = [*points[:-1], (x1 - dx * size * 0.8, y1 - dy * size * 0.8)]
    head = ((x1, y1), (neck[0] - dy * side, neck[1] + dx * side), (neck[0] + dy * side, neck[1] - dx * side))
    scene.add(Poly(body, stroke=colour, line=line, title=title), Poly(head, colour))


class Axis(NamedTuple):
    """The time axis on the paper: from `left` on, `end` ticks over `width` pixels."""

    left: float
    width: float
    end: int

    def x(self, time: int) -> float:
        """Return the place of a moment."""
        return self.left + self.width * time / (self.end or 1)

    def moments(self) -> list[float]:
        """Return the moments to write down, in time units."""
        last = self.end / ticks(1)
        step = nice(last / (self.width / 70))
        return [round(step * i, 9) for i in range(floor(last / step + 1e-9) + 1)]

    def grid(self, scene: Scene, top: float, bottom: float) -> None:
        """Paint thin lines at the moments, before anything that stands on them."""
        for moment in self.moments():
            x = self.x(ticks(moment))
            scene.add(Poly(((x, top), (x, bottom)), stroke=GRID))

    def numbers(self, scene: Scene, y: float, end: int, words: str) -> float:
        """Write the numbers at the moments, and words at the end of the run (ticks); return where they end."""
        last = self.x(end)
        room = text_width(words, TEXT) * 1.08 + 16
        for moment in self.moments():
            x = self.x(ticks(moment))
            if not last - room < x < last + room:
                scene.add(Text(x, y + 9, exact(moment), SMALL, SOFT, "middle"))
        far = last - room >= self.left
        x, anchor = (min(last + 10, self.left + self.width), "end") if far else (last, "start")
        scene.add(Text(x, y + 9, words, TEXT, INK, anchor, bold=True))
        scene.add(Text(self.left - 10, y + 9, "time", SMALL, SOFT, "end"))
        return y + 20


def nice(size: float) -> float:
    """Return the smallest of 1, 2, 5, 10, 20, 50, ... (and of 0.1, 0.2, 0.5, ...) that is not below a size."""
    if size <= 0:
        return 1.0
    power = 10.0 ** floor(log10(size))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= size * (1 - 1e-9))


def compact(elements: float) -> str:
    """Return a number of elements in short form: 1.84 M, 262 k."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if elements >= size:
            return f"{elements / size:.3g} {unit}"
    return f"{elements:.3g}"


def swatch(fill: str, stroke: str = "none", text: str = "", width: float = 16, dash: str = "") -> Entry:
    """Return a legend entry: a small box. The caller replaces the words."""
    inset = 0 if stroke == "none" else 0.5
    marks: list[Mark] = [Rect(inset, inset, width - 2 * inset, 12 - 2 * inset, fill, stroke, dash=dash, radius=1.5)]
    return marks, width, text


def legend(scene: Scene, left: float, top: float, right: float, entries: Iterable[Entry]) -> float:
    """Paint entries from left to right, on as many lines as they need; return where they end."""
    pieces = [
        pad(hcat([Piece(wide, 12, marks), label(words, fill=SOFT, height=12)], 5), right=14, bottom=8)
        for marks, wide, words in entries
    ]
    whole = flow(pieces, right - left)
    scene.add(*whole.at(left, top))
    return top + whole.height


def few(count: int, most: int) -> list[int | None]:
    """Return the numbers below a count; where they are many, the first and the last with None between."""
    return [*range(count)] if count <= most else [*range(most - 2), None, count - 1]
