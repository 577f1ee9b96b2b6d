"""The plan of a replay: everything that every rank has to know before it starts, worked out from the Trace alone.

Who meets whom with which values, when each value may be freed, when each message has to be gone, what may be
overwritten in place, and what is to be compared with ordinary training. So no message has to say what it is, and
nothing is negotiated while the ranks run. What the Trace states about its values is not believed: they are made anew by
`rebuild`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lib.checker.checker import check
from lib.replay.errors import UnfitTrace
from lib.replay.plan.sizes import Range, Sizes, length
from lib.trace.event import Event, Program
from lib.trace.lifetimes import FOREVER, Lifetimes, given_up, left_stores, uses
from lib.trace.order import meetings, messages
from lib.trace.rebuild import Rebuilt
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES, Collective
from lib.values.dims import DIMS
from lib.values.kinds.kind import USUAL
from lib.values.values import Elements, OptState, Value, Weight, WeightGrad

__all__ = ["Compared", "Plan", "PlannedCollective", "PlannedMessage", "RankPlan", "make_plan"]


class PlannedCollective(NamedTuple):
    """A collective that takes place: its members in the order of the group, the values that each brings, the place of
    its root, and the event of each."""

    row: Collective
    members: tuple[int, ...]
    brought: tuple[tuple[Value, ...], ...]
    root: int
    events: tuple[int, ...]

    def sent(self, rank: int, size: Callable[[Sequence[Value]], Elements]) -> Elements:
        """What a member sends, where values have this size together: what the row says."""
        return self.row.sent(self.row.brought(self.brought), self.root, size)[self.members.index(rank)]


class PlannedMessage(NamedTuple):
    """A message that is received: from where to where, the values in it, and the two events."""

    source: int
    target: int
    values: tuple[Value, ...]
    sent: int
    received: int


class Compared(NamedTuple):
    """What of an event is compared with ordinary training: a weight of this layer and these ranges. Where the event has
    updated it, its gradient and the new state are compared, too.

    `values` are their ids: the weight, or the gradient, the weight and the state. `offset` counts numbers in the rank's
    results, where they are kept one after the other.
    """

    layer: int
    ranges: tuple[Range, ...]
    values: tuple[int, ...]
    offset: int


@dataclass
class RankPlan:
    """What one rank has to know. Keys are numbers of its events.

    `at_rest` are the values that are there before the step begins. `frees` has the values that are freed before an
    event, `gone_before` the sends that have to be over by then. `overwritable` are inputs, by event and value, that
    nobody needs afterwards, `used` the values that anybody uses. `kept` is how many numbers are kept for comparison.
    """

    program: Program
    collectives: dict[int, PlannedCollective] = field(default_factory=dict[int, PlannedCollective])
    messages: dict[int, PlannedMessage] = field(default_factory=dict[int, PlannedMessage])
    at_rest: set[int] = field(default_factory=set[int])
    frees: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    gone_before: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    overwritable: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    used: set[int] = field(default_factory=set[int])
    updates: dict[int, Compared] = field(default_factory=dict[int, Compared])
    final_weights: dict[int, Compared] = field(default_factory=dict[int, Compared])
    kept: int = 0

    def value(self, number: int) -> Value:
        """What the Trace says of a value that is used."""
        value = self.program.values[number]
        assert value is not None, "rebuild made every value that is used"
        return value

    def inputs(self, event: Event) -> tuple[Value, ...]:
        """The values that an event uses."""
        return tuple(map(self.value, event.inputs))


@dataclass
class Plan:
    """What all ranks have to know. `groups` and `pairs` are in the order in which everybody makes them."""

    trace: Trace
    sizes: Sizes
    rank_plans: list[RankPlan]
    groups: list[tuple[int, ...]]
    pairs: list[tuple[int, int]]

    @property
    def ranks(self) -> int:
        """The world size."""
        return len(self.rank_plans)


def make_plan(trace: Trace, sizes: Sizes) -> Plan:
    """The plan. UnfitTrace where the Trace is not one correct training step."""
    _must_be_a_training_step(trace)
    rebuilt, simulated = trace.rebuilt(), trace.normalised()
    made = [value for program in simulated.programs for value in program.values if value is not None]
    if simulated.descriptions != USUAL:
        raise UnfitTrace("a replay has real layers for linear ones of one size, and this Trace has others")
    cut = next((value for value in made if any(DIMS[role].counted for role, _, _ in value.place.rest)), None)
    if cut is not None:
        raise UnfitTrace(f"a replay works on whole rows of a batch, and this Trace has {cut}")
    uneven = next((value for value in made if not sizes.divides(value)), None)
    if uneven is not None:
        raise UnfitTrace(f"{sizes.hidden} columns are no equal parts for {uneven}: make hidden a multiple of them")
    parts = max((value.place.total for value in made), default=1)
    if parts > sizes.weight:
        raise UnfitTrace(f"a weight of {sizes.hidden} x {sizes.hidden} has no {parts} shards: make hidden larger")
    plans = [RankPlan(program) for program in simulated.programs]
    groups = _plan_collectives(simulated, plans)
    pairs, gone_by = _plan_messages(simulated, plans)
    for rank, (plan, lives) in enumerate(zip(plans, simulated.lifetimes(), strict=True)):
        dies = _lifetimes(plan, lives)
        _uses(plan, dies, gone_by[rank])
        _gone_before(plan, dies, gone_by[rank])
        _compared(rebuilt, rank, plan, sizes)
    return Plan(simulated, sizes, plans, groups, pairs)


def _must_be_a_training_step(trace: Trace) -> None:
    if trace.sandbox:
        raise UnfitTrace("this Trace is that of a sandbox, where gradients may be made up: simulate it with a Dist")
    verdict = check(trace)
    if not verdict.correct:
        faults = "\n  ".join(verdict.faults)
        raise UnfitTrace(
            f"this Trace is not one correct training step, so it has no truth to compare with:\n  {faults}"
        )


# -- who meets whom -----------------------------------------------------------------------------------------------


def _plan_collectives(run: Trace, plans: list[RankPlan]) -> list[tuple[int, ...]]:
    """Tells each rank the collectives that it takes part in; the groups of more than one rank."""
    groups: set[tuple[int, ...]] = set()
    for meeting in meetings(run):
        members = tuple(rank for rank, _ in meeting)
        events = [plans[rank].program.events[number] for rank, number in meeting]
        brought = tuple(plans[rank].inputs(event) for rank, event in zip(members, events, strict=True))
        row, numbers = COLLECTIVES[events[0].op], tuple(number for _, number in meeting)
        root = row.said(events[0].arg)
        planned = PlannedCollective(row, members, brought, root, numbers)
        for rank, number in meeting:
            plans[rank].collectives[number] = planned
        if len(members) > 1:
            groups.add(members)
    return sorted(groups)


def _plan_messages(run: Trace, plans: list[RankPlan]) -> tuple[list[tuple[int, int]], dict[int, dict[int, int]]]:
    """Tells each rank the messages that it sends and receives. Gives the pairs of ranks that send values, and by rank
    and send the last event at which the message may still be the sender's."""
    pairs: set[tuple[int, int]] = set()
    gone_by: dict[int, dict[int, int]] = defaultdict(dict)
    for passage in messages(run):
        source, sent, target, received = passage
        gone_by[source][sent] = given_up(run, passage)
        if received is not None:
            values = plans[source].inputs(plans[source].program.events[sent])
            planned = PlannedMessage(source, target, values, sent, received)
            plans[source].messages[sent] = plans[target].messages[received] = planned
            if values:
                pairs.add((source, target))
    return sorted(pairs), gone_by


# -- how long values live -----------------------------------------------------------------------------------------


def _lifetimes(plan: RankPlan, lives: Lifetimes) -> list[int]:
    """What is there before the step, and before which event each value is freed."""
    program = plan.program
    count = len(program.values)  # what nobody waits for has no id, and the interpreter drops it
    born, last = lives.born[:count], lives.last[:count]
    plan.at_rest = {number for number in range(count) if born[number] < 0 <= lives.maker[number]}
    dies = [max(first, final) + 1 for first, final in zip(born, last, strict=True)]
    for number, left in left_stores(program).items():
        dies[number] = max(dies[number], left)
    for number, at in enumerate(dies):
        if at <= len(program.events):
            plan.frees.setdefault(at, []).append(number)
    return dies


def _uses(plan: RankPlan, dies: list[int], gone: dict[int, int]) -> None:
    """Which events may overwrite an input, because nobody needs it again."""
    for number, spans in uses(plan.program, gone).items():
        plan.used.add(number)
        *before, (index, until) = spans
        if dies[number] <= until + 1 and all(end < index for _, end in before):  # as in memory, where in place is meant
            plan.overwritable.add((index, number))


def _gone_before(plan: RankPlan, dies: list[int], gone: dict[int, int]) -> None:
    """Before which event the sender of each message waits until it has been taken over.

    In simulated time a message belongs to its sender until its receive is issued; a process may be far ahead of that.
    So before the first event that frees or may overwrite what was sent, and that is issued later than the receive, the
    sender waits for the send. Nobody waits for ever: all that a rank waits for, here or because the Trace does, are
    calls of other ranks that are issued earlier in simulated time, or at the same time and before it in every order in
    which the schedule can be walked; the earliest of all calls still to come waits for nothing. For this, waiting for
    room must not be replayed: it takes no simulated time, so a rank would wait for calls that are issued later.
    """
    events = plan.program.events
    overwritten = {number: index for index, number in plan.overwritable if _may_overwrite(events[index])}
    for index, last in sorted(gone.items()):
        inputs = events[index].inputs
        if inputs and index in plan.messages:
            first = min(min(dies[number], overwritten.get(number, FOREVER)) for number in inputs)
            # What is still under way at the end is waited for there.
            plan.gone_before.setdefault(max(last + 1, first), []).append(index)


def _may_overwrite(event: Event) -> bool:
    """Whether an event might work in the memory of its input: all but messages, and collectives that never do."""
    if event.op in COLLECTIVES:
        return COLLECTIVES[event.op].in_place
    return bool(event.outputs)


# -- what is compared ---------------------------------------------------------------------------------------------


def _compared(rebuilt: Rebuilt, rank: int, plan: RankPlan, sizes: Sizes) -> None:
    """What of a rank's events is compared with ordinary training: the honest steps of weights, and what it hands in."""
    finals = {id(event): weight for (at, _), (event, weight, _) in rebuilt.finals.items() if at == rank}
    for index, event in enumerate(rebuilt.run.programs[rank].events):
        honest = not any((rank, number) in rebuilt.flaws for number in event.outputs)
        update = _update(plan, event) if honest else None
        weight = finals.get(id(event))
        if update is not None:
            _, number, _ = update
            ranges = sizes.ranges(plan.value(number))
            plan.updates[index] = Compared(plan.value(number).layer, ranges, update, plan.kept)
            plan.kept += length(ranges) * (2 + sizes.moments)
        elif weight is not None:
            ranges = sizes.ranges(weight)
            plan.final_weights[index] = Compared(weight.layer, ranges, (event.inputs[0],), plan.kept)
            plan.kept += length(ranges)


def _update(plan: RankPlan, event: Event) -> tuple[int, int, int] | None:
    """The gradient, the new weight and the new state of an operation that makes the first step of a loaded weight."""
    if event.op in COLLECTIVES or not event.outputs or len(event.inputs) < 2:
        return None
    taken = {type(value): number for number in event.inputs if isinstance(value := plan.program.values[number], Value)}
    given = {type(value): number for number in event.outputs if isinstance(value := plan.program.values[number], Value)}
    before, after = (plan.program.values[found[Weight]] if Weight in found else None for found in (taken, given))
    if not (isinstance(before, Weight) and isinstance(after, Weight) and before.step == 0 and after.step == 1):
        return None
    if WeightGrad not in taken or OptState not in given:
        return None
    return taken[WeightGrad], given[Weight], given[OptState]
