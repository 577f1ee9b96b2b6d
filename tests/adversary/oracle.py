"""A second opinion on a Trace: is it one honest training step, and what are its figures?

Slow, and from the definitions alone: it reads the JSON form of a Trace and imports nothing of lib. Every value is
worked out element by element. A weight is cut into the smallest cells that anything in the run is cut into, each some
rows of some columns; each cell of a weight gradient is the list of the batches that are summed up in it, by honest
forward and backward passes, and each cell of a weight is as loaded, updated once by exactly that sum, or spoilt. A cell
of an activation is some rows of a batch, of some features: honest and done, spoilt, or the list of the parts that are
summed in it. No layer mixes rows, so some of them are like a smaller batch: batch b in n slices has items n * b and on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import permutations
from math import ceil, lcm
from typing import Any

WEIGHT, BATCH = 512 * 512, 512 * 256
GATHERS, EXCHANGES = ("allgather", "allgather_padded"), ("alltoall", "alltoall_padded")
COLLECTIVES = ("allreduce", "allreduce_bucket", *GATHERS, "scatterreduce", *EXCHANGES, "broadcast", "shift")
OVERWRITES = ("allreduce", "allreduce_bucket", "broadcast")
TWICE = ("allreduce", "allreduce_bucket")
"""What comes out lies where what went in was: no memory of its own."""
PRICED = ("forward", "backward", "backward_input", "backward_weight")
WAITED = ("pass_to", "receive", "read", *COLLECTIVES)
SAMPLED = (*PRICED, "loss", "update", *WAITED)
LOADED, UPDATED, SPOILT = 0, 1, -1
ROWS = 6
"""The dim of that name, where an event says along which it cuts."""
MOST_CELLS = 5000


class Malformed(Exception):
    """No training step at all: something cannot be done, or would wait for ever."""


class TooFine(Exception):
    """Cut into more cells than this oracle cares to look at."""


@dataclass(frozen=True)
class Opinion:
    """What an honest reader says of a Trace: why it is not one honest step (None: it is), and its figures."""

    flaw: str | None
    time: Fraction = Fraction(0)
    memory: Fraction = Fraction(0)
    sent: tuple[Fraction, ...] = ()


Cell = tuple[int, int]


@dataclass
class Thing:
    """A value. `cells` says of each cell (rows and columns, or item and features) what is in it; of gradients, a
    sorted tuple."""

    kind: str
    layer: int
    cells: dict[Cell, Any]

    def size(self, grain: tuple[int, int, int]) -> Fraction:
        rows, columns, slices = grain
        whole = Fraction(BATCH, columns * slices) if self.kind in "AD" else Fraction(WEIGHT, rows * columns)
        return whole * len(self.cells)

    def along(self, dim: int) -> set[int]:
        """Which rows or columns there are, items or features."""
        return {cell[dim] for cell in self.cells}


@dataclass(eq=False)
class Happening:
    """An event, and what became of it."""

    op: str
    layer: int | None
    batches: frozenset[int]
    inputs: list[int]
    outputs: list[int]
    arg: list[int]
    group: tuple[int, ...]
    peer: int | None
    blocking: bool
    issued: Fraction = Fraction(0)
    start: Fraction | None = None
    end: Fraction = Fraction(0)
    over: bool = False
    """Whether who waits for it may go on."""
    result: list[Thing] = field(default_factory=list[Thing])
    met: Happening | None = None
    """Of a message: its other end."""


@dataclass(eq=False)
class Journey:
    """What uses shared links, from `ready` on if nothing before it on its `stream` is still there."""

    stream: Any
    ready: Fraction
    left: Fraction
    needs: dict[Any, Fraction]
    whose: list[Happening]
    begun: bool = False
    through: bool = False
    over: bool = False
    ends: Fraction = Fraction(-1)
    """When it will be through, as things are."""
    pace: Fraction = Fraction(1)


def numbers(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)


def opinion(data: dict[str, Any], costs: dict[str, Any] | None = None) -> Opinion:
    """The opinion on a Trace in JSON form, at its own costs or others."""
    world = _World(data, costs or data["costs"])
    try:
        world.run()
    except (Malformed, KeyError, IndexError, AttributeError) as error:
        return Opinion(f"malformed: {error!r}")
    flaw = world.flaw()
    return Opinion(flaw, world.time(), world.memory(), tuple(world.sent))


def alive(data: dict[str, Any]) -> list[list[tuple[int, set[int], Fraction]]]:
    """Of each rank: its timed operations, what is alive when one starts, and how many elements these are."""
    world = _World(data, data["costs"])
    world.run()
    return [list(world.alive(rank)) for rank in range(world.ranks)]


class _World:
    def __init__(self, data: dict[str, Any], costs: dict[str, Any]) -> None:
        self.data, self.costs = data, costs
        self.layers, self.batches, self.ranks = data["layers"], data["batches"], len(data["programs"])
        self.events = [[self._event(e) for e in program["events"]] for program in data["programs"]]
        self.things: list[dict[int, Thing]] = [{} for _ in self.events]
        self.columns = self._columns()
        self.rows = lcm(self._rows(), self.columns)
        if self.rows * self.columns > MOST_CELLS:
            raise TooFine(self.rows, self.columns)
        self.slices = self._slices()
        self.grain = self.rows, self.columns, self.slices
        self.every = [(row, column) for row in range(self.rows) for column in range(self.columns)]
        self.at = [0] * self.ranks
        self.begun = [-1] * self.ranks
        self.clock = [Fraction(0)] * self.ranks
        self.free: dict[Any, Fraction] = defaultdict(Fraction)
        self.count: dict[Any, int] = defaultdict(int)
        self.joined: dict[Any, dict[int, Happening]] = defaultdict(dict)
        self.mail: dict[tuple[int, int], list[tuple[int, Happening]]] = defaultdict(list)
        self.wanted: dict[tuple[int, int], list[Happening]] = defaultdict(list)
        self.used: dict[Any, set[Cell]] = defaultdict(set)
        self.loaded: dict[tuple[int, int], bool] = {}
        self.sent = [Fraction(0)] * self.ranks
        self.now = Fraction(0)
        self.journeys: list[Journey] = []
        self.lengths: dict[int, Fraction] = {}
        self.asked: dict[int, dict[int, tuple[int, Happening]]] = defaultdict(dict)
        self.served: dict[int, list[Happening]] = defaultdict(list)
        self.there: dict[int, dict[int, Fraction]] = defaultdict(dict)
        """When the reader of a process has read each batch."""

    def _event(self, e: list[Any]) -> Happening:
        group = () if e[10] == -1 else tuple(self.data["groups"][e[10]])
        return Happening(e[0], e[1], numbers(e[2]), e[3], e[4], e[9], group, e[11], e[12])

    def _columns(self) -> int:
        """Into how many columns a weight is cut, and so into how many features an activation is."""
        columns = 1
        for events in self.events:
            for e in events:
                if e.op == "load_weights" and len(e.arg) > 2:
                    columns = lcm(columns, max(1, e.arg[1]))
        for program in self.data["programs"]:
            for e in program["events"]:
                rest = program["values"][e[4][0]][-1] if e[0] == "foreign" else None
                for _, total in rest.values() if isinstance(rest, dict) else ():
                    columns = lcm(columns, total)
        return columns

    def _rows(self) -> int:
        grain = finer = 1
        for program, events in zip(self.data["programs"], self.events, strict=True):
            for e in events:
                cut = len(e.group) if e.op == "scatterreduce" else e.arg[1] if e.op == "shard" else 1
                brought = program["values"][e.inputs[0]] if cut > 1 and e.inputs else None
                if brought is not None and any(field != 1 for field in brought[5:7] if isinstance(field, int)):
                    finer = lcm(finer, cut)  # perhaps a shard of a shard
                if e.op in ("load_weights", "shard") and len(e.arg) == 2:
                    grain = lcm(grain, max(1, e.arg[1]))
                elif e.op == "scatterreduce":
                    grain = lcm(grain, len(e.group))
        totals = {"weight": 5, "optimizer state": 5, "weight gradient": 6}
        for program in self.data["programs"]:
            for value in (program["values"][e[4][0]] for e in program["events"] if e[0] == "foreign"):
                grain = lcm(grain, value[totals[value[0]]] if value[0] in totals else 1)
        return grain * finer

    def _slices(self) -> int:
        """Into how many slices of rows a batch is cut."""
        cuts = [e.arg[1] for events in self.events for e in events if e.op == "shard" and e.arg[2:] == [ROWS]]
        cuts += [len(e.group) for events in self.events for e in events if e.op == "scatterreduce" and e.arg == [ROWS]]
        return lcm(*cuts)

    def _items(self, batches: Iterable[int]) -> list[int]:
        return [batch * self.slices + part for batch in batches for part in range(self.slices)]

    # -- one after the other ------------------------------------------------------------------------------------

    def run(self) -> None:
        moved = True
        while moved:
            moved = False
            for rank in range(self.ranks):
                while self.step(rank):
                    moved = True
            moved = moved or self.tick()
        for rank, events in enumerate(self.events):
            if self.at[rank] < len(events):
                raise Malformed(f"rank {rank} waits for ever in event {self.at[rank]}, {events[self.at[rank]].op}")

    def step(self, rank: int) -> bool:
        """One event of a rank, if it can go on."""
        if self.at[rank] == len(self.events[rank]):
            return False
        index = self.at[rank]
        e = self.events[rank][index]
        if self.begun[rank] < index:
            self.begun[rank] = index
            e.issued = self.clock[rank]
            if e.op in COLLECTIVES:
                self.join(rank, e)
            elif e.op == "pass_to":
                self.post(rank, e)
            elif e.op == "read":
                self.ask(rank, e)
            elif e.op == "receive":
                if e.peer is not None:  # else it never comes, and whoever waits for it waits for ever
                    self.wanted[e.peer, rank].append(e)
                    self.deliver(e.peer, rank)
            elif e.op != "wait":
                self.alone(rank, e)
        if e.op in WAITED:
            if e.blocking and not e.over:
                return False
            if e.blocking:
                self.bring(rank, e)
        elif e.op == "wait":
            target = self.events[rank][e.arg[0]]
            if e.arg[0] >= index or not target.over:
                return False
            e.start = e.issued
            self.bring(rank, target)
            e.end = self.clock[rank]
        self.at[rank] += 1
        return True

    def bring(self, rank: int, e: Happening) -> None:
        self.clock[rank] = max(self.clock[rank], e.end)
        if e.op != "pass_to":
            self.give(rank, e, e.result)

    def give(self, rank: int, e: Happening, made: list[Thing]) -> None:
        _need(len(made) == len(e.outputs), f"as many results of {e.op}")
        for number, thing in zip(e.outputs, made, strict=True):
            self.things[rank][number] = thing

    def inputs(self, rank: int, e: Happening) -> list[Thing]:
        """What goes in. What was loaded counts as loaded when it is first used, and only once on a rank."""
        found = [self.things[rank][number] for number in e.inputs]
        for number, thing in zip(e.inputs, found, strict=True):
            if self.loaded.get((rank, number)) is False:
                self.loaded[rank, number] = True
                before = self.used[rank, thing.kind, thing.layer]
                if before & thing.cells.keys():
                    thing.cells = dict.fromkeys(thing.cells, SPOILT)
                before.update(thing.cells)
        return found

    # -- a rank by itself ---------------------------------------------------------------------------------------

    def alone(self, rank: int, e: Happening) -> None:
        things = self.inputs(rank, e)
        made: list[Thing] = list(getattr(self, f"_{e.op}")(e, *things))
        self.give(rank, e, made)
        if e.op in ("load_weights", "get_activation"):
            self.loaded.update({(rank, number): False for number in e.outputs})
        if e.op in PRICED:
            weight = things[-1] if things[-1].kind == "W" else made[0]
            share = Fraction(len(weight.cells), self.rows * self.columns)
            heavy = self.costs.get("layers", [1])
            share *= _exact(heavy[(e.layer or 0) % len(heavy)])
            cost = self.costs.get(e.op, self.costs["backward"] / 2)
            length = _exact(cost) * len(things[0].along(0)) * share / self.slices
        else:
            length = _exact(self.costs[e.op]) if e.op in ("update", "loss") else Fraction(0)
        slow = self.costs.get("ranks", [])
        length *= _exact(slow[rank]) if rank < len(slow) else 1
        if e.op == "get_activation":
            length = _exact(self.costs.get("to_device", 0)) * len(e.batches)
        e.start = self.clock[rank]
        self.clock[rank] += length
        e.end = self.clock[rank]

    def _part(self, shard: int, total: int, dim: int = 0) -> list[Cell]:
        _need(0 <= shard < total, "a shard that there is")
        each = self.grain[dim] // total
        mine, sizes = range(shard * each, (shard + 1) * each), list(map(range, self.grain[:2]))
        sizes[dim] = mine
        return [(row, column) for row in sizes[0] for column in sizes[1]]

    def _features(self, rows: set[int]) -> set[int]:
        """The features that some rows of a weight are for, which must be all rows of each."""
        each = self.rows // self.columns
        features = {row // each for row in rows}
        _need(len(rows) == each * len(features), "whole features")
        return features

    def _known(self, layer: int | None) -> int:
        _need(layer is not None and 0 <= layer < self.layers, "a layer that there is")
        return layer or 0

    def _load_weights(self, e: Happening) -> Iterator[Thing]:
        for kind in "WO":
            yield Thing(kind, self._known(e.layer), dict.fromkeys(self._part(*e.arg), LOADED))

    def _fake_grad(self, e: Happening) -> Iterator[Thing]:
        yield Thing("G", self._known(e.layer), dict.fromkeys(self.every, tuple([SPOILT] * len(e.batches))))

    def _foreign(self, e: Happening) -> Iterator[Thing]:
        program = next(p for p, events in zip(self.data["programs"], self.events, strict=True) if e in events)
        kind, layer, *rest = program["values"][e.outputs[0]]
        more = rest.pop() if isinstance(rest[-1], dict) else {}
        pieces, of = more.get("out") or more.get("features") or ["0", 1]
        columns = {column for column in range(self.columns) if column * of // self.columns in numbers(pieces)}
        if kind.startswith("activation"):
            cells = [(batch, feature) for batch in self._items(numbers(rest[1])) for feature in columns]
            yield Thing("A" if kind == "activation" else "D", layer, dict.fromkeys(cells, SPOILT))
            return
        parts, total = rest[-2:]
        cells = [cell for shard in numbers(parts) for cell in self._part(shard, total) if cell[1] in columns]
        if kind == "weight gradient":
            yield Thing("G", layer, dict.fromkeys(cells, (SPOILT,)))
        else:
            yield Thing("W" if kind == "weight" else "O", layer, dict.fromkeys(cells, SPOILT))

    def _box(self, weight: Thing, layer: int | None) -> tuple[set[int], set[int], bool]:
        """Which features a part of the weight of a layer takes and which it gives; and whether it is as loaded."""
        _need((weight.kind, weight.layer) == ("W", layer), "the weight of the layer")
        rows, columns = weight.along(0), weight.along(1)
        _need(len(weight.cells) == len(rows) * len(columns), "a rectangle")
        return self._features(rows), columns, all(cell == LOADED for cell in weight.cells.values())

    def _done(self, thing: Thing, features: set[int]) -> None:
        _need(not any(isinstance(token, tuple) for token in thing.cells.values()), "a sum that is done")
        _need(thing.along(1) == features, "the features of the weight")

    def _partial(self, terms: Iterable[int]) -> Any:
        """What is in a cell in which these parts are summed up."""
        found = tuple(sorted(terms))
        return LOADED if found == tuple(range(self.columns)) else found

    def _get_activation(self, e: Happening) -> Iterator[Thing]:
        _need(max(e.batches, default=self.batches) < self.batches, "data that there are")
        yield Thing("A", 0, {(b, f): LOADED for b in self._items(e.batches) for f in range(self.columns)})

    def _forward(self, e: Happening, data: Thing, weight: Thing) -> Iterator[Thing]:
        takes, gives, good = self._box(weight, e.layer)
        _need((data.kind, data.layer) == ("A", e.layer), "an activation of the layer")
        self._done(data, takes)
        yield Thing("A", data.layer + 1, self._through(data, takes, gives, good))

    def _through(self, thing: Thing, takes: set[int], gives: set[int], good: bool) -> dict[Cell, Any]:
        fine = {b for b in thing.along(0) if good and all(thing.cells[b, f] == LOADED for f in takes)}
        return {(b, f): self._partial(takes) if b in fine else SPOILT for b in thing.along(0) for f in gives}

    def _loss(self, e: Happening, data: Thing) -> Iterator[Thing]:
        _need((data.kind, data.layer) == ("A", self.layers), "the last activation")
        self._done(data, data.along(1))
        yield Thing("D", self.layers - 1, dict(data.cells))

    def _backward(self, e: Happening, data: Thing, grad: Thing, weight: Thing) -> Iterator[Thing]:
        takes, gives, good = self._box(weight, e.layer)
        _need((data.kind, data.layer, grad.kind, grad.layer) == ("A", e.layer, "D", e.layer), "what the layer took")
        _need(data.along(0) == grad.along(0), "a gradient of the same batches")
        self._done(data, takes)
        self._done(grad, gives)
        spoilt = {b for thing in (data, grad) for (b, _), token in thing.cells.items() if token != LOADED}
        summed = tuple(sorted(SPOILT if b in spoilt or not good else b for b in data.along(0)))
        yield Thing("G", data.layer, dict.fromkeys(weight.cells, summed))
        by_input = self._through(grad, gives, takes, good)
        yield Thing("D", data.layer - 1, {at: SPOILT if at[0] in spoilt else token for at, token in by_input.items()})

    def _backward_input(self, e: Happening, data: Thing, grad: Thing, weight: Thing) -> Iterator[Thing]:
        yield list(self._backward(e, data, grad, weight))[1]

    def _backward_weight(self, e: Happening, data: Thing, grad: Thing) -> Iterator[Thing]:
        """As backward with the weight for just these features, as loaded: it is not looked at."""
        known, (features, columns) = self._known(e.layer), (thing.along(1) for thing in (data, grad))
        each = self.rows // self.columns
        rows = {row for row in range(self.rows) if row // each in features}
        weight = Thing("W", known, {(row, column): LOADED for row in rows for column in columns})
        yield next(self._backward(e, data, grad, weight))

    def _update(self, e: Happening, grad: Thing, weight: Thing, state: Thing) -> Iterator[Thing]:
        """Element by element. Of the state only those elements go one step on whose weight does."""
        things = grad, weight, state
        _need([(t.kind, t.layer) for t in things] == [(kind, e.layer) for kind in "GWO"], "what belongs to the layer")
        every = tuple(self._items(range(self.batches)))
        made: dict[Cell, int] = {}
        for cell, before in weight.cells.items():
            _need(cell in grad.cells and cell in state.cells, "a gradient and a state of each cell")
            good = before == LOADED == state.cells[cell] and grad.cells[cell] == every
            made[cell] = UPDATED if good else SPOILT
        yield Thing("W", weight.layer, made)
        yield Thing("O", weight.layer, dict(made))

    def _set_final_weight(self, e: Happening, weight: Thing) -> Iterator[Thing]:
        _need((weight.kind, weight.layer) == ("W", e.layer), "the weight of the layer")
        return iter(())

    def _add(self, e: Happening, left: Thing, right: Thing) -> Iterator[Thing]:
        yield self._sum([left, right])

    def _combine(self, e: Happening, left: Thing, right: Thing) -> Iterator[Thing]:
        yield self._union([left, right])

    def _shard(self, e: Happening, thing: Thing) -> Iterator[Thing]:
        yield self._cut(thing, *e.arg)

    def _cut(self, thing: Thing, shard: int, total: int, dim: int = 0) -> Thing:
        _need(0 <= shard < total, "a shard that there is")
        along = thing.along(0)
        here = {row: row for row in along}
        if thing.kind in "AD":  # batches, or the rows that each of them has
            here = {item: item % self.slices if dim == ROWS else item // self.slices for item in along}
        rows = sorted(set(here.values()))
        each, left = divmod(len(rows), total)
        _need(thing.kind not in "AD" or (each and not left), "batches that divide")
        neighbours = bool(rows) and rows[-1] - rows[0] + 1 == len(rows)
        whole = not left and neighbours and len(thing.cells) == len(rows) * len(thing.along(1))
        _need(thing.kind in "AD" or whole, "rows without a gap")
        mine = set(rows[shard * each : (shard + 1) * each])
        return Thing(thing.kind, thing.layer, {at: token for at, token in thing.cells.items() if here[at[0]] in mine})

    def _sum(self, things: list[Thing]) -> Thing:
        first = things[0]
        _need(
            all((t.kind, t.layer, t.cells.keys()) == (first.kind, first.layer, first.cells.keys()) for t in things),
            "alike",
        )
        _need(first.kind in "GAD", "what is summed")
        if first.kind == "G":
            summed: dict[Cell, Any] = {at: tuple(sorted(b for t in things for b in t.cells[at])) for at in first.cells}
        else:
            summed = {at: self._partial_sum([t.cells[at] for t in things]) for at in first.cells}
        return Thing(first.kind, first.layer, summed)

    def _partial_sum(self, tokens: list[Any]) -> Any:
        _need(LOADED not in tokens, "parts of a sum that is not done")
        return SPOILT if SPOILT in tokens else self._partial(term for token in tokens for term in token)

    def _union(self, things: list[Thing]) -> Thing:
        first, cells = things[0], dict[Cell, Any]()
        for thing in things:
            _need((thing.kind, thing.layer) == (first.kind, first.layer), "parts of one thing")
            _need(not cells.keys() & thing.cells.keys(), "parts that do not overlap")
            cells.update(thing.cells)
        rows, columns = ({cell[dim] for cell in cells} for dim in (0, 1))
        _need(len(cells) == len(rows) * len(columns), "a rectangle")
        return Thing(first.kind, first.layer, cells)

    # -- collectives --------------------------------------------------------------------------------------------

    def join(self, rank: int, e: Happening) -> None:
        self.inputs(rank, e)
        ranks = frozenset(e.group)
        number = self.count[rank, ranks]
        self.count[rank, ranks] = number + 1
        members = self.joined[ranks, number]
        members[rank] = e
        if len(members) < len(ranks):
            return
        first = e
        called = [(m.op, m.group, m.arg, m.layer) for m in members.values()]
        _need(called == [called[0]] * len(called), "the same call of all")
        brought = [[self.things[r][number] for number in members[r].inputs] for r in first.group]
        results = self.exchange(first, brought)
        whole, moved = self.moved(first, brought)
        if first.op == "allgather":  # a ring waits for its largest part
            whole = len(brought) * max(row[0].size(self.grain) for row in brought)
        length = self.collective_time(first, whole)
        if self.costs["model"] == "links":
            for place, r in enumerate(first.group):
                members[r].result = results[place]
                self.sent[r] += moved[place]
            ready = max(m.issued for m in members.values())
            length = _ticks(length / 2) * 2 if first.op == "allreduce" else _ticks(length)
            self.journeys.append(Journey(ranks, ready, length, self.links(first.group), [*members.values()]))
            return
        start = max(self.free[ranks], *(m.issued for m in members.values()))
        self.free[ranks] = start + length
        for place, r in enumerate(first.group):
            m = members[r]
            m.start, m.end, m.over, m.result = start, start + length, True, results[place]
            self.sent[r] += moved[place]

    def exchange(self, e: Happening, brought: list[list[Thing]]) -> list[list[Thing]]:
        n = len(brought)
        if e.op in EXCHANGES:
            _need(all(len(row) == n for row in brought), "one for each")
            return [[_again(row[i]) for row in brought] for i in range(n)]
        if e.op == "allreduce_bucket":
            _need(len({len(row) for row in brought}) == 1, "buckets that are alike")
            sums = [self._sum([row[place] for row in brought]) for place in range(len(brought[0]))]
            return [[_again(total) for total in sums] for _ in brought]
        _need(all(len(row) == 1 for row in brought), "one value")
        things = [row[0] for row in brought]
        if e.op == "broadcast":
            root = things[e.arg[0]]
            _need(len({(t.kind, t.size(self.grain)) for t in things}) == 1, "values that are as large")
            return [[_again(root)] for _ in things]
        if e.op in GATHERS:
            return [[_again(self._union(things))] for _ in things]
        if e.op == "shift":
            return [[_again(things[i - 1])] for i in range(n)]
        total = self._sum(things)
        return [[_again(total) if e.op == "allreduce" else self._cut(total, i, n, *e.arg)] for i in range(n)]

    def moved(self, e: Happening, brought: list[list[Thing]]) -> tuple[Fraction, list[Fraction]]:
        """How large the whole is that goes round the ring, and what each member sends."""
        n, sizes = len(brought), [[t.size(self.grain) for t in row] for row in brought]
        if e.op == "alltoall":
            out = [sum(row) - row[i] for i, row in enumerate(sizes)]
            into = [sum(row[i] for row in sizes) - sizes[i][i] for i in range(n)]
            busiest = Fraction(max(out + into))
            return busiest * n / (n - 1) if n > 1 else sizes[0][0], [Fraction(x) for x in out]
        if e.op.endswith("_padded"):
            largest = max(Fraction(size) for row in sizes for size in row)
            return n * largest, [(n - 1) * largest] * n
        if e.op == "shift":
            return max(row[0] for row in sizes), [row[0] if n > 1 else Fraction(0) for row in sizes]
        whole = {
            "broadcast": sizes[e.arg[0] if e.op == "broadcast" else 0][0],
            "allgather": sum(row[0] for row in sizes),
            "allreduce_bucket": sum(sizes[0]),
        }.get(e.op, sizes[0][0])
        if e.op == "allgather":  # everything goes round, and stops before whoever has it already
            return Fraction(whole), [Fraction(whole - sizes[(i + 1) % n][0]) for i in range(n)]
        once = Fraction(n - 1, n) * whole
        return Fraction(whole), [once * (2 if e.op in TWICE else 1)] * n

    def collective_time(self, e: Happening, whole: Fraction) -> Fraction:
        if self.costs["model"] != "links":
            return _exact(self.costs["collective"])
        n = len(e.group)
        if e.op in EXCHANGES:
            return self.exchange_time(e.group, whole / n)
        if e.op == "shift":
            return whole * self.beta(e.group) + _exact(self.costs["latency"]) if n > 1 else Fraction(0)
        busiest = (whole if n > 1 else Fraction(0)) if e.op == "broadcast" else Fraction(n - 1, n) * whole
        once = busiest * self.beta(e.group) + _exact(self.costs["latency"]) * (n - 1)
        return once * (2 if e.op in TWICE else 1)

    def exchange_time(self, group: Sequence[int], part: Fraction) -> Fraction:
        """That of the busiest link, if each sends a part to each other."""
        busy = defaultdict[Any, Fraction](Fraction)
        for one, other in permutations(group, 2):
            crosses = self.host(one)[0] != self.host(other)[0]
            busy[self.card(one) if crosses else one] += part * self.beta((one, other))
        return max(busy.values(), default=Fraction(0)) + _exact(self.costs["latency"]) * (len(group) - 1)

    def beta(self, ranks: Iterable[int]) -> Fraction:
        hosts = {self.host(rank)[0] for rank in ranks}
        return _exact(self.costs["p2p"]) / BATCH * (_exact(self.costs["ratio"]) if len(hosts) > 1 else 1)

    # -- links that are shared ----------------------------------------------------------------------------------

    def host(self, rank: int) -> tuple[int, int | None]:
        mesh, size = self.data["mesh"], self.costs["host_size"]
        if mesh is not None and mesh["host_size"] is not None:
            size = mesh["host_size"]
        return (0 if size is None else rank // size), size

    def card(self, rank: int) -> Any:
        host, size = self.host(rank)
        cards = self.costs.get("cards")
        if cards is None or size is None:
            return "outside", rank
        return "outside", host, (rank - host * size if cards >= size else (rank - host * size) * cards // size)

    def links(self, group: tuple[int, ...]) -> dict[Any, Fraction]:
        """Which links a collective passes, and what it needs of them."""
        found: dict[Any, Fraction] = {}
        crosses = len({self.host(rank)[0] for rank in group}) > 1
        for rank in group:
            near = [other for other in group if other != rank and self.host(other)[0] == self.host(rank)[0]]
            for way in ("from", "to"):
                if near:
                    ratio = max(_exact(self.costs["ratio"]), Fraction(1))
                    found[way, "inside", rank] = 1 / ratio if crosses else Fraction(1)
                if crosses:
                    found[way, *self.card(rank)] = Fraction(1)
        return found

    def way(self, rank: int, other: int, way: str) -> dict[Any, Fraction]:
        inside = self.host(rank)[0] == self.host(other)[0]
        return {(way, "inside", rank) if inside else (way, *self.card(rank)): Fraction(1)}

    def tick(self) -> bool:
        """Goes on to the next moment at which something begins, is through, or finds room; whether there is one."""
        waiting: dict[Any, Journey] = {}
        for journey in self.journeys:
            if not journey.over:
                waiting.setdefault(journey.stream, journey)
        active = [journey for journey in waiting.values() if journey.begun and not journey.through]
        times = [journey.ends for journey in active]
        times += [max(self.now, journey.ready) for journey in waiting.values() if not journey.begun]
        if not times:
            return False
        before, self.now = self.now, min(times)
        for journey in active:
            journey.left -= journey.pace * (self.now - before)
            journey.through = journey.ends <= self.now
        for journey in waiting.values():
            if not journey.begun and journey.ready <= self.now:
                journey.begun = True
                for e in journey.whose:
                    e.start = self.now
        for journey in waiting.values():
            if journey.through and not journey.over and self.has_room(journey):
                journey.over = True
                for e in journey.whose:
                    e.end, e.over = self.now, True
                if isinstance(journey.stream, tuple) and journey.stream[-1] == "sent":
                    self.deliver_shared(*journey.stream[:2])
        self.repace()
        return True

    def has_room(self, journey: Journey) -> bool:
        """Whether a message that is through may leave: the one before has begun to be received."""
        if not isinstance(journey.stream, tuple) or journey.stream[-1] != "sent":
            return True
        source, target, _ = journey.stream
        number = [j for j in self.journeys if j.stream == journey.stream].index(journey)
        return sum(j.begun for j in self.journeys if j.stream == (source, target, "got")) >= number

    def repace(self) -> None:
        """All go faster and faster, as long as no link that they pass is full."""
        active = [journey for journey in self.journeys if journey.begun and not journey.through]
        paces = {id(journey): Fraction(0) for journey in active}
        growing = active
        while growing:
            used: dict[Any, Fraction] = defaultdict(Fraction)
            more: dict[Any, Fraction] = defaultdict(Fraction)
            for journey in active:
                for link, need in journey.needs.items():
                    used[link] += need * paces[id(journey)]
                    more[link] += need if journey in growing else 0
            steps = [(1 - used[link]) / more[link] for link in more if more[link]]
            step = min([1 - paces[id(growing[0])], *steps])
            for journey in growing:
                paces[id(journey)] += step
            full = {link for link in more if used[link] + step * more[link] == 1}
            growing = [j for j in growing if paces[id(j)] < 1 and not full & j.needs.keys()]
        for journey in active:
            pace = paces[id(journey)]
            if journey.ends < 0 or pace != journey.pace:
                journey.pace = pace
                journey.ends = self.now + Fraction(ceil(journey.left / pace * 10**9), 10**9)

    def deliver_shared(self, source: int, target: int) -> None:
        """Who has number n meets who asked for number n."""
        mail, wanted = self.mail[source, target], self.wanted[source, target]
        for (_, sent), e in zip(mail, wanted, strict=False):
            if e.met is None:
                e.met, sent.met, e.result = sent, e, sent.result
            asked = [whose for j in self.journeys if j.stream == (source, target, "got") for whose in j.whose]
            if sent.over and e not in asked:
                ready = max(e.issued, sent.end)
                needs = self.way(target, source, "to")
                self.journeys.append(Journey((source, target, "got"), ready, self.lengths[id(sent)], needs, [e]))

    # -- messages -----------------------------------------------------------------------------------------------

    def post(self, rank: int, e: Happening) -> None:
        assert e.peer is not None
        things = self.inputs(rank, e)
        elements = sum((t.size(self.grain) for t in things), Fraction(0))
        self.sent[rank] += elements
        length = _exact(self.costs["p2p"])
        if self.costs["model"] == "links":
            length = _ticks(elements * self.beta((rank, e.peer))) + _exact(self.costs["latency"])
            self.lengths[id(e)] = length
            e.result = [_again(t) for t in things]
            self.mail[rank, e.peer].append((rank, e))
            needs = self.way(rank, e.peer, "from")
            self.journeys.append(Journey((rank, e.peer, "sent"), e.issued, length, needs, [e]))
            self.deliver_shared(rank, e.peer)
            return
        link = rank, e.peer, "out"
        e.start = max(e.issued, self.free[link])
        e.end = self.free[link] = e.start + length
        e.result = [_again(t) for t in things]
        self.mail[rank, e.peer].append((rank, e))
        self.deliver(rank, e.peer)

    def deliver(self, source: int, target: int) -> None:
        """Who sent number n meets who asked for number n; and the first that nobody asked for has room."""
        if self.costs["model"] == "links":
            self.deliver_shared(source, target)
            return
        mail, wanted = self.mail[source, target], self.wanted[source, target]
        for number, (_, sent) in enumerate(mail):
            if number <= len(wanted):
                sent.over = True
            if number < len(wanted) and wanted[number].met is None:
                e = wanted[number]
                e.met, sent.met = sent, e
                assert sent.start is not None
                length = sent.end - sent.start
                e.start = max(e.issued, sent.end, self.free[source, target, "in"])
                e.end = self.free[source, target, "in"] = e.start + length
                e.over, e.result = True, sent.result

    # -- reading ------------------------------------------------------------------------------------------------

    def ask(self, rank: int, e: Happening) -> None:
        """A rank asks the reader of its process, which serves requests in the order that the Trace says."""
        process = self.process(rank)
        self.asked[process][e.arg[0]] = rank, e
        while (number := len(self.served[process])) in self.asked[process]:
            who, asked = self.asked[process][number]
            self.served[process].append(asked)
            self.serve(process, who, asked)

    def process(self, rank: int) -> int:
        owned = None if self.data["mesh"] is None else self.data["mesh"].get("processes")
        if isinstance(owned, int):
            return rank // owned
        return rank if owned is None else next(i for i, devices in enumerate(owned) if rank in devices)

    def serve(self, process: int, rank: int, e: Happening) -> None:
        """One after the other the reader reads what nobody asked it for before; the device copies all when it is
        there, and has copied what came before."""
        there, new = self.there[process], [batch for batch in sorted(e.batches) if batch not in self.there[process]]
        begin = max(e.issued, self.free["reader", process]) if new else e.issued
        for place, batch in enumerate(new, 1):
            there[batch] = begin + place * _exact(self.costs.get("read", 0))
        if new:
            self.free["reader", process] = there[new[-1]]
        copy = max([e.issued, self.free["copy", rank], *(there[batch] for batch in e.batches)])
        e.start = begin if new else copy
        e.end = self.free["copy", rank] = copy + len(e.batches) * _exact(self.costs.get("to_device", 0))
        e.over = True
        e.result = list(self._get_activation(e))
        self.loaded.update({(rank, number): False for number in e.outputs})

    # -- what it was --------------------------------------------------------------------------------------------

    def flaw(self) -> str | None:
        if self.data["error"] is not None:
            return "it did not end"
        got: dict[int, set[Cell]] = defaultdict(set)
        for rank, events in enumerate(self.events):
            final = {e.layer: e.inputs[0] for e in events if e.op == "set_final_weight"}
            for layer, number in final.items():
                cells = self.things[rank][number].cells
                if any(cell != UPDATED for cell in cells.values()):
                    return f"rank {rank} hands in a weight of layer {layer} that is not exact"
                got[layer or 0].update(cells)
        for layer in range(self.layers):
            if len(got[layer]) < len(self.every):
                return f"layer {layer} is not complete"
        for rank in range(self.ranks):
            stale = self.stale(rank)
            if stale:
                return f"rank {rank} is not ready for the next step: {stale}"
        return None

    def stale(self, rank: int) -> str | None:
        """Something that was at rest on a rank before the step, and is not there afterwards, updated."""
        program, things = self.data["programs"][rank], self.things[rank]
        stored: dict[int, int] = defaultdict(int)
        for _, _, number, change in program["moves"]:
            stored[number] += change
        after = {number for number, count in stored.items() if count > 0}
        for e in self.events[rank]:
            if e.op == "set_final_weight":
                after.add(e.inputs[0])
        there: dict[tuple[str, int], set[Cell]] = defaultdict(set)
        for number in after:
            if number in things and things[number].kind in "WO":
                thing = things[number]
                there[thing.kind, thing.layer].update(c for c, token in thing.cells.items() if token == UPDATED)
        for (where, number), used in self.loaded.items():
            thing = things.get(number) if where == rank and used else None
            if thing is not None and thing.kind in "WO" and not thing.cells.keys() <= there[thing.kind, thing.layer]:
                return f"{thing.kind} of layer {thing.layer}"
        return None

    def time(self) -> Fraction:
        return max((e.end for events in self.events for e in events), default=Fraction(0))

    def memory(self) -> Fraction:
        return max((self.rank_memory(rank) for rank in range(self.ranks)), default=Fraction(0))

    def rank_memory(self, rank: int) -> Fraction:
        """The most that is alive on a rank when one of its timed operations starts."""
        return max((elements for _, _, elements in self.alive(rank)), default=Fraction(0))

    def alive(self, rank: int) -> Iterator[tuple[int, set[int], Fraction]]:
        """What is alive when the timed operations of a rank start, and how many elements these are."""
        events, things = self.events[rank], self.things[rank]
        over = len(events)
        lives = list(self.lives(rank))
        sizes = {number: thing.size(self.grain) for number, thing in things.items()}
        lost = list(self.lost(rank))
        stored: dict[int, int] = defaultdict(int)
        moves = list(self.data["programs"][rank]["moves"])
        for index, e in enumerate(events):
            while moves and moves[0][0] <= index:
                _, _, number, change = moves.pop(0)
                stored[number] += change
            if e.op not in SAMPLED or e.start is None:
                continue
            alive = {number for number, count in stored.items() if count > 0}
            alive |= {number for number, first, last in lives if first < index <= last}
            now = sum((sizes[number] for number in alive if number in sizes), Fraction(0))
            now += sum((size for first, size in lost if first < index <= over), Fraction(0))
            yield index, alive & sizes.keys(), now

    def lives(self, rank: int) -> Iterator[tuple[int, int, int]]:
        """Of each value: the event after which it is there, and the last event at whose start it is."""
        events = self.events[rank]
        over, waits = len(events), {e.arg[0]: i for i, e in enumerate(events) if e.op == "wait"}
        first: dict[int, int] = {}
        last: dict[int, int] = {}

        def needed(number: int, until: int) -> None:
            last[number] = max(last.get(number, -1), until)

        for index, e in enumerate(events):
            away = e.op in WAITED and not e.blocking
            there = waits.get(index, over) if away else index
            for number in e.inputs:
                needed(number, there)
                if e.op == "set_final_weight":
                    needed(number, over)
                if e.op == "pass_to":
                    needed(number, over if e.met is None else self.begins_before(events, e, index))
            for number in e.outputs:
                in_place = away and e.op in OVERWRITES
                in_place = in_place and not any(self.is_kept(rank, i, index, there) for i in e.inputs)
                first[number] = there if in_place else index
                if away:
                    needed(number, there)
            if e.op == "update":
                needed(e.outputs[1], over)
        for e in events:
            if e.op == "load_weights":
                for number in e.outputs:
                    if number in last:
                        first[number] = -1
        for position, _, number, change in self.data["programs"][rank]["moves"]:
            if change > 0 and position - 1 > first.get(number, over):  # until then it was in a variable
                needed(number, position - 1)
        for number, until in last.items():
            yield number, first.get(number, over), until

    def is_kept(self, rank: int, number: int, index: int, there: int) -> bool:
        """Whether a value is needed by anything else when a communication would write over it."""
        events = self.events[rank]
        over, waits = len(events), {e.arg[0]: i for i, e in enumerate(events) if e.op == "wait"}
        count, left = 0, -1
        for position, _, moved, change in self.data["programs"][rank]["moves"]:
            if moved == number:
                count += change
                left = over + 2 if count > 0 else position
        if left > there + 1:
            return True
        for other, e in enumerate(events):
            if other == index or number not in e.inputs:
                continue
            until = waits.get(other, over) if e.op in WAITED and not e.blocking else other
            if e.op == "pass_to":
                asked = over if e.met is None else max(i for i, s in enumerate(events) if s.issued <= e.met.issued)
                until = max(until, other, asked)
            if e.op == "set_final_weight" or until >= index:
                return True
        return False

    def begins_before(self, events: list[Happening], sent: Happening, index: int) -> int:
        """The last event of a sender that begins before its message was asked for."""
        assert sent.met is not None
        before = [i for i, e in enumerate(events) if e.issued < sent.met.issued]
        return max([index, *before])

    def lost(self, rank: int) -> Iterator[tuple[int, Fraction]]:
        """What came and was never waited for: since which event, and how large."""
        events = self.events[rank]
        waited = {e.arg[0] for e in events if e.op == "wait"}
        for index, e in enumerate(events):
            into = e.op in WAITED and e.op != "pass_to" and e.op not in OVERWRITES
            if into and not e.blocking and index not in waited and e.over:
                for thing in e.result:
                    yield index, thing.size(self.grain)


def _need(there: object, what: str) -> None:
    if not there:
        raise Malformed(f"it needs {what}")


def _again(thing: Thing) -> Thing:
    return Thing(thing.kind, thing.layer, thing.cells)


def _ticks(time: Fraction) -> Fraction:
    return Fraction(round(time * 10**9), 10**9)


def _exact(number: float) -> Fraction:
    return Fraction(str(number))
