"""The plan of a replay: everything that every rank has to know before it starts, worked out from the Trace alone.

Who meets whom with which values, when each value may be freed, when each message has to be gone, what may be
overwritten in place, and what is to be compared with the truth. So no message has to say what it is, and nothing is
negotiated while the ranks run. What the Trace states about its values is not believed: they are made anew by `rebuild`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from lib.checker.checker import check
from lib.errors.source_lines import Place
from lib.replay.errors import UnfitTrace
from lib.replay.plan.sizes import Range, Sizes, length
from lib.trace.event import Event, Program
from lib.trace.lifetimes import FOREVER, Lifetimes, given_up, uses
from lib.trace.order import messages
from lib.trace.rebuild import Rebuilt, rebuild
from lib.trace.retiming import retime
from lib.trace.trace import Trace
from lib.trace.walk import Meet, Pass, walk
from lib.values.collectives import COLLECTIVES
from lib.values.values import Value, Weight, WeightGrad

__all__ = ["Final", "Joint", "Judged", "Letter", "Plan", "describe_event", "make_plan"]


class Joint(NamedTuple):
    """A collective that takes place: its members in the order of the group, and the values that each brings."""

    number: int
    op: str
    members: tuple[int, ...]
    brought: tuple[tuple[Value, ...], ...]
    events: tuple[int, ...]


class Letter(NamedTuple):
    """A message that is received: from where to where, the values in it, and the two events."""

    source: int
    target: int
    values: tuple[Value, ...]
    sent: int
    received: int


class Judged(NamedTuple):
    """An update whose gradient, weight and state are compared with the truth: where they lie, and where they are kept.

    `offset` counts numbers in the rank's results: the gradient, the weight, then the state.
    """

    layer: int
    ranges: tuple[Range, ...]
    offset: int


class Final(NamedTuple):
    """A final weight that is compared with the truth, and with the other ranks'."""

    layer: int
    ranges: tuple[Range, ...]
    offset: int


@dataclass
class Desk:
    """What one rank has to know. Keys are numbers of its events.

    `rest` are the values that are there before the step begins. `frees` has the values that are freed before an event,
    `taken` the sends that have to be over by then.
    """

    program: Program
    joints: dict[int, Joint] = field(default_factory=dict[int, Joint])
    letters: dict[int, Letter] = field(default_factory=dict[int, Letter])
    rest: set[int] = field(default_factory=set[int])
    frees: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    taken: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    owned: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    used: set[int] = field(default_factory=set[int])
    judged: dict[int, Judged] = field(default_factory=dict[int, Judged])
    finals: dict[int, Final] = field(default_factory=dict[int, Final])
    results: int = 0


@dataclass
class Plan:
    """What all ranks have to know. `groups` and `pairs` are in the order in which everybody makes them."""

    trace: Trace
    sizes: Sizes
    desks: list[Desk]
    groups: list[tuple[int, ...]]
    pairs: list[tuple[int, int]]

    @property
    def ranks(self) -> int:
        """The world size."""
        return len(self.desks)


def make_plan(trace: Trace, sizes: Sizes) -> Plan:
    """The plan. UnfitTrace where the Trace is not one correct training step."""
    if trace.sandbox:
        raise UnfitTrace("this Trace is that of a sandbox, where gradients may be made up: simulate it with a Dist")
    verdict = check(trace)
    if not verdict.correct:
        faults = "\n  ".join(verdict.faults)
        raise UnfitTrace(
            f"this Trace is not one correct training step, so it has no truth to compare with:\n  {faults}"
        )
    rebuilt = rebuild(trace)
    run = rebuilt.run
    timed = retime(run, run.costs)
    parts = max((getattr(value, "total", 1) for program in run.programs for value in program.values), default=1)
    if parts > sizes.weight:
        raise UnfitTrace(f"a weight of {sizes.hidden} x {sizes.hidden} has no {parts} shards: make hidden larger")
    simulated = Trace(run.layers, run.batches, timed.programs, run.costs, run.mesh, puzzle=trace.puzzle)
    desks = [Desk(program) for program in simulated.programs]
    groups, pairs = _meetings(simulated, desks)
    gone_by: dict[int, dict[int, int]] = defaultdict(dict)
    for passage in messages(simulated):
        gone_by[passage.source][passage.sent] = given_up(simulated, passage)
    for desk, lives in zip(desks, simulated.lifetimes(), strict=True):
        dies = _lifetimes(desk, lives)
        gone = gone_by[desk.program.rank]
        _uses(desk, dies, gone)
        _taken(desk, dies, gone)
    _judge(rebuilt, run, desks, sizes)
    return Plan(simulated, sizes, desks, groups, pairs)


def describe_event(plan: Plan, rank: int, index: int) -> str:
    """One operation in words: "event 12, allreduce of layer 1 with ranks 0, 1, 2, 3 (ddp.py, line 7: ...)"."""
    events = plan.desks[rank].program.events
    if not 0 <= index < len(events):
        return "the start" if index < 0 else "the end"
    event = events[index]
    shown = events[event.arg[0]] if event.op == "wait" else event
    words = f"event {index}, " + ("wait for " if event.op == "wait" else "") + shown.op
    if shown.layer is not None and shown.op != "get_activation":
        words += f" of layer {shown.layer}"
    if shown.group:
        words += f" with ranks {', '.join(map(str, shown.group))}"
    if shown.peer is not None:
        words += f" {'to' if shown.op == 'pass_to' else 'from'} rank {shown.peer}"
    place = event.source if isinstance(event.source, Place) else plan.trace.place(event)
    return f"{words} ({place})" if place is not None else words


# -- who meets whom -----------------------------------------------------------------------------------------------


def _meetings(run: Trace, desks: list[Desk]) -> tuple[list[tuple[int, ...]], list[tuple[int, int]]]:
    index = {id(event): i for desk in desks for i, event in enumerate(desk.program.events)}
    groups: set[tuple[int, ...]] = set()
    pairs: set[tuple[int, int]] = set()
    count = 0
    for step in walk(run):
        if isinstance(step, Meet):
            members = tuple(rank for rank, _ in step.members)
            brought = tuple(_values(desks[rank], event) for rank, event in step.members)
            events = tuple(index[id(event)] for _, event in step.members)
            joint = Joint(count, step.members[0][1].op, members, brought, events)
            count += 1
            for rank, event in step.members:
                desks[rank].joints[index[id(event)]] = joint
            if len(members) > 1:
                groups.add(members)
        elif isinstance(step, Pass):
            sent, received = index[id(step.sent)], index[id(step.received)]
            letter = Letter(step.source, step.target, _values(desks[step.source], step.sent), sent, received)
            desks[step.source].letters[sent] = desks[step.target].letters[received] = letter
            if letter.values:
                pairs.add((step.source, step.target))
    return sorted(groups), sorted(pairs)


def _values(desk: Desk, event: Event) -> tuple[Value, ...]:
    return tuple(_value(desk, number) for number in event.inputs)


def _value(desk: Desk, number: int) -> Value:
    value = desk.program.values[number]
    assert value is not None, "rebuild made every value that is used"
    return value


# -- how long values live -----------------------------------------------------------------------------------------


def _lifetimes(desk: Desk, lives: Lifetimes) -> list[int]:
    """What is there before the step, and before which event each value is freed."""
    program = desk.program
    count = len(program.values)  # what nobody waits for has no id, and the interpreter drops it
    born, last = lives.born[:count], lives.last[:count]
    desk.rest = {number for number in range(count) if born[number] < 0 <= lives.maker[number]}
    over = len(program.events) + 1
    dies = [max(first, final) + 1 for first, final in zip(born, last, strict=True)]
    since: dict[int, int] = {}
    held: dict[int, int] = defaultdict(int)
    for position, _, number, change in program.moves:
        held[number] += change
        if held[number] > 0:
            since.setdefault(number, position)
        elif since.pop(number, position) < position:
            dies[number] = max(dies[number], position)
    for number in since:
        dies[number] = over
    for number, at in enumerate(dies):
        if at < over:
            desk.frees.setdefault(at, []).append(number)
    return dies


def _uses(desk: Desk, dies: list[int], gone: dict[int, int]) -> None:
    """Which events may overwrite an input, because nobody needs it again."""
    for number, spans in uses(desk.program, gone).items():
        desk.used.add(number)
        *before, (index, until) = spans
        if dies[number] <= until + 1 and all(end < index for _, end in before):  # as in memory, where in place is meant
            desk.owned.add((index, number))


def _taken(desk: Desk, dies: list[int], gone: dict[int, int]) -> None:
    """Before which event the sender of each message waits until it has been taken over.

    In simulated time a message belongs to its sender until its receive is issued; a process may be far ahead of that.
    So before the first event that frees or overwrites what was sent, and that is issued later than the receive, the
    sender waits for the send. Nobody waits for ever: all that a rank waits for, here or because the Trace does, are
    calls of other ranks that are issued earlier in simulated time, or at the same time and before it in every order in
    which the schedule can be walked; the earliest of all calls still to come waits for nothing. For this, waiting for
    room must not be replayed: it takes no simulated time, so a rank would wait for calls that are issued later.
    """
    events = desk.program.events
    overwritten = {number: index for index, number in desk.owned if events[index].op in _IN_PLACE}
    for index, last in sorted(gone.items()):
        inputs = events[index].inputs
        if inputs and index in desk.letters:
            first = min(min(dies[number], overwritten.get(number, FOREVER)) for number in inputs)
            # What is still under way at the end is waited for there.
            desk.taken.setdefault(max(last + 1, first), []).append(index)


_IN_PLACE = frozenset(["update", "add", *(row.name for row in COLLECTIVES.values() if row.in_place)])


# -- what is compared ---------------------------------------------------------------------------------------------


def _judge(rebuilt: Rebuilt, run: Trace, desks: list[Desk], sizes: Sizes) -> None:
    finals = {(rank, id(event)): weight for (rank, _), (event, weight, _) in rebuilt.finals.items()}
    for rank, (desk, recorded) in enumerate(zip(desks, run.programs, strict=True)):
        for index, event in enumerate(recorded.events):
            if event.op == "update" and _honest(rebuilt, rank, event, desk):
                weight = _value(desk, event.inputs[1])
                ranges = sizes.ranges(weight)
                desk.judged[index] = Judged(weight.layer, ranges, desk.results)
                desk.results += length(ranges) * (2 + sizes.moments)
            elif (rank, id(event)) in finals:
                weight = finals[rank, id(event)]
                ranges = sizes.ranges(weight)
                desk.finals[index] = Final(weight.layer, ranges, desk.results)
                desk.results += length(ranges)


def _honest(rebuilt: Rebuilt, rank: int, event: Event, desk: Desk) -> bool:
    grad, weight = _value(desk, event.inputs[0]), _value(desk, event.inputs[1])
    flawed = any((rank, number) in rebuilt.flaws for number in event.outputs)
    return not flawed and isinstance(grad, WeightGrad) and isinstance(weight, Weight) and weight.step == 0
