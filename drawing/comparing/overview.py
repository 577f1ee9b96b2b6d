"""All solutions of a puzzle in one picture: each small, with its figures, on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from drawing.canvas.palette import ALARM, EDGE, GOOD, INK, PANEL, SOFT
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Mark, Rect, Scene, Text, fit, moved
from drawing.comparing.thumbnail import LEAST, thumbnail
from lib.analysis.figures import makespan, peak
from lib.trace.trace import Trace

__all__ = ["HIGH", "WIDE", "Tile", "draw_overview", "thumbnails"]

WIDE: Final = 300.0
HIGH: Final = 96.0
"""Pixels of a small timeline."""
PAD: Final = 12.0
MANY: Final = 60
"""From so many solutions on small boxes go together earlier, so that a page of hundreds stays small."""


class Tile(NamedTuple):
    """A solution: what it is called, lines that are said of it, such as its figures, the goal that it reaches or what
    is wrong with it, and whether it is correct."""

    name: str
    trace: Trace
    said: Sequence[str] = ()
    goal: str = ""
    correct: bool = True


def thumbnails(traces: Sequence[Trace]) -> list[list[Mark]]:
    """The small timelines of runs, all on one time axis and to one scale of memory. A run that failed far behind the
    end of all others does not make these smaller."""
    whole = [trace for trace in traces if trace.error is None] or traces
    end = max((makespan(trace) for trace in whole), default=1)
    highest = max((float(peak(trace).elements) for trace in whole), default=0.0)
    least = LEAST if len(traces) < MANY else 2.5 * LEAST
    return [thumbnail(trace, WIDE, HIGH, end, max(highest, float(peak(trace).elements)), least) for trace in traces]


def draw_overview(title: str, about: str, tiles: Sequence[Tile]) -> Picture:
    """A picture of all of them, in their order, from left to right and from top to bottom."""
    lines = max((len(tile.said) for tile in tiles), default=0)
    across = min(4, max(1, len(tiles)), 2 if len(tiles) <= 4 else 3 if len(tiles) <= 9 else 4)
    wide, high = WIDE + 2 * PAD, HIGH + 2 * PAD + 22 + 16 * (lines + 1)
    scene = Scene(max(560.0, across * (wide + PAD) + PAD), 0)
    scene.add(Text(PAD * 1.5, 28, fit(title, scene.width - 3 * PAD, 18), 18, INK, bold=True))
    y = scene.paragraph(PAD * 1.5, 52, about, scene.width - 3 * PAD, 17, SOFT)
    for number, (tile, small) in enumerate(zip(tiles, thumbnails([tile.trace for tile in tiles]), strict=True)):
        left, top = PAD + number % across * (wide + PAD), y + number // across * (high + PAD)
        scene.add(Rect(left, top, wide, high, PANEL, EDGE, radius=6))
        _tile(scene, tile, small, left + PAD, top + PAD)
    scene.height = y + (len(tiles) + across - 1) // across * (high + PAD) + 4
    return Picture(scene, "\n".join([title, *(f"{tile.name}: {'; '.join([*tile.said, tile.goal])}" for tile in tiles)]))


def _tile(scene: Scene, tile: Tile, small: Sequence[Mark], left: float, top: float) -> None:
    scene.add(Text(left, top + 6, fit(tile.name, WIDE, TEXT * 1.1), TEXT * 1.1, INK, bold=True))
    y = top + 26
    for line in tile.said:
        scene.add(Text(left, y, fit(line, WIDE, TEXT), TEXT, INK if tile.correct else SOFT))
        y += 16
    if tile.goal:
        scene.add(Text(left, y, fit(tile.goal, WIDE, TEXT), TEXT, GOOD if tile.correct else ALARM))
    scene.add(*(moved(mark, left, y + 14) for mark in small))
