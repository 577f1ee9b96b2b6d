"""A Trace as JSON: what `save` writes and `load` reads.

A file comes from outside: it may be damaged, truncated, huge or malicious. It is read as data only, checked column by
column, and gives either a whole run or a TraceError that says where it is wrong. Version 2:

    {"format": "llm-training-puzzles trace", "version": 2, "layers", "batches", "sandbox", "puzzle", "error",
     "costs": {...}, "mesh": {"axes": [[name, size]...], "ranks": [...], "host_size"} or null
     (with "processes", a number or [[rank...]...], where a process owns several devices),
     "places": [[file, line, function, text]...], "groups": [[rank...]...], "sets": ["0-3,7"...],
     "layer_descriptions": [{"kind", "inputs", "outputs", "rows"}], for layers that are not the usual ones,
     "padding", where batches after the last one are padding,
     "calls": [[op, arg, group, peer, blocking, number of inputs, number of outputs]...],
     "values": [[kind, field...]...],
     "unit": billionths of a time unit, in which all times are counted,
     "programs": [{"calls", "layers", "batches", "places", "issued", "start", "length": a number for each event,
                   "inputs", "outputs": ids of values, of one event after the other,
                   "values", "of": of each value its row in the table, and its layer,
                   "before", "store", "stored": of each move the event that it comes just before, the store that a
                   value enters (-1 minus that, where it leaves it), and the value}]}

A column that an earlier rank has too is given as the number of that rank. Calls, sets, places and groups are numbers
in their tables, -1 for none; so is the row of a value that is not known, which no file has. A wait's `arg` is how many
events earlier the one is that it waits for.

The fields of a value are those that its class takes after the layer. If it is cut along further dims, an object comes
last: {"out": ["0", 2]} for columns 0 of 2, likewise "features", and "terms" for a part of a sum. Sets of numbers are
text: "0-3,7". Version 1 had a row for each event, value and move, and is read in the same way (see `rows`).
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count
from math import gcd, inf
from pathlib import Path
from types import NoneType
from typing import Any, cast

from lib.cluster.costs import MAX_TICKS, TICKS
from lib.errors.exceptions import NoTraceFile, TraceError
from lib.errors.source_lines import Place
from lib.errors.wording import runs
from lib.files import ready, write_whole
from lib.record import replace
from lib.trace.event import Program
from lib.trace.trace import Trace, without_collector
from lib.trace.validation import FORMAT, MAX_SHARED, TIMES, VERSION, decode
from lib.values.kinds.kind import USUAL
from lib.values.placement import Rest
from lib.values.values import Value, fields_of

MAX_BYTES = 512 * 2**20


def set_text(items: Iterable[int]) -> str:
    """{0, 1, 2, 3, 7} -> "0-3,7"."""
    return ",".join(f"{first}" if after == first + 1 else f"{first}-{after - 1}" for first, after in runs(items))


class Numbers:
    """Numbers things in the order in which they come. Known ones are found by identity first: a group may be long, the
    hash of a line's code goes through all of it, and most events share theirs."""

    def __init__(self) -> None:
        self.items: dict[Any, int] = {}
        self._met: dict[int, int] = {}
        self._kept: list[Any] = []

    def column(self, items: Sequence[Any], form: Callable[[Any], Any] = lambda item: item) -> list[int]:
        """Return the numbers of many things, -1 for None. `form` makes of each what is numbered."""
        ids, met = [*map(id, items)], self._met
        # A Python loop over new ones only: of a hundred thousand things few are different.
        for number, item in dict(zip(ids, items, strict=True)).items():
            if number not in met:
                known = None if item is None else form(item)
                met[number] = -1 if known is None else self.items.setdefault(known, len(self.items))
                self._kept.append(item)  # so that its id stays its own
        return [*map(met.__getitem__, ids)]


def _row(value: Value) -> list[Any]:
    """Return the kind of a value and its fields except the layer; further dims along which it is cut come last."""
    made: list[Any] = [value.kind]
    for field in fields_of(value)[1:]:
        if isinstance(field, tuple):
            made.append({role: [set_text(pieces), total] for role, pieces, total in cast("Rest", field)})
        else:
            made.append(set_text(cast("frozenset[int]", field)) if isinstance(field, frozenset) else field)
    return made


def _new(numbers: list[int], new: range) -> list[int]:
    """Return where each new number first stands."""
    first = dict(zip(reversed(numbers), reversed(range(len(numbers))), strict=True)) if new else {}
    return [first[number] for number in new]


# -- out --------------------------------------------------------------------------------------------------------


class _Writer:
    """Makes the tables of a file, and the columns of its ranks."""

    def __init__(self, run: Trace, lines: bool) -> None:
        self.run, self.lines = run, lines
        self.places, self.groups = Numbers(), Numbers()
        # The rows of these tables, numbered when first met (a set keeps its hash); and where each first stood.
        self.calls, self.rows, self.sets = (defaultdict[Any, int](count().__next__) for _ in range(3))
        self.names: dict[str, list[str]] = {"calls": [], "values": []}
        self.values: list[list[Any]] = []
        self.before: dict[str, tuple[Any, Any]] = {}
        self.shared = 0
        self.latest: float = 0

    def once(self, name: str, said: Any, make: Callable[[], Any] | None = None) -> Any:
        """Return what `make` makes of a rank's data, or the data itself. If the rank before has the same, its result
        is shared, as in DDP: comparing whole lists takes a fifth of making one."""
        if name not in self.before or self.before[name][0] != said:
            self.before[name] = said, said if make is None else make()
        return self.before[name][1]

    def columns(self, program: Program) -> dict[str, Sequence[Any]]:
        """Return the columns of a rank, with its times in ticks."""
        events, values, moves = [*program.events], [*program.values], [*program.moves]
        where = f"programs[{program.rank}]"
        # A loop for each column: Python specialises the look-up of an attribute that is always in the same slot.
        # Getting all fields in C takes a third longer.
        inputs, outputs = [e.inputs for e in events], [e.outputs for e in events]
        called = (
            [e.op for e in events], [e.arg for e in events], [e.group for e in events], [e.peer for e in events],
            [e.blocking for e in events], [*map(len, inputs)], [*map(len, outputs)],
        )  # fmt: skip
        before, store, stored, change = self.once("moves", moves, lambda: [*zip(*moves, strict=True)] or [()] * 4)
        moved = store, change
        sources = [e.source if self.lines else None for e in events]
        return {
            "calls": self.once("calls", called, lambda: self.calls_of(where, *called)),
            "layers": self.once("layers", [e.layer for e in events]),
            "batches": [*map(self.sets.__getitem__, map(frozenset, [e.batches for e in events]))],
            "places": self.once("places", sources, lambda: self.places.column(sources, self.run.line)),
            "issued": self.once("issued", [e.issued for e in events]),
            "start": self.once("start", [e.start for e in events]),
            "length": self.once("length", [e.length for e in events]),
            "inputs": self.once("inputs", inputs, lambda: [*chain.from_iterable(inputs)]),
            "outputs": self.once("outputs", outputs, lambda: [*chain.from_iterable(outputs)]),
            "values": self.rows_of(values, where), "of": self.once("of", [0 if v is None else v.layer for v in values]),
            "before": before,
            "store": self.once("store", moved, lambda: [s if c > 0 else -1 - s for s, c in zip(*moved, strict=True)]),
            "stored": stored,
        }  # fmt: skip

    def calls_of(self, where: str, ops: list[str], args: list[Any], groups: list[Any], *rest: list[Any]) -> list[int]:
        """Return the numbers of calls' rows."""
        if "wait" in ops:
            args = [(i - arg[0],) if ops[i] == "wait" and arg else arg for i, arg in enumerate(args)]
        own, known = self.groups.column(groups, lambda group: group or None), len(self.calls)
        numbers = [*map(self.calls.__getitem__, zip(ops, args, own, *rest, strict=True))]
        self.names["calls"] += [f"{where}.events[{i}]" for i in _new(numbers, range(known, len(self.calls)))]
        return numbers

    def rows_of(self, values: Sequence[Value | None], where: str) -> list[int]:
        """Return the numbers of values' rows. Values of one class, step and place share one."""
        rows, known = self.rows, len(self.rows)
        numbers = [-1 if v is None else rows[type(v), v.layers, v.updates, v.place] for v in values]
        for value in [value for at in _new(numbers, range(known, len(rows))) if (value := values[at]) is not None]:
            self.values.append(_row(value))
            self.names["values"].append(f"{where}.values: {value.kind} of layer {value.layer}")
        return numbers

    def programs(self) -> tuple[int, list[dict[str, Any]]]:
        """Return the unit of all times, and the columns of all ranks, each column once."""
        first: dict[tuple[str, tuple[Any, ...]], int] = {}
        last: dict[str, tuple[Sequence[Any], int]] = {}
        programs: list[dict[str, Any]] = []
        for rank, columns in enumerate(map(self.columns, self.run.programs)):
            program: dict[str, Any] = {}
            for name, column in columns.items():
                if name not in last or last[name][0] is not column:
                    last[name] = column, first.setdefault((name, tuple(column)), rank)
                before = last[name][1]
                # The reader has the same bound, and has to read it again.
                again = before < rank and self.shared + len(column) <= MAX_SHARED
                self.shared += len(column) if again else 0
                program[name] = before if again else [*column]
            programs.append(program)
        # Times are mostly multiples of one large number, and shorter in that unit.
        timed: list[list[Any]] = [
            program[name] for program in programs for name in TIMES if type(program[name]) is list
        ]
        plainly = {*map(type, chain.from_iterable(timed))} <= {int, NoneType}  # else the reader refuses it
        times = {*chain.from_iterable(timed)} - {None} if plainly else set[int]()
        self.latest = max(times, default=0) if plainly else inf
        unit = max(gcd(*times), 1)
        counted = {time: time // unit for time in times} | {None: None}
        for column in timed if unit > 1 else ():
            column[:] = map(counted.__getitem__, column)
        return unit, programs

    def data(self) -> dict[str, Any]:
        run = self.run
        unit, programs = self.programs()
        data: dict[str, Any] = {
            "format": FORMAT, "version": VERSION,
            **{name: getattr(run, name) for name in ("layers", "batches", "sandbox", "puzzle", "error")},
            "costs": run.costs.to_json(),
            "mesh": None if run.mesh is None else run.mesh.to_json(),
            "places": [list(place) for place in self.places.items],
            "groups": [list(group) for group in self.groups.items],
            "sets": [*map(set_text, self.sets)],
            "calls": [[op, list(arg), *rest] for op, arg, *rest in self.calls],
            "values": self.values,
            "unit": unit, "programs": programs,
        }  # fmt: skip
        if run.descriptions != USUAL:  # else left out: most files need none
            data["layer_descriptions"] = [layer.to_json() for layer in run.descriptions]
        if run.padding:
            data["padding"] = run.padding
        return data


@without_collector()
def encode(run: Trace, *, lines: bool = True) -> dict[str, Any]:
    """Return the run as JSON data. Equal runs give equal data, in whatever order they were stepped."""
    return _Writer(run, lines).data()


def with_places(run: Trace, places: Sequence[Sequence[Place | None]]) -> Trace:
    """Return the same run with these source lines, a list for each rank. Values and moves are shared."""
    programs = [Program(p.rank, [event.copy() for event in p.events], p.values, p.moves) for p in run.programs]
    for program, own in zip(programs, places, strict=True):
        for event, place in zip(program.events, own, strict=True):
            event.source = place
    return replace(run, programs=programs)


def plain(run: Trace) -> Trace:
    """Return the same run made anew from plain numbers and text, as if from a file. TraceError if it is not a run.

    A run of this process consists of objects that student code can reach: an event whose layer equals every number, a
    list that reads differently the second time, a Mesh with its own `host`. None of them comes through; only source
    lines do, which decide nothing, and of which messages show more if they have the code itself.
    """
    writer = _Writer(run, lines=False)
    made = decode(writer.data(), whole=False, names=writer.names)
    for program, plainly in zip(run.programs, made.programs, strict=False):
        for event, copy in zip(program.events, plainly.events, strict=False):
            copy.source = event.source
    return made


@without_collector()
def write(run: Trace, path: str | Path) -> None:
    """Write a run as JSON. A file of that name is replaced at once, or left as it was."""
    path, writer = _path(path, "save"), _Writer(run, lines=True)
    text = json.dumps(writer.data(), separators=(",", ":"), ensure_ascii=False)
    # Refused here, as the file could not be read again. Nothing ends later than twice the latest time.
    if 2 * writer.latest > MAX_TICKS and any(program.end > MAX_TICKS for program in run.programs):
        raise TraceError(f"a Trace holds times up to {MAX_TICKS // TICKS} time units; this run takes longer")
    write_whole(ready(path), text + "\n")


# -- in ---------------------------------------------------------------------------------------------------------


@without_collector()
def read(path: str | Path) -> Trace:
    """Return the run in a file. TraceError if it is damaged, NoTraceFile if it cannot be opened."""
    path = _path(path, "load")
    try:
        if path.exists() and not path.is_file():  # opening a pipe may block for ever
            raise OSError(0, "it is not a plain file")
        with path.open("rb") as file:
            # One byte more than allowed: its size now means nothing if the file grows.
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        reason = f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        if path.is_dir():
            reason = f"{path} is a directory, and a Trace is a file: name the .json file in it"
        elif isinstance(error, FileNotFoundError):
            reason = f"there is no file {path}: models[0].trace.save('run.json') writes one"
        raise NoTraceFile(reason) from None
    if len(data) > MAX_BYTES:
        raise TraceError(f"{path.name} is larger than {MAX_BYTES // 2**20} MiB: that is not a Trace of ours")
    try:
        return decode(parse(data))
    except TraceError as error:
        raise TraceError(f"{path.name}: {error}") from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise TraceError(f"{path.name} is not a whole JSON file: {reason}") from None


def parse(data: bytes) -> Any:
    """Return untrusted JSON as data. ValueError, such as TraceError, or RecursionError if it is none."""
    return json.loads(data.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=once)


def _path(path: object, call: str) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{call} takes the path of a file, such as 'run.json'; got {type(path).__name__}")
    return Path(cast("str | os.PathLike[str]", path))


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object with each key once. TraceError for a repeated key, of which readers might take either."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise TraceError(f"the key {twice[:40]!r} is there twice")
    return found


def _no_constant(name: str) -> Any:
    raise TraceError(f"{name} is not a number that a Trace has")
