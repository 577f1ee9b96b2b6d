"""Pictures of what would be: a run as it is above the same one timed anew, and what would help most, as bars."""

from __future__ import annotations

from typing import Final

from drawing.canvas.palette import ACCENT, ALARM, GOOD, INK, PAPER, SOFT, TRACK
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Rect, Scene, Text, fit
from drawing.review.gaps import mark_path, path_sample
from drawing.review.why import TITLE
from drawing.timeline.paint import Rows
from drawing.timeline.panel import LEFT, RIGHT, WIDTH, Panel, panels
from lib.analysis.figures import makespan
from lib.analysis.waiting.critical_path import critical_path
from lib.analysis.waiting.what_helps import Helps
from lib.analysis.waiting.what_if import WhatIf, apart

__all__ = ["picture_of_helps", "picture_of_what_if"]

FRAMES: Final = 120
"""Boxes of what changes that get a frame; of more the words say enough."""
NAMES: Final = 190.0
"""Pixels that the names of what may help take, and WORDS what stands beside the longest bar."""
WORDS: Final = 170.0


def picture_of_what_if(found: WhatIf) -> Picture:
    """Both timings on one time axis, each with its critical path, and what becomes of the gaps."""
    scene = Scene(WIDTH, 0)
    scene.add(Text(24, 26, fit(f"{found.words} ...", WIDTH - 48, TITLE), TITLE, INK, bold=True))
    y = scene.paragraph(24, 48, found.head(), WIDTH - 48, 17, INK if found.gain else SOFT)
    runs = [("as it is", found.before), ("then", found.after)]
    shown, y = panels(scene, [run for _, run in runs], y + 6)
    y += 4
    for (name, run), panel in zip(runs, shown, strict=True):
        top = y
        y = panel.heading(scene, name, y)
        rows = panel.rows(scene, y)
        _mark_changed(scene, found, panel, rows)
        mark_path(scene, critical_path(run), panel.axis, rows)
        path_sample(scene, WIDTH - RIGHT, top + 8)
        y = panel.numbers(scene, rows) + 8
    for line in found.ends():
        y = scene.paragraph(LEFT, y + 6, line, WIDTH - LEFT - 24, 16, INK) - 4
    scene.height = y + 8
    return Picture(scene, found.text())


def _mark_changed(scene: Scene, found: WhatIf, panel: Panel, rows: Rows) -> None:
    """A frame around what takes another time."""
    change = found.change
    if change is None:
        return
    touched = [
        box
        for box in panel.timeline.boxes
        if box.look not in ("wait", "pending", "failed")
        and change.touches(panel.trace, box.rank, panel.trace.programs[box.rank].events[box.number])
    ]
    for box in touched if len(touched) <= FRAMES else ():
        top, height = rows.tops[box.rank], rows.height
        if box.lane:
            top, height = top + height + 1 + (box.lane - 1) * (rows.thin + 1), rows.thin
        x, end = panel.axis.x(box.start), panel.axis.x(box.end)
        scene.add(Rect(x, top, max(0.8, end - x - 0.8), height, "none", ACCENT, 1.8))


def picture_of_helps(found: Helps) -> Picture:
    """A bar for each thing that would help: by how much the run would be over earlier."""
    scene = Scene(WIDTH, 0)
    scene.add(Text(24, 26, "What would help most", TITLE, INK, bold=True))
    y = scene.paragraph(24, 48, found.head(), WIDTH - 48, 17, SOFT) + 4
    rows, whole = found.shown(), makespan(found.run)
    left = 24 + NAMES
    scale = (WIDTH - left - WORDS) / max([abs(row.gain) for row in rows], default=1)
    for row in rows:
        scene.add(Text(left - 10, y + 8, fit(row.name, NAMES, TEXT), TEXT, INK, "end"))
        width = max(1.0, scale * abs(row.gain))
        scene.add(Rect(left, y, width, 15, GOOD if row.gain > 0 else ALARM, title=row.change.words()))
        scene.add(Rect(left + width, y, WORDS - 12, 15, PAPER))
        scene.add(Text(left + width + 6, y + 8, apart(row.gain, whole), TEXT, INK))
        y += 20
    if not rows:
        scene.add(Rect(left, y, 200, 15, TRACK), Text(left + 6, y + 8, "nothing alone makes a difference", TEXT, SOFT))
        y += 20
    if rest := found.rest():
        y = scene.paragraph(24, y + 10, f"{rest[0].upper()}{rest[1:]}.", WIDTH - 48, 17, SOFT)
    scene.height = y + 8
    return Picture(scene, found.text())
