"""Recordings one under another: a profile of a real run below its intended schedule, and where they differ.

All are on one time axis, in time units: the median forward of a measured run is as wide as that of the schedule. Where
one takes many times as long as another, each has the whole width, and one without a known forward is in milliseconds:
the picture says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from drawing.canvas.layout import Axis, legend, swatch
from drawing.canvas.palette import ALARM, INK, LOOKS, SOFT, TRACK, band, fill_and_border, ink_on, layer_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Mark, Rect, Scene, Text, fit
from drawing.comparing.comparison import together
from drawing.timeline import paint
from drawing.timeline.boxes import Box, Fold, gathers
from drawing.timeline.boxes import Message as Arrow
from drawing.timeline.schedule import RIGHT, WIDTH, titled
from lib.analysis.recording import COMPUTE, Recording, Span, departures, figures, told
from lib.cluster.costs import TICKS, units
from lib.errors.wording import exact
from lib.values.collectives import COLLECTIVES
from lib.values.operations import OPERATIONS

STOPPED: Final = 1.9  # room on the time axis, in terms of what ran, where it is also shown what each rank stops at
FAR: Final = 2.5  # a recording more than this many times as long as the shortest has its own axis


class _Panel(NamedTuple):
    """A recording with its times in ticks: its spans with their lanes, by rank, and the axis that it is drawn on.

    `unit` is the nanoseconds of a time unit, or of a millisecond where it is not drawn `in_units`.
    """

    recording: Recording
    spans: list[tuple[Span, int]]
    lanes: list[int]
    ranks: list[int]
    axis: Axis
    unit: float
    in_units: bool


def draw_recordings(expected: Recording, *found: Recording) -> Picture:
    """Draw recordings under each other, and say where the ranks of each depart from the order of the first."""
    every = [expected, *found]
    for one in every:
        if not isinstance(one, Recording):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"draw_recordings takes Recordings, as recording_of makes of a Trace; got {one!r}")
    # The nanoseconds of each one's time unit; None where it has none, and is drawn in milliseconds.
    wide = next((one.forward and one.forward / one.unit for one in every if one.unit is not None), None)
    scales = [one.unit or (one.forward / wide if one.forward and wide else None) for one in every]
    ends = [one.end / scale for one, scale in zip(every, scales, strict=True) if scale is not None]
    shared = bool(ends) and max(ends) <= FAR * min(ends)
    panels = [_panel(one, scale, max(ends) if shared else None) for one, scale in zip(every, scales, strict=True)]
    gaps = [departures(expected, one) if expected.has_order and one.has_order else None for one in found]
    said = "Times in time units." if ends else "Times in milliseconds."
    if ends and any(one.unit is None and one.forward for one in every):
        said = "Times in time units: the median forward of a measured run takes as many as the schedule's."
    if len(ends) > 1 and not shared:
        said += " One run takes many times as long as another, so each has the whole width."
    scene, y = titled(together([one.name for one in every]), said)
    stages = 1 + max((span.stage or 0 for one in every for span in one.spans), default=0)
    boxes = [Box(span.rank, 0, _look(span.op), 0, 0, lane) for panel in panels for span, lane in panel.spans]
    ramp = "stage" if any(one.has_order for one in every) else "layer"
    entries = paint.operations(stages, boxes, "number: batch", of=ramp)
    if all(span.stage is None for one in every for span in one.spans):
        entries = entries[2:]  # neither the ramp nor a forward: nothing says which spans are forwards
    y = legend(scene, paint.LEFT, y - 3, WIDTH - 12, entries) + 4
    if expected.held:
        y = legend(scene, paint.LEFT, y - 4, WIDTH - 12, [swatch(*LOOKS["pending"].pair, "stops here", dash="3 2")]) + 4
    first = next((gap for gap in gaps if gap), None) or []
    for place, panel in enumerate(panels):
        mine = first if place == 0 else gaps[place - 1] or []
        y = _paint(scene, panel, stages, y, [(gap.rank, gap.position) for gap in mine])
    words = list(told(expected, found))
    for line in words:
        y = scene.paragraph(paint.LEFT, y + 6, line, WIDTH - paint.LEFT - 12, 17, SOFT) - 4
    scene.height = y + 10
    said = [f"{one.name}: {held.words} (rank {held.rank})" for one in every for held in one.held] or map(figures, every)
    return Picture(scene, "\n".join([*said, *words]))


def _panel(recording: Recording, unit: float | None, end: float | None) -> _Panel:
    spans, lanes, length = list[tuple[Span, int]](), list[int](), unit or 1e6
    held = {one.rank for one in recording.held}
    ranks = [rank for rank, mine in enumerate(recording.by_rank) if mine or rank in held][: paint.SHOWN]
    scale = TICKS / length
    for rank in ranks:
        mine = list(_lanes(recording.by_rank[rank], recording.has_order))
        lanes.append(1 + max((lane for _, lane in mine), default=0))
        for one, lane in mine:
            spans.append((one._replace(start=round(one.start * scale), end=round(one.end * scale)), lane))
    last = round((recording.end / length if end is None or unit is None else end) * TICKS)
    last = round(last * (STOPPED if recording.held else 1))
    axis = Axis(paint.LEFT, WIDTH - paint.LEFT - RIGHT, last)
    return _Panel(recording, spans, lanes, ranks, axis, length, unit is not None)


def _lanes(spans: Iterable[Span], ordered: bool) -> Iterator[tuple[Span, int]]:
    """The lane of each span: 0 is the rank's own. Messages beside it are arrows, where the order includes them."""
    free: list[int] = []
    for span in spans:
        if span.stream == COMPUTE:
            yield span, 0
        elif span.op in COLLECTIVES or not ordered:
            lane = next((place for place, until in enumerate(free) if until <= span.start), min(len(free), 2))
            free[lane : lane + 1] = [max(span.end, *free[lane : lane + 1], 0)]
            yield span, lane + 1


def _look(op: str) -> str:
    return "collective" if op in COLLECTIVES else OPERATIONS[op].colour if op in OPERATIONS else "other"


def _paint(scene: Scene, panel: _Panel, stages: int, y: float, marks: Sequence[tuple[int, int]]) -> float:
    """One panel from `y` on; returns where it ends. `marks`: ranks, and which of their passes is pointed at."""
    one = panel.recording
    if not one.held:  # a stopped run has its name above, and no end
        name, _, said = figures(one).partition(": ")
        y = paint.heading(scene, name, said, y)
    rows = paint.place_rows(panel.lanes, y, [Fold((rank,)) for rank in panel.ranks])
    painter = _Painter(panel, rows, stages, marks)
    for top, lanes, rank in zip(rows.tops.values(), panel.lanes, panel.ranks, strict=True):
        last = max((span.end for span, _ in panel.spans if span.rank == rank), default=0)
        height = rows.height + (lanes - 1) * (rows.thin + 1)
        scene.add(Rect(panel.axis.left, top, panel.axis.x(last) - panel.axis.left, height, TRACK))
        scene.add(Text(panel.axis.left - 10, top + rows.height / 2, f"rank {rank}", TEXT, INK, "end"))
    panel.axis.grid(scene, min(rows.tops.values(), default=y) - 2, rows.bottom + 2)
    for span, lane in panel.spans:
        painter.span(span, lane)
    scene.add(*sorted(painter.rects, key=lambda rect: (rect.fill, rect.stroke)), *painter.details, *painter.texts)
    scene.add(*painter.frames, *_stops(panel, rows))
    if len(one.messages) <= paint.ARROWS and rows.height >= 14:
        scale = TICKS / panel.unit
        for source, sent, target, received in one.messages:
            if source in rows.tops and target in rows.tops:
                message = Arrow(source, round(sent * scale), target, round(received * scale))
                scene.add(*paint.arrow(message, panel.axis, rows))
    if (rest := one.ranks - len(panel.ranks)) > 0:
        scene.add(Text(panel.axis.left, rows.bottom + 9, f"{rest} more without a row", TEXT, SOFT))
    end = round(one.end * TICKS / panel.unit)
    ending = f"end {exact(round(units(end), 2))}" if panel.in_units else f"end {units(end):.4g} ms"
    return panel.axis.numbers(scene, rows.bottom + (18 if rest > 0 else 2), end, ending) + 14


def _stops(panel: _Panel, rows: paint.Rows) -> Iterator[Mark]:
    """Yield what each rank stops at, and arrows from waiting ranks to those they await: the circle, if there is one."""
    axis, held = panel.axis, [one for one in panel.recording.held if one.rank in rows.tops]
    waits = {one.rank: one.on for one in held if one.on is not None}
    right = axis.left + axis.width
    after, fill, border = axis.x(round(panel.recording.end * TICKS / panel.unit)) + 8, *LOOKS["pending"].pair
    for one in held:
        x, y = axis.x(round(one.since * TICKS / panel.unit)) + 1, rows.tops[one.rank]
        yield Rect(x, y + 0.5, right - x, rows.height - 1, fill, border, dash="3 2", title=one.words)
        left = after if one.on is not None else x + 8  # its reason needs more words
        words = fit(one.words, right - left - paint.APART * (len(waits) + 1), TEXT)
        yield Text(left, y + rows.height / 2, words, TEXT if rows.height >= 14 else SMALL, border)
    yield from paint.waiting_arrows(waits, rows, right)


class _Painter:
    """Collects the marks of a panel. `marks`: ranks, and which of their passes is pointed at."""

    def __init__(self, panel: _Panel, rows: paint.Rows, stages: int, marks: Sequence[tuple[int, int]]) -> None:
        self.panel, self.rows, self.stages, self.marks = panel, rows, stages, marks
        self.rects, self.details, self.texts, self.frames = list[Rect](), list[Rect](), list[Text](), list[Rect]()
        self.passed: dict[int, int] = {}  # passes painted so far, by rank
        self.painted: dict[tuple[int, int], float] = {}

    def span(self, span: Span, lane: int) -> None:
        x, end = self.panel.axis.x(span.start), self.panel.axis.x(span.end)
        top, height = self.rows.lane(span.rank, lane)
        marked = self._is_marked(span)
        if end - self.painted.get((span.rank, lane), -1.0) < 0.3 and not marked:  # too narrow to be seen
            return
        self.painted[span.rank, lane] = end
        look, own, width = _look(span.op), layer_colour(span.stage or 0, self.stages), max(0.8, end - x)
        share = band(look, gathers(span.op))
        start, over, long = exact(units(span.start)), exact(units(span.end)), ""
        if self.panel.recording.unit is None:
            long = f" ({(span.end - span.start) * self.panel.unit / TICKS / 1e3:.4g} µs)"
        said = f"{span.name}\nrank {span.rank}, {start} to {over}{long}" + (f"\n{span.place}" if span.place else "")
        rect = paint.boxed(x, top, width, height, *fill_and_border(look, own), said)
        width -= 0.8 if width > 3 else 0
        self.rects.append(rect)
        if span.stage is not None and width > 2:
            self.details.extend(paint.banded(share, x, top, width, height, own))
        for line in paint.place_label([span.label] if span.label and not lane else [], "", width, height):
            self.texts.append(line.at(x + width / 2, top + height / 2 * (1 - share), ink_on(rect.fill)))
        if marked:
            self.frames.append(Rect(x - 1.5, top - 1.5, max(width, 2) + 2.2, height + 3, "none", ALARM, 2, radius=1))

    def _is_marked(self, span: Span) -> bool:
        """Check if a span is one of those pointed at, and count the passes of its rank."""
        if not span.word or span.op in ("pass_to", "receive"):
            return False
        before = self.passed.get(span.rank, 0)
        self.passed[span.rank] = before + 1 + (";" in span.word)
        return any((span.rank, place) in self.marks for place in range(before, self.passed[span.rank]))
