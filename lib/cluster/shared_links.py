"""A run on shared links, whose order and values are known: when its communications begin and end.

Alone on its links a communication is not slowed. So a run is first timed as if no link were shared; only if that puts
two things on one link at a time, it is simulated with the network, which takes five times as long.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lib.cluster.network import Network
from lib.cluster.reader import Readers, process_of
from lib.record import record
from lib.values.operations import READS

if TYPE_CHECKING:
    from lib.cluster.costs import Costs
    from lib.cluster.mesh import Mesh
    from lib.trace.order import Step
    from lib.trace.retiming import Plan, Scale, Times
    from lib.trace.trace import Trace


def carry(plan: Plan, run: Trace, costs: Costs, lengths: list[int], times: Times, scale: Scale | None) -> None:
    """Fill in the times of a run on shared links. `lengths` are those of communications alone on their links."""
    if run.error is not None or not passed_alone(plan, run, costs, lengths, times, scale):
        _Shared(plan, run, costs, lengths, times, scale).go()


def passed_alone(plan: Plan, run: Trace, costs: Costs, lengths: list[int], times: Times, scale: Scale | None) -> bool:
    """Tell whether each link has one thing at a time, as in most pipelines. If so, fill in the times of the run."""
    copies = type(times)([*times.issued], [*times.start], [*times.length])
    plan.alone(run, costs, lengths, copies, scale)
    routes, (_, start, length) = costs.on(run.mesh), cast("tuple[Any, list[int], list[int]]", copies)
    spans: dict[Hashable, list[tuple[int, int]]] = defaultdict(list)
    for (way, *ends), numbers in plan.partners.carried.items():
        # What takes no time is over before it can share a link.
        mine = [(start[n], start[n] + lengths[n]) for n in numbers if lengths[n]]
        for link in routes.passes(ends) if way == "all" else routes.passes_at(way, *ends):
            spans[link] += mine
        # Not covered here: a message behind one that waits for room, or is never received.
        for one, other in pairwise(numbers if way == "out" else ()):
            end, room = start[other] + length[other], plan.partners.ahead.get(other)
            if room is None or start[one] + length[one] > start[other] or start[room] > end:
                return False
    if any(one[1] > other[0] for mine in spans.values() for one, other in pairwise(sorted(mine))):
        return False
    for found, given in zip(copies, times, strict=True):
        given[:] = cast("list[Any]", found)
    return True


class Partners(NamedTuple):
    """The steps of each rank by itself; for each member's event of a collective the number of the group and all events;
    the receive of each message by its send, and vice versa; and the reads of each process, in order.

    `carried` is what goes over links, in the order of each stream: messages "out" of a rank to another, messages "in"
    at a rank from another, and collectives of "all" their members. `ahead` has for each send the receive of the message
    before it, whose room it needs."""

    own: list[list[Step]]
    meetings: dict[int, tuple[int, tuple[int, ...]]]
    received: dict[int, int]
    sent: dict[int, int]
    reads: dict[int, list[tuple[int, int]]]
    carried: dict[tuple[Any, ...], list[int]]
    ahead: dict[int, int]

    @classmethod
    def of(cls, plan: Plan, mesh: Mesh | None) -> Partners:
        """Split a plan's steps by rank: the network decides which rank goes on first, so one order is not enough."""
        found = cls([[] for _ in plan.first[1:]], {}, {}, {}, defaultdict(list), defaultdict(list), {})
        for step in plan.order.steps:
            kind, rank, number, others = step
            event = plan.events[number]
            if kind == "meet":
                found.meetings.update(dict.fromkeys(others, (rank, others)))
                found.carried["all", *event.group].append(number)
            elif kind == "pass":
                found.received[others[0]], found.sent[number] = number, others[0]
                found.carried["in", rank, event.peer].append(number)
            elif kind == "read":
                found.reads[process_of(mesh, rank)].append((rank, number))
            else:
                found.own[rank].append(step)
                if kind == "issue" and event.op == "pass_to":
                    found.carried["out", rank, event.peer].append(number)
        for (way, *_), numbers in found.carried.items():
            if way == "out":
                found.ahead.update({b: found.received[a] for a, b in pairwise(numbers) if a in found.received})
        return found


@record(frozen=False)
class _Moment:
    """The time of a rank's communication on shared links, which the network fills in."""

    rank: int
    issued: int
    start: Any = None
    length: int = 0


class _Shared:
    """Times on shared links: the network determines when communications are over and their ranks go on."""

    def __init__(
        self, plan: Plan, run: Trace, costs: Costs, lengths: list[int], times: Times, scale: Scale | None
    ) -> None:
        self.plan, self.events, self.lengths, self.times, self.scale = plan, plan.events, lengths, times, scale
        self.partners = plan.partners
        self.network = Network(costs.on(run.mesh))
        self.readers = Readers(costs, run.mesh)
        self.moments: dict[int, _Moment] = {}
        self.over: set[int] = set()
        self.joined: dict[int, int] = defaultdict(int)
        # Receives and reads that have been called.
        self.called: set[int] = set()
        self.queues = {process: deque(queue) for process, queue in plan.partners.reads.items()}
        self.mesh = run.mesh
        self.ranks = [self.follow(rank) for rank in range(run.ranks)]
        self.ready = deque(range(run.ranks))

    def go(self) -> None:
        """Go on until nothing more happens. What is under way then has the times that it will have."""
        # Ranks first: only when all of them wait is nothing more sent at this moment.
        while self.ready or self.network.step():
            if self.ready:
                next(self.ranks[self.ready.popleft()], None)
        for number in self.moments.keys() - self.over:
            moment = self.moments[number]
            if moment.start is not None:
                self.times.start[number], self.times.length[number] = moment.start, moment.length

    def follow(self, rank: int) -> Iterator[None]:
        """Follow a rank, yielding while it waits for something that is not over."""
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
        # The last member starts it, as in `Dist.join`.
        if number in partners.meetings:
            group, members = partners.meetings[number]
            self.joined[members[0]] += 1
            if self.joined[members[0]] == len(members):
                length = self.plan.known(self.lengths, event.group[0], number)
                moments = [self.moments[one] for one in members]
                self.network.meet(group, event.group, moments, length, partial(self.finish, *members))
        elif event.op in READS:
            self.serve(rank, number)
        elif event.op == "pass_to" and event.peer is not None:
            length = self.plan.known(self.lengths, rank, number)
            self.network.send(rank, event.peer, moment, length, partial(self.sent_off, number))
        else:
            self.called.add(number)
            # The later of the two begins the receive; `sent_off` has the other case.
            if (sent := partners.sent.get(number)) in self.over:
                self.take(sent, number)

    def serve(self, rank: int, number: int) -> None:
        """Serve the requests to a reader in the recorded order, each as soon as it is made."""
        self.called.add(number)
        queue = self.queues[process_of(self.mesh, rank)]
        # In the recorded order, for the reason given in `_Walk.serve`.
        while queue and queue[0][1] in self.called:
            reader, read = queue.popleft()
            self.times.read(self.readers, reader, read, self.events[read], self.scale)
            self.over.add(read)
            self.ready.append(reader)

    def finish(self, *numbers: int) -> None:
        """Note that a communication is over, which has these events."""
        for number in numbers:
            moment = self.moments[number]
            self.times.start[number], self.times.length[number] = moment.start, moment.length
            self.over.add(number)
            self.ready.append(moment.rank)

    def sent_off(self, sent: int) -> None:
        """Note that a message is over for its sender, and begin its receive if that has been called."""
        self.finish(sent)
        received = self.partners.received.get(sent)
        if received in self.called:
            self.take(sent, received)

    def take(self, sent: int, received: int) -> None:
        """Begin the receive of a message that is there."""
        send, receive = self.moments[sent], self.moments[received]
        there, then = send.start + send.length, partial(self.finish, received)
        self.network.receive(send.rank, receive.rank, receive, self.lengths[received], there, then)
