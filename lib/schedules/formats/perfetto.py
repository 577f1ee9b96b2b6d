"""Timelines for https://ui.perfetto.dev and chrome://tracing: any Traces, one under the other, as plain JSON data.

The format is Chrome's trace events (see `kineto`): complete ones ("X") with times in microseconds, and names of
processes and threads ("M"). There is a process for each rank of each Trace, a track for each stream (what the rank
computes, the communication of each group, messages to and from each neighbour; a second one where a stream does several
things at once), arrows from sends to receives and between the members of a collective, and a counter for its memory. A
pipeline has a track of its actions, named as torch's executor names its ranges.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lib.analysis.figures import samples
from lib.analysis.recording import COMPUTE, PER_UNIT
from lib.cluster.costs import TICKS
from lib.files import ready, write_whole
from lib.schedules.formats.trace import PREFIX, Part, part_of, parts
from lib.trace.order import meetings, messages
from lib.trace.trace import Trace
from lib.values.operations import COMMUNICATION, TIMED


def perfetto(unit: float | None = None, **traces: Trace) -> dict[str, Any]:
    """Return the Traces by name. One time unit is a millisecond of the picture, or `unit` seconds of it."""
    scale = (PER_UNIT / 1000 if unit is None else unit * 1e6) / TICKS  # in microseconds: Perfetto knows no time units
    events: list[dict[str, Any]] = []
    before = 0
    for name, trace in traces.items():
        threads: dict[tuple[int, int], int] = {}
        for rank in range(trace.ranks):
            events += _process(trace, rank, f"{name}: rank {rank}", before + rank, scale, threads)
        events += _arrows(trace, before, scale, threads)
        before += trace.ranks
    about = {"writer": "llm-training-puzzles", "microseconds": scale * TICKS}
    return {"otherData": about, "displayTimeUnit": "ms", "traceEvents": events}


def write_perfetto(path: str | Path, traces: Mapping[str, Trace]) -> None:
    """Write the Traces by name into a file."""
    write_whole(ready(path), json.dumps(perfetto(None, **traces)))


def _process(
    trace: Trace, rank: int, title: str, process: int, scale: float, threads: dict[tuple[int, int], int]
) -> Iterator[dict[str, Any]]:
    """Yield the slices of a rank, of what it did and, of an action, of what that is made of; and its memory. `threads`
    takes the thread of each event, by rank and number."""
    events = trace.programs[rank].events
    streams: defaultdict[str, list[int]] = defaultdict(list)
    """For each stream its threads: slices of a thread lie within each other, and not across."""
    free: list[int] = []
    """When each thread is free."""

    def named(what: str, **args: Any) -> dict[str, Any]:
        return {"ph": "M", "pid": process, "name": what, "args": args}

    def slice_of(part: Part, stream: str, name: str, kind: str, **args: Any) -> dict[str, Any]:
        start, end = part.span.start, part.span.end
        thread = next((one for one in streams[stream] if free[one] <= start), len(free))
        if thread == len(free):
            streams[stream].append(thread)
            free.append(end)
        free[thread] = end
        threads[rank, part.first] = thread
        moments = {"ts": start * scale, "dur": (end - start) * scale}
        names = ("stage", "microbatch") if part.span.word else ("layer", "batches")
        about = (("action", part.span.word), (names[0], part.span.stage), (names[1], part.span.label))
        said = {key: value for key, value in (*about, ("source", part.span.place)) if value not in (None, "")}
        what = {"ph": "X", "pid": process, "tid": thread, "name": name, "cat": kind}
        return {**what, **moments, "args": {"event": part.first, **args, **said}}

    yield named("process_name", name=title)
    yield named("process_sort_index", sort_index=process)
    for part in parts(trace, rank):
        first, action = events[part.first], part.action
        if action is None:
            slice_ = slice_of(part, part.span.stream, part.span.name, first.op)
            if first.op in COMMUNICATION and first.blocking:
                slice_["args"]["awaited"] = True
            yield slice_
            continue
        yield slice_of(part, "pipeline", f"{PREFIX}{action}", part.span.op)
        for index in range(part.first, part.last + 1):
            event = events[index]
            if event.start is not None and (event.op in TIMED or event.length):
                inner = part_of(trace, rank, index, index)
                yield slice_of(inner, COMPUTE, inner.span.name, event.op, within=str(action))
    for stream, members in streams.items():
        for place, thread in enumerate(members):
            yield {**named("thread_name", name=f"{stream} ({place + 1})" if place else stream), "tid": thread}
    for sample in samples(trace, rank):
        amounts = {kind: float(elements) for kind, elements in sample.by_kind.items()}
        counter = {"ph": "C", "pid": process, "ts": sample.time * scale, "name": "elements alive"}
        yield {**counter, "args": amounts}


def _arrows(
    trace: Trace, before: int, scale: float, threads: Mapping[tuple[int, int], int]
) -> Iterator[dict[str, Any]]:
    """Yield arrows from each send to its receive, and from member to member of each collective, the first to begin
    first."""
    joined = [("message", [(a, sent), (b, got)]) for a, sent, b, got in messages(trace) if got is not None]
    joined += [("collective", one) for one in meetings(trace) if len(one) > 1]
    for number, (what, ends) in enumerate(joined):
        if any(end not in threads for end in ends):
            continue
        found = [(trace.programs[rank].events[index].start or 0, rank, index) for rank, index in ends]
        for place, (start, rank, index) in enumerate(found if what == "message" else sorted(found)):
            last = place == len(found) - 1
            middle = trace.programs[rank].events[index].length // 2 if last else 0
            kind = {"ph": "f", "bp": "e"} if last else {"ph": "t" if place else "s"}
            home = {"pid": before + rank, "tid": threads[rank, index]}
            about = {"cat": "flow", "id": f"{before}.{number}", "name": what}
            yield {**kind, **about, **home, "ts": (start + middle) * scale}
