"""Timelines for https://ui.perfetto.dev and chrome://tracing: any Traces, one under the other, as plain JSON data.

The format is Chrome's trace events: complete events ("X", microseconds) on a track for each stream of each rank, with
a counter for its memory. Each Trace is a process of its own, so that several lie on one axis.
"""

from __future__ import annotations

from typing import Any

from lib.analysis.figures import samples
from lib.cluster.clock import TICKS
from lib.errors.wording import numbers
from lib.trace.event import Event
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.operations import MESSAGES, TIMED

__all__ = ["perfetto"]

MICROSECONDS = 1000
"""A time unit is drawn as so many microseconds: Perfetto knows no time units."""


def perfetto(unit: float | None = None, **traces: Trace) -> dict[str, Any]:
    """The Traces by name. One time unit is a millisecond of the picture, or `unit` seconds of it."""
    scale = (MICROSECONDS if unit is None else unit * 1e6) / TICKS
    events: list[dict[str, Any]] = []
    for number, (name, trace) in enumerate(traces.items()):
        for rank, program in enumerate(trace.programs):
            process = number * trace.ranks + rank
            title = f"{name}: rank {rank}"
            events.append({"ph": "M", "pid": process, "name": "process_name", "args": {"name": title}})
            events.append({"ph": "M", "pid": process, "name": "process_sort_index", "args": {"sort_index": process}})
            streams: dict[str, int] = {}
            for index, event in enumerate(program.events):
                if event.start is None or (event.op not in TIMED and not event.length):
                    continue
                stream = _stream(event)
                if stream not in streams:
                    streams[stream] = len(streams)
                    thread = {"ph": "M", "pid": process, "tid": streams[stream], "name": "thread_name"}
                    events.append({**thread, "args": {"name": stream}})
                events.append(_event(trace, index, event, process, streams[stream], scale))
            for sample in samples(trace, program.rank):
                amounts = {kind: float(elements) for kind, elements in sample.by_kind.items()}
                counter = {"ph": "C", "pid": process, "ts": sample.time * scale, "name": "elements alive"}
                events.append({**counter, "args": amounts})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _stream(event: Event) -> str:
    """Where an event is drawn: the rank's own clock, or the stream of its group or of its peer."""
    if event.op in COLLECTIVES:
        return f"group {', '.join(map(str, sorted(event.group)))}"  # in whatever order it is named: it is one stream
    if event.op in MESSAGES:
        return f"{'to' if event.op == 'pass_to' else 'from'} rank {event.peer}"
    return "compute"


def _event(trace: Trace, index: int, event: Event, process: int, thread: int, scale: float) -> dict[str, Any]:
    arguments: dict[str, Any] = {"event": index}
    if event.batches:
        arguments["batches"] = numbers(event.batches)
    place = trace.place(event)
    if place is not None:
        arguments["source"] = str(place)
    name = event.op if event.layer is None else f"{event.op} {event.layer}"
    return {
        "ph": "X",
        "pid": process,
        "tid": thread,
        "name": name,
        "cat": event.op,
        "ts": (event.start or 0) * scale,
        "dur": event.length * scale,
        "args": arguments,
    }
