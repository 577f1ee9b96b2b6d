"""Many runs: each as small as a stamp, and all solutions of a puzzle on one page, on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from drawing.canvas import palette
from drawing.canvas.layout import Piece, hcat, label, vcat
from drawing.canvas.palette import ALARM, EDGE, GOOD, GRID, INK, MINE, NONE, PANEL, SOFT, TRACK
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Mark, Poly, Rect, Scene, Text, fit
from drawing.timeline.boxes import Box, boxes
from drawing.timeline.memory import levels, stepped
from drawing.timeline.rows import shown_rows
from lib.analysis.figures import makespan, peak
from lib.trace.trace import Trace

BESIDE: Final = 0.35  # height of a lane of communication, in rows
LEAST: Final = 1.0  # pixels below which a box goes into the one before it
GAP: Final = 0.5


def thumbnail(trace: Trace, width: float, height: float, end: int, highest: float, least: float = LEAST) -> list[Mark]:
    """The marks of a run from (0, 0) on. `end` (ticks) is as far right as its axis goes, and `highest` the number of
    elements that fills the height of the memory, so that runs can be compared. Boxes narrower than `least` pixels go
    into their neighbours, so there are at most so many."""
    rows = shown_rows(trace, True, 8).rows
    timeline = boxes(trace, [row.rank for row in rows])
    units = [1 + BESIDE * (lanes - 1) for lanes in timeline.lanes]
    below = height * 0.24 if highest else 0.0
    unit = min(16.0, (height - below - 6) / sum(units))
    tops, y = dict[int, float](), 0.0
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
    curve, room = levels(trace, peak(trace).rank) if highest else [], height - y - 4
    if curve and room >= 4:  # the memory of the rank with the highest peak, as one area
        edge = [(level.time * scale, height - room * level.sums[-1] / highest) for level in curve]
        marks += [Poly(((0, height), (width, height)), stroke=GRID), Poly(stepped(edge, height), fill=MINE)]
    return marks


def _box(trace: Trace, box: Box, top: float, unit: float, scale: float) -> Rect:
    event = trace.programs[box.rank].events[box.number]
    fill, border = palette.fill_and_border(box.look, palette.layer_colour(event.layer or 0, trace.layers))
    fill = fill if border == NONE else palette.mix(fill, border, 0.35)  # a box so small has no border
    x = box.start * scale
    if box.look == "failed":
        return Rect(x, top, 4, unit, palette.LOOKS["failed"].fill)
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


WIDE: Final = 300.0
HIGH: Final = 96.0  # pixels of a small timeline
PAD: Final = 12.0


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
    least = LEAST if len(traces) < 60 else 2.5 * LEAST  # so a page of hundreds stays small
    return [thumbnail(trace, WIDE, HIGH, end, max(highest, float(peak(trace).elements)), least) for trace in traces]


def draw_overview(title: str, about: str, tiles: Sequence[Tile]) -> Picture:
    """A picture of all of them, in their order, from left to right and from top to bottom."""
    lines = max((len(tile.said) for tile in tiles), default=0)
    across = min(4, max(1, len(tiles)), 2 if len(tiles) <= 4 else 3 if len(tiles) <= 9 else 4)
    high = HIGH + 2 * PAD + 22 + 16 * (lines + 1)
    small = thumbnails([tile.trace for tile in tiles])
    cards = [_tile(tile, marks, high) for tile, marks in zip(tiles, small, strict=True)]
    rows = vcat((hcat(cards[first : first + across], PAD) for first in range(0, len(cards), across)), PAD)
    scene = Scene(max(560.0, rows.width + 2 * PAD), 0)
    scene.add(Text(PAD * 1.5, 28, fit(title, scene.width - 3 * PAD, 18), 18, INK, bold=True))
    y = scene.paragraph(PAD * 1.5, 52, about, scene.width - 3 * PAD, 17, SOFT)
    scene.add(*rows.at(PAD, y))
    scene.height = y + rows.height + PAD + 4
    return Picture(scene, "\n".join([title, *(f"{tile.name}: {'; '.join([*tile.said, tile.goal])}" for tile in tiles)]))


def _tile(tile: Tile, small: Sequence[Mark], high: float) -> Piece:
    said = [label(line, WIDE, fill=INK if tile.correct else SOFT, height=16) for line in tile.said]
    goal = [label(tile.goal, WIDE, fill=GOOD if tile.correct else ALARM)] if tile.goal else []
    name = label(tile.name, WIDE, TEXT * 1.1, bold=True, height=18)
    inside = vcat([name, *said, *goal, Piece(0, 6 if goal else 22), Piece(WIDE, HIGH, small)])
    frame = Rect(0, 0, WIDE + 2 * PAD, high, PANEL, EDGE, radius=6)
    return Piece(WIDE + 2 * PAD, high, [frame, *inside.at(PAD, PAD)])
