"""A run as small as a stamp: its timeline without words, and what the rank with the highest peak holds."""

from __future__ import annotations

from typing import Final

from drawing.canvas.palette import GRID, LOOKS, MINE, NONE, TRACK, fill_and_border, layer_colour, mix
from drawing.canvas.scene import Mark, Poly, Rect
from drawing.timeline.boxes import Box, boxes
from drawing.timeline.folding import shown_rows
from drawing.timeline.levels import levels
from lib.analysis.figures import peak
from lib.trace.trace import Trace

__all__ = ["thumbnail"]

ROWS: Final = 8
"""Ranks that have a row; of more, the first ones."""
HIGHEST: Final = 16.0
"""Pixels that a row has at most."""
BESIDE: Final = 0.35
"""How high a lane of communication is, in rows."""
MEMORY: Final = 0.24
"""Which part of the height is for the memory."""
LEAST: Final = 1.0
"""Pixels below which a box goes into the one before it."""
GAP: Final = 0.5
STRONGER: Final = 0.35
"""How much of the colour of its border is in a box, which has none when it is so small."""


def thumbnail(trace: Trace, width: float, height: float, end: int, highest: float, least: float = LEAST) -> list[Mark]:
    """The marks of a run from (0, 0) on. `end` (ticks) is as far right as its axis goes, and `highest` the number of
    elements that fills the height of the memory, so that runs can be compared. Boxes narrower than `least` pixels go
    into their neighbours, so there are at most so many."""
    rows = shown_rows(trace, True, ROWS).rows
    timeline = boxes(trace, [row.rank for row in rows])
    units = [1 + BESIDE * (lanes - 1) for lanes in timeline.lanes]
    below = height * MEMORY if highest else 0.0
    unit = min(HIGHEST, (height - below - 6) / sum(units))
    tops: dict[int, float] = {}
    y = 0.0
    for row, own in zip(rows, units, strict=True):
        tops[row.rank] = y
        y += unit * own
    scale = width / max(1, end, timeline.end)
    marks: list[Mark] = [Rect(0, 0, width, y, TRACK)]
    found: dict[tuple[int, int], list[Rect]] = {}
    for box in timeline.boxes:
        if box.look != "wait":
            _add(found.setdefault((box.rank, box.lane), []), _box(trace, box, tops[box.rank], unit, scale), least)
    every = [rect for lane in found.values() for rect in lane]
    marks += sorted(every, key=lambda rect: rect.fill)  # those of one colour share it in the file
    return marks + (_memory(trace, width, y + 4, height, scale, highest) if highest else [])


def _box(trace: Trace, box: Box, top: float, unit: float, scale: float) -> Rect:
    event = trace.programs[box.rank].events[box.number]
    fill, border = fill_and_border(box.look, layer_colour(event.layer or 0, trace.layers))
    fill = fill if border == NONE else mix(fill, border, STRONGER)
    x = box.start * scale
    if box.look == "failed":
        return Rect(x, top, 4, unit, LOOKS["failed"].fill)
    if box.lane:
        top, unit = top + unit + (box.lane - 1) * unit * BESIDE, unit * BESIDE
    return Rect(x, top + 0.4, (box.end - box.start) * scale, unit - 0.8, fill)


def _add(lane: list[Rect], rect: Rect, least: float) -> None:
    """Adds a box to its lane. One that is too narrow, and beside another, makes that one wider."""
    last = lane[-1] if lane else None
    if last is not None and rect.x - (last.x + last.width) < least and (rect.width < least or last.width < least):
        wide = rect if rect.width > last.width else last
        lane[-1] = wide._replace(x=last.x, width=max(rect.x + rect.width, last.x + last.width) - last.x)
        return
    lane.append(rect._replace(width=max(0.6, rect.width - GAP)) if rect.width > 3 * GAP else rect)


def _memory(trace: Trace, width: float, top: float, bottom: float, scale: float, highest: float) -> list[Mark]:
    """What the rank with the highest peak holds, as one area."""
    curve = levels(trace, peak(trace).rank)
    if not curve or bottom - top < 4:
        return []
    points = [(curve[0].time * scale, bottom)]
    for level in curve:
        x, y = level.time * scale, bottom - (bottom - top) * level.sums[-1] / highest
        if y != points[-1][1]:
            points += [(x, points[-1][1]), (x, y)]
    points += [(curve[-1].time * scale, points[-1][1]), (curve[-1].time * scale, bottom)]
    return [Poly(((0, bottom), (width, bottom)), stroke=GRID), Poly(points, fill=MINE)]
