"""Reads a Trace from untrusted JSON data: a whole run, or a TraceError that says where it is wrong.

The form is that of `json_format`. Nothing is evaluated or looked up by name; every number has bounds; and all that an
operation must have (the members of its group, its inputs, the event that it waits for) is checked here once, so that no
other reader has to.

Most of a file repeats itself, on another rank or for another layer. So a row of a table, and a column that several
ranks share, is checked once; and a column is checked as a whole (types, least and largest number), number by number
only to say where it is wrong.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, cast

from lib.cluster.costs import MAX_TICKS, costs_from
from lib.cluster.mesh import Mesh
from lib.errors.exceptions import TraceError
from lib.errors.source_lines import Place as Line
from lib.trace.event import STORES, Event, Move, Program
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.dims import NAMES, REST, Pieces, Run, RunSet, joined
from lib.values.kinds.kind import USUAL
from lib.values.layers import Shape, layer_from
from lib.values.operations import ARGUMENTS, COMMUNICATION, LOCAL, OPERATIONS, READS
from lib.values.placement import Place, Schema
from lib.values.values import KINDS, PIECES, Value, made, value_of

FORMAT = "llm-training-puzzles trace"
VERSION = 2
FIELDS = {"format", "version", "layers", "batches", "sandbox", "puzzle", "error"}
CONTENTS = {"costs", "mesh", "places", "groups", "programs"}
TABLES = {"calls", "values", "sets", "unit"}
"""Further fields of version 2."""
TIMES, USED = ("issued", "start", "length"), ("inputs", "outputs")
EVENT_COLUMNS = ("calls", "layers", "batches", "places", *TIMES)
COLUMNS = (*EVENT_COLUMNS, *USED, "values", "of", "before", "store", "stored")
PADDING, DESCRIPTIONS = "padding", "layer_descriptions"
"""Optional fields: batches of padding, and layers other than the usual ones."""
FROM_ELSEWHERE = frozenset(name for name in LOCAL if OPERATIONS[name].rule is None)
MAX_COUNT = 10**6
"""The most ranks, layers or batches, and the highest rank, layer or batch number."""
MAX_SET_ITEMS = 3 * 10**6
"""The most numbers that all sets of a file may list, so that a short file cannot fill the memory."""
MAX_SHARED = 10**7
"""The most numbers that ranks may share with other ranks, so that a short file cannot fill the memory."""
MAX_TOTALS = 1000
"""The most different numbers of shards in one file: sizes are exact fractions, and their sums have all denominators."""


class Sets:
    """Reads sets of numbers, each text once: as runs, or number by number, within a limit for the file."""

    def __init__(self) -> None:
        self._runs: dict[str, RunSet] = {"": RunSet()}
        self._known: dict[str, frozenset[int]] = {}
        self._left = MAX_SET_ITEMS

    def __call__(self, text: str) -> frozenset[int]:
        found = self._known.get(text)
        if found is None:
            self._spend(text, len(self.runs(text)))
            found = self._known[text] = frozenset(self.runs(text))
        return found

    def runs(self, text: str) -> RunSet:
        """Return a set as its runs, which may be of any length: a part of a million rows is one."""
        found = self._runs.get(text)
        if found is None:
            found = self._runs[text] = RunSet(*joined([self._run(text, part) for part in text.split(",")]))
        return found

    def below(self, text: str, total: int) -> bool:
        """Tell whether all numbers of a set are below a total."""
        runs = self.runs(text).runs
        return (runs[-1][1] if runs else 1) <= total

    def _run(self, text: str, part: str) -> Run:
        first, dash, last = part.partition("-")
        if not (_digits(first) and (_digits(last) if dash else True)):
            raise TraceError(f"{text[:40]!r} is not a set of numbers like 0-3,7")
        low, high = int(first), int(last) if dash else int(first)
        self._spend(text, 1 if low <= high < MAX_COUNT else self._left + 1)
        return low, high + 1

    def _spend(self, text: str, numbers: int) -> None:
        # Counted before anything is made: "0-999999" is eight characters.
        self._left -= numbers
        if self._left < 0:
            raise TraceError(f"the set {text[:40]!r} is out of bounds")


def _digits(text: str) -> bool:
    # int() takes digits of all scripts, underscores and spaces; a file has one way to write a number.
    return text.isascii() and text.isdigit() and len(text) <= 7


def decode(data: Any, *, whole: bool = True, names: dict[str, list[str]] | None = None) -> Trace:
    """Return the run in JSON data. TraceError names the first thing that is wrong.

    Unless it is `whole`, values may be null: a text leaves them out, and the rules make them. `names` has the names of
    a table's rows in errors, if these are not the table and a number.
    """
    if not isinstance(data, dict) or cast("dict[str, Any]", data).get("format") != FORMAT:
        raise TraceError("this is not a Trace: its format is not 'llm-training-puzzles trace'")
    top = cast("dict[str, Any]", data)
    version = top.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise TraceError(f"this Trace has version {version!r}, and this library reads versions 1 and {VERSION}")
    fields = FIELDS | CONTENTS | (TABLES if version > 1 else set[str]())
    if set(top) - {DESCRIPTIONS, PADDING} != fields:
        raise TraceError(f"a Trace has exactly the fields {sorted(fields)}; got {sorted(map(str, top))}")
    if version > 1:
        return _Reader(top, whole, names or {}).run()
    from lib.trace.rows import Rows  # here and not above: few files are that old

    rows = Rows()
    return _Reader(rows.columns(top), whole, rows.names).run()


class _Call(NamedTuple):
    """A row of the table of calls: the fields of an event except its layer, batches and times."""

    op: str
    arg: tuple[int, ...]
    group: tuple[int, ...]
    peer: int | None
    blocking: bool
    inputs: int
    outputs: int
    members: frozenset[int]


class _Reader:
    """Checks and takes apart the data of one file. Every error names the place in the data; in version 1 that is where
    a row first stood, which `names` has for each table."""

    def __init__(self, top: dict[str, Any], whole: bool, names: dict[str, list[str]]) -> None:
        self.top = top
        self.whole = whole
        self.names = names
        self.sets = Sets()
        self.totals: set[int] = set()
        self.layers = self.number("layers", top["layers"], 1)
        self.batches = self.number("batches", top["batches"], 1)
        padding = self.number(PADDING, top.get(PADDING, 0))
        described = self.list(DESCRIPTIONS, top.get(DESCRIPTIONS, [layer.to_json() for layer in USUAL]))
        try:
            self.shape = Shape(self.layers, self.batches, [layer_from(one) for one in described], padding)
        except ValueError as error:
            raise TraceError(f"{DESCRIPTIONS}: {error}") from None
        self.shapes: dict[int, Shape] = {self.shape.items: self.shape}
        self.ranks = len(self.list("programs", top["programs"]))
        if not 1 <= self.ranks <= MAX_COUNT:
            raise TraceError(f"a Trace has from 1 to {MAX_COUNT} programs; got {self.ranks}")
        lines = enumerate(self.list("places", top["places"]))
        self.lines = [*[self.place(f"places[{i}]", line) for i, line in lines], None]  # -1 is for none
        self.groups = [self.group(f"groups[{i}]", g) for i, g in enumerate(self.list("groups", top["groups"]))]
        self.unit = self.number("unit", top["unit"], 1, MAX_TICKS)
        self.calls: list[_Call] = [self.call(*row) for row in self.table("calls")]
        # Few calls need a look at more than themselves: at other events, or values.
        self.loose = {
            number
            for number, row in enumerate(self.calls)
            if row.op == "wait" or row.op in FROM_ELSEWHERE or (row.op in COMMUNICATION and not row.blocking)
        }
        self.batch_sets: list[frozenset[int]] = [self.sets(self.text(*row)) for row in self.table("sets")]
        self.rows = [*self.table("values")]
        # Of each rank read so far.
        self.columns: list[dict[str, list[Any]]] = []
        self.shared = 0
        # Findings about columns, one or several, by their ids: the columns live as long.
        self.spans: dict[int, tuple[set[type], int, int]] = {}
        self.moved: dict[tuple[int, ...], tuple[list[Move], int, int]] = {}
        self.stated: dict[int, tuple[type[Value], Shape, dict[str, Any], dict[Any, Any]]] = {}
        self.made: dict[tuple[int, int], Place] = {}
        # Values by row and layer; `stated` has the fields of rows, `made` places by row and kind of layer.
        self.known: dict[tuple[int, int], Value | None] = {}
        # Fields of events from several columns, by the ids of these.
        self.told: dict[tuple[int, ...], tuple[list[_Call], list[list[int]], list[Any]]] = {}
        # Calls with their layers that have been checked.
        self.fitting: set[tuple[int, int | None]] = set()

    # -- small pieces -------------------------------------------------------------------------------------------

    def list(self, where: str, item: Any, length: int | None = None) -> list[Any]:
        # The exact type, no subclass: data of this process may come from student code (json_format.plain).
        if type(item) is not list or (length is not None and len(cast("list[Any]", item)) != length):
            raise TraceError(f"{where}: expected a list{'' if length is None else f' of {length}'}")
        return cast("list[Any]", item)

    def number(self, where: str, item: Any, low: int = 0, high: int = MAX_COUNT) -> int:
        if type(item) is not int or not low <= item <= high:
            raise TraceError(f"{where}: expected a whole number from {low} to {high}; got {str(item)[:40]}")
        return item

    def numbers(self, where: str, item: Any, low: int, high: int) -> tuple[int, ...]:
        found = tuple(self.list(where, item))
        for one in found:
            if type(one) is not int or not low <= one <= high:
                self.number(where, one, low, high)
        return found

    def text(self, where: str, item: Any) -> str:
        if type(item) is not str:
            raise TraceError(f"{where}: expected text; got {str(item)[:40]}")
        return item

    def maybe(self, read: Callable[..., Any], where: str, item: Any, *rest: int) -> Any:
        return None if item is None else read(where, item, *rest)

    def truth(self, where: str, item: Any) -> bool:
        if not isinstance(item, bool):
            raise TraceError(f"{where}: expected true or false; got {str(item)[:40]}")
        return item

    def place(self, where: str, item: Any) -> Line:
        file, line, *rest = self.list(where, item, 4)
        return Line(self.text(where, file), self.number(where, line), *[self.text(where, one) for one in rest])

    def group(self, where: str, item: Any) -> tuple[tuple[int, ...], frozenset[int]]:
        ranks = self.numbers(where, item, 0, self.ranks - 1)
        if not ranks or len(set(ranks)) != len(ranks):
            raise TraceError(f"{where}: a group lists each of its ranks once")
        self.shards(where, len(ranks))  # a reduce-scatter cuts its value into as many
        return ranks, frozenset(ranks)

    def shards(self, where: str, total: int) -> None:
        """Note a number of shards; a file may have only a limited number of different ones."""
        self.totals.add(total)
        if len(self.totals) > MAX_TOTALS:
            raise TraceError(f"{where}: values cut into more than {MAX_TOTALS} different numbers of shards")

    def table(self, name: str) -> Iterator[tuple[str, Any]]:
        names = self.names.get(name)
        for i, row in enumerate(self.list(name, self.top[name])):
            yield f"{name}[{i}]" if names is None else names[i], row

    # -- columns ------------------------------------------------------------------------------------------------

    def column(self, where: str, name: str, item: Any) -> list[Any]:
        """Return a column of a rank: its own, or that of an earlier one."""
        if type(item) is not int:
            return self.list(f"{where}.{name}", item)
        # Only of an earlier rank, so that columns cannot refer to each other in a circle.
        found = self.columns[self.number(f"{where}.{name}", item, 0, len(self.columns) - 1)][name]
        self.shared += len(found)
        if self.shared > MAX_SHARED:
            raise TraceError(f"{where}.{name}: more than {MAX_SHARED} numbers are columns of other ranks")
        return found

    def within(
        self, where: Callable[[int], str], column: list[Any], low: int, high: int, *, null: bool = False
    ) -> None:
        """Check that a column has whole numbers from `low` to `high`, or perhaps null."""
        span = self.spans.get(id(column))
        if span is None:
            kinds: set[type] = set(map(type, column))
            plain = column if kinds == {int} else [one for one in column if type(one) is int]
            span = self.spans[id(column)] = kinds, min(plain, default=0), max(plain, default=0)
        kinds, least, most = span
        allowed = {int, type(None)} if null else {int}
        # Types and both extremes decide; only a wrong column is gone through, to say where.
        if not kinds or (kinds <= allowed and low <= least and most <= high):
            return
        for i, one in enumerate(column):
            if one is not None or not null:
                self.number(where(i), one, low, high)

    # -- the whole ----------------------------------------------------------------------------------------------

    def run(self) -> Trace:
        top = self.top
        try:
            costs = costs_from(cast("dict[str, Any]", top["costs"]) if isinstance(top["costs"], dict) else {})
            mesh = None if top["mesh"] is None else self.mesh(top["mesh"])
        except TraceError:
            raise
        except (ValueError, TypeError) as error:
            raise TraceError(f"costs or mesh: {error}") from None
        programs = [self.program(rank, item) for rank, item in enumerate(top["programs"])]
        sandbox = self.truth("sandbox", top["sandbox"])
        puzzle, error = (self.maybe(self.text, name, top[name]) for name in ("puzzle", "error"))
        size: dict[str, Any] = {"descriptions": self.shape.descriptions, "padding": self.shape.padding}
        return Trace(self.layers, self.batches, programs, costs, mesh, sandbox, puzzle, error, **size)

    def mesh(self, item: Any) -> Mesh:
        data = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        if set(data) - {"processes"} != {"axes", "ranks", "host_size"}:
            raise TraceError("mesh: expected axes, ranks and host_size, and perhaps processes")
        ranks = self.numbers("mesh ranks", data["ranks"], 0, self.ranks - 1)
        axes: dict[str, int] = {}
        for i, pair in enumerate(self.list("mesh axes", data["axes"])):
            name, size = self.list(f"mesh axes[{i}]", pair, 2)
            if self.text("mesh axis", name) in axes:
                raise TraceError(f"mesh axes[{i}]: a second axis {name[:40]!r}")
            axes[name] = self.number(f"size of axis {i}", size, 1)
        host_size = self.maybe(self.number, "mesh host_size", data["host_size"], 1)
        if len(ranks) != self.ranks:
            raise TraceError(f"mesh: it has {len(ranks)} ranks, the Trace has {self.ranks}")
        return Mesh(axes, ranks=ranks, host_size=host_size, processes=data.get("processes"))

    def program(self, rank: int, item: Any) -> Program:
        where = f"programs[{rank}]"
        if not isinstance(item, dict) or set(cast("dict[str, Any]", item)) != set(COLUMNS):
            raise TraceError(f"{where}: expected the columns {', '.join(COLUMNS)}")
        data = {name: self.column(where, name, cast("dict[str, Any]", item)[name]) for name in COLUMNS}
        self.columns.append(data)
        values = self.values(f"{where}.values", data["values"], data["of"])
        program = Program(rank, [*self.events(where, data, values, rank)], values)
        moves = (data["before"], data["store"], data["stored"])
        program.moves = self.moves(f"{where}.moves", moves, len(program.events), len(values) - 1)
        return Program.of(program)

    def values(self, where: str, rows: list[Any], layers: list[Any]) -> list[Value | None]:
        """Return the values of a rank. Each row of the table is read once for each layer."""
        if len(rows) != len(layers):
            raise TraceError(f"{where}: {len(rows)} values, and layers of {len(layers)}")
        self.within(lambda i: f"{where}[{i}]", rows, 0 if self.whole else -1, len(self.rows) - 1)
        self.within(lambda i: f"{where}[{i}] layer", layers, -1, MAX_COUNT)
        every = [*zip(rows, layers, strict=True)]
        # Each distinct one once, in the order of the file: an error names the first that is wrong.
        for number, pair in enumerate(every):  # not every.index(pair): a rank may have as many values as events
            if pair not in self.known:
                self.known[pair] = None if pair[0] < 0 else self.value(where, number, *pair)
        return [*map(self.known.__getitem__, every)]

    def moves(self, where: str, columns: tuple[list[Any], ...], events: int, last: int) -> list[Move]:
        # Ranks of a run like DDP have the same moves: they are read once, and each rank only asks for its bounds.
        key = tuple(map(id, columns))
        if key not in self.moved:
            found: list[Move] = []
            before, held = 0, dict[tuple[int, int], int]()
            if len({len(column) for column in columns}) > 1:
                raise TraceError(f"{where}: columns of different lengths")
            for i, (position, store, value) in enumerate(zip(*columns, strict=True)):
                at = f"{where}[{i}]"
                before = self.number(at, position, before, events)
                change = 1 if self.number(at, store, -len(STORES), len(STORES) - 1) >= 0 else -1
                place = store if change > 0 else -1 - store, self.number(at, value, 0, last)
                held[place] = held.get(place, 0) + change
                if held[place] < 0:
                    raise TraceError(f"{at}: value {value} leaves a store that it is not in")
                found.append((before, *place, change))
            self.moved[key] = found, before, max(columns[2], default=-1)
        found, before, stored = self.moved[key]
        for at, number, most in ((0, before, events), (2, stored, last)):
            if number > most:
                self.number(f"{where}[{columns[at].index(number)}]", number, 0, most)
        return found

    def value(self, where: str, number: int, row: int, layer: int) -> Value:
        """Return the value of a row and a layer. Its place is worked out once for all layers of one kind."""
        if row not in self.stated:
            self.stated[row] = self.fields(f"{where}[{number}]", self.rows[row][1], layer)
        cls, home, fields, more = self.stated[row]
        schema = home.schema_of(cls.tensor, layer)
        if schema is None:
            raise TraceError(f"{where}[{number}]: layer {layer} has no weight")
        place = self.made.get((row, id(schema)))
        if place is None:
            rest = self.rest(f"{where}[{number}]", schema, more) if more else []
            place = self.made[row, id(schema)] = value_of(cls, home, layer, *fields.values(), rest).place
        return made(cls, layer, fields["layers"], place, fields.get("step", 0))

    def fields(self, where: str, item: Any, layer: int) -> tuple[type[Value], Shape, dict[str, Any], dict[Any, Any]]:
        """Return what a row says of values: their class, the Shape of their step, the fields of the class after the
        layer, and the further dims along which they are cut."""
        kind, *fields = self.list(where, item) or [None]
        cls = KINDS.get(kind) if isinstance(kind, str) else None
        more: Any = fields.pop() if fields and isinstance(fields[-1], dict) else {}
        if cls is None or len(fields) != len(cls.__match_args__) - 1:
            said = str([kind, layer, *fields, *([more] if more else ())])
            raise TraceError(f"{where}: expected a kind of value and its fields; got {said[:60]}")
        given = dict(zip(cls.__match_args__[1:], fields, strict=True))
        read: dict[str, Any] = {
            name: self.sets(self.text(f"{where} {name}", field))
            if name in PIECES
            else self.number(f"{where} {name}", field)
            for name, field in given.items()
        }
        total, batches = read.get("total", 1), read.get("total_batches", self.shape.items)
        if not (total >= 1 and self.sets.below(given.get("shards", ""), total)):
            raise TraceError(f"{where}: its shards are not some of {total}")
        self.shards(where, total)
        if not self.sets.below(given.get("batches", ""), batches):
            raise TraceError(f"{where}: its batches are not some of {batches}")
        home = self.shapes.get(batches)  # a value made by hand may be of another number than the Trace
        if home is None:
            if len(self.shapes) > MAX_TOTALS:
                raise TraceError(f"{where}: values of more than {MAX_TOTALS} different numbers of batches")
            home = self.shapes[batches] = Shape(self.layers, batches, self.shape.descriptions)
        return cls, home, read, more

    def rest(self, where: str, schema: Schema, item: Any) -> list[tuple[str, Pieces, int]]:
        """Return the parts of the further dims along which a value is cut."""
        every = enumerate(zip(schema.roles, schema.spaces, strict=True))
        dims = {role: dim for at, (role, dim) in every if at not in (schema.split, schema.batch)}
        found: list[tuple[str, Pieces, int]] = []
        for role, part in cast("dict[Any, Any]", item).items():
            if role not in dims:
                raise TraceError(f"{where}: it can be cut along {' and '.join(dims)}; got {str(role)[:40]}")
            pieces, total = self.list(f"{where} {role}", part, 2)
            total = self.number(f"{where} {role}", total, 1)
            text = self.text(f"{where} {role}", pieces)
            if not self.sets.below(text, total):
                raise TraceError(f"{where}: its {REST[role]} are not some of {total}")
            if dims[role].counted and total != dims[role].size:
                raise TraceError(f"{where}: there are {dims[role].size} {REST[role]}; got {total}")
            self.shards(where, total)
            found.append((role, self.sets.runs(text) if dims[role].spans else self.sets(text), total))
        return found

    # -- events -------------------------------------------------------------------------------------------------

    def call(self, where: str, item: Any) -> _Call:
        """Return a row of the table of calls, checked by itself; `unfit` checks it with its layer."""
        op, arg, group, peer, blocking, inputs, outputs = self.list(where, item, 7)
        if type(op) is not str or (op not in OPERATIONS and op not in COLLECTIVES):
            raise TraceError(f"{where}: there is no operation {str(op)[:40]!r}")
        arg = tuple(self.list(where, arg)) if op == "wait" else self.numbers(where, arg, 0, MAX_COUNT)
        none: tuple[tuple[int, ...], frozenset[int]] = (), frozenset()
        ranks, members = none if group == -1 else self.groups[self.number(where, group, 0, len(self.groups) - 1)]
        self.maybe(self.number, where, peer, 0, self.ranks - 1)
        self.truth(where, blocking)
        inputs, outputs = self.number(where, inputs), self.number(where, outputs)
        wrong = None
        if op == "wait" and not (len(arg) == 1 and type(arg[0]) is int and arg[0] > 0):
            wrong = "a wait names an earlier event"
        elif blocking and op not in COMMUNICATION:
            wrong = "only a communication is awaited"
        elif (op in COLLECTIVES) != bool(members):
            wrong = "a collective names a group that its rank belongs to"
        if wrong is not None:
            raise TraceError(f"{where}: {wrong}")
        if op in LOCAL and OPERATIONS[op].says == "shard" and len(arg) > 1:
            self.shards(where, arg[1])
        return _Call(op, arg, ranks, peer, blocking, inputs, outputs, members)

    def events(self, where: str, data: dict[str, list[Any]], values: list[Value | None], rank: int) -> Iterable[Event]:
        columns = [data[name] for name in EVENT_COLUMNS]
        calls, layers, batches, places, *_ = columns
        if len({len(column) for column in columns}) > 1:
            raise TraceError(f"{where}: an event has one of each of {', '.join(EVENT_COLUMNS)}")

        def here(i: int) -> str:
            return f"{where}.events[{i}]"

        self.within(here, calls, 0, len(self.calls) - 1)
        self.within(here, layers, -1, MAX_COUNT, null=True)
        self.within(here, batches, 0, len(self.batch_sets) - 1)
        self.within(here, places, -1, len(self.lines) - 2)
        for name in TIMES:
            self.within(here, data[name], 0, MAX_TICKS // self.unit, null=name == "start")
        # Ranks of a run like DDP have the same columns but for their batches, and what follows from these is made once.
        key = tuple([id(data[name]) for name in (*EVENT_COLUMNS, *USED) if name != "batches"])
        if fresh := key not in self.told:
            self.told[key] = self.fields_of(where, data, [*map(self.calls.__getitem__, calls)])
        rows, ends, (ops, *rest) = self.told[key]
        for name, own in zip(USED, ends, strict=True):
            self.within(lambda i, e=own: here(bisect_right(e, i) - 1), data[name], 0, len(values) - 1)
        # Before any event is made, which may then take everything as it is.
        self.sensible(where, data, rows, ends[1], values, rank, fresh)
        return map(Event, ops, layers, map(self.batch_sets.__getitem__, batches), *rest)

    def fields_of(self, where: str, data: dict[str, list[Any]], rows: list[_Call]) -> Any:
        """Return the calls of events, where inputs and outputs of each begin, and all fields but layers and batches."""
        ends = [[*accumulate([getattr(row, name) for row in rows], initial=0)] for name in USED]
        for name, own in zip(USED, ends, strict=True):
            # Inputs of all events are one column: the calls say how many each has.
            if len(data[name]) != own[-1]:
                raise TraceError(f"{where}: {len(data[name])} {name}, and {own[-1]} by its calls")
        ops, args, groups, peers, blocking, *_ = zip(*rows, strict=True) if rows else [()] * len(_Call._fields)
        if "wait" in ops:
            args = [(i - arg[0],) if op == "wait" else arg for i, (op, arg) in enumerate(zip(ops, args, strict=True))]
        used = [tuple(data[name]) for name in USED]
        ids = [[every[a:b] for a, b in pairwise(own)] for every, own in zip(used, ends, strict=True)]
        times = [[None if time is None else time * self.unit for time in data[name]] for name in TIMES]
        lines = [*map(self.lines.__getitem__, data["places"])]
        return rows, ends, [ops, *ids, *times, lines, args, groups, peers, blocking]

    def sensible(
        self, where: str, data: dict[str, Any], rows: list[_Call], gives: list[int], values: Any, rank: int, fresh: bool
    ) -> None:
        """Check events against their layers, their rank and each other; if an earlier rank had the same columns (not
        `fresh`), only against their rank. An await brings the outputs, and a second one finds none left."""
        calls, start = cast("list[int]", data["calls"]), cast("list[int | None]", data["start"])

        def refuse(i: int, wrong: str) -> None:
            raise TraceError(f"{where}.events[{i}]: {wrong}")

        pairs: list[tuple[int, int | None]] = [*zip(calls, data["layers"], strict=True)] if fresh else []
        for number, layer in dict.fromkeys(pairs):
            if (number, layer) not in self.fitting:
                self.fitting.add((number, layer))
                if (wrong := next(self.unfit(self.calls[number], layer), None)) is not None:
                    refuse(pairs.index((number, layer)), wrong)
        for number in dict.fromkeys(calls):
            row = self.calls[number]
            if row.members and rank not in row.members:
                refuse(calls.index(number), "a collective names a group that its rank belongs to")
            if row.op == "pass_to" and row.peer in (None, rank):
                refuse(calls.index(number), "a pass goes to another rank")
        if not fresh and not self.loose:
            return
        if len(set(data["outputs"])) != len(data["outputs"]):
            raise TraceError(f"{where}: a value is made twice")
        for i in [i for i, begun in enumerate(start) if begun is None] if None in start else ():
            if rows[i].op not in COMMUNICATION:
                refuse(i, "only a communication may not have begun")
        under_way: dict[int, bool] = {}
        for i in [i for i, number in enumerate(calls) if number in self.loose] if self.loose else ():
            row = rows[i]
            if row.op in COMMUNICATION:
                under_way[i] = row.outputs > 0
            elif row.op == "wait":
                other = i - row.arg[0]
                if other < 0 or rows[other].op not in COMMUNICATION:
                    refuse(i, "a wait names an earlier event" if other < 0 else "a wait is for a communication")
                if rows[other].blocking:
                    refuse(i, f"event {other} was awaited at once, so nothing waits for it again")
                if under_way.pop(other, None) is None:
                    refuse(i, f"a second wait for event {other}")
            elif [values[n] is None for n in data["outputs"][gives[i] : gives[i + 1]]] != [False]:
                refuse(i, "a value from elsewhere is stated")
        for i in [i for i, results in under_way.items() if results]:
            refuse(i, f"{rows[i].op} has results, and nobody waits for it")

    def unfit(self, call: _Call, layer: int | None) -> Iterator[str]:
        """Yield what is wrong with a call by the row of its operation."""
        op, arg, members, inputs = call.op, call.arg, len(call.members), call.inputs
        if op in COLLECTIVES:
            shared = COLLECTIVES[op]
            if shared.root and members and not (len(arg) == 1 and arg[0] < members):
                yield f"a {shared.title} names the place of its root in the group"
            if not inputs:
                yield "a collective brings a value"
            if not shared.many and inputs > 1:
                yield f"{op} brings one value"
            if shared.along and not (arg == () or 1 <= arg[0] < len(NAMES)):
                yield f"a {shared.title} may name a dim"
        elif op in LOCAL:
            row = OPERATIONS[op]
            dims = 2 if row.loads else len(NAMES)
            if row.says == "shard" and not (len(arg) == 2 or (len(arg) == 3 and 1 <= arg[2] < dims)):
                yield f"{op} names a shard and their number"
            if (row.per_batch or row.per_weight) and not 0 <= (layer or 0) < self.layers:
                yield f"{op} names one of {self.layers} layers, counted from 0"
            if row.says == "part" and not (len(arg) == 3 and 1 <= arg[0] < len(NAMES)):
                yield f"{op} names a dim and a range of it"
            if len(arg) not in ARGUMENTS[row.says]:
                yield f"{op} has {len(arg)} numbers in its argument, not {' or '.join(map(str, ARGUMENTS[row.says]))}"
            if not row.fits(self.shape, layer, inputs):
                yield f"{op} has {row.inputs(self.shape, layer)} inputs"
        elif op in READS and (inputs or arg[1:]):
            yield "a read takes no value, and has one place in the queue of its reader"
