"""A Trace as JSON: what `save` writes and `load` reads.

A file comes from outside: it may be damaged, truncated, huge, or made to do harm. It is read as data only, checked
field by field, and either gives a whole run or a TraceError that says where it is wrong. Version 1:

    {"format": "llm-training-puzzles trace", "version": 1, "layers", "batches", "sandbox", "puzzle", "error",
     "costs": {...}, "mesh": {"axes": [[name, size]...], "ranks": [...], "host_size"} or null
     (with "processes", a number or [[rank...]...], where a process owns several devices),
     "places": [[file, line, function, text]...], "groups": [[rank...]...],
     "layer_descriptions": [{"kind", "inputs", "outputs", "rows"}], for layers that are not the usual ones,
     "padding", where batches after the last one are padding,
     "programs": [{"values": [[kind, field...] or null...], "events": [[...]...],
                   "moves": [[event, store, value, +1 or -1]...]}]}

The fields of a value are those that its class takes. Where it is cut along more than those say, an object comes last:
{"out": ["0", 2]} for columns 0 of 2, so too "features", and "terms" for a part of a sum.

An event is [op, layer, batches, inputs, outputs, issued, start, length, place, arg, group, peer, blocking], with times
in billionths of a time unit and -1 for no place or group. Sets of numbers are text: "0-3,7".
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from lib.cluster.costs import MAX_TICKS, TICKS
from lib.errors.exceptions import NoTraceFile, TraceError
from lib.errors.source_lines import Place
from lib.errors.wording import runs
from lib.files import ready, write_whole
from lib.trace.event import Program
from lib.trace.trace import Trace, without_collector
from lib.trace.validation import FORMAT, VERSION, decode
from lib.values.kinds.kind import USUAL
from lib.values.placement import Rest
from lib.values.values import Value, fields_of

MAX_BYTES = 512 * 2**20
PLACE: Final = 8
"""Where the number of its place stands in an event."""


def set_text(items: Iterable[int]) -> str:
    """{0, 1, 2, 3, 7} -> "0-3,7"."""
    return ",".join(f"{first}" if after == first + 1 else f"{first}-{after - 1}" for first, after in runs(items))


class SetTexts:
    """Writes sets of numbers as text, each once: many events have the same one, which may be long. And so values:
    those of one class, layer, step and place."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Iterable[int], str]] = {}
        self._values: dict[tuple[object, ...], list[Any]] = {}

    def __call__(self, items: Iterable[int]) -> str:
        if id(items) not in self._known:
            self._known[id(items)] = items, set_text(items)  # kept, so that no other set gets its id
        return self._known[id(items)][1]

    def of(self, value: Value) -> list[Any]:
        """The kind of a value and its fields, as a file has them. What it is cut along besides comes last."""
        key = type(value), value.layer, value.layers, value.updates, id(value.place)
        if key not in self._values:
            made: list[Any] = [value.kind]
            for field in fields_of(value):
                if isinstance(field, tuple):
                    parts = cast("Rest", field)
                    made.append({role: [self(pieces), total] for role, pieces, total in parts})
                else:
                    made.append(self(cast("frozenset[int]", field)) if isinstance(field, frozenset) else field)
            self._values[key] = made
        return [*self._values[key]]


# -- out --------------------------------------------------------------------------------------------------------


@without_collector()
def encode(run: Trace) -> dict[str, Any]:
    """The run as JSON data. Equal runs give equal data, whatever order they were stepped in."""
    places: dict[Place | None, int] = {None: -1}
    groups: dict[tuple[int, ...], int] = {(): -1}
    texts = SetTexts()
    programs: list[dict[str, Any]] = []
    for program in run.programs:
        events: list[list[Any]] = []
        for e in program.events:
            place, group = places.setdefault(run.place(e), len(places) - 1), groups.setdefault(e.group, len(groups) - 1)
            what = [e.op, e.layer, texts(e.batches), [*e.inputs], [*e.outputs], e.issued, e.start, e.length]
            events.append([*what, place, [*e.arg], group, e.peer, e.blocking])
        values = [None if value is None else texts.of(value) for value in program.values]
        programs.append({"values": values, "events": events, "moves": [list(move) for move in program.moves]})
    encoded: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "layers": run.layers,
        "batches": run.batches,
        "sandbox": run.sandbox,
        "puzzle": run.puzzle,
        "error": run.error,
        "costs": run.costs.to_json(),
        "mesh": None if run.mesh is None else run.mesh.to_json(),
        "places": [list(place) for place in places if place is not None],
        "groups": [list(group) for group in groups if group],
        "programs": programs,
    }
    if run.descriptions != USUAL:  # else left out, so that an older version reads the file too
        encoded["layer_descriptions"] = [layer.to_json() for layer in run.descriptions]
    if run.padding:
        encoded["padding"] = run.padding
    return encoded


def with_places(run: Trace, places: Sequence[Sequence[Place | None]]) -> Trace:
    """The same run, whose events are at these lines of source, a list for each rank. Values and moves are shared."""
    programs = [Program(p.rank, [event.copy() for event in p.events], p.values, p.moves) for p in run.programs]
    for program, own in zip(programs, places, strict=True):
        for event, place in zip(program.events, own, strict=True):
            event.source = place
    return replace(run, programs=programs)


def plain(run: Trace) -> Trace:
    """The same run made anew of plain numbers and text, as if it came from a file. TraceError where it is no run.

    A run of this process is made of objects that student code can reach: an event whose layer is equal to every number,
    a list that is another one when it is read again, a Mesh with a `host` of its own. None of them comes through; only
    the lines of source do, which decide nothing, and of which messages say more where the code itself is at hand.
    """
    made = decode(encode(run), whole=False)
    for program, plainly in zip(run.programs, made.programs, strict=False):
        for event, copy in zip(program.events, plainly.events, strict=False):
            copy.source = event.source
    return made


def write(run: Trace, path: str | Path) -> None:
    """Writes a run as JSON. A file of that name is replaced at once, or left as it was."""
    path = _path(path, "save")
    if any((event.end or 0) > MAX_TICKS for _, event in run.events()):
        raise TraceError(f"a Trace holds times up to {MAX_TICKS // TICKS} time units; this run takes longer")
    text = json.dumps(encode(run), separators=(",", ":"), ensure_ascii=False)
    write_whole(ready(path), text + "\n")


# -- in ---------------------------------------------------------------------------------------------------------


@without_collector()
def read(path: str | Path) -> Trace:
    """The run in a file. TraceError where it is damaged; NoTraceFile, an OSError too, where it cannot be opened."""
    path = _path(path, "load")
    try:
        if path.exists() and not path.is_file():  # who opens a pipe may wait for ever
            raise OSError(0, "it is no plain file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        reason = f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        if path.is_dir():
            reason = f"{path} is a directory, and a Trace is a file: name the .json file in it"
        elif isinstance(error, FileNotFoundError):
            reason = f"there is no file {path}: models[0].trace.save('run.json') writes one"
        raise NoTraceFile(reason) from None
    if len(data) > MAX_BYTES:
        raise TraceError(f"{path.name} is larger than {MAX_BYTES // 2**20} MiB: that is no Trace of ours")
    try:
        return decode(parse(data))
    except TraceError as error:
        raise TraceError(f"{path.name}: {error}") from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise TraceError(f"{path.name} is not a whole JSON file: {reason}") from None


def parse(data: bytes) -> Any:
    """JSON from anywhere. ValueError, of which TraceError is one, or RecursionError for what is none."""
    return json.loads(data.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=once)


def _path(path: object, call: str) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{call} takes the path of a file, such as 'run.json'; got {type(path).__name__}")
    return Path(cast("str | os.PathLike[str]", path))


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are there once each: of a key that is there twice, readers would take either."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise TraceError(f"the key {twice[:40]!r} is there twice")
    return found


def _no_constant(name: str) -> Any:
    raise TraceError(f"{name} is no number that a Trace has")
