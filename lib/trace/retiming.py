"""retime: the same schedule under other costs. Order, values and partners stay; only the times are worked out anew.

A `Plan` of a run has what does not depend on its costs: the order of its steps, and how much is to be computed or sent
in each. It is made once, so that the same run under many costs is quick. Events are made when somebody asks for them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache, cached_property, partial
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, cast

from lib.cluster.costs import Costs, Streams
from lib.cluster.reader import Readers, process_of
from lib.errors.exceptions import TraceError
from lib.record import record, replace
from lib.trace.event import Event, Program
from lib.trace.order import Step, order
from lib.trace.trace import Trace, kept
from lib.values.collectives import COLLECTIVES
from lib.values.laws import total_elements
from lib.values.operations import COMMUNICATION, OPERATIONS, READS
from lib.values.values import Value

R = TypeVar("R", bound=Trace)
FREE = "free", "", 0, 0, 0
"""What an operation without a price is."""
Scale = Callable[[int, Event], Fraction | int]
"""How long an event of a rank takes, compared with what the costs say. Of a collective its first member is asked."""


def retime(run: R, costs: Costs, scale: Scale | None = None) -> R:
    """Return a copy of a run with the times that `costs` gives, each of them scaled. A run that failed is timed as far
    as it went.

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
    # No events yet: the same run under many costs is mostly asked for its end.
    programs: list[Program] = []
    for program, a, b in zip(run.programs, plan.first, plan.first[1:], strict=False):
        own = Times(times.issued[a:b], times.start[a:b], times.length[a:b])
        programs.append(_Timed(program, plan.events[a:b], own))
    # `replace` gives it no answers: those of the old times are wrong here, and the plan is the one that stays true.
    copied = replace(run, programs=programs, costs=costs)
    copied.answers.update({plan_of: plan, _lengths: lengths})  # nothing else knows the scale
    return copied


@kept
def alone(run: Trace) -> dict[tuple[int, int], int]:
    """Return what each communication that took place takes where it has all links for itself, by rank and number,
    scaled as the run is. Empty where links are not shared, and nothing can take longer."""
    if not run.costs.shared:
        return {}
    # What never took place has no length; a wait takes what is left, and a reader times its own.
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
        """Return when a rank goes on that waits for a communication from now on, perhaps in an event of its own."""
        end = cast(int, self.start[number]) + self.length[number]
        # Not max(): this runs for every communication of a run that is timed under many costs.
        after = end if end > now else now
        if wait:
            self.issued[wait[0]] = self.start[wait[0]] = now
            # The wait takes what is left of it, which is nothing where it was over before.
            self.length[wait[0]] = after - now
        return after

    def read(self, readers: Readers, rank: int, number: int, event: Event, scale: Scale | None) -> None:
        """Have a reader come to what a rank has asked for."""
        found = readers.read(rank, event.batches, self.issued[number], 1 if scale is None else scale(rank, event))
        self.start[number], self.length[number] = found.start, found.length


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
    """Return what the times of a run follow from, under whatever costs. Its copies of other times keep it too."""
    plan, values_of = Plan(run), [program.values_of for program in run.programs]
    events = plan.events
    for kind, rank, number, others in plan.order.steps:
        event = events[number]
        if kind == "do":
            for one in range(number, others[0]):
                plan.do(one, events[one], values_of[rank](events[one].inputs))
        elif kind == "pass":
            plan.thing[number] = plan.thing[others[0]]
        elif kind == "issue" and event.op == "pass_to":
            values = values_of[rank](event.inputs)
            # Else one of them was never made: the run failed before, and its times end there, too.
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
        # Each price is asked for once: a million events of a run are a few hundred different things.
        self.things: dict[tuple[Any, ...], int] = {FREE: 0}
        self.thing = [-1] * len(self.events)
        self._shape, self._mesh = run.shape, run.mesh

    def do(self, number: int, event: Event, values: Sequence[Value]) -> None:
        """Time an operation of a rank by itself."""
        op, row = event.op, OPERATIONS[event.op]
        if row.cost is None:
            self.thing[number] = 0
        else:
            work = row.work(self._shape, event.layer, len(event.batches), values)
            self.thing[number] = self.things.setdefault(("do", op, work, None, None), len(self.things))

    def send(self, rank: int, number: int, event: Event, values: Sequence[Value]) -> None:
        """Time a message."""
        key = "pass", event.op, total_elements(values), rank, event.peer
        self.thing[number] = self.things.setdefault(key, len(self.things))

    def meet(self, numbers: Sequence[int], event: Event, brought: Sequence[Sequence[Value]]) -> None:
        """Time a collective: the events of its members, one of them, and what each brings."""
        row = COLLECTIVES[event.op]
        size = row.paced(row.brought(brought), row.said(event.arg))
        same = self.things.setdefault(("meet", event.op, size, event.group, None), len(self.things))
        for number in numbers:
            self.thing[number] = same

    def set_times(self, run: Trace) -> None:
        """Write the times with a run's own costs into its events, which are its own, too."""
        times = self.times(run, run.costs, self.lengths(run.costs.on(run.mesh)))
        for event, issued, start, length in zip(self.events, *times, strict=True):
            event.issued, event.start, event.length = issued, start, length

    def lengths(self, prices: Costs, scale: Scale | None = None) -> list[int]:
        """Return what each event takes that has a price, with all links for itself; -1 for the others."""
        # A thing of -1 finds the last entry, which is -1.
        price = [*self._prices(prices), -1]
        lengths = [*map(price.__getitem__, self.thing)]
        if type(prices).compute is not Costs.compute:  # ranks and layers have prices of their own, as with Uneven
            things, ask = [*self.things, FREE], cache(prices.compute)
            for rank, (first, after) in enumerate(pairwise(self.first)):
                for number in range(first, after):
                    what, op, work, *_ = things[self.thing[number]]
                    if what == "do":
                        lengths[number] = ask(OPERATIONS[op], rank, self.events[number].layer, work)
        if scale is None:
            return lengths
        for kind, rank, number, others in self.order.steps:  # who is asked, and which events take as long
            event = self.events[number]
            # Each once: where it is issued, or takes place. A wait takes what is left, and a reader times its own.
            if kind == "done" or (kind == "issue" and event.op != "pass_to"):
                continue
            who = event.group[0] if kind == "meet" else rank
            for at in range(number, others[0] if kind == "do" else number + 1):
                # Scaled before they meet: a collective is as slow as its first member says, for all of its members.
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
        """Return the times of all events, which take so long where they have all links for themselves."""
        events = self.events
        # What is never reached keeps what was recorded: in a run that failed that is all there is.
        issued, length = ([*map(attrgetter(name), events)] for name in ("issued", "length"))
        start: list[int | None] = [None] * len(events)
        times = Times(issued, start, length)
        try:
            # Shared links need the order of simulated time; without them any order of the steps will do.
            if costs.shared:
                _Shared(self, run, costs, lengths, times, scale).go()
            else:
                self._alone(run, costs, lengths, times, scale)
            if self.order.stuck is not None:
                raise self.order.stuck
        except TraceError:
            if run.error is None:
                raise
        return times

    def _alone(self, run: Trace, costs: Costs, lengths: list[int], times: Times, scale: Scale | None) -> None:
        """Times where no link is shared: each step takes what it takes, whatever else is under way."""
        events, (issued, start, length), clocks = self.events, times, [0] * run.ranks
        streams, readers = Streams(), Readers(costs, run.mesh)
        for kind, rank, number, others in self.order.steps:
            if kind == "do":
                now = clocks[rank]
                for one in range(number, others[0]):
                    issued[one] = start[one] = now
                    length[one] = took = lengths[one]
                    now += took
                clocks[rank] = now
            elif kind == "issue":
                issued[number] = clocks[rank]
                if events[number].op == "pass_to":
                    length[number] = took = _known(lengths[number], rank, events[number])
                    start[number] = streams.carry((rank, events[number].peer, "send"), clocks[rank], took)
            elif kind == "done":
                clocks[rank] = times.awaited(clocks[rank], number, others)
            elif kind == "read":
                times.read(readers, rank, number, events[number], scale)
            elif kind == "pass":
                sent = others[0]
                length[number] = took = lengths[number]
                # It can be received when it is all there (store and forward), and takes its length at this end, too.
                end = cast(int, start[sent]) + length[sent]
                start[number] = streams.carry((events[number].peer, rank, "receive"), issued[number], took, end)
            else:
                took = _known(lengths[number], events[number].group[0], events[number])
                # Of a meeting `rank` is the number of its group: groups of the same ranks share a stream.
                begin = streams.carry(rank, max([issued[n] for n in others]), took)
                for n in others:
                    start[n], length[n] = begin, took

    @cached_property
    def partners(self) -> _Partners:
        """The same steps by rank, and who has to do with whom: where links are shared, times say which comes first."""
        found = _Partners([[] for _ in self.first[1:]], {}, {}, {}, defaultdict(list))
        # Taken apart, as here one order of all steps is not enough: which rank goes on first is decided by the network.
        for step in self.order.steps:
            kind, rank, number, others = step
            if kind == "meet":
                found.meetings.update(dict.fromkeys(others, (rank, others)))
            elif kind == "pass":
                found.received[others[0]], found.sent[number] = number, others[0]
            elif kind == "read":
                found.reads[process_of(self._mesh, rank)].append((rank, number))
            else:
                found.own[rank].append(step)
        return found


class _Partners(NamedTuple):
    """The steps of each rank by itself; of a member of a collective the number of its group, and all members; the
    receive of each message by its send, and the other way round; and what is read by each process, in its order."""

    own: list[list[Step]]
    meetings: dict[int, tuple[int, tuple[int, ...]]]
    received: dict[int, int]
    sent: dict[int, int]
    reads: dict[int, list[tuple[int, int]]]


def _known(length: int, rank: int, event: Event) -> int:
    """Return what a communication takes. TraceError where a value was never made that it sends."""
    if length < 0:
        raise TraceError(f"rank {rank}: {event.op} uses a value before it exists")
    return length


@record(frozen=False)
class _Moment:
    """The time of a communication of a rank on shared links, which the network tells."""

    rank: int
    issued: int
    start: Any = None
    length: int = 0


class _Shared:
    """Times where links are shared: communications are over when the network says so, and their ranks go on then."""

    def __init__(
        self, plan: Plan, run: Trace, costs: Costs, lengths: list[int], times: Times, scale: Scale | None
    ) -> None:
        from lib.cluster.network import Network  # here and not above: most costs share no links

        self.events, self.lengths, self.times, self.scale = plan.events, lengths, times, scale
        self.partners = plan.partners
        self.network = Network(costs.on(run.mesh))
        self.readers = Readers(costs, run.mesh)
        self.moments: dict[int, _Moment] = {}
        self.over: set[int] = set()
        self.joined: dict[int, int] = defaultdict(int)
        # Receives and reads that have been.
        self.called: set[int] = set()
        self.queues = {process: deque(queue) for process, queue in plan.partners.reads.items()}
        self.mesh = run.mesh
        self.ranks = [self.follow(rank) for rank in range(run.ranks)]
        self.ready = deque(range(run.ranks))

    def go(self) -> None:
        """Goes on until nothing happens any more. What is under way then is in the times as it will be."""
        # Ranks first: only when all of them wait is it certain that nothing more is sent at this moment.
        while self.ready or self.network.step():
            if self.ready:
                next(self.ranks[self.ready.popleft()], None)
        for number in self.moments.keys() - self.over:
            moment = self.moments[number]
            if moment.start is not None:
                self.times.start[number], self.times.length[number] = moment.start, moment.length

    def follow(self, rank: int) -> Iterator[None]:
        """Follows a rank, which stops where something is not over that it waits for."""
        (issued, start, length), lengths, over, clock = self.times, self.lengths, self.over, 0
        for kind, _, number, others in self.partners.own[rank]:
            if kind == "do":
                for one in range(number, others[0]):
                    issued[one] = start[one] = clock
                    length[one] = took = lengths[one]
                    clock += took
            elif kind == "issue":
                issued[number] = clock
                self.issue(rank, number)
            else:
                while number not in over:
                    yield
                clock = self.times.awaited(clock, number, others)

    def issue(self, rank: int, number: int) -> None:
        event, partners = self.events[number], self.partners
        moment = self.moments[number] = _Moment(rank, self.times.issued[number])
        # The last of them starts it, as in `Dist.join`.
        if number in partners.meetings:
            group, members = partners.meetings[number]
            self.joined[members[0]] += 1
            if self.joined[members[0]] == len(members):
                length = _known(self.lengths[number], event.group[0], event)
                moments = [self.moments[one] for one in members]
                self.network.meet(group, event.group, moments, length, partial(self.finish, *members))
        elif event.op in READS:
            self.serve(rank, number)
        elif event.op == "pass_to" and event.peer is not None:
            length = _known(self.lengths[number], rank, event)
            self.network.send(rank, event.peer, moment, length, partial(self.sent_off, number))
        else:
            self.called.add(number)
            # Whichever of the two comes last begins the receive; the other way round see `sent_off`.
            if (sent := partners.sent.get(number)) in self.over:
                self.take(sent, number)

    def serve(self, rank: int, number: int) -> None:
        """A reader comes to what it was asked for, in the order in which it did, as soon as that is asked for."""
        self.called.add(number)
        queue = self.queues[process_of(self.mesh, rank)]
        # As recorded, for the reason that `_Walk.serve` has.
        while queue and queue[0][1] in self.called:
            reader, read = queue.popleft()
            self.times.read(self.readers, reader, read, self.events[read], self.scale)
            self.over.add(read)
            self.ready.append(reader)

    def finish(self, *numbers: int) -> None:
        """A communication is over, in these events of those who take part."""
        for number in numbers:
            moment = self.moments[number]
            self.times.start[number], self.times.length[number] = moment.start, moment.length
            self.over.add(number)
            self.ready.append(moment.rank)

    def sent_off(self, sent: int) -> None:
        """A message is over for its sender. Its receive may have been called."""
        self.finish(sent)
        received = self.partners.received.get(sent)
        if received in self.called:
            self.take(sent, received)

    def take(self, sent: int, received: int) -> None:
        """A message is there, and its receive is called."""
        send, receive = self.moments[sent], self.moments[received]
        there, then = send.start + send.length, partial(self.finish, received)
        self.network.receive(send.rank, receive.rank, receive, self.lengths[received], there, then)
