"""Schedules one under another on one time axis, with their figures and the place where they first differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from drawing.canvas.palette import INK, SOFT
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Poly, Rect, Scene, Text, fit, text_width
from drawing.timeline.paint import Rows
from drawing.timeline.panel import LEFT, WIDTH, Panel, panels
from drawing.timeline.schedule import note, trace_of
from lib.analysis.difference import Difference, difference, figures_of, said
from lib.trace.trace import Trace, nothing_to

__all__ = ["compare"]


def compare(*runs: Any, names: Sequence[str] | None = None, **named: Any) -> Picture:
    """Draws runs (Traces, Models or lists of Models) under each other: `compare(ddp=out1, fsdp=out2)`.

    Names come from the keywords, from `names`, or from the keys of a dict given alone.
    """
    if len(runs) == 1 and isinstance(runs[0], Mapping):
        named = {str(key): run for key, run in cast("Mapping[Any, Any]", runs[0]).items()} | named
        runs = ()
    if names is not None and len(names) != len(runs):
        raise ValueError(f"names has {len(names)} for {len(runs)} runs")
    labelled = [*zip(names or [f"run {i + 1}" for i in range(len(runs))], runs, strict=True), *named.items()]
    if not labelled:
        return note("nothing to draw yet")
    for name, run in labelled:
        if (why := nothing_to("draw", run, name)) is not None:
            return note(why)
    traces = [(name, trace_of(run, "compare")) for name, run in labelled]
    first, base = traces[0]
    gaps = [difference(base, trace) for _, trace in traces[1:]]
    lines = [said(gap, first, name) for (name, _), gap in zip(traces[1:], gaps, strict=True)]
    figures = [f"{name}: {figures_of(trace)}" for name, trace in traces]
    return Picture(_paint(traces, gaps), "\n".join([*figures, *lines]))


def _paint(runs: list[tuple[str, Trace]], gaps: list[Difference | None]) -> Scene:
    # The first schedule is marked where it differs from the next one that does, the others where they do from it.
    marks = [next((gap for gap in gaps if gap is not None), None), *gaps]
    scene = Scene(WIDTH, 0)
    shown, y = panels(scene, [trace for _, trace in runs], 14)
    y += 4
    for place, ((name, _), panel) in enumerate(zip(runs, shown, strict=True)):
        rows = panel.rows(scene, panel.heading(scene, name, y))
        gap = marks[place]
        if gap is not None and gap.rank in rows.tops:
            _mark(scene, panel, rows, gap, min(place, 1))
        y = panel.numbers(scene, rows) + 8
    for (name, _), gap in zip(runs[1:], gaps, strict=True):
        for part in _told(gap, runs[0][0], name):
            scene.add(Text(LEFT, y + 6, fit(part, WIDTH - LEFT - 10, TEXT), TEXT, INK if gap is None else SOFT))
            y += 18
    scene.height = y + 6
    return scene


def _told(gap: Difference | None, first: str, name: str) -> list[str]:
    """A difference on one line where it fits, else with what each side does on a line of its own."""
    line = said(gap, first, name)
    if gap is None or text_width(line, TEXT) <= WIDTH - LEFT - 10:
        return [line]
    return [f"{gap.head(first, name)}:", f"– {gap.side(first, 0)}", f"– {gap.side(name, 1)}"]


def _mark(scene: Scene, panel: Panel, rows: Rows, gap: Difference, side: int) -> None:
    """Points at the event at which a schedule begins to differ, or at the moment where it has none."""
    axis, top, x = panel.axis, rows.tops[gap.rank], panel.axis.x(gap.time)
    for box in panel.timeline.boxes:
        if box.number == gap.numbers[side] and rows.tops[box.rank] == top and box.look != "wait":
            x, height = axis.x(box.start), rows.thin if box.lane else rows.height
            y = top + (rows.height + 1 + (box.lane - 1) * (rows.thin + 1) if box.lane else 0)
            scene.add(Rect(x, y, max(2.0, axis.x(box.end) - x), height, "none", INK, 2))
    scene.add(Poly(((x - 5, top - 7), (x + 5, top - 7), (x, top + 1)), fill=INK))
