"""Programs of a plan: one order of its operations, what each rank waits for when, and what it keeps where.

`moved` takes any order that respects the graph, posts receives early and awaits late, puts values into stores under
odd keys or keeps them in variables, deletes them at once, later or never. A program is then a student's function.
"""

import pickle
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from lib import Model, Trace, simulate
from lib.values.values import Value
from tests.adversary.plans import Call, Plan

COLLECTIVE = ("allreduce", "allgather", "scatterreduce", "alltoall", "broadcast")
COMMUNICATION = ("pass_to", "receive", *COLLECTIVE)
KINDS = "WOADG"
"""Kinds of value in the order of the stores: weights, optimizer states, activations and their gradients, gradients."""


@dataclass
class Line:
    """One line of a rank's program. `what` is: call (and wait), issue, wait, store, or delete."""

    what: str
    call: Call | None = None
    store: int = 0
    key: Any = None
    value: int = -1


@dataclass
class Program:
    """A whole run: the lines of each rank, and how big everything is."""

    plan: Plan
    lines: list[list[Line]]
    shared: dict[int, Any] = field(default_factory=dict[int, Any])

    async def __call__(self, model: Model) -> None:
        await _Rank(self, model).run(self.lines[model.rank])

    def run(self, **more: Any) -> Trace:
        plan = self.plan
        self.shared = {}
        sizes: dict[str, Any] = {"ranks": plan.ranks, "layers": plan.layers, "batches": plan.batches}
        return Trace.of(simulate(self, mesh=plan.mesh, costs=plan.costs, **(sizes | more)))


class _Rank:
    """One rank at work: its variables by the number of the value in the plan."""

    def __init__(self, program: Program, model: Model) -> None:
        self.program, self.model = program, model
        self.values: dict[int, Any] = {}
        self.works: dict[int, Any] = {}
        self.stores = model.storage()

    async def run(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if line.what == "store":
                self.stores[line.store][line.key] = self.values[line.value]
            elif line.what == "delete":
                del self.stores[line.store][line.key]
            else:
                await self.operate(line)

    async def operate(self, line: Line) -> None:
        call = line.call
        assert call is not None
        if line.what == "wait":
            self.keep(call, await self.works.pop(id(call)))
        elif call.op not in COMMUNICATION:
            self.keep(call, self.local(call))
        elif line.what == "issue":
            self.works[id(call)] = self.issue(call)
        else:
            self.keep(call, await self.issue(call))

    def keep(self, call: Call, result: Any) -> None:
        if call.op == "receive":
            found = list(_inside(result))
        elif call.op == "alltoall" or isinstance(result, tuple):
            found = list(result)
        else:
            found = [] if result is None else [result]
        assert len(found) == len(call.outputs), call
        self.values.update(zip(call.outputs, found, strict=True))
        self.program.shared.update(zip(call.outputs, found, strict=True))

    def inputs(self, call: Call) -> list[Any]:
        """What the call uses; where a cheat is planned, something else."""
        found = [self.values[number] for number in call.inputs]
        for place, how in call.more.get("forged", {}).items():
            found[place] = how(found[place], self)
        return found

    def local(self, call: Call) -> Any:
        model, more, values = self.model, call.more, self.inputs(call)
        match call.op:
            case "load_weights":
                return model.load_weights(call.layer or 0, more["shard"], more["total"], more.get("dim", "in"))
            case "get_activation":
                return model.get_activation(more["batches"])
            case "fake_grad":
                return model.fake_grad(call.layer or 0, more["batches"])
            case "add":
                return values[0] + values[1]
            case "combine":
                return values[0].combine(values[1])
            case "shard":
                return values[0].shard(more["shard"], more["total"])
            case "loss":
                return model.loss(*values)
            case _:
                return getattr(model, call.op)(call.layer, *values)

    def issue(self, call: Call) -> Any:
        model, more, values = self.model, call.more, self.inputs(call)
        if call.op == "pass_to":
            return model.pass_to(more["peer"], _wrapped(values, more.get("wrap", "bare")))
        if call.op == "receive":
            return model.receive() if more.get("bare") else model.receive(more["peer"])
        group = more.get("spelled", more["group"])
        if call.op == "alltoall":
            return model.alltoall(values, call.layer or 0, group)
        if call.op == "broadcast":
            return model.broadcast(values[0], call.layer or 0, more["group"][more["root"]], group)
        return getattr(model, call.op)(values[0], call.layer, group)


def _wrapped(values: Sequence[Any], how: str) -> Any:
    if how == "bare" and len(values) == 1:
        return values[0]
    if how == "dict":
        return {"about": "values", "them": dict(enumerate(values)), 3: None}
    if how == "deep":
        nested: Any = ("end",)
        for value in reversed(values):
            nested = [value, (nested, {"more": [1, 2.5]})]
        return nested
    return tuple(values) if how == "tuple" else list(values)


def _inside(item: Any) -> Any:
    if isinstance(item, Value):
        yield item
    elif isinstance(item, dict):
        for part in item.values():
            yield from _inside(part)
    elif isinstance(item, list | tuple):
        for part in item:
            yield from _inside(part)


def order(plan: Plan, random: Random | None) -> list[int]:
    """The nodes in an order in which each has what it needs, and no channel holds two messages."""
    makers = plan.makers()
    needs = [{makers[v] for call in node.calls for v in call.inputs} | set(node.after) for node in plan.nodes]
    if random is None:
        return _in_order(plan, needs, list(range(len(plan.nodes))))
    style = random.choice(["any", "any", "as planned", "deep"])
    if style == "as planned":
        rank = list(range(len(plan.nodes)))
    elif style == "deep":  # what comes late in the plan as early as it can
        rank = list(range(len(plan.nodes), 0, -1))
    else:
        rank = [random.randrange(10**6) for _ in plan.nodes]
    return _in_order(plan, needs, rank)


def _in_order(plan: Plan, needs: list[set[int]], priority: list[int]) -> list[int]:
    from heapq import heappop, heappush

    users: dict[int, list[int]] = defaultdict(list)
    for number, before in enumerate(needs):
        for one in before:
            users[one].append(number)
    left = [len(before) for before in needs]
    ready: list[tuple[int, int]] = []
    for number, count in enumerate(left):
        if not count:
            heappush(ready, (priority[number], number))
    full: set[tuple[int, int]] = set()
    held: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    found: list[int] = []
    while ready:
        item = heappop(ready)
        number = item[1]
        call = plan.nodes[number].calls[0]
        if call.op == "pass_to":
            channel = call.rank, call.more["peer"]
            if channel in full:
                held[channel].append(item)
                continue
            full.add(channel)
        elif call.op == "receive":
            channel = call.more["peer"], call.rank
            full.discard(channel)
            for other in held.pop(channel, []):
                heappush(ready, other)
        found.append(number)
        for user in users[number]:
            left[user] -= 1
            if not left[user]:
                heappush(ready, (priority[user], user))
    assert len(found) == len(plan.nodes), "every plan can be followed"
    return found


def programs(plan: Plan, random: Random | None = None) -> Program:
    """A program of the plan: the plain one, or with everything moved about that may be."""
    calls: list[list[Call]] = [[] for _ in range(plan.ranks)]
    for number in order(plan, random):
        for call in plan.nodes[number].calls:
            calls[call.rank].append(call)
    if random is not None:
        _spell(plan, random)
        _bare(plan, random)
    lines = [_awaited(mine, set(plan.ends), random) for mine in calls]
    return Program(plan, [_Keeper(plan, rank, lines[rank], random).lines() for rank in range(plan.ranks)])


def stored(program: Program) -> Program:
    """The same operations and waits, with each value in a store from the moment it is there to its last use."""
    lines = [[line for line in mine if line.call is not None] for mine in program.lines]
    return Program(program.plan, [_Keeper(program.plan, rank, mine, None).lines() for rank, mine in enumerate(lines)])


def _spell(plan: Plan, random: Random) -> None:
    """Groups by no name, by an axis, or as a list; messages in one shape or another."""
    everybody, mesh = tuple(range(plan.ranks)), plan.mesh
    for node in plan.nodes:
        for call in node.calls:
            if call.op in COLLECTIVE:
                group = call.more["group"]
                ways: list[Any] = [group, list(group)]
                if group == everybody:
                    ways.append(None)
                if mesh is not None:
                    ways += [axis for axis in mesh.axes if mesh.group(call.rank, axis) == group] * 2
                    if mesh.group(call.rank, *mesh.axes) == group:
                        ways.append(tuple(mesh.axes))
                call.more["spelled"] = random.choice(ways)
            elif call.op == "pass_to":
                call.more["wrap"] = random.choice(["bare", "bare", "list", "tuple", "dict", "deep"])


def _bare(plan: Plan, random: Random) -> None:
    """Who gets messages of one rank only need not say from whom."""
    sources: dict[int, set[int]] = defaultdict(set)
    for node in plan.nodes:
        if node.calls[0].op == "receive":
            sources[node.calls[0].rank].add(node.calls[0].more["peer"])
    for node in plan.nodes:
        call = node.calls[0]
        if call.op == "receive" and len(sources[call.rank]) == 1:
            call.more["bare"] = random.random() < 0.3


def _awaited(calls: Sequence[Call], ends: set[int], random: Random | None) -> list[Line]:
    """Waits at once, or issues earlier and waits later."""
    lines = [Line("call", call) for call in calls]
    if random is None or random.random() < 0.3:
        return lines
    share = random.random()
    for call in calls:
        if call.op in COMMUNICATION and random.random() < share:
            at = next(i for i, line in enumerate(lines) if line.call is call)
            lines[at].what = "issue"
            _wait(lines, at, call, ends, random)
            _earlier(lines, at, call, random)
    return lines


def _wait(lines: list[Line], at: int, call: Call, ends: set[int], random: Random) -> None:
    """The wait, somewhere before the first use of what it brings; perhaps nowhere if nobody uses that."""
    uses = [i for i, line in enumerate(lines) if line.call is not None and set(line.call.inputs) & set(call.outputs)]
    until = min(uses, default=len(lines))
    if not uses and not ends & set(call.outputs) and random.random() < 0.3:
        return
    lines.insert(random.randint(at + 1, max(until, at + 1)), Line("wait", call))


def _earlier(lines: list[Line], at: int, call: Call, random: Random) -> None:
    """The call itself, not before what it needs, nor past another one of the same communicator or channel."""
    first = 0
    for i, line in enumerate(lines[:at]):
        other = line.call
        if other is None:
            continue
        makes = line.what != "issue" and set(other.outputs) & set(call.inputs)
        if makes or (line.what != "wait" and _ordered(call, other)):
            first = i + 1
    if random.random() < 0.5:
        lines.insert(random.randint(first, at), lines.pop(at))


def _ordered(one: Call, other: Call) -> bool:
    """Whether the order of two calls on a rank says whom they meet."""
    if one.op in COLLECTIVE and other.op in COLLECTIVE:
        return set(one.more["group"]) == set(other.more["group"])
    if one.op == other.op == "receive":
        return one.more["peer"] == other.more["peer"]
    return one.op == other.op == "pass_to" and one.more["peer"] == other.more["peer"]


class _Keeper:
    """Says what a rank keeps in which store, from when to when."""

    def __init__(self, plan: Plan, rank: int, lines: list[Line], random: Random | None) -> None:
        self.plan, self.rank, self.base, self.random = plan, rank, lines, random
        self.last: dict[int, int] = {}
        for index, line in enumerate(lines):
            if line.call is not None and line.what != "wait":
                for value in line.call.inputs:
                    self.last[value] = index
        self.ends = {value for value in plan.ends if plan.homes[value] == rank}
        self.out: list[Line] = []
        self.due: dict[int, list[tuple[int, Any, int]]] = defaultdict(list)
        self.held: dict[tuple[int, Any], int] = {}
        self.share = 1.0 if random is None else random.choice([0.0, 0.5, 0.9, 1.0, 1.0])

    def lines(self) -> list[Line]:
        for index, line in enumerate(self.base):
            call, over = line.call, self.due.pop(index, [])
            assert call is not None
            first = [item for item in over if item[2] in call.inputs and self.chance(0.3)]  # as in forward(pop(...))
            self.drop(first)
            self.out.append(line)
            self.drop([item for item in over if item not in first])
            if line.what != "issue":
                for value in call.outputs:
                    self.store(value, index)
        self.drop([item for _, items in sorted(self.due.items()) for item in items])
        return self.out

    def chance(self, p: float) -> bool:
        return self.random is not None and self.random.random() < p

    def drop(self, items: list[tuple[int, Any, int]]) -> None:
        for store, key, value in items:
            if self.held.get((store, key)) == value and value not in self.ends:
                del self.held[store, key]
                self.out.append(Line("delete", store=store, key=key, value=value))

    def store(self, value: int, index: int) -> None:
        """Puts a value into a store, and says when it is deleted: after its last use, later, or never."""
        if value not in self.ends and not (value in self.last if self.random is None else self.chance(self.share)):
            return
        for _ in range(2 if self.chance(0.03) else 1):
            place, key = self.place(value)
            self.held[place, key] = value
            self.out.append(Line("store", store=place, key=key, value=value))
            if self.chance(0.1):
                continue  # for ever, or until something else comes under its key
            until = max(self.last.get(value, index), index + 1)
            if self.random is not None and self.chance(0.15):
                until += self.random.randint(1, 5)
            self.due[until].append((place, key, value))

    def place(self, value: int) -> tuple[int, Any]:
        """A store and a key of it, under which nothing lies that has to be there at the end."""
        layer, batches = self.plan.about[value]
        store = KINDS.index(self.plan.kinds[value])
        if self.random is None:
            return store, value
        if self.chance(0.1):
            store = self.random.randrange(5)
        odd: list[Any] = [
            layer,
            (layer, "x"),
            ("of", (layer, min(batches, default=None))),
            0.5,
            frozenset([value]),
            None,
        ]
        key = self.random.choice(odd)
        return store, f"number {value}" if self.held.get((store, key)) in self.ends else key


def remade(value: Any, _: Any) -> Any:
    """An equal value that came from nowhere."""
    return type(value)(*[getattr(value, name) for name in value.__match_args__])


def pickled(value: Any, _: Any) -> Any:
    return pickle.loads(pickle.dumps(value))
