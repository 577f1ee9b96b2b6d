"""Many runs, each as small as a stamp, on one time axis: for the pages of a gallery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from drawing.canvas import palette
from drawing.canvas.palette import GRID, MINE, NONE, TRACK
from drawing.canvas.scene import Mark, Poly, Rect
from drawing.timeline.boxes import Box, boxes
from drawing.timeline.memory import levels, stepped
from drawing.timeline.rows import shown_rows
from lib.analysis.figures import makespan, peak
from lib.trace.trace import Trace

BESIDE: Final = 0.35  # height of a lane of communication, in rows
LEAST: Final = 1.0  # pixels below which a box merges into the one before it
GAP: Final = 0.5


def thumbnail(trace: Trace, width: float, height: float, end: int, highest: float, least: float = LEAST) -> list[Mark]:
    """Return the marks of a run from (0, 0) on. `end` (ticks) is the right end of the axis, and `highest` the number
    of elements that fills the height of the memory, so that runs can be compared. Boxes narrower than `least` pixels
    merge into their neighbours, which limits their number."""
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
    marks += sorted(every, key=lambda rect: rect.fill)  # marks of one colour share it in the file
    curve, room = levels(trace, peak(trace).rank) if highest else [], height - y - 4
    if curve and room >= 4:  # the memory of the rank with the highest peak, as one area
        edge = [(level.time * scale, height - room * level.sums[-1] / highest) for level in curve]
        marks += [Poly(((0, height), (width, height)), stroke=GRID), Poly(stepped(edge, height), fill=MINE)]
    return marks


def _box(trace: Trace, box: Box, top: float, unit: float, scale: float) -> Rect:
    event = trace.programs[box.rank].events[box.number]
    fill, border = palette.fill_and_border(box.look, palette.layer_colour(event.layer or 0, trace.layers))
    fill = fill if border == NONE else palette.mix(fill, border, 0.35)  # such a small box has no border
    x = box.start * scale
    if box.look == "failed":
        return Rect(x, top, 4, unit, palette.LOOKS["failed"].fill)
    if box.lane:
        top, unit = top + unit + (box.lane - 1) * unit * BESIDE, unit * BESIDE
    return Rect(x, top + 0.4, (box.end - box.start) * scale, unit - 0.8, fill)


def _add(lane: list[Rect], rect: Rect, least: float) -> None:
    """Add a box to its lane. One that is too narrow, and beside another, widens that one."""
    last = lane[-1] if lane else None
    if last is not None and rect.x - (last.x + last.width) < least and (rect.width < least or last.width < least):
        wide = rect if rect.width > last.width else last
        lane[-1] = wide._replace(x=last.x, width=max(rect.x + rect.width, last.x + last.width) - last.x)
        return
    lane.append(rect._replace(width=max(0.6, rect.width - GAP)) if rect.width > 3 * GAP else rect)


WIDE: Final = 300.0
HIGH: Final = 96.0  # pixels of a small timeline


def thumbnails(traces: Sequence[Trace]) -> list[list[Mark]]:
    """Return the small timelines of runs, all on one time axis and one scale of memory. A run that failed long after
    the end of all others does not make these smaller."""
    whole = [trace for trace in traces if trace.error is None] or traces
    end = max((makespan(trace) for trace in whole), default=1)
    highest = max((float(peak(trace).elements) for trace in whole), default=0.0)
    least = LEAST if len(traces) < 60 else 2.5 * LEAST  # keeps a page of hundreds small
    return [thumbnail(trace, WIDE, HIGH, end, max(highest, float(peak(trace).elements)), least) for trace in traces]
