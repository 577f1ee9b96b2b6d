"""The plan of a replay: everything that each rank has to know before it starts, worked out from the Trace alone.

So no message has to say what it is, and nothing is negotiated while the ranks run. The Trace's own statements about
its values are not trusted: `rebuild` makes them anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lib.checker.verdict import check
from lib.errors.wording import these
from lib.replay import RankRaised, UnfitTrace
from lib.replay.options import ReplayOptions
from lib.replay.sizes import Sizes
from lib.trace.event import Event, Program, operation
from lib.trace.lifetimes import FOREVER, Lifetimes, given_up, left_stores, uses
from lib.trace.order import meetings, messages
from lib.trace.rebuild import Rebuilt
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES, Collective
from lib.values.dims import RunSet
from lib.values.kinds.kind import USUAL
from lib.values.layers import Shape
from lib.values.operations import BY_INPUT, BY_WEIGHT, OPERATIONS
from lib.values.placement import Place
from lib.values.values import Activation, Elements, OptState, Value, Weight, WeightGrad, made

BY_LAYER = BY_INPUT | BY_WEIGHT | {"forward"}
"""The operations of layers, which take the layer's input first where they take it."""


class PlannedCollective(NamedTuple):
    """A collective that takes place: `brought` and `events` follow the order of `members`; `root` is a place in it."""

    row: Collective
    members: tuple[int, ...]
    brought: Sequence[Sequence[Value]]
    root: int
    events: tuple[int, ...]

    def sent(self, rank: int, size: Callable[[Sequence[Value]], Elements]) -> Elements:
        """Return the amount that a member sends by its row, with `size` giving the total size of values."""
        return self.row.sent(self.row.brought(self.brought), self.root, size)[self.members.index(rank)]


class PlannedMessage(NamedTuple):
    """A message that is received: source and target rank, its values, and the event that sends it."""

    source: int
    target: int
    values: Sequence[Value]
    sent: int


class Compared(NamedTuple):
    """Elements of a layer's weight that are compared with ordinary training.

    `values` are ids by role: the final weight; or the gradient, weight and optimizer state of an update.
    """

    layer: int
    elements: RunSet
    values: dict[str, int]


@dataclass
class RankPlan:
    """All that one rank has to know, by the numbers of its events.

    `at_rest` are the values that exist before the step. `frees` has the values that are freed before an event,
    `gone_before` the sends that have to be over by then. `overwritable` are inputs, by event and value, that are not
    needed afterwards, `used` the values that any event uses, `softmaxes` outputs whose running sums a backward needs.
    `first`, by event and value of an input that only one layer uses: whether it is used for the first time.
    """

    program: Program
    collectives: dict[int, PlannedCollective] = field(default_factory=dict[int, PlannedCollective])
    messages: dict[int, PlannedMessage] = field(default_factory=dict[int, PlannedMessage])
    at_rest: set[int] = field(default_factory=set[int])
    frees: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    gone_before: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    overwritable: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    used: set[int] = field(default_factory=set[int])
    first: dict[tuple[int, int], bool] = field(default_factory=dict[tuple[int, int], bool])
    compared: dict[int, Compared] = field(default_factory=dict[int, Compared])
    softmaxes: dict[int, Activation] = field(default_factory=dict[int, Activation])

    def value(self, number: int) -> Value:
        """Return the rebuilt description of a value that is used."""
        value = self.program.values[number]
        assert value is not None, "rebuild made every value that is used"
        return value


@dataclass
class Plan:
    """All that the ranks have to know."""

    trace: Trace
    sizes: Sizes
    rank_plans: list[RankPlan]

    @property
    def ranks(self) -> int:
        """The world size."""
        return len(self.rank_plans)


def plan_of(trace: Trace, options: ReplayOptions) -> Plan:
    """Make the plan of a replay. UnfitTrace if the Trace is not a correct training step, or would split a number."""
    sizes = Sizes.of(trace, options)
    _must_be_a_training_step(trace)
    rebuilt, simulated = trace.rebuilt(), trace.normalised()
    _must_be_whole_numbers(simulated, sizes)
    plans = [RankPlan(program) for program in simulated.programs]
    _plan_collectives(simulated, plans)
    gone_by = _plan_messages(simulated, plans)
    for rank, (plan, lives) in enumerate(zip(plans, simulated.lifetimes(), strict=True)):
        _gone_before(plan, _lifetimes(plan, lives, gone_by[rank]), gone_by[rank])
        _softmaxes(simulated.shape, rank, plan, sizes)
        _compared(rebuilt, rank, plan, sizes)
    return Plan(simulated, sizes, plans)


def _must_be_a_training_step(trace: Trace) -> None:
    if trace.sandbox:
        raise UnfitTrace("this Trace is that of a sandbox, where gradients may be made up: simulate it with a Dist")
    if not (verdict := check(trace)).correct:
        no_truth = "this Trace is not one correct training step, so it has no truth to compare with:"
        raise UnfitTrace("\n  ".join([no_truth, *verdict.faults]))


def _must_be_whole_numbers(trace: Trace, sizes: Sizes) -> None:
    """Raise UnfitTrace where a tensor would begin or end within a number, or within a head of an unfinished softmax."""
    larger, longer = ("hidden", "length") if trace.descriptions == USUAL else ["the layer's sizes"] * 2
    for value, in_form in _values(trace):
        place = value.place
        if place.sharded and place.total > sizes.weight(value.layer):
            sides = " x ".join(str(dim.size) for dim in sizes.dims(value)[: len(place.dims)])
            raise UnfitTrace(f"a weight of {sides} has no {place.total} shards: make {larger} larger")
        if (uneven := sizes.uneven(value, first=in_form)) is not None:
            part, size = uneven
            named = longer if part.dim.counted else larger
            noun = "rows" if part.dim.counted or part is place.first else "columns"
            raise UnfitTrace(f"{size} {noun} are not equal parts for {value}: make {named} a multiple of them")
        if place.open and place.schema.running:
            layer = sizes.shape.kinds[value.layer - 1].layer
            unit = layer.inputs // layer.heads if layer.heads else 1
            if any(end % unit for ends in place.dims[-1].ranges for end in ends):
                raise UnfitTrace(
                    f"a softmax that is not done has a maximum and a sum for each whole head: {value} cuts one"
                )


def _values(trace: Trace) -> list[tuple[Value, bool]]:
    """Return one value for each place, and whether an event takes it in the form of its dims."""
    known: dict[tuple[Place, bool], Value] = {}
    for program in trace.programs:
        in_form = {number for event in program.events if _by_dims(program, event) for number in event.inputs}
        for number, value in enumerate(program.values):
            if value is not None:
                known.setdefault((value.place, number in in_form), value)
    return [(value, by_dims) for (_, by_dims), value in known.items()]


def _by_dims(program: Program, event: Event) -> bool:
    """Tell whether an event takes tensors by their dims, as layers do, or to cut a later dim of a weight."""
    if event.op in OPERATIONS and OPERATIONS[event.op].by_kind:
        return True
    values = [value for value in program.values_of((*event.inputs, *event.outputs)) if value.place.sharded]
    return len({(value.layer, value.place.dims[1:]) for value in values}) > len({value.layer for value in values})


# -- who meets whom -----------------------------------------------------------------------------------------------


def _plan_collectives(run: Trace, plans: list[RankPlan]) -> None:
    for meeting in meetings(run):
        events = [plans[rank].program.events[number] for rank, number in meeting]
        members, numbers = tuple(rank for rank, _ in meeting), tuple(number for _, number in meeting)
        brought = [plans[rank].program.values_of(event.inputs) for rank, event in zip(members, events, strict=True)]
        row = COLLECTIVES[events[0].op]
        planned = PlannedCollective(row, members, brought, row.said(events[0].arg), numbers)
        for rank, number in meeting:
            plans[rank].collectives[number] = planned


def _plan_messages(run: Trace, plans: list[RankPlan]) -> dict[int, dict[int, int]]:
    """Give each rank its messages. Return, by rank and send, the last event at which it may still be the sender's."""
    gone_by: dict[int, dict[int, int]] = defaultdict(dict)
    for passage in messages(run):
        source, sent, target, received = passage
        gone_by[source][sent] = given_up(run, passage)
        if received is not None:
            program = plans[source].program
            values = program.values_of(program.events[sent].inputs)
            planned = PlannedMessage(source, target, values, sent)
            plans[source].messages[sent] = plans[target].messages[received] = planned
    return gone_by


# -- how long values live -----------------------------------------------------------------------------------------


def _lifetimes(plan: RankPlan, lives: Lifetimes, gone: dict[int, int]) -> list[int]:
    """Note what exists before the step and which inputs may be overwritten; return the event that frees each value."""
    program, count = plan.program, len(plan.program.values)  # outputs never waited for have no id, and are dropped
    born, last = lives.born[:count], lives.last[:count]
    plan.at_rest = {number for number in range(count) if born[number] < 0 <= lives.maker[number]}
    dies = [max(first, final) + 1 for first, final in zip(born, last, strict=True)]
    for number, left in left_stores(program).items():
        dies[number] = max(dies[number], left)
    for number, at in enumerate(dies):
        if at <= len(program.events):
            plan.frees.setdefault(at, []).append(number)
    for number, used in uses(program, gone).items():
        *before, (index, until) = used
        plan.used.add(number)
        events = [program.events[at] for at, _ in used]
        if {(one.op in BY_LAYER, one.layer, one.inputs[0]) for one in events} == {(True, events[0].layer, number)}:
            plan.first |= {(at, number): at == used[0][0] for at, _ in used}
        if dies[number] <= until + 1 and all(end < index for _, end in before):  # as in memory, where in place is meant
            plan.overwritable.add((index, number))
    return dies


def _gone_before(plan: RankPlan, dies: list[int], gone: dict[int, int]) -> None:
    """Note before which event the sender of each message waits until it has been taken over.

    In simulated time a message belongs to its sender until its receive is issued; a process may be far ahead of that.
    So it waits before the first event, issued later than the receive, that frees or may overwrite the message. This
    cannot deadlock: a rank waits only for calls issued earlier in simulated time, or at the same time and before it in
    every possible order of the schedule, and the earliest call of all waits for nothing. But waiting for room must not
    be replayed: it takes no simulated time, so a rank would wait for calls issued later.
    """
    events, overwritten = plan.program.events, dict[int, int]()
    for index, number in plan.overwritable:
        row = COLLECTIVES.get(events[index].op)
        if row.in_place if row is not None else events[index].outputs:  # messages and some collectives never do
            overwritten[number] = index
    for index, last in sorted(gone.items()):
        inputs = events[index].inputs
        if inputs and index in plan.messages:
            first = min(min(dies[number], overwritten.get(number, FOREVER)) for number in inputs)
            # Messages still under way at the end are waited for there.
            plan.gone_before.setdefault(max(last + 1, first), []).append(index)


# -- what backward needs and no value has -----------------------------------------------------------------------


def _softmaxes(shape: Shape, rank: int, plan: RankPlan, sizes: Sizes) -> None:
    """Note the finished softmaxes that partial backwards need. UnfitTrace where the rank did not finish them itself."""
    events, finished = plan.program.events, defaultdict[int, list[RunSet]](list)
    for index, event in enumerate(events if any(kind.softmax for kind in shape.kinds) else ()):
        met = plan.collectives.get(index)
        values = plan.program.values_of(event.inputs)
        of = values if met is None else [value for brought in met.brought for value in brought]
        for value in plan.program.values_of(event.outputs):
            if _finishes(value, of):
                finished[value.layer].append(sizes.elements(value))
        layer = event.layer or 0
        if event.op not in BY_INPUT or not (kind := shape.kinds[layer]).softmax:
            continue
        place = kind.forward(values[0], values[2] if kind.takes else None)
        if place.open:
            plan.softmaxes[index] = wanted = made(Activation, layer + 1, shape.layers, place)
            if not sizes.elements(wanted) <= RunSet.union(finished[wanted.layer]):
                raise UnfitTrace(
                    f"{event.op} of layer {event.layer} on rank {rank} needs the maximum and the sum of a softmax. A "
                    "rank keeps those where it has added up the last part itself, and no message carries them: go back "
                    "on the rank that has, or give backward everything at once"
                )


def _finishes(value: Value, of: Sequence[Value]) -> bool:
    """Tell whether a value is a finished softmax made from an unfinished one."""
    if not value.place.schema.running or value.place.open:
        return False
    here = [one.place for one in of]
    by_forward = any(one.layer != value.layer for one in of)
    return by_forward or (value.place not in here and any(place.open and not place.zero for place in here))


# -- what is compared ---------------------------------------------------------------------------------------------


def _compared(rebuilt: Rebuilt, rank: int, plan: RankPlan, sizes: Sizes) -> None:
    """Note what is compared with ordinary training on a rank: honest updates, and the final weights handed in."""
    finals = {id(event) for (at, _), (event, _, _) in rebuilt.finals.items() if at == rank}
    for index, event in enumerate(rebuilt.run.programs[rank].events):
        honest = not any((rank, number) in rebuilt.flaws for number in event.outputs)
        values = _update(plan, event) if honest else {}
        if id(event) in finals:
            values = {"final weight": event.inputs[0]}
        if values:
            weight = plan.value(values.get("weight", event.inputs[0]))
            plan.compared[index] = Compared(weight.layer, sizes.elements(weight), values)


def _update(plan: RankPlan, event: Event) -> dict[str, int]:
    """Return the gradient, new weight and new state of an operation that is a loaded weight's first update, else {}."""
    if event.op in COLLECTIVES or not event.outputs or len(event.inputs) < 2:
        return {}
    values = plan.program.values
    taken, given = ({type(values[number]): number for number in ids} for ids in (event.inputs, event.outputs))
    if not ({Weight, WeightGrad} <= taken.keys() and {Weight, OptState} <= given.keys()):
        return {}
    steps = [getattr(values[numbers[Weight]], "step", None) for numbers in (taken, given)]
    found = {"gradient": taken[WeightGrad], "weight": given[Weight], "optimizer state": given[OptState]}
    return found if steps == [0, 1] else {}


def describe_event(plan: Plan, rank: int, index: int) -> str:
    """Describe an operation in words: "event 12, all-reduce of layer 1 over ranks 0-3 (ddp.py, line 7: ...)"."""
    events = plan.rank_plans[rank].program.events
    if not 0 <= index < len(events):
        return "the start" if index < 0 else "the end"
    event = events[index]
    shown = events[event.arg[0]] if event.op == "wait" else event
    words = f"event {index}, {'wait for ' if event.op == 'wait' else ''}{operation(shown)}"
    words += f" over {these('rank', shown.group)}" if shown.group else ""
    place = plan.trace.place(event)
    return f"{words} ({place})" if place is not None else words


def raised(plan: Plan, rank: int, index: int, error: str) -> RankRaised:
    """Return the error for a rank on which an operation failed with `error`."""
    operation = describe_event(plan, rank, index)
    return RankRaised(f"rank {rank} failed in {operation}: {error}", rank=rank, operation=operation)
