"""retime: the same schedule under other costs. Order, values and partners stay; only the times are worked out anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar, cast

from lib.cluster.clock import Streams
from lib.cluster.costs import Costs
from lib.cluster.reader import Readers
from lib.errors.exceptions import TraceError
from lib.trace.event import Event, Program
from lib.trace.order import Communicators, Do, Done, Issue, Meet, Pass, Read, Step, Walk, meetings, messages
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.laws import total_elements
from lib.values.operations import OPERATIONS
from lib.values.values import Value

__all__ = ["Scale", "alone", "retime"]

R = TypeVar("R", bound=Trace)
Scale = Callable[[int, Event], Fraction | int]
"""How long an event of a rank takes, compared with what the costs say. Of a collective its first member is asked."""


def _as_it_is(rank: int, event: Event) -> int:
    return 1


def retime(run: R, costs: Costs, scale: Scale = _as_it_is) -> R:
    """A copy of a run with the times that `costs` gives, each of them scaled. A run that failed is timed as far as it
    went.

    A bare `receive()` keeps the message that it got, even if under other costs another would have been first, and a
    reader serves its requests in the order in which it did.
    """
    if not isinstance(run, Trace):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"retime takes a Trace, such as models[0].trace, and costs; got {type(run).__name__}")
    if not isinstance(costs, Costs):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"costs= takes costs, such as Costs(p2p=0.1) or LINKS; got {costs!r}")
    copied = replace(run, programs=[_copy(program) for program in run.programs], costs=costs)
    prices, clocks = costs.on(run.mesh), [0] * run.ranks
    streams, communicator, readers = Streams(), Communicators(), Readers(costs, run.mesh)
    lengths = _Lengths(copied, prices, scale)
    walk = _Shared(copied, lengths) if prices.shared else Walk(copied)
    try:
        for step in walk.whole():
            if isinstance(step, Do):
                _local(lengths, clocks, step)
            elif isinstance(step, Issue):
                step.event.issued = clocks[step.rank]
                if step.event.op == "pass_to" and not prices.shared:
                    _send(lengths, streams, step)
            elif isinstance(step, Done):
                _done(clocks, step)
            elif isinstance(step, Read):
                found = readers.read(step.rank, step.event.batches, step.event.issued, scale(step.rank, step.event))
                step.event.start, step.event.length = found.start, found.length
            elif prices.shared:
                continue  # that is for the network to time
            elif isinstance(step, Meet):
                _meet(lengths, streams, communicator, step)
            else:
                _receive(lengths, streams, step)
    except TraceError:
        if run.error is None:
            raise
    if scale is not _as_it_is:
        copied.once(alone, lambda: _alone(copied, lengths))  # nothing else knows the scale
    return copied


def _copy(program: Program) -> Program:
    copy = Program(program.rank)
    copy.events = [event.copy() for event in program.events]
    for event in copy.events:
        event.start = None
    copy.values = program.values
    copy.moves = program.moves
    return copy


class _Lengths:
    """How long everything in a run takes, with all links for itself."""

    def __init__(self, run: Trace, prices: Costs, scale: Scale = _as_it_is) -> None:
        self.run = run
        self.shape = run.shape
        self.prices = prices
        self._scale = scale

    def _scaled(self, length: int, rank: int, event: Event) -> int:
        return length if self._scale is _as_it_is else round(length * self._scale(rank, event))

    def local(self, rank: int, event: Event) -> int:
        """What a rank does by itself."""
        row = OPERATIONS[event.op]
        if row.cost is None:
            return 0
        values = self.run.programs[rank].values_of(event.inputs)
        work = row.work(self.shape, event.layer, len(event.batches), values)
        return self._scaled(self.prices.compute(row, rank, event.layer, work), rank, event)

    def _values(self, rank: int, event: Event) -> list[Value]:
        found = self.run.programs[rank].values_of(event.inputs)
        if len(found) < len(event.inputs):  # in a run that failed before it was made
            raise TraceError(f"rank {rank}: {event.op} uses a value before it exists")
        return found

    def message(self, rank: int, event: Event, end: tuple[int, Event] | None = None) -> int:
        """What a message takes that is sent here, at its sender's end or at another one."""
        length = self.prices.message(total_elements(self._values(rank, event)), rank, cast(int, event.peer))
        return self._scaled(length, *(end or (rank, event)))

    def collective(self, members: Sequence[tuple[int, Event]]) -> int:
        """What a collective takes."""
        rank, first = members[0]
        row = COLLECTIVES[first.op]
        brought = row.brought([self._values(rank, event) for rank, event in members])
        length = self.prices.communicate(row, row.size(brought, row.said(first.arg)), first.group)
        return self._scaled(length, rank, first)


def _local(lengths: _Lengths, clocks: list[int], step: Do) -> None:
    event = step.event
    event.issued = event.start = clocks[step.rank]
    event.length = lengths.local(step.rank, event)
    clocks[step.rank] += event.length


def _send(lengths: _Lengths, streams: Streams, step: Issue) -> None:
    event = step.event
    streams.carry((step.rank, event.peer, "send"), event, lengths.message(step.rank, event))


def _receive(lengths: _Lengths, streams: Streams, step: Pass) -> None:
    event = step.received
    length = lengths.message(step.source, step.sent, (step.target, event))
    streams.carry((step.source, step.target, "receive"), event, length, cast(int, step.sent.end))


def _meet(lengths: _Lengths, streams: Streams, communicator: Communicators, step: Meet) -> None:
    events = [event for _, event in step.members]
    streams.meet(communicator(events[0].group), events, lengths.collective(step.members))


def _done(clocks: list[int], step: Done) -> None:
    now = clocks[step.rank]
    after = max(now, cast(int, step.event.end))
    if step.wait is not None:
        step.wait.issued = step.wait.start = now
        step.wait.length = after - now
    clocks[step.rank] = after


def alone(run: Trace) -> dict[tuple[int, int], int]:
    """What each communication that took place takes where it has all links for itself, by its rank and number. Empty
    where links are not shared, and nothing can take longer. Of a run that was timed with a scale it is so scaled."""
    return run.once(alone, lambda: _alone(run, _Lengths(run, run.costs.on(run.mesh))))


def _alone(run: Trace, lengths: _Lengths) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for members in meetings(run) if run.costs.shared else ():
        length = lengths.collective([(rank, run.programs[rank].events[number]) for rank, number in members])
        found.update(dict.fromkeys(members, length))
    for source, sent, target, received in messages(run) if run.costs.shared else ():
        first = run.programs[source].events[sent]
        found[source, sent] = lengths.message(source, first)
        if received is not None:
            second = target, run.programs[target].events[received]
            found[target, received] = lengths.message(source, first, second)
    return found


class _Shared(Walk):
    """Communications as a network of shared links has them: they take place when their time has come."""

    def __init__(self, run: Trace, lengths: _Lengths) -> None:
        from lib.cluster.network import Network  # here and not above: most costs share no links

        super().__init__(run)
        self.lengths = lengths
        self.network = Network(lengths.prices)
        self.receives: dict[tuple[int, int], tuple[int, int]] = {}
        """The receive of each message that is not over yet, by its send."""
        self.over: set[tuple[int, int]] = set()

    def later(self) -> bool:
        return self.network.step()

    def meet(self, members: list[tuple[int, int]]) -> None:
        events = [self.event(one) for one in members]
        length = self.lengths.collective([(rank, self.event((rank, i))) for rank, i in members])
        group = events[0].group
        self.network.meet(self.communicator(group), group, events, length, lambda: self.all_over(members))

    def all_over(self, members: list[tuple[int, int]]) -> None:
        """A collective is over."""
        for one in members:
            self.finish(one)

    def issue(self, where: tuple[int, int], event: Event) -> Iterator[Step]:
        if event.op == "pass_to" and event.peer is not None:
            length = self.lengths.message(where[0], event)
            self.network.send(where[0], event.peer, event, length, lambda: self.sent_off(where))
        yield from super().issue(where, event)

    def sent_off(self, sent: tuple[int, int]) -> None:
        """A message is over for its sender."""
        self.over.add(sent)
        self.finish(sent)
        if sent in self.receives:
            self.take(sent)

    def hand_over(self, sent: tuple[int, int], received: tuple[int, int]) -> None:
        self.receives[sent] = received
        if sent in self.over:
            self.take(sent)

    def take(self, sent: tuple[int, int]) -> None:
        """A message is there, and somebody wants it."""
        where = self.receives[sent]
        first, event = self.event(sent), self.event(where)
        length = self.lengths.message(sent[0], first, (where[0], event))
        self.network.receive(sent[0], where[0], event, length, cast(int, first.end), lambda: self.finish(where))

    def find_room(self, source: int, target: int) -> None:
        """The network says when there is room."""
