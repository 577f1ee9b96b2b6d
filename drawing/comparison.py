"""Schedules one under another on one time axis, with their figures and the place where they first differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from drawing.canvas.axes import legend
from drawing.canvas.palette import ALARM, INK, SOFT
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Poly, Rect, Scene, Text, fit, text_width
from drawing.figures.table import table
from drawing.timeline.labels import size
from drawing.timeline.memory import kinds_of, memory_at_peak
from drawing.timeline.paint import Rows
from drawing.timeline.panel import LEFT, WIDTH, Panel, panels
from drawing.timeline.schedule import note, trace_of
from lib.analysis.difference import Difference, difference, figures_of, lesson, said, unequal
from lib.analysis.figures import peak
from lib.trace.trace import Trace, nothing_to

__all__ = ["compare", "draw_figures"]

TITLE: Final = 17
EDGE_ROOM: Final = 24.0
"""Pixels beside what is no timeline."""
Runs = Sequence[tuple[str, Trace]]
Gaps = Sequence[Difference | None]


def compare(*runs: Any, names: Sequence[str] | None = None, **named: Any) -> Picture:
    """Draws runs (Traces, Models or lists of Models) under each other: `compare(ddp=out1, fsdp=out2)`.

    Names come from the keywords, from `names`, or from the keys of a dict given alone.
    """
    traces = _named("compare", runs, names, named)
    if isinstance(traces, Picture):
        return traces
    gaps = [difference(traces[0][1], trace) for _, trace in traces[1:]]
    return Picture(_paint(traces, gaps), "\n".join(_words(traces, gaps)))


def draw_figures(*runs: Any, names: Sequence[str] | None = None, **named: Any) -> Picture:
    """Draws only the figures of runs as bars beside each other: time, what is alive at the peak, what is sent.

    Names come as for `compare`.
    """
    traces = _named("draw_figures", runs, names, named)
    if isinstance(traces, Picture):
        return traces
    scene = Scene(WIDTH, 0)
    y = table(scene, traces, EDGE_ROOM, WIDTH - EDGE_ROOM, _headline(scene, traces), unequal(traces) is None)
    scene.height = legend(scene, EDGE_ROOM, y + 12, WIDTH - 12, kinds_of([trace for _, trace in traces])) + 6
    return Picture(scene, "\n".join(f"{name}: {figures_of(trace)}" for name, trace in traces))


def _named(call: str, runs: Sequence[Any], names: Sequence[str] | None, named: Mapping[str, Any]) -> Runs | Picture:
    """The runs with their names; a picture that says why, where there is nothing to draw."""
    if len(runs) == 1 and isinstance(runs[0], Mapping):
        named = {str(key): run for key, run in cast("Mapping[Any, Any]", runs[0]).items()} | {**named}
        runs = ()
    if names is not None and len(names) != len(runs):
        raise ValueError(f"names has {len(names)} for {len(runs)} runs")
    labelled = [*zip(names or [f"run {i + 1}" for i in range(len(runs))], runs, strict=True), *named.items()]
    if not labelled:
        return note("nothing to draw yet")
    for name, run in labelled:
        if (why := nothing_to("draw", run, name)) is not None:
            return note(why)
    return [(name, trace_of(run, call)) for name, run in labelled]


def _words(runs: Runs, gaps: Gaps) -> Iterator[str]:
    """What is read aloud: figures, what differs, and where first."""
    first = runs[0][0]
    yield from (f"{name}: {figures_of(trace)}" for name, trace in runs)
    yield from filter(None, (unequal(runs), lesson(runs)))
    yield from (said(gap, first, name) for (name, _), gap in zip(runs[1:], gaps, strict=True))


def _paint(runs: Runs, gaps: Gaps) -> Scene:
    scene, traces = Scene(WIDTH, 0), [trace for _, trace in runs]
    y = table(scene, runs, EDGE_ROOM, WIDTH - EDGE_ROOM, _headline(scene, runs), unequal(runs) is None)
    shown, y = panels(scene, traces, y + 8, fold=True)
    y = legend(scene, LEFT, y, WIDTH - 12, kinds_of(traces)) + 4
    highest = max(float(peak(trace).elements) for trace in traces)
    # The first schedule is marked where it differs from the next one that does, the others where they do from it.
    marks = [next((gap for gap in gaps if gap is not None), None), *gaps]
    for place, ((name, trace), panel) in enumerate(zip(runs, shown, strict=True)):
        y = panel.heading(scene, name, y, "")
        below = len(scene.marks)
        rows = panel.rows(scene, y)
        gap = marks[place]
        if gap is not None and gap.rank in rows.tops:
            _mark(scene, below, panel, rows, gap, min(place, 1))
        y = panel.numbers(scene, rows)
        y = (memory_at_peak(scene, trace, panel.axis, highest, y) if highest else y) + 16
    for (name, _), gap in zip(runs[1:], gaps, strict=True):
        for part in _told(gap, runs[0][0], name):
            scene.add(Text(LEFT, y + 6, fit(part, WIDTH - LEFT - 10, TEXT), TEXT, INK if gap is None else SOFT))
            y += 18
    scene.height = y + 6
    return scene


def _headline(scene: Scene, runs: Runs) -> float:
    """The names and the size, or that the sizes differ; and what there is to learn. Returns where it ends."""
    names = [name for name, _ in runs]
    title = fit(" and ".join(filter(None, (", ".join(names[:-1]), names[-1]))), WIDTH - 320, TITLE)
    scene.add(Text(EDGE_ROOM, 26, title, TITLE, INK, bold=True))
    y, room = 48.0, WIDTH - 2 * EDGE_ROOM
    if (warning := unequal(runs)) is not None:
        y = scene.paragraph(EDGE_ROOM, y, warning, room, 17, ALARM, bold=True)
    else:
        scene.add(Text(WIDTH - EDGE_ROOM, 26, size(runs[0][1]), TEXT, SOFT, "end"))
    if (words := lesson(runs)) is not None:
        y = scene.paragraph(EDGE_ROOM, y, words, room, 17)
    return y + 4


def _told(gap: Difference | None, first: str, name: str) -> list[str]:
    """A difference on one line where it fits, else with what each side does on a line of its own."""
    line = said(gap, first, name)
    if gap is None or text_width(line, TEXT) <= WIDTH - LEFT - 10:
        return [line]
    return [f"{gap.head(first, name)}:", f"– {gap.side(first, 0)}", f"– {gap.side(name, 1)}"]


def _mark(scene: Scene, below: int, panel: Panel, rows: Rows, gap: Difference, side: int) -> None:
    """Points at the event at which a schedule begins to differ, or at the moment where it has none: a line behind the
    boxes (`below` is how many marks lie under it), and a frame around the box."""
    axis, top, x = panel.axis, rows.tops[gap.rank], panel.axis.x(gap.time)
    for box in panel.timeline.boxes:
        if box.number == gap.numbers[side] and rows.tops[box.rank] == top and box.look != "wait":
            x, height = axis.x(box.start), rows.thin if box.lane else rows.height
            y = top + (rows.height + 1 + (box.lane - 1) * (rows.thin + 1) if box.lane else 0)
            width = max(2.0, axis.x(box.end) - x)
            scene.add(Rect(x - 1.5, y - 1.5, width + 2.2, height + 3, "none", INK, 2, radius=1))
    high = min(rows.tops.values())
    scene.marks.insert(below, Poly(((x, high - 7), (x, rows.bottom + 4)), stroke=INK, dash="2 2"))
    scene.add(Poly(((x - 5, high - 9), (x + 5, high - 9), (x, high - 2)), fill=INK))
