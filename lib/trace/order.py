"""Who meets whom in a run: collectives by their number in their group, messages in order for each pair of ranks.

The one place that matches what the programs of several ranks do together, as it stands in them: no time is asked. By
the same rules `walk` goes through a run in an order in which everything that an operation needs has happened before:
each rank's program is followed until a communication that is awaited has not taken place yet. Whoever re-times,
rebuilds or replays a Trace takes these steps.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lib.cluster.reader import process_of
from lib.errors.exceptions import TraceError
from lib.trace.event import Event, Program
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES, Collective
from lib.values.operations import COMMUNICATION, READS
from lib.values.rules import Member, bring
from lib.values.values import Value

__all__ = ["Communicators", "Do", "Done", "Issue", "Joined", "Meet", "Pass", "Passage", "Read", "Step", "Walk"]
__all__ += ["awaited_at_once", "brought_to", "collectives", "meetings", "member", "messages", "requests", "unreceived"]
__all__ += ["walk"]


class Communicators:
    """Numbers process groups. Groups of the same ranks have one number, in whatever order they name them: the same
    links carry what they send, one collective after the other.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[int, ...], int]] = {}
        self._numbers: dict[tuple[int, ...], int] = {}

    def __call__(self, group: tuple[int, ...]) -> int:
        """The number of a group."""
        known = self._known.get(id(group))
        if known is None:
            number = self._numbers.setdefault(tuple(sorted(group)), len(self._numbers))
            # The group is kept, so that no other one gets its id. Equal groups of many ranks are one object mostly, and
            # a hash of all its ranks for each event would cost more than everything else.
            known = self._known[id(group)] = (group, number)
        return known[1]


def awaited_at_once(run: Trace, program: Program, number: int) -> bool:
    """Whether a rank waits for a communication where it is called, and does nothing else meanwhile.

    A run that failed stopped before it could be told so of the last one: of that it is assumed.
    """
    last = run.error is not None and number == len(program.events) - 1
    return last or program.events[number].blocking


class Passage(NamedTuple):
    """A message: who sent it in which of its events, to whom, and in which event it was received (None: in none)."""

    source: int
    sent: int
    target: int
    received: int | None


def messages(run: Trace) -> list[Passage]:
    """All messages of a run, in the order of their senders' programs. Matched once, and kept with the Trace."""
    return run.once(messages, lambda: _messages(run))


def _messages(run: Trace) -> list[Passage]:
    received: dict[tuple[int, int], list[int]] = defaultdict(list)
    for program in run.programs:
        for number, event in enumerate(program.events):
            if event.op == "receive" and event.peer is not None and event.start is not None:
                received[event.peer, program.rank].append(number)
    count: dict[tuple[int, int], int] = defaultdict(int)
    found: list[Passage] = []
    for program in run.programs:
        for number, event in enumerate(program.events):
            if event.op == "pass_to" and event.peer is not None:
                pair = program.rank, event.peer
                taken, place = received.get(pair, ()), count[pair]
                count[pair] = place + 1
                found.append(Passage(program.rank, number, event.peer, taken[place] if place < len(taken) else None))
    return found


class Joined(NamedTuple):
    """The calls of one collective, whether it took place or not: rank and event of each, in the order of the ranks.

    `group` is the number of the group, the same for all collectives of the same ranks.
    """

    group: int
    calls: list[tuple[int, int]]


def collectives(run: Trace) -> list[Joined]:
    """Who calls which collective with whom; those of one group in their order. Matched once, kept with the Trace."""
    return run.once(collectives, lambda: _collectives(run))


def _collectives(run: Trace) -> list[Joined]:
    communicator = Communicators()
    joined: dict[tuple[int, int], Joined] = {}
    for program in run.programs:
        count: dict[int, int] = defaultdict(int)
        for number, event in enumerate(program.events):
            if event.op in COLLECTIVES:
                group = communicator(event.group)
                key = group, count[group]
                count[group] += 1
                if key not in joined:
                    joined[key] = Joined(group, [])
                joined[key].calls.append((program.rank, number))
    return list(joined.values())


def meetings(run: Trace) -> list[list[tuple[int, int]]]:
    """The collectives that took place: for each the rank and the event of its members, in the order of the group."""
    return run.once(meetings, lambda: list(_meetings(run)))


def _meetings(run: Trace) -> Iterator[list[tuple[int, int]]]:
    for _, calls in collectives(run):
        rank, number = calls[0]
        event = run.programs[rank].events[number]
        if len(calls) == len(event.group) and event.start is not None:
            numbers = dict(calls)
            yield [(rank, numbers[rank]) for rank in event.group]


def requests(run: Trace) -> dict[int, list[tuple[int, int]]]:
    """What the reader of each process was asked for: rank and event of each read, in the order in which they were
    served. Those of a run that failed, to which it did not come, are left out."""
    return run.once(requests, lambda: _requests(run))


def _requests(run: Trace) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for program in run.programs:
        for number, event in enumerate(program.events):
            if event.op in READS and event.arg:
                found[process_of(run.mesh, program.rank)].append((event.arg[0], program.rank, number))
    return {process: [(rank, number) for _, rank, number in sorted(queue)] for process, queue in sorted(found.items())}


def brought_to(run: Trace, members: Sequence[tuple[int, int]]) -> tuple[Collective, list[Any], int]:
    """What members bring to a collective (see `Collective`), in the order of the group, and the place of its root."""
    rank, number = members[0]
    event = run.programs[rank].events[number]
    row = COLLECTIVES[event.op]
    values = [run.programs[rank].values_of(run.programs[rank].events[number].inputs) for rank, number in members]
    return row, row.brought(values), row.said(event.arg)


def member(rank: int, event: Event, values: list[Value], members: int) -> Member:
    """One member's part in a collective of so many, or the RuleError of what it may not bring."""
    row = COLLECTIVES[event.op]
    value: Any = values if row.many else next(iter(values), None)
    bring(row, value, event.layer, members)
    return Member(rank, event.op, event.layer, value, row.said(event.arg), event.group)


# -- step by step -------------------------------------------------------------------------------------------------


class Do(NamedTuple):
    """A rank does something by itself."""

    rank: int
    event: Event


class Issue(NamedTuple):
    """A rank issues a communication."""

    rank: int
    event: Event


class Meet(NamedTuple):
    """All members of a group have issued a collective: it takes place. In the order of the group."""

    members: list[tuple[int, Event]]


class Pass(NamedTuple):
    """A message that was sent meets its receive."""

    source: int
    sent: Event
    target: int
    received: Event


class Read(NamedTuple):
    """The reader of a rank's process comes to what the rank has asked for."""

    rank: int
    event: Event


class Done(NamedTuple):
    """A rank has waited for a communication. `wait` is the wait event, None where it was awaited at once."""

    rank: int
    event: Event
    wait: Event | None


Step = Do | Issue | Meet | Pass | Read | Done


class Walk:
    """Goes through the programs of a run. What happens when all that it needs is there is for a subclass to delay."""

    def __init__(self, run: Trace) -> None:
        self.run = run
        self.at = [0] * run.ranks
        self.issued_at = [-1] * run.ranks
        self.complete: list[set[int]] = [set() for _ in run.programs]
        self.ready = deque(range(run.ranks))
        self.communicator = Communicators()
        self.numbers: dict[tuple[int, int], int] = defaultdict(int)
        self.open: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        self.sent: dict[tuple[int, int], deque[tuple[int, int]]] = defaultdict(deque)
        self.wanted: dict[tuple[int, int], deque[tuple[int, int]]] = defaultdict(deque)
        self.queues: dict[int, deque[tuple[int, int]]] | None = None
        self.asked: set[tuple[int, int]] = set()

    def event(self, where: tuple[int, int]) -> Event:
        return self.run.programs[where[0]].events[where[1]]

    def finish(self, where: tuple[int, int]) -> None:
        rank, index = where
        self.complete[rank].add(index)
        self.ready.append(rank)

    def steps(self) -> Iterator[Step]:
        """The steps, as far as they go."""
        while self.ready or self.later():
            if self.ready:
                yield from self.advance(self.ready.popleft())

    def whole(self) -> Iterator[Step]:
        """The steps. Afterwards TraceError if some rank could not reach the end of its program."""
        yield from self.steps()
        stuck = [rank for rank, program in enumerate(self.run.programs) if self.at[rank] < len(program.events)]
        if stuck:
            rank = stuck[0]
            event = self.run.programs[rank].events[self.at[rank]]
            raise TraceError(
                f"rank {rank} cannot get past its event {self.at[rank]} ({event.op}): nobody answers it"
                + (f"; ranks {stuck} are stuck" if 1 < len(stuck) <= 16 else "")
            )

    def later(self) -> bool:
        """Where no rank can go on: whether something happens all the same."""
        return False

    def meet(self, members: list[tuple[int, int]]) -> None:
        """A collective takes place, in the order of the group."""
        for one in members:
            self.finish(one)

    def hand_over(self, sent: tuple[int, int], received: tuple[int, int]) -> None:
        """A message and its receive are both there."""
        self.finish(sent)
        self.finish(received)

    def advance(self, rank: int) -> Iterator[Step]:
        events = self.run.programs[rank].events
        while (index := self.at[rank]) < len(events):
            event = events[index]
            if event.op in COMMUNICATION:
                if self.issued_at[rank] < index:
                    self.issued_at[rank] = index
                    yield Issue(rank, event)
                    yield from self.issue((rank, index), event)
                if event.blocking:
                    if index not in self.complete[rank]:
                        return
                    yield Done(rank, event, None)
            elif event.op == "wait":
                target = event.arg[0]
                if target not in self.complete[rank]:
                    return
                yield Done(rank, events[target], event)
            else:
                yield Do(rank, event)
            self.at[rank] = index + 1

    def issue(self, where: tuple[int, int], event: Event) -> Iterator[Step]:
        rank = where[0]
        if event.op in COLLECTIVES:
            communicator = self.communicator(event.group)
            number = self.numbers[rank, communicator]
            self.numbers[rank, communicator] = number + 1
            joined = self.open[communicator, number]
            joined.append(where)
            if len(joined) == len(event.group):
                del self.open[communicator, number]
                if self.run.error is not None and self.differ(joined):
                    return  # that is where the run failed: it never took place
                numbers = dict(joined)
                members = [(r, numbers[r]) for r in event.group]
                yield Meet([(one[0], self.event(one)) for one in members])
                self.meet(members)
        elif event.op in READS:
            self.asked.add(where)
            yield from self.serve(rank)
        elif event.op == "pass_to" and event.peer is not None:
            self.sent[rank, event.peer].append(where)
            yield from self.match(rank, event.peer)
            self.find_room(rank, event.peer)
        elif event.peer is not None:
            self.wanted[event.peer, rank].append(where)
            yield from self.match(event.peer, rank)

    def serve(self, rank: int) -> Iterator[Step]:
        """A reader serves requests in the order that the Trace says, as soon as they are made."""
        if self.queues is None:
            self.queues = {process: deque(queue) for process, queue in _requests(self.run).items()}
        queue = self.queues.get(process_of(self.run.mesh, rank))
        while queue and queue[0] in self.asked:
            where = queue.popleft()
            yield Read(where[0], self.event(where))
            self.finish(where)

    def differ(self, joined: list[tuple[int, int]]) -> bool:
        """Whether those who joined did not all call the same collective."""
        return len({(event.op, event.layer, event.arg, event.group) for event in map(self.event, joined)}) > 1

    def match(self, source: int, target: int) -> Iterator[Step]:
        sent, wanted = self.sent[source, target], self.wanted[source, target]
        if sent and wanted:
            from_, to = sent.popleft(), wanted.popleft()
            yield Pass(source, self.event(from_), target, self.event(to))
            self.hand_over(from_, to)
            self.find_room(source, target)

    def find_room(self, source: int, target: int) -> None:
        """There is room for one message that is not received yet: the first of those sent has it."""
        sent = self.sent[source, target]
        if sent and sent[0][1] not in self.complete[source]:
            self.finish(sent[0])


def walk(run: Trace) -> Iterator[Step]:
    """The steps of a run. Afterwards TraceError if some rank could not reach the end of its program."""
    yield from Walk(run).whole()


def unreceived(run: Trace) -> list[tuple[int, Event]]:
    """The messages that nobody received, with the rank that sent each."""
    state = Walk(run)
    for _ in state.steps():
        pass
    left = [where for queue in state.sent.values() for where in queue]
    return [(rank, state.event((rank, index))) for rank, index in sorted(left)]
