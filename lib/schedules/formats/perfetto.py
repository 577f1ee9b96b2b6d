"""Timelines for https://ui.perfetto.dev and chrome://tracing: any Traces, one under the other, as plain JSON data.

The format is Chrome's trace events: complete ones ("X"), or begins and ends ("B", "E"), with times in microseconds, and
names of processes and threads ("M"); see "Trace Event Format" at
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. A file of ours has a process for each
rank of each Trace, a track for each stream (what the rank computes, the communication of each group, messages to and
from each neighbour; a second one where a stream does several things at once), arrows from sends to receives and between
the members of a collective, and a counter for its memory. A pipeline has a track of its actions, named as torch's
executor names its ranges.

`read_perfetto` reads such files back, as recordings: when each rank did what, and the order of a pipeline. What values
there were is not in them, so they are no Traces, and cannot be checked. Files of others are read too, as boxes. A file
comes from outside: it may be damaged, truncated, huge, packed to be huge, or no such file at all. It is read as data.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

from lib.analysis.figures import samples
from lib.analysis.recording import COMPUTE, PER_UNIT, Recording, Span, known
from lib.cluster.costs import TICKS
from lib.errors.exceptions import NoTraceFile, TraceError
from lib.files import ready, write_whole
from lib.schedules.formats.recorded import (
    PREFIX,
    Part,
    action_of,
    as_recording,
    bounds,
    described,
    parts,
    span_of,
    stream_of,
    where,
)
from lib.trace.order import meetings, messages
from lib.trace.trace import Trace
from lib.values.operations import COMMUNICATION, MESSAGES, TIMED

__all__ = ["MAX_TIME", "Slice", "Slices", "is_ours", "perfetto", "read_perfetto", "read_slices", "write_perfetto"]

MICROSECONDS: Final = PER_UNIT / 1000
"""A time unit is drawn as so many microseconds: Perfetto knows no time units."""
WRITER: Final = "llm-training-puzzles"
ACTIONS: Final = "pipeline"
"""The track of a pipeline's actions."""
MAX_RANKS: Final = 16_384


def perfetto(unit: float | None = None, **traces: Trace) -> dict[str, Any]:
    """Return the Traces by name. One time unit is a millisecond of the picture, or `unit` seconds of it."""
    scale = (MICROSECONDS if unit is None else unit * 1e6) / TICKS
    events: list[dict[str, Any]] = []
    before = 0
    for name, trace in traces.items():
        sheet = _Sheet(name, trace, before, scale)
        events += sheet.events()
        before += trace.ranks
    about = {"writer": WRITER, "microseconds": scale * TICKS}
    return {"otherData": about, "displayTimeUnit": "ms", "traceEvents": events}


def write_perfetto(path: str | Path, traces: Mapping[str, Trace]) -> None:
    """Write the Traces by name into a file."""
    write_whole(ready(path), json.dumps(perfetto(None, **traces)))


def is_ours(path: str | Path) -> bool:
    """Tell whether a file begins as those do that we write."""
    try:
        with Path(path).open("rb") as file:
            return WRITER.encode() in file.read(200)
    except OSError:  # who reads it says why
        return False


class _Sheet:
    """One Trace: its ranks are the processes from `before` on."""

    def __init__(self, name: str, trace: Trace, before: int, scale: float) -> None:
        self.name, self.trace, self.before, self.scale = name, trace, before, scale
        self.threads: dict[tuple[int, int], int] = {}
        """The thread of each event that is drawn, by rank and number."""

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield all events of the file, rank by rank, then the arrows between ranks."""
        for rank, program in enumerate(self.trace.programs):
            process, tracks = self.before + rank, _Tracks(self.before + rank)
            yield _named(process, "process_name", name=f"{self.name}: rank {rank}")
            yield _named(process, "process_sort_index", sort_index=process)
            for part in parts(self.trace, rank):
                yield from self._part(rank, part, tracks)
            yield from tracks.names()
            for sample in samples(self.trace, program.rank):
                amounts = {kind: float(elements) for kind, elements in sample.by_kind.items()}
                counter = {"ph": "C", "pid": process, "ts": sample.time * self.scale, "name": "elements alive"}
                yield {**counter, "args": amounts}
        yield from self._arrows()

    def _part(self, rank: int, part: Part, tracks: _Tracks) -> Iterator[dict[str, Any]]:
        """Yield the slice of one event, or that of an action and those of the events that it is made of."""
        events = self.trace.programs[rank].events
        one, first = part.action, events[part.first]
        about = described(self.trace, rank, part.first, one)
        arguments = {"event": part.first, **_said(about)}
        pair = bounds(self.trace, rank, part)
        if one is None or first.op in MESSAGES:
            if first.op in COMMUNICATION and first.blocking:
                arguments["awaited"] = True
            thread = self.threads[rank, part.first] = tracks.place(stream_of(first), *pair)
            yield self._slice(about.name, first.op, rank, thread, pair, arguments)
            return
        thread = tracks.place(ACTIONS, *pair)
        yield self._slice(f"{PREFIX}{one}", about.op, rank, thread, pair, arguments)
        for index in range(part.first, part.last + 1):
            event = events[index]
            if event.start is not None and (event.op in TIMED or event.length):
                own = described(self.trace, rank, index)
                moments = event.start, event.start + event.length
                thread = tracks.place(COMPUTE, *moments)
                inner = {"event": index, "within": str(one), **_said(own)}
                yield self._slice(own.name, event.op, rank, thread, moments, inner)

    def _slice(
        self, name: str, kind: str, rank: int, thread: int, pair: tuple[int, int], args: dict[str, Any]
    ) -> dict[str, Any]:
        where = {"ph": "X", "pid": self.before + rank, "tid": thread, "name": name, "cat": kind}
        return {**where, "ts": pair[0] * self.scale, "dur": (pair[1] - pair[0]) * self.scale, "args": args}

    def _arrows(self) -> Iterator[dict[str, Any]]:
        """From each send to its receive, and from member to member of each collective, the first to begin first."""
        joined = [("message", [(a, sent), (b, got)]) for a, sent, b, got in messages(self.trace) if got is not None]
        joined += [("collective", one) for one in meetings(self.trace) if len(one) > 1]
        for number, (what, ends) in enumerate(joined):
            if any(end not in self.threads for end in ends):
                continue
            found = [(self.trace.programs[rank].events[index].start or 0, rank, index) for rank, index in ends]
            for place, (start, rank, index) in enumerate(found if what == "message" else sorted(found)):
                last = place == len(found) - 1
                middle = self.trace.programs[rank].events[index].length // 2 if last else 0
                kind = {"ph": "f", "bp": "e"} if last else {"ph": "t" if place else "s"}
                where = {"pid": self.before + rank, "tid": self.threads[rank, index]}
                moment = (start + middle) * self.scale
                yield {**kind, "cat": "flow", "id": f"{self.before}.{number}", "name": what, **where, "ts": moment}


def _said(span: Span) -> dict[str, Any]:
    """Return what the arguments of a slice say."""
    names = ("stage", "microbatch") if span.word else ("layer", "batches")
    said = {"action": span.word, names[0]: span.stage, names[1]: span.label, "source": span.place}
    return {key: value for key, value in said.items() if value not in (None, "")}


class _Tracks:
    """The threads of a process: one for each stream, and more where slices of a stream overlap, as those of a thread
    may lie within each other but not across."""

    def __init__(self, process: int) -> None:
        self.process = process
        self.streams: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        """For each stream its threads, and when each is free."""
        self.count = 0

    def place(self, stream: str, start: int, end: int) -> int:
        """Return the thread of a slice."""
        threads = self.streams[stream]
        for place, (thread, free) in enumerate(threads):
            if free <= start:
                threads[place] = thread, end
                return thread
        threads.append((self.count, end))
        self.count += 1
        return self.count - 1

    def names(self) -> Iterator[dict[str, Any]]:
        """Yield what the threads are called."""
        for stream, threads in self.streams.items():
            for place, (thread, _) in enumerate(threads):
                name = stream if place == 0 else f"{stream} ({place + 1})"
                yield {**_named(self.process, "thread_name", name=name), "tid": thread}


def _named(process: int, what: str, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "name": what, "args": args}


# -- as recordings ------------------------------------------------------------------------------------------------


def read_perfetto(path: str | Path) -> dict[str, Recording]:
    """Return the recordings in a file, by name. Of a file of somebody else's there is one, with a rank for each
    process. TraceError where it is anything else."""
    path = Path(path)
    found = read_slices(path)
    about = found.head.get("otherData")
    ours = cast("dict[str, Any]", about) if isinstance(about, dict) else {}
    mine = ours.get("writer") == WRITER
    homes = _homes(found, path.stem, mine)
    ranks: dict[str, int] = {}
    for name, rank in homes.values():
        ranks[name] = max(ranks.get(name, 0), rank + 1)
    if not ranks or max(ranks.values()) > MAX_RANKS:
        raise TraceError(f"{path.name} has no slices, or those of more than {MAX_RANKS:,} processes")
    spans: dict[str, list[Span]] = {name: [] for name in ranks}
    for one in found.slices:
        if one.process in homes and not (mine and "within" in one.args):
            name, rank = homes[one.process]
            thread = found.threads.get((one.process, one.thread), "")
            spans[name].append(_own_span(one, rank, thread) if mine else _span(one, rank, thread))
    unit = ours.get("microseconds") if mine else None
    unit = unit * 1000 if isinstance(unit, int | float) and 0 < unit < 2**62 else None
    return {name: as_recording(name, spans[name], ranks[name], unit) for name in spans}


def _homes(found: Slices, stem: str, mine: bool) -> dict[str, tuple[str, int]]:
    """Return the recording and the rank of each process."""
    if not mine:
        return {process: (stem, place) for place, process in enumerate(dict.fromkeys(s.process for s in found.slices))}
    titles = ((process, name.rpartition(": rank ")) for process, name in found.processes.items())
    return {process: (name, int(rank)) for process, (name, _, rank) in titles if rank.isdecimal() and len(rank) < 8}


def _own_span(one: Slice, rank: int, thread: str) -> Span:
    """Return a slice of a file of ours: what it is stands in its arguments."""
    word, place = (value if isinstance(value := one.args.get(key), str) else "" for key in ("action", "source"))
    word = word if action_of(word) is not None else ""
    stage, label = (one.args.get(key) for key in (("stage", "microbatch") if word else ("layer", "batches")))
    op = one.category if known(one.category) else ""
    return Span(
        rank,
        one.start,
        one.end,
        op,
        word or one.name,
        word,
        stage if type(stage) is int and 0 <= stage < 2**20 else None,
        label[:40] if isinstance(label, str) else "",
        where(op, thread.partition(" (")[0], one.args.get("awaited") is True),
        place,
    )


def _span(one: Slice, rank: int, thread: str) -> Span:
    """Return a slice of somebody else's file. It may be named as torch names its ranges."""
    action = action_of(one.name.removeprefix(PREFIX)) if one.name.startswith(PREFIX) else None
    if action is None:
        return Span(rank, one.start, one.end, "", one.name, stream=thread or COMPUTE)
    return span_of(action, rank, one.start, one.end, one.name)


MAX_BYTES: Final = 256 * 2**20
"""Of a file, unpacked."""
MAX_EVENTS: Final = 2_000_000
MAX_TIME: Final = 2**62
"""Nanoseconds: what is later, or takes longer, is damage."""
MAX_NAME: Final = 200
Key = tuple[str, str]
"""A process and one of its threads. Both are numbers, or words, as their writer liked."""


class Slice(NamedTuple):
    """A named stretch of time of a thread, in nanoseconds."""

    process: str
    thread: str
    category: str
    name: str
    start: int
    end: int
    args: Mapping[str, Any]


@dataclass
class Slices:
    """The contents of a file: its slices by start, the outer ones first; names of processes and threads; and what
    else it says of itself (`head`)."""

    slices: list[Slice]
    head: Mapping[str, Any]
    processes: dict[str, str] = field(default_factory=dict[str, str])
    threads: dict[Key, str] = field(default_factory=dict[Key, str])


def read_slices(path: str | Path) -> Slices:
    """Return the slices in a file, which may be packed (.gz). TraceError where it is anything else."""
    path = Path(path)
    try:
        return _decoded(_parsed(_bytes(path)))
    except NoTraceFile:
        raise
    except TraceError as error:
        raise TraceError(f"{path.name}: {error}") from None


def _bytes(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():  # who opens a pipe may wait for ever
            raise OSError(0, "it is no plain file")
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            data = _unpacked(file) if packed else file.read(MAX_BYTES + 1)
    except TraceError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise NoTraceFile(f"{path} cannot be read: {reason}") from None
    if len(data) > MAX_BYTES:
        raise TraceError(f"it is larger than {MAX_BYTES // 2**20} MiB: profile fewer steps")
    return data


def _unpacked(file: IO[bytes]) -> bytes:
    try:
        with gzip.GzipFile(fileobj=file) as unpacked:
            return unpacked.read(MAX_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceError(f"it is packed, and damaged: {error}") from None


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8", "replace"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        if isinstance(error, TraceError):
            raise
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise TraceError(f"it is not a whole JSON file: {reason[:MAX_NAME]}") from None


def _no_constant(name: str) -> Any:
    raise TraceError(f"{name} is no time")


def _decoded(data: Any) -> Slices:
    """Return the slices in parsed JSON: an object with `traceEvents`, or the list of them alone."""
    head = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    events: Any = head.get("traceEvents", data)
    if not isinstance(events, list):
        raise TraceError("it has no traceEvents: a trace is what torch.profiler's export_chrome_trace writes")
    every = cast("list[Any]", events)
    if len(every) > MAX_EVENTS:
        raise TraceError(f"it has {len(every):,} events, and {MAX_EVENTS:,} are read: profile fewer steps")
    found = Slices([], head)
    open_: defaultdict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    for number, event in enumerate(every):
        if not isinstance(event, dict):
            raise TraceError(f"event {number} is no object")
        _take(found, open_, number, cast("dict[str, Any]", event))
    found.slices.sort(key=lambda one: (one.start, -one.end))
    return found


def _take(
    found: Slices, open_: defaultdict[Key, list[Mapping[str, Any]]], number: int, event: Mapping[str, Any]
) -> None:
    """Add one event. Kinds that are no slices are passed over: marks, counters, arrows, snapshots."""
    key = _text(event.get("pid")), _text(event.get("tid"))
    kind = event.get("ph")
    if kind == "M":
        name = event.get("args")
        named = _text(cast("dict[str, Any]", name).get("name")) if isinstance(name, dict) else ""
        if event.get("name") == "process_name":
            found.processes[key[0]] = named
        elif event.get("name") == "thread_name":
            found.threads[key] = named
    elif kind == "X":
        start = _time(number, event, "ts")
        found.slices.append(_slice(key, event, start, start + max(0, _time(number, event, "dur"))))
    elif kind == "B":
        open_[key].append({**event, "ts": _time(number, event, "ts")})
    elif kind == "E" and open_[key]:
        begun = open_[key].pop()
        found.slices.append(_slice(key, begun, begun["ts"], max(begun["ts"], _time(number, event, "ts"))))


def _slice(key: Key, event: Mapping[str, Any], start: int, end: int) -> Slice:
    args = event.get("args")
    known = cast("dict[str, Any]", args) if isinstance(args, dict) else {}
    return Slice(*key, _text(event.get("cat")), _text(event.get("name")), start, end, known)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value[:MAX_NAME]
    return str(value) if isinstance(value, int | float) else ""


def _time(number: int, event: Mapping[str, Any], name: str) -> int:
    """Return a time of an event in nanoseconds. Some writers put numbers into quotation marks."""
    value = event.get(name, 0 if name == "dur" else None)
    try:
        time = float(value) if not isinstance(value, bool) else math.nan  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        time = math.nan
    if not abs(time) * 1000 < MAX_TIME:
        raise TraceError(f"event {number} has no time: its {name} is {_text(value)!r}")
    return round(value * 1000) if isinstance(value, int) else round(time * 1000)
