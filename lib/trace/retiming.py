"""retime: the same schedule under other costs. Order, values and partners stay; only the times are worked out anew.

A `Plan` of a run has all that does not depend on costs: the order of its steps, and the work or data of each. It is
made once, so that many costs are quick to try. Events are made on demand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from fractions import Fraction
from functools import cache, cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from lib.cluster.costs import Costs, Stream
from lib.cluster.reader import Readers
from lib.errors.exceptions import TraceError
from lib.record import replace
from lib.trace.event import Event, Program
from lib.trace.order import order
from lib.trace.trace import Trace, kept
from lib.values.collectives import COLLECTIVES
from lib.values.laws import total_elements
from lib.values.operations import COMMUNICATION, MESSAGES, OPERATIONS, READS, Operation
from lib.values.values import Value

if TYPE_CHECKING:
    from lib.cluster.shared_links import Partners

R = TypeVar("R", bound=Trace)
FREE = "free", "", 0, 0, 0
"""The entry of operations without a price."""
Scale = Callable[[int, Event], Fraction | int]
"""The factor by which an event of a rank takes longer than the costs say; of a collective, that of its first member."""


def retime(run: R, costs: Costs, scale: Scale | None = None) -> R:
    """Return a copy of a run with the times that `costs` gives, each scaled. A run that failed is timed as far as it
    went.

    A bare `receive()` keeps the message that it got, even if another would be first under other costs, and a reader
    serves its requests in the recorded order.

    >>> async def work(model):
    ...     model.forward(0, model.get_activation([0]), model.load_weights(0)[0])
    >>> check(retime(simulate(work, layers=1)[0].trace, Costs(forward=5))).time
    5.0
    """
    if not isinstance(run, Trace):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"retime takes a Trace, such as models[0].trace, and costs; got {type(run).__name__}")
    if not isinstance(costs, Costs):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"costs= takes costs, such as Costs(p2p=0.1) or LINKS; got {costs!r}")
    plan = plan_of(run)
    lengths = plan.lengths(costs.on(run.mesh), scale)
    times = plan.times(run, costs, lengths, scale)
    programs: list[Program] = []
    for program, a, b in zip(run.programs, plan.first, plan.first[1:], strict=False):
        own = Times(times.issued[a:b], times.start[a:b], times.length[a:b])
        programs.append(_Timed(program, plan.events[a:b], own))
    # `replace` copies no answers, as those about the old times are wrong; only the plan is still right.
    copied = replace(run, programs=programs, costs=costs)
    copied.answers.update({plan_of: plan, _lengths: lengths})  # only here is the scale known
    return copied


@kept
def alone(run: Trace) -> dict[tuple[int, int], int]:
    """Return the time of each communication that took place if it has all links to itself, by rank and number, with
    the scale of the run. Empty if links are not shared, and nothing can take longer."""
    if not run.costs.shared:
        return {}
    # What never took place has no length; a wait takes the time that is left, and a reader times its own.
    lengths, talks = iter(_lengths(run)), COMMUNICATION - READS
    every = [((p.rank, i), event.op, next(lengths)) for p in run.programs for i, event in enumerate(p.events)]
    return {where: length for where, op, length in every if length >= 0 and op in talks}


@kept
def _lengths(run: Trace) -> list[int]:
    return plan_of(run).lengths(run.costs.on(run.mesh))


class Times(NamedTuple):
    """The times of a run's events: when each is issued, when it starts, and how long it takes."""

    issued: list[int]
    start: list[int | None]
    length: list[int]

    def awaited(self, now: int, number: int, wait: tuple[int, ...]) -> int:
        """Return when a rank goes on that waits from `now` on for a communication, perhaps with a `wait` event."""
        start: Any = self.start[number]
        end: int = start + self.length[number]
        # Not max(): this runs for every communication of a run that is timed under many costs.
        after = end if end > now else now
        if wait:
            self.issued[wait[0]] = self.start[wait[0]] = now
            # The wait takes the time that is left: none if it was over before.
            self.length[wait[0]] = after - now
        return after

    def held(self, sent: int, before: int) -> None:
        """Make a message wait for its room, which is free when the receive of the one before it has begun."""
        self.length[sent] = max(self.length[sent], cast(int, self.start[before]) - cast(int, self.start[sent]))

    def read(self, readers: Readers, rank: int, number: int, event: Event, scale: Scale | None) -> None:
        """Time a read, which the reader serves now."""
        found = readers.read(rank, event.batches, self.issued[number], 1 if scale is None else scale(rank, event))
        self.start[number], self.length[number] = found.start, found.length


class _Timed(Program):
    """A program with other times. Its events are made on demand."""

    def __init__(self, program: Program, events: Sequence[Event], times: Times) -> None:
        self.rank, self.values, self.moves = program.rank, program.values, program.moves
        self._events, self._times = events, times

    @cached_property
    def events(self) -> Sequence[Event]:  # pyright: ignore[reportIncompatibleVariableOverride]
        times = self._times
        return tuple(map(Event.at, self._events, times.issued, times.start, times.length))

    @property
    def end(self) -> int:
        spans = zip(self._times.start, self._times.length, strict=True)
        return max((start + length for start, length in spans if start is not None), default=0)


@kept
def plan_of(run: Trace) -> Plan:
    """Return the plan from which the times of a run follow, under any costs. Retimed copies share it."""
    plan, values_of = Plan(run), [program.values_of for program in run.programs]
    events = plan.events
    for kind, rank, number, others in plan.order.steps:
        event = events[number]
        if kind == "do":
            for one, event in enumerate(events[number : others[0]], number):
                plan.do(one, OPERATIONS[event.op], event.layer, event.batches, values_of[rank](event.inputs))
        elif kind == "pass":
            plan.thing[number] = plan.thing[others[0]]
        elif kind == "issue" and event.op == "pass_to":
            values = values_of[rank](event.inputs)
            # Else one was never made: the run failed before, and its times end there too.
            if len(values) == len(event.inputs):
                plan.send(rank, number, event, values)
        elif kind == "meet":
            brought = [values_of[r](events[n].inputs) for r, n in zip(event.group, others, strict=True)]
            if all(len(mine) == len(events[n].inputs) for mine, n in zip(brought, others, strict=True)):
                plan.meet(others, event, brought)
    return plan


class Plan:
    """The steps of a run, and the work or data of each event.

    Runs repeat themselves, so there are few distinct prices, and `thing` says which one an event has. -1: none that is
    known, as it did not take place, or a value of it was never made. The caller passes each step's values.
    """

    def __init__(self, run: Trace) -> None:
        self.order = order(run)
        self.events, self.first = self.order.events, self.order.first
        # Each distinct price is worked out once: a million events have a few hundred.
        self.things: dict[tuple[Any, ...], int] = {FREE: 0}
        self.thing = [-1] * len(self.events)
        self._shape, self._mesh = run.shape, run.mesh
        self._again = False  # whether times were asked for before, as a check asks once

    def do(self, number: int, row: Operation, layer: int | None, batches: Set[int], values: Sequence[Value]) -> None:
        """Note the work of an operation without communication, which has this row."""
        if row.cost is None:
            self.thing[number] = 0
        else:
            work = row.work(self._shape, layer, len(batches), values)
            self.thing[number] = self.things.setdefault(("do", row.name, work, None, None), len(self.things))

    def send(self, rank: int, number: int, event: Event, values: Sequence[Value]) -> None:
        """Note the size of a message."""
        key = "pass", event.op, total_elements(values), rank, event.peer
        self.thing[number] = self.things.setdefault(key, len(self.things))

    def meet(self, numbers: Sequence[int], event: Event, brought: Sequence[Sequence[Value]]) -> None:
        """Note the size of a collective: its events' numbers, one of its events, and what each member brings."""
        row = COLLECTIVES[event.op]
        size = row.paced(row.brought(brought), row.said(event.arg))
        same = self.things.setdefault(("meet", event.op, size, event.group, None), len(self.things))
        for number in numbers:
            self.thing[number] = same

    def lengths(self, prices: Costs, scale: Scale | None = None) -> list[int]:
        """Return the time of each event that has a price, with all links to itself; -1 for the others."""
        # A thing of -1 finds the last entry, which is -1.
        price = [*self._prices(prices), -1]
        lengths = [*map(price.__getitem__, self.thing)]
        if type(prices).compute is not Costs.compute:  # prices depend on rank and layer, as with Uneven
            things, ask = [*self.things, FREE], cache(prices.compute)
            for rank, (first, after) in enumerate(pairwise(self.first)):
                for number in range(first, after):
                    what, op, work, *_ = things[self.thing[number]]
                    if what == "do":
                        lengths[number] = ask(OPERATIONS[op], rank, self.events[number].layer, work)
        if scale is None:
            return lengths
        for kind, rank, number, others in self.order.steps:  # which rank is asked, and which events take as long
            event = self.events[number]
            # Each once: where it is issued, or takes place. A wait takes the rest, and a reader times its own.
            if kind == "done" or (kind == "issue" and event.op != "pass_to"):
                continue
            who = event.group[0] if kind == "meet" else rank
            for at in range(number, others[0] if kind == "do" else number + 1):
                # The first member of a collective determines the scale for all.
                if lengths[at] > 0 and (factor := scale(who, self.events[at])) != 1:
                    scaled = round(lengths[at] * factor)
                    for one in others if kind == "meet" else (at,):
                        lengths[one] = scaled
        return lengths

    def _prices(self, prices: Costs) -> Iterator[int]:
        for what, op, size, who, whom in self.things:
            if what == "do":
                yield prices.compute(OPERATIONS[op], 0, None, size)
            elif what == "meet":
                yield prices.communicate(COLLECTIVES[op], size, who)
            else:
                yield prices.message(size, who, whom) if what == "pass" else 0

    def times(self, run: Trace, costs: Costs, lengths: list[int], scale: Scale | None = None) -> Times:
        """Return the times of all events, given their `lengths` with all links to themselves."""
        times = Times([*self.recorded.issued], [None] * len(self.events), [*self.recorded.length])
        try:
            # Shared links need the order of simulated time; without them any order of the steps will do.
            if costs.shared:
                from lib.cluster.shared_links import carry  # here and not above: most costs share no links

                carry(self, run, costs, lengths, times, scale)
            else:
                self.alone(run, costs, lengths, times, scale)
            if self.order.stuck is not None:
                raise self.order.stuck
        except TraceError:
            if run.error is None:
                raise
        return times

    def alone(self, run: Trace, costs: Costs, lengths: list[int], times: Times, scale: Scale | None) -> None:
        """Fill in times if no link is shared: steps do not slow each other."""
        events, (issued, start, length), clocks = self.events, cast("Any", times), [0] * run.ranks
        streams, readers = defaultdict[Hashable, Stream](Stream), Readers(costs, run.mesh)
        ahead = self.partners.ahead if costs.shared else {}
        # Not for a run that failed, which ends anywhere, nor for shared links, where a send may wait for room.
        quick, self._again = self._again and run.error is None and not costs.shared, True
        for kind, rank, number, others in self._quick_steps if quick else self.order.steps:
            if kind == "do":
                did = slice(number, others[0])
                length[did] = took = lengths[did]
                *begun, clocks[rank] = accumulate(took, initial=clocks[rank])
                issued[did] = start[did] = begun
            elif kind == "received":
                now, there, length[number] = clocks[rank], start[others[0]] + length[others[0]], lengths[number]
                issued[number], start[number] = now, there if there > now else now
                clocks[rank] = start[number] + length[number]
            elif kind == "issue":
                issued[number] = clocks[rank]
                if events[number].op == "pass_to":
                    length[number] = took = self.known(lengths, rank, number)
                    start[number] = streams[rank, events[number].peer, "send"].carry(clocks[rank], took)
            elif kind == "done":
                if number in ahead:
                    times.held(number, ahead[number])
                clocks[rank] = times.awaited(clocks[rank], number, others)
            elif kind == "read":
                times.read(readers, rank, number, events[number], scale)
            elif kind == "pass":
                sent = others[0]
                if sent in ahead:
                    times.held(sent, ahead[sent])
                length[number] = took = lengths[number]
                # Store and forward: it can be received when it is complete, and takes its length at this end too.
                end = start[sent] + length[sent]
                start[number] = streams[events[number].peer, rank, "receive"].carry(issued[number], took, end)
            else:
                took = self.known(lengths, events[number].group[0], number)
                # In a meeting `rank` is the number of its group: groups of the same ranks share a stream.
                begin = streams[rank].carry(max(map(issued.__getitem__, others)), took)
                for n in others:
                    start[n], length[n] = begin, took

    @cached_property
    def recorded(self) -> Times:
        """The times that the run states. Events that are never reached in a run that failed keep them, but no start."""
        every = self.events
        return Times([event.issued for event in every], [e.start for e in every], [e.length for e in every])

    @cached_property
    def _quick_steps(self) -> list[tuple[str, int, int, tuple[int, ...]]]:
        """The steps of a run in which messages are awaited at once: a receive is one step, `received`, and a send like
        a computation, so that what a rank does between two receives is one step. A pipeline is timed in half of the
        time (tests/trace/test_retiming.py holds it to the simulation).

        Both keep their rank busy like a computation, if all messages of that direction are awaited at once: none ever
        finds an earlier one on its stream.
        """
        events, steps, last = self.events, list[tuple[str, int, int, tuple[int, ...]]](), dict[int, int]()
        calls = ((events[number], rank) for kind, rank, number, _ in self.order.steps if kind == "issue")
        posted = {(event.op, rank, event.peer) for event, rank in calls if not event.blocking}
        for step in self.order.steps:
            kind, rank, number, others = step
            event = events[number]
            quick = event.op in MESSAGES and (event.op, rank, event.peer) not in posted and self.thing[number] >= 0
            if kind == "do" or (quick and kind == "issue" and event.op == "pass_to"):
                after = others if kind == "do" else (number + 1,)
                at = last.get(rank, -1)
                if at >= 0 and steps[at][3] == (number,):
                    steps[at] = ("do", rank, steps[at][2], after)
                else:
                    last[rank] = len(steps)
                    steps.append(("do", rank, number, after))
            elif quick and kind == "pass":
                steps.append(("received", rank, number, others))
            elif not quick:
                steps.append(step)
        return steps

    @cached_property
    def partners(self) -> Partners:
        """The same steps by rank, with the partners of each: on shared links, times determine their order."""
        from lib.cluster.shared_links import Partners

        return Partners.of(self, self._mesh)

    def known(self, lengths: list[int], rank: int, number: int) -> int:
        """Return the length of a communication. TraceError if a value that it sends was never made."""
        if lengths[number] < 0:
            raise TraceError(f"rank {rank}: {self.events[number].op} uses a value before it exists")
        return lengths[number]
