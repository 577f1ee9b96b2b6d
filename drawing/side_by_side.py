"""Schedules one under another on one time axis, with their figures and the place where they first differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, cast

from drawing.canvas.axes import Axis, legend
from drawing.canvas.labels import event_words
from drawing.canvas.palette import INK, SOFT
from drawing.canvas.picture import Picture
from drawing.canvas.scene import Poly, Rect, Scene, Text, fit, text_width
from drawing.timeline.boxes import Timeline, boxes
from drawing.timeline.paint import SHOWN, Rows, more_ranks, operations, paint, place_rows
from drawing.timeline.schedule import LEFT, RIGHT, WIDTH, note, trace_of
from lib.analysis.figures import bubbles, end, peak, traffic
from lib.cluster.clock import steps
from lib.errors.wording import amount, exact
from lib.trace.event import Event, Program
from lib.trace.trace import TIMED, Trace, nothing_to

__all__ = ["Difference", "compare", "difference"]


class Difference(NamedTuple):
    """Where two schedules first differ: the rank, when, and on both sides the event and its number (None: no more).

    `ranks` are the sizes of the two worlds.
    """

    rank: int
    time: int
    numbers: tuple[int | None, int | None]
    events: tuple[Event | None, Event | None]
    ranks: tuple[int, int]

    def words(self, first: str, second: str) -> str:
        """On which rank, from when, and what each of the two does."""
        head = f"{first} and {second} first differ on rank {self.rank}, from {exact(steps(self.time))}"
        return f"{head}: {self._side(first, 0)}; {self._side(second, 1)}"

    def _side(self, name: str, side: int) -> str:
        event = self.events[side]
        if event is None:
            return f"{name} does nothing more"
        when = "never begun" if event.start is None else f"at {exact(steps(event.start))}"
        return f"{name} has {event_words(event, self.ranks[side])} ({when})"


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
    lines = [
        f"{first} and {name} do the same" if gap is None else gap.words(first, name)
        for (name, _), gap in zip(traces[1:], gaps, strict=True)
    ]
    figures = [f"{name}: {figures_of(trace)}" for name, trace in traces]
    return Picture(_paint(traces, gaps, lines), "\n".join([*figures, *lines]))


def figures_of(trace: Trace) -> str:
    """The figures by which schedules are compared, in words."""
    top, idle = peak(trace), bubbles(trace)
    sent = max((float(elements) for elements, _ in traffic(trace)), default=0.0)
    return (
        f"{'end' if trace.error is None else 'stopped at'} {exact(end(trace))}"
        f" · peak {amount(top.elements)} on rank {top.rank}"
        f" · bubble {idle.makespan:.1%}"
        f" · sends up to {amount(sent)} elements a rank"
    )


def difference(one: Trace, other: Trace) -> Difference | None:
    """The first difference in simulated time, of equal times that on the lowest rank; None where there is none."""
    found: list[Difference] = []
    sizes = one.ranks, other.ranks
    for rank, (mine, theirs) in enumerate(zip_longest(one.programs, other.programs)):
        for a, b in zip_longest(_timed(mine), _timed(theirs)):
            if a is None or b is None or _key(a[1], sizes) != _key(b[1], sizes):
                sides = [event for _, event in (side for side in (a, b) if side is not None)]
                time = min(event.issued if event.start is None else event.start for event in sides)
                numbers, events = (a and a[0], b and b[0]), (a and a[1], b and b[1])
                found.append(Difference(rank, time, numbers, events, sizes))
                break
    return min(found, key=lambda gap: (gap.time, gap.rank), default=None)


def _timed(program: Program | None) -> Iterator[tuple[int, Event]]:
    """The operations that take time, with their numbers. What they are counts, not how long they took."""
    if program is not None:
        for number, event in enumerate(program.events):
            if event.op in TIMED and event.op != "loss":  # a loss takes no time, except where it was measured
                yield number, event


def _key(event: Event, sizes: tuple[int, int]) -> tuple[object, ...]:
    group = event.group if sizes[0] == sizes[1] else ()
    return event.op, event.layer, event.batches, event.start, event.length, group, event.peer


def _paint(traces: list[tuple[str, Trace]], gaps: list[Difference | None], lines: list[str]) -> Scene:
    timelines = [boxes(trace, SHOWN) for _, trace in traces]
    axis = Axis(LEFT, WIDTH - LEFT - RIGHT, max(timeline.end for timeline in timelines))
    layers = max(trace.layers for _, trace in traces)
    # The first schedule is marked where it differs from the next one that does, the others where they do from it.
    marks = [next((gap for gap in gaps if gap is not None), None), *gaps]
    scene = Scene(WIDTH, 0)
    everything = [box for timeline in timelines for box in timeline.boxes]
    y = legend(scene, LEFT, 14, WIDTH - 12, operations(layers, everything)) + 4
    for place, ((name, trace), timeline) in enumerate(zip(traces, timelines, strict=True)):
        short = fit(name, 260, 12)
        scene.add(Text(LEFT, y + 8, short, 12, INK, bold=True))
        after = LEFT + text_width(short, 12) * 1.08 + 12
        scene.add(Text(after, y + 8, fit(figures_of(trace), WIDTH - after - 10, 11), 11, SOFT))
        rows = place_rows(timeline.lanes, y + 26)
        paint(scene, trace, timeline, axis, rows, layers)
        gap = marks[place]
        if gap is not None and gap.rank < len(rows.ranks):
            _mark(scene, timeline, axis, rows, gap, min(place, 1))
        y = axis.numbers(scene, more_ranks(scene, trace, rows, axis) + 2, end(trace)) + 8
    for line, gap in zip(lines, gaps, strict=True):
        for part in _wrapped(line):
            scene.add(Text(LEFT, y + 6, fit(part, WIDTH - LEFT - 10, 11), 11, INK if gap is None else SOFT))
            y += 18
    scene.height = y + 6
    return scene


def _wrapped(line: str) -> list[str]:
    """A difference on one line where it fits, else with what each side does on a line of its own."""
    if text_width(line, 11) <= WIDTH - LEFT - 10:
        return [line]
    head, _, rest = line.partition(": ")
    return [head + ":", *(f"– {part}" for part in rest.split("; "))]


def _mark(scene: Scene, timeline: Timeline, axis: Axis, rows: Rows, gap: Difference, side: int) -> None:
    """Points at the event at which a schedule begins to differ, or at the moment where it has none."""
    top, x = rows.tops[gap.rank], axis.x(gap.time)
    for box in timeline.boxes:
        if (box.rank, box.number) == (gap.rank, gap.numbers[side]) and box.family != "wait":
            x, height = axis.x(box.start), rows.thin if box.lane else rows.height
            y = top + (rows.height + 1 + (box.lane - 1) * (rows.thin + 1) if box.lane else 0)
            scene.add(Rect(x, y, max(2.0, axis.x(box.end) - x), height, "none", INK, 2))
    scene.add(Poly(((x - 5, top - 7), (x + 5, top - 7), (x, top + 1)), fill=INK))
