"""Chrome's trace events, the JSON that profilers write and Perfetto reads: how a file of them is read.

A file comes from outside: it may be damaged, truncated, huge, packed to be huge, or no such file at all. It is read as
data, and gives slices of time or a TraceError that says what is wrong with which file. The format is described at
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("Trace Event Format"): complete events
("X"), or begins and ends ("B", "E"), with times in microseconds, and names of processes and threads ("M").
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

from lib.errors.exceptions import NoTraceFile, TraceError

__all__ = ["MAX_TIME", "Slice", "Slices", "read"]

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
    """What is in a file: its slices by start, the outer ones first; names of processes and threads; and what else it
    says of itself (`head`)."""

    slices: list[Slice]
    head: Mapping[str, Any]
    processes: dict[str, str] = field(default_factory=dict[str, str])
    threads: dict[Key, str] = field(default_factory=dict[Key, str])


def read(path: str | Path) -> Slices:
    """The slices in a file, which may be packed (.gz). TraceError where it is anything else."""
    path = Path(path)
    try:
        return decode(_parsed(_bytes(path)))
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


def decode(data: Any) -> Slices:
    """The slices in parsed JSON: an object with `traceEvents`, or the list of them alone."""
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
    """Adds one event. Kinds that are no slices are passed over: marks, counters, arrows, snapshots."""
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
    """A time of an event in nanoseconds. Some writers put numbers into quotation marks."""
    value = event.get(name, 0 if name == "dur" else None)
    try:
        time = float(value) if not isinstance(value, bool) else math.nan  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        time = math.nan
    if not abs(time) * 1000 < MAX_TIME:
        raise TraceError(f"event {number} has no time: its {name} is {_text(value)!r}")
    return round(value * 1000) if isinstance(value, int) else round(time * 1000)
