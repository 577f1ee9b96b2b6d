"""Reads a Trace from JSON data that anybody may have written: a whole run, or a TraceError that says where it is wrong.

The form is that of `serial`. Nothing is evaluated or looked up by name; every number has bounds; and what an operation
must have (the members of its group, its inputs, the event that it waits for) is checked here once, so that no reader
of a Trace stumbles over it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from marshal import dumps
from typing import Any, cast

from lib.cluster.costs import MAX_TICKS, costs_from
from lib.cluster.mesh import Mesh
from lib.errors.exceptions import TraceError
from lib.errors.source_lines import Place
from lib.trace.event import Event, Move, Program
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.dims import NAMES, REST, Pieces, Run, RunSet, joined
from lib.values.kinds.kind import USUAL
from lib.values.layers import Shape, layer_from
from lib.values.operations import COMMUNICATION, LOCAL, OPERATIONS, READS
from lib.values.placement import Schema
from lib.values.values import KINDS, Value, value_of

FORMAT = "llm-training-puzzles trace"
VERSION = 1
FIELDS = {"format", "version", "layers", "batches", "sandbox", "puzzle", "error"}
CONTENTS = {"costs", "mesh", "places", "groups", "programs"}
PADDING, DESCRIPTIONS = "padding", "layer_descriptions"
"""What a file may have besides: how many batches after the last one are padding, and layers that are not the usual
ones."""
FROM_ELSEWHERE = frozenset(name for name in LOCAL if OPERATIONS[name].rule is None)
MAX_COUNT = 10**6
"""The most ranks, layers or batches, and the highest rank, layer or batch number."""
MAX_SET_ITEMS = 3 * 10**6
"""The most numbers that all sets of a file may list, so that a short file cannot fill the memory."""
MAX_TOTALS = 1000
"""The most different numbers of shards in one file: sizes are exact fractions, and their sums have all denominators."""


class Sets:
    """Reads sets of numbers, each text once: as runs, or number by number, of which a file has not too many."""

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
        """A set as its runs, which may be as long as they like: a part of a million rows is one."""
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
        self._left -= numbers
        if self._left < 0:
            raise TraceError(f"the set {text[:40]!r} is out of bounds")


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 7


def decode(data: Any, *, whole: bool = True) -> Trace:
    """The run in JSON data. TraceError names the first thing that is wrong.

    Where it is not `whole`, values may be null: a text leaves them out, and the rules make them.
    """
    if not isinstance(data, dict) or cast("dict[str, Any]", data).get("format") != FORMAT:
        raise TraceError("this is not a Trace: its format is not 'llm-training-puzzles trace'")
    top = cast("dict[str, Any]", data)
    if top.get("version") != VERSION:
        raise TraceError(f"this Trace has version {top.get('version')!r}, and this library reads version {VERSION}")
    if set(top) - {DESCRIPTIONS, PADDING} != FIELDS | CONTENTS:
        raise TraceError(f"a Trace has exactly the fields {sorted(FIELDS | CONTENTS)}; got {sorted(map(str, top))}")
    return _Reader(top, whole).run()


class _Reader:
    """Checks and takes apart the data of one file. Every error names the place in the data.

    Most of a file says again what it said before, on another rank or of another layer. So what a value or the kind of
    an event says is checked once, and remembered under its bytes: of equal bytes the types are equal, too, and 1 is
    not true.
    """

    def __init__(self, top: dict[str, Any], whole: bool) -> None:
        self.top = top
        self.whole = whole
        self.sets = Sets()
        self.totals: set[int] = set()
        self.known: dict[bytes, Any] = {}
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
        self.places = [self.place(f"places[{i}]", p) for i, p in enumerate(self.list("places", top["places"]))]
        self.groups = [self.group(f"groups[{i}]", g) for i, g in enumerate(self.list("groups", top["groups"]))]

    # -- small pieces -------------------------------------------------------------------------------------------

    def list(self, where: str, item: Any, length: int | None = None) -> list[Any]:
        # The very type, and no class made from it: data of this process may come from student code (json_format.plain).
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

    def place(self, where: str, item: Any) -> Place:
        file, line, function, text = self.list(where, item, 4)
        return Place(
            self.text(where, file), self.number(where, line), self.text(where, function), self.text(where, text)
        )

    def group(self, where: str, item: Any) -> tuple[tuple[int, ...], frozenset[int]]:
        ranks = self.numbers(where, item, 0, self.ranks - 1)
        if not ranks or len(set(ranks)) != len(ranks):
            raise TraceError(f"{where}: a group lists each of its ranks once")
        self.shards(where, len(ranks))  # a reduce-scatter cuts its value into as many
        return ranks, frozenset(ranks)

    def shards(self, where: str, total: int) -> None:
        """Notes a number of shards, of which a file may have only so many different ones."""
        self.totals.add(total)
        if len(self.totals) > MAX_TOTALS:
            raise TraceError(f"{where}: values cut into more than {MAX_TOTALS} different numbers of shards")

    def remembered(self, read: Callable[..., Any], where: str, item: Any, *rest: Any) -> Any:
        """Reads something, or takes what was read when the same was there before."""
        try:
            key = dumps((item, *rest), 2)  # of this version two equal items have equal bytes, wherever they come from
        except ValueError:  # not of plain numbers and text, which is for `read` to refuse
            return read(where, item, *rest)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = read(where, item, *rest)
        return found

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
        if not isinstance(item, dict) or set(cast("dict[str, Any]", item)) != {"values", "events", "moves"}:
            raise TraceError(f"{where}: expected values, events and moves")
        data = cast("dict[str, Any]", item)
        values = [
            None if value is None and not self.whole else self.remembered(self.value, f"{where}.values[{i}]", value)
            for i, value in enumerate(self.list(f"{where}.values", data["values"]))
        ]
        events: list[Event] = []
        program = Program(rank, events, values)
        for i, event in enumerate(self.list(f"{where}.events", data["events"])):
            events.append(self.event(f"{where}.events[{i}]", event, program))
        self.assigned_and_awaited_once(where, events)
        program.moves = self.moves(f"{where}.moves", data["moves"], len(events), len(values) - 1)
        return Program.of(program)

    def moves(self, where: str, item: Any, events: int, last: int) -> list[Move]:
        found: list[Move] = []
        before, held = 0, dict[tuple[int, int], int]()
        for i, move in enumerate(self.list(where, item)):
            at = f"{where}[{i}]"
            position, store, value, change = self.list(at, move, 4)
            before = self.number(at, position, before, events)
            if change not in (1, -1) or type(change) is not int:
                raise TraceError(f"{at}: a value enters (1) or leaves (-1); got {str(change)[:40]}")
            place = self.number(at, store, 0, 4), self.number(at, value, 0, last)
            held[place] = held.get(place, 0) + change
            if held[place] < 0:
                raise TraceError(f"{at}: value {value} leaves a store that it is not in")
            found.append((before, *place, change))
        return found

    def value(self, where: str, item: Any) -> Value:
        kind, *fields = self.list(where, item) or [None]
        cls = KINDS.get(kind) if isinstance(kind, str) else None
        more: Any = fields.pop() if fields and isinstance(fields[-1], dict) else {}
        if cls is None or len(fields) != len(cls.__match_args__):
            raise TraceError(f"{where}: expected a kind of value and its fields; got {str(item)[:60]}")
        given = dict(zip(cls.__match_args__, fields, strict=True))
        made: dict[str, Any] = {}
        for name, field in given.items():
            if name in ("batches", "shards"):
                made[name] = self.sets(self.text(f"{where} {name}", field))
            else:
                made[name] = self.number(f"{where} {name}", field, -1 if name == "layer" else 0)
        total, batches = made.get("total", 1), made.get("total_batches", self.shape.items)
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
        schema = home.schema_of(cls.tensor, made["layer"])
        if schema is None:
            raise TraceError(f"{where}: layer {made['layer']} has no weight")
        return value_of(cls, home, *made.values(), self.rest(where, schema, more) if more else [])

    def rest(self, where: str, schema: Schema, item: Any) -> list[tuple[str, Pieces, int]]:
        """The parts of the dims along which a value is cut besides."""
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

    def event(self, where: str, item: Any, program: Program) -> Event:
        op, layer, batches, inputs, outputs, issued, start, length, place, arg, group, peer, blocking = self.list(
            where, item, 13
        )
        last = len(program.values) - 1
        inputs, outputs = self.numbers(where, inputs, 0, last), self.numbers(where, outputs, 0, last)
        if type(batches) is not str:
            self.text(where, batches)
        self.number(where, issued, 0, MAX_TICKS)
        self.number(where, 0 if start is None else start, 0, MAX_TICKS)
        self.number(where, length, 0, MAX_TICKS)
        said = [op, layer, place, arg, group, peer, blocking, start is not None]
        layer, source, arg, ranks, members = self.remembered(self.call, where, said, len(inputs))
        wrong = None
        if (members and program.rank not in members) or (op in COLLECTIVES) != bool(members):
            wrong = "a collective names a group that its rank belongs to"
        elif op == "pass_to" and peer in (None, program.rank):
            wrong = "a pass goes to another rank"
        elif op == "wait":
            awaited: Event | None = next(iter(program.events[arg[0] : arg[0] + 1]), None) if len(arg) == 1 else None
            if awaited is None:
                wrong = "a wait names an earlier event"
            elif awaited.op not in COMMUNICATION:
                wrong = "a wait is for a communication"
            elif awaited.blocking:
                wrong = f"event {arg[0]} was awaited at once, so nothing waits for it again"
        elif op in FROM_ELSEWHERE and [program.values[number] is None for number in outputs] != [False]:
            wrong = "a value from elsewhere is stated"
        if wrong is not None:
            raise TraceError(f"{where}: {wrong}")
        return Event(
            op, layer, self.sets(batches), inputs, outputs, issued, start, length, source, arg, ranks, peer, blocking
        )

    def call(self, where: str, item: Any, inputs: int) -> tuple[Any, ...]:
        """What an event says beside its values and its times, with so many inputs: its layer, source, arguments, group
        and the members of that. Nothing of it depends on its rank."""
        op, layer, place, arg, group, peer, blocking, begun = item
        if type(op) is not str or (op not in OPERATIONS and op not in COLLECTIVES):
            raise TraceError(f"{where}: there is no operation {str(op)[:40]!r}")
        layer = self.maybe(self.number, where, layer, -1, MAX_COUNT)
        source = None if place == -1 else self.places[self.number(where, place, 0, len(self.places) - 1)]
        arg = self.numbers(where, arg, 0, MAX_COUNT)
        ranks, members = ((), None) if group == -1 else self.groups[self.number(where, group, 0, len(self.groups) - 1)]
        self.maybe(self.number, where, peer, 0, self.ranks - 1)
        self.truth(where, blocking)
        wrong = next(self.unfit(op, layer, arg, len(ranks), inputs), None)
        if wrong is None and op not in COMMUNICATION and (blocking or not begun):
            wrong = "only a communication is awaited" if blocking else "only a communication may not have begun"
        if wrong is not None:
            raise TraceError(f"{where}: {wrong}")
        if op in LOCAL and OPERATIONS[op].says == "shard":
            self.shards(where, arg[1])
        return layer, source, arg, ranks, members

    def unfit(self, op: str, layer: int | None, arg: tuple[int, ...], members: int, inputs: int) -> Iterator[str]:
        """What a call lacks, or has too much, by its row."""
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
            if not row.fits(self.shape, layer, inputs):
                yield f"{op} has {row.inputs(self.shape, layer)} inputs"
        elif op in READS and (inputs or arg[1:]):
            yield "a read takes no value, and has one place in the queue of its reader"

    def assigned_and_awaited_once(self, where: str, events: Sequence[Event]) -> None:
        """An await brings the outputs: a second one finds nothing left to bring, and without one there are none."""
        made = [number for event in events for number in event.outputs]
        if len(set(made)) != len(made):
            raise TraceError(f"{where}: a value is made twice")
        awaited: set[int] = set()
        for i, event in enumerate(events):
            if event.op == "wait" and event.arg[0] in awaited:
                raise TraceError(f"{where}.events[{i}]: a second wait for event {event.arg[0]}")
            awaited.update(event.arg if event.op == "wait" else ())
        for i, event in enumerate(events):
            if event.op in COMMUNICATION and event.outputs and not event.blocking and i not in awaited:
                raise TraceError(f"{where}.events[{i}]: {event.op} has results, and nobody waits for it")
