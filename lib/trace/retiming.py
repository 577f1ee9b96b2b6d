"""retime: the same schedule under other costs. Order, values and partners stay; only the times are worked out anew.

A `Plan` of a run has what does not depend on its costs: the order of its steps, and how much is to be computed or sent
in each. It is made once, so that the same run under many costs is quick. Events are made when somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar, cast

from lib.cluster.costs import Costs, Streams
from lib.cluster.reader import Readers
from lib.errors.exceptions import TraceError
from lib.trace.event import Event, Program
from lib.trace.order import Step, Walk, meetings, messages, order
from lib.trace.trace import Trace, kept
from lib.values.collectives import COLLECTIVES
from lib.values.laws import total_elements
from lib.values.operations import OPERATIONS
from lib.values.values import Value

R = TypeVar("R", bound=Trace)
FREE = "free", "", 0, 0, 0
"""What an operation without a price is."""
Scale = Callable[[int, Event], Fraction | int]
"""How long an event of a rank takes, compared with what the costs say. Of a collective its first member is asked."""


def retime(run: R, costs: Costs, scale: Scale | None = None) -> R:
    """A copy of a run with the times that `costs` gives, each of them scaled. A run that failed is timed as far as it
    went.

    A bare `receive()` keeps the message that it got, even if under other costs another would have been first, and a
    reader serves its requests in the order in which it did.

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
    copied = replace(run, programs=programs, costs=costs)
    copied.answers.update({plan_of: plan, _lengths: lengths})  # nothing else knows the scale
    return copied


@kept
def alone(run: Trace) -> dict[tuple[int, int], int]:
    """Return what each communication that took place takes where it has all links for itself, by its rank and
    number. Empty where links are not shared, and nothing can take longer. Of a run that was timed with a scale it is
    so scaled."""
    if not run.costs.shared:
        return {}
    first, lengths = plan_of(run).first, _lengths(run)
    ends = [one for members in meetings(run) for one in members]
    for source, sent, target, received in messages(run):
        ends += [(source, sent)] if received is None else [(source, sent), (target, received)]
    return {(rank, number): lengths[first[rank] + number] for rank, number in ends}


@kept
def _lengths(run: Trace) -> list[int]:
    return plan_of(run).lengths(run.costs.on(run.mesh))


class Times(NamedTuple):
    """The times of a run's events: when each is issued, when it starts, and how long it takes."""

    issued: list[int]
    start: list[int | None]
    length: list[int]


class _Timed(Program):
    """A program with other times. Its events are made when somebody asks for them."""

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
    """Return what the times of a run follow from, under whatever costs. Kept with it, and with its copies of other
    times."""
    plan, values_of = Plan(run), [program.values_of for program in run.programs]
    events = plan.events
    for kind, rank, number, others in plan.order.steps:
        event = events[number]
        if kind == "do":
            plan.do(rank, number, event, values_of[rank](event.inputs))
        elif kind == "pass":
            plan.thing[number] = plan.thing[others[0]]
        elif kind == "issue" and event.op == "pass_to":
            values = values_of[rank](event.inputs)
            if len(values) == len(event.inputs):
                plan.send(rank, number, event, values)
        elif kind == "meet":
            brought = [values_of[r](events[n].inputs) for r, n in zip(event.group, others, strict=True)]
            if all(len(mine) == len(events[n].inputs) for mine, n in zip(brought, others, strict=True)):
                plan.meet(others, event, brought)
    return plan


class Plan:
    """The steps of a run, and what is to be paid for in each event.

    Most runs do the same again and again: few different things have a price, and `thing` says which of them an event
    is. -1: none that is known, as it did not take place, or a value of it was never made. Who has the values at hand,
    as they are made or afterwards, tells what each step works on.
    """

    def __init__(self, run: Trace) -> None:
        self.order = order(run)
        self.events, self.first = self.order.events, self.order.first
        self.things: dict[tuple[Any, ...], int] = {FREE: 0}
        self.thing = [-1] * len(self.events)
        self._shape = run.shape

    def do(self, rank: int, number: int, event: Event, values: Sequence[Value]) -> None:
        """An operation of a rank by itself."""
        row = OPERATIONS[event.op]
        if row.cost is None:
            self.thing[number] = 0
        else:
            work = row.work(self._shape, event.layer, len(event.batches), values)
            self.thing[number] = self.things.setdefault(("do", event.op, work, rank, event.layer), len(self.things))

    def send(self, rank: int, number: int, event: Event, values: Sequence[Value]) -> None:
        """A message."""
        key = "pass", event.op, total_elements(values), rank, event.peer
        self.thing[number] = self.things.setdefault(key, len(self.things))

    def meet(self, numbers: Sequence[int], event: Event, brought: Sequence[Sequence[Value]]) -> None:
        """A collective: the events of its members, one of them, and what each brings."""
        row = COLLECTIVES[event.op]
        size = row.paced(row.brought(brought), row.said(event.arg))
        same = self.things.setdefault(("meet", event.op, size, event.group, None), len(self.things))
        for number in numbers:
            self.thing[number] = same

    def set_times(self, run: Trace) -> None:
        """Writes the times with a run's own costs into its events, which are its own, too."""
        times = self.times(run, run.costs, self.lengths(run.costs.on(run.mesh)))
        for event, issued, start, length in zip(self.events, *times, strict=True):
            event.issued, event.start, event.length = issued, start, length

    def lengths(self, prices: Costs, scale: Scale | None = None) -> list[int]:
        """Return what each event takes that has a price, with all links for itself; -1 for the others."""
        price = [*self._prices(prices), -1]
        lengths = [price[thing] for thing in self.thing]
        if scale is None:
            return lengths
        for kind, rank, number, others in self.order.steps:  # who is asked, and which events take as long
            event = self.events[number]
            if kind not in ("do", "meet", "pass") and (kind != "issue" or event.op != "pass_to"):
                continue
            who = event.group[0] if kind == "meet" else rank
            if lengths[number] > 0 and (factor := scale(who, event)) != 1:
                scaled = round(lengths[number] * factor)
                for one in others if kind == "meet" else (number,):
                    lengths[one] = scaled
        return lengths

    def _prices(self, prices: Costs) -> Iterator[int]:
        for what, op, size, who, whom in self.things:
            if what == "do":
                yield prices.compute(OPERATIONS[op], who, whom, size)
            elif what == "meet":
                yield prices.communicate(COLLECTIVES[op], size, who)
            else:
                yield prices.message(size, who, whom) if what == "pass" else 0

    def times(self, run: Trace, costs: Costs, lengths: list[int], scale: Scale | None = None) -> Times:
        """The times of all events, which take so long where they have all links for themselves."""
        events, prices = self.events, costs.on(run.mesh)
        issued, length = [event.issued for event in events], [event.length for event in events]
        start: list[int | None] = [None] * len(events)
        times, clocks = Times(issued, start, length), [0] * run.ranks
        streams, readers = Streams(), Readers(costs, run.mesh)
        shared = _Shared(run, prices, lengths, times) if costs.shared else None
        try:
            for kind, rank, number, others in self.order.steps if shared is None else shared.steps():
                if kind == "do":
                    issued[number] = start[number] = now = clocks[rank]
                    length[number] = took = lengths[number]
                    clocks[rank] = now + took
                elif kind == "issue":
                    issued[number] = clocks[rank]
                    if shared is None and events[number].op == "pass_to":
                        length[number] = took = _known(lengths[number], rank, events[number])
                        start[number] = streams.carry((rank, events[number].peer, "send"), clocks[rank], took)
                elif kind == "done":
                    now, end = clocks[rank], cast(int, start[number]) + length[number]
                    if end > now:
                        clocks[rank] = end
                    if others:
                        wait = others[0]
                        issued[wait] = start[wait] = now
                        length[wait] = clocks[rank] - now
                elif kind == "read":
                    event = events[number]
                    read = readers.read(rank, event.batches, issued[number], 1 if scale is None else scale(rank, event))
                    start[number], length[number] = read.start, read.length
                elif shared is not None:
                    continue  # that is for the network to time
                elif kind == "pass":
                    sent = others[0]
                    length[number] = took = lengths[number]
                    end = cast(int, start[sent]) + length[sent]
                    start[number] = streams.carry((events[number].peer, rank, "receive"), issued[number], took, end)
                else:
                    took = _known(lengths[number], events[number].group[0], events[number])
                    begin = streams.meet(rank, [issued[n] for n in others], took)
                    for n in others:
                        start[n], length[n] = begin, took
            stuck = self.order.stuck if shared is None else shared.stuck()
            if stuck is not None:
                raise stuck
        except TraceError:
            if run.error is None:
                raise
        if shared is not None:
            shared.note()
        return times


def _known(length: int, rank: int, event: Event) -> int:
    """Return what a communication takes. TraceError where a value was never made that it sends, as in a run that
    failed."""
    if length < 0:
        raise TraceError(f"rank {rank}: {event.op} uses a value before it exists")
    return length


@dataclass(slots=True)
class _Moment:
    """The time of a communication on shared links."""

    issued: int
    start: int | None = None
    length: int = 0


class _Shared(Walk):
    """Communications as a network of shared links has them: they take place when their time has come."""

    def __init__(self, run: Trace, prices: Costs, lengths: list[int], times: Times) -> None:
        from lib.cluster.network import Network  # here and not above: most costs share no links

        super().__init__(run)
        self.lengths = lengths
        self.times = times
        self.network = Network(prices)
        self.moments: dict[int, _Moment] = {}
        self.receives: dict[int, tuple[int, int]] = {}
        """The receive of each message that is not over yet, with its rank, by its send."""

    def moment(self, number: int) -> _Moment:
        found = self.moments[number] = _Moment(self.times.issued[number])
        return found

    def note(self, *numbers: int) -> None:
        """Writes down when communications began, and what they take."""
        for number in numbers or self.moments:
            moment = self.moments[number]
            if moment.start is not None:
                self.times.start[number], self.times.length[number] = moment.start, moment.length

    def later(self) -> bool:
        return self.network.step()

    def meet(self, members: dict[int, int]) -> None:
        ranks, numbers = [*members], [*members.values()]
        moments = [self.moment(number) for number in numbers]
        stream = self.communicator(self.events[numbers[0]].group)
        length = _known(self.lengths[numbers[0]], ranks[0], self.events[numbers[0]])
        self.network.meet(stream, ranks, moments, length, lambda: self.over(members))

    def over(self, members: dict[int, int]) -> None:
        """A communication is over for these ranks."""
        self.note(*members.values())
        for rank, number in members.items():
            self.finish(rank, number)

    def issue(self, rank: int, number: int, event: Event) -> Iterator[Step]:
        if event.op == "pass_to" and event.peer is not None:
            length, then = _known(self.lengths[number], rank, event), partial(self.sent_off, rank, number)
            self.network.send(rank, event.peer, self.moment(number), length, then)
        yield from super().issue(rank, number, event)

    def sent_off(self, source: int, sent: int) -> None:
        """A message is over for its sender."""
        self.over({source: sent})
        if sent in self.receives:
            self.take(source, sent)

    def hand_over(self, source: int, sent: int, target: int, received: int) -> None:
        self.receives[sent] = target, received
        if self.complete[sent]:
            self.take(source, sent)

    def take(self, source: int, sent: int) -> None:
        """A message is there, and somebody wants it."""
        target, received = self.receives[sent]
        moment, end = self.moments[sent], self.moment(received)
        over = cast(int, moment.start) + moment.length
        self.network.receive(source, target, end, self.lengths[received], over, lambda: self.over({target: received}))

    def find_room(self, source: int, target: int) -> None:
        """The network says when there is room."""
