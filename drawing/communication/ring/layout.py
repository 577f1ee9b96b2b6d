"""Where the ranks of a ring stand on the paper: a race track, on which each piece goes to the right, and back below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from drawing.communication.arrows import Point
from drawing.communication.tiles import Box

__all__ = ["WIDTH", "Frame", "halfway", "laid_out", "middle", "way"]

WIDTH: Final = 840
NARROWEST: Final = 560
MARGIN: Final = 18
TILE: Final = 110
GAP: Final = 110
BAND: Final = 17
LOWEST: Final = 84
BETWEEN: Final = 84


class Frame(NamedTuple):
    """Where things are in the picture: the tile of each member and its name, and the middle of the ring."""

    tiles: tuple[Box, ...]
    names: tuple[Point, ...]
    inside: Point
    width: float
    bottom: float


def laid_out(members: int, pieces: int, top: float) -> Frame:
    """The ranks as a race track: one half above from left to right, the other below and back. Two are neighbours."""
    above = members if members < 3 else -(-members // 2)
    tile, gap = float(TILE), float(GAP)
    natural = 2 * MARGIN + above * tile + (above - 1) * gap
    if natural > WIDTH:
        shrink = (WIDTH - 2 * MARGIN) / (natural - 2 * MARGIN)
        tile, gap = tile * shrink, gap * shrink
    height = max(LOWEST, BAND * pieces)
    width = max(NARROWEST, round(2 * MARGIN + above * tile + (above - 1) * gap))
    rows = [range(above), range(members - 1, above - 1, -1)]
    tiles, names = dict[int, Box](), dict[int, Point]()
    for number, row in enumerate(rows):
        count = len(row)
        y = top + 22 + number * (height + BETWEEN)
        for place, member in enumerate(row):
            x = width / 2 + (place - (count - 1) / 2) * (tile + gap)
            tiles[member] = Box(x - tile / 2, y, tile, height)
            names[member] = (x, y - 12 if number == 0 else y + height + 13)
    bottom = top + 22 + height + (BETWEEN + height + 30 if rows[1] else 16)
    order = range(members)
    inside = (width / 2, top + 22 + height + (BETWEEN / 2 if rows[1] else 0))
    return Frame(tuple(tiles[m] for m in order), tuple(names[m] for m in order), inside, width, bottom)


def middle(box: Box) -> Point:
    return box.x + box.width / 2, box.y + box.height / 2


def halfway(points: Sequence[Point]) -> Point:
    return (points[0][0] + points[-1][0]) / 2, (points[0][1] + points[-1][1]) / 2


def way(frame: Frame, member: int) -> list[Point]:
    """The straight way from a rank to the next one, a little short of both. Of two ranks each has a way of its own."""
    count = len(frame.tiles)
    here, there = frame.tiles[member], frame.tiles[(member + 1) % count]
    shift = 0.0 if count > 2 else (-18.0 if member == 0 else 18.0)
    (x0, y0), (x1, y1) = middle(here), middle(there)
    start, end = (x0, y0 + shift), (x1, y1 + shift)
    return [_edge(here, start, end), _edge(there, end, start)]


def _edge(box: Box, inside: Point, outside: Point, space: float = 5) -> Point:
    """Where a line leaves a box, with some space."""
    dx, dy = outside[0] - inside[0], outside[1] - inside[1]
    ways = [1.0]
    if dx:
        ways.append(((box.x + box.width + space if dx > 0 else box.x - space) - inside[0]) / dx)
    if dy:
        ways.append(((box.y + box.height + space if dy > 0 else box.y - space) - inside[1]) / dy)
    share = min(way for way in ways if way >= 0)
    return inside[0] + share * dx, inside[1] + share * dy
