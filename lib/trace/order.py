"""Who meets whom in a run: collectives by their number in their group, messages in order for each pair of ranks.

The one place that matches what the programs of several ranks do together, using program order only, never times: a
forged time cannot change who met whom. By the same rules `order` puts the steps of a run behind all that they need: it
follows each rank's program up to an awaited communication that has not taken place yet. Retiming and rebuilding take
these steps.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, compress
from typing import Any, Final, Literal, NamedTuple

from lib.cluster.reader import process_of
from lib.errors.exceptions import TraceError
from lib.trace.event import Event, Program
from lib.trace.trace import Trace, kept
from lib.values.collectives import COLLECTIVES, Collective, values_in
from lib.values.operations import COMMUNICATION, READS
from lib.values.rules import Member, agreed, bring, collective
from lib.values.values import Value

TALKS: Final = COMMUNICATION | {"wait"}
"""Operations that involve more than one rank, or a reader."""


class Communicators:
    """Numbers process groups. Groups of the same ranks have one number, in whatever order they name them: the same
    links carry what they send, one collective after the other.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[int, ...], int]] = {}
        self._numbers: dict[tuple[int, ...], int] = {}

    def number(self, group: tuple[int, ...]) -> int:
        """Return the number of a group."""
        known = self._known.get(id(group))
        if known is None:
            number = self._numbers.setdefault(tuple(sorted(group)), len(self._numbers))
            # The group is kept, so that its id stays its own. Equal groups are mostly one object, and hashing all ranks
            # of it for each event would cost more than everything else.
            known = self._known[id(group)] = (group, number)
        return known[1]


def awaited_at_once(run: Trace, program: Program, number: int) -> bool:
    """Tell whether a rank awaits a communication where it is called, and does nothing in between.

    Assumed of the last event of a run that failed, which stopped before that could be recorded.
    """
    last = run.error is not None and number == len(program.events) - 1
    return last or program.events[number].blocking


class Passage(NamedTuple):
    """A message: its sender and the event there, its receiver and the event there (None: it was never received)."""

    source: int
    sent: int
    target: int
    received: int | None


@kept
def operations_of(run: Trace) -> list[tuple[str, ...]]:
    """Return the names of the operations of each rank, in their order."""
    return [tuple([event.op for event in program.events]) for program in run.programs]


@kept
def operations_in(run: Trace) -> set[str]:
    """Return the names of all operations of a run."""
    return set[str]().union(*operations_of(run))


@kept
def messages(run: Trace) -> list[Passage]:
    """Return all messages of a run, in the order of their senders' programs."""
    received: dict[tuple[int, int], deque[int]] = defaultdict(deque)
    if "pass_to" not in operations_in(run):
        return []
    for program in run.programs:
        for number, event in enumerate(program.events):
            if event.op == "receive" and event.peer is not None and event.start is not None:
                received[event.peer, program.rank].append(number)
    passages: list[Passage] = []
    for program in run.programs:
        for number, event in enumerate(program.events):
            if event.op == "pass_to" and event.peer is not None:
                # The n-th message of a pair goes to its n-th receive: without tags, none overtakes another.
                taken = received[program.rank, event.peer]
                passages.append(Passage(program.rank, number, event.peer, taken.popleft() if taken else None))
    return passages


class Joined(NamedTuple):
    """The calls of one collective, whether it took place or not: rank and event of each, in the order of ranks.

    `group` is the number of the group: the same for all collectives of the same ranks.
    """

    group: int
    calls: list[tuple[int, int]]


@kept
def collectives(run: Trace) -> list[Joined]:
    """Return the calls of each collective; the collectives of one group in order."""
    communicators = Communicators()
    joined: dict[tuple[int, int], Joined] = {}
    for program in run.programs:
        count: dict[int, int] = defaultdict(int)
        for number, event in enumerate(program.events):
            if event.op in COLLECTIVES:
                group = communicators.number(event.group)
                key = group, count[group]
                count[group] += 1
                if key not in joined:
                    joined[key] = Joined(group, [])
                joined[key].calls.append((program.rank, number))
    return list(joined.values())


@kept
def meetings(run: Trace) -> list[list[tuple[int, int]]]:
    """Return the collectives that took place: rank and event of each member, in the order of the group."""
    found: list[list[tuple[int, int]]] = []
    for _, calls in collectives(run):
        rank, number = calls[0]
        event = run.programs[rank].events[number]
        # Else members are missing, or did not agree: there the run failed.
        if len(calls) == len(event.group) and event.start is not None:
            numbers = dict(calls)
            found.append([(rank, numbers[rank]) for rank in event.group])
    return found


@kept
def requests(run: Trace) -> dict[int, list[tuple[int, int]]]:
    """Return the requests to the reader of each process: rank and event of each read, in the order in which they were
    served. Those that were never served, in a run that failed, are left out."""
    queues: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for program in run.programs:
        for number, event in enumerate(program.events):
            if event.op in READS and event.arg:
                queues[process_of(run.mesh, program.rank)].append((event.arg[0], program.rank, number))
    return {process: [(rank, number) for _, rank, number in sorted(queue)] for process, queue in sorted(queues.items())}


def brought_to(run: Trace, members: Sequence[tuple[int, int]]) -> tuple[Collective, list[Any], int]:
    """Return what members bring to a collective (see `Collective`), in group order, and the place of its root."""
    rank, number = members[0]
    event = run.programs[rank].events[number]
    row = COLLECTIVES[event.op]
    values = [run.programs[rank].values_of(run.programs[rank].events[number].inputs) for rank, number in members]
    return row, row.brought(values), row.said(event.arg)


def outcome(members: Sequence[tuple[int, Event]], values: Sequence[list[Value]]) -> list[list[Value]]:
    """Return what each member of a collective gets for what all bring: new objects. PuzzleError if a rule is broken."""
    brought: list[Any] = []
    calls: list[tuple[Any, ...]] = []
    for place, ((_, event), mine) in enumerate(zip(members, values, strict=True)):
        row = COLLECTIVES[event.op]
        value: Any = mine if row.many else mine[0] if mine else None
        bring(row, value, event.layer, len(members), place)
        brought.append(value)
        calls.append((event.op, event.layer, row.said(event.arg), event.group))

    def each() -> list[Member]:  # only where they may differ: mostly all say the same, which one comparison shows
        every = zip(members, calls, brought, strict=True)
        return [Member(rank, op, layer, value, said, group) for (rank, _), (op, layer, said, group), value in every]

    op, _, said, _ = calls[0]
    row = COLLECTIVES[op]
    alike = calls.count(calls[0]) == len(calls) and len({*map(type, brought)}) == 1
    results = agreed(row, brought, said, each) if alike else collective(row, each())
    if row.gives is None:  # one new object: each rank tracks its own lifetime of it
        return [values_in(results[0])] * len(results)
    # The law may return what a member brought, or one object several times; each result has its own lifetime.
    return [[value.at(value.place) for value in values_in(result)] for result in results]


# -- step by step -------------------------------------------------------------------------------------------------

Kind = Literal["do", "issue", "meet", "pass", "read", "done"]
Step = tuple[Kind, int, int, tuple[int, ...]]
"""What happens, the rank, the number of its event, and the numbers of other events involved:

    do           a rank does all events up to the other number by itself, without communication: most events need no
                 step of their own
    issue        a rank issues a communication
    meet         a collective takes place, as all members have issued it. The others are all its events, in the order of
                 the group, and the number of the group is in the place of the rank
    pass         a message meets its receive, which is the event; the other one is the send
    read         the reader of a rank's process serves a request
    done         a rank has waited for a communication. The other is the wait, if it was not awaited at once

Events are numbered through all programs, one rank after the other.
"""


class Order(NamedTuple):
    """All events of a run, the number of each rank's first one and then of all, the steps, and an error if ranks could
    not reach the end of their programs."""

    events: list[Event]
    first: list[int]
    steps: list[Step]
    stuck: TraceError | None


@kept
def order(run: Trace) -> Order:
    """Return the steps of a run, each after all that it needs. Costs and times do not change the order."""
    walk = _Walk(run)
    while walk.ready:
        walk.advance(walk.ready.popleft())
    return Order(walk.events, walk.first, walk.steps, walk.stuck())


class _Walk:
    """Goes through the programs of a run. A communication is over as soon as all that it needs has come."""

    def __init__(self, run: Trace) -> None:
        self.run = run
        self.events = [*chain.from_iterable([program.events for program in run.programs])]
        self.first = [0, *accumulate(len(program.events) for program in run.programs)]
        # Where stretches without communication end: their events, most of all, cost no Python step each.
        talks = map(TALKS.__contains__, chain.from_iterable(operations_of(run)))
        self.stops = sorted([*compress(range(len(self.events)), talks), *self.first])
        self.steps: list[Step] = []
        self.at = self.first[:-1]
        self.issued = [number - 1 for number in self.at]
        # A byte for each event: a run may have 10^7 of them.
        self.complete = bytearray(len(self.events))
        # Calls are matched by count and messages by pair, so any order of ranks gives the same meetings.
        self.ready = deque(range(run.ranks))
        self.communicators = Communicators()
        self.count: dict[tuple[int, int], int] = defaultdict(int)
        self.open: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        self.sent: dict[tuple[int, int], deque[int]] = defaultdict(deque)
        self.wanted: dict[tuple[int, int], deque[int]] = defaultdict(deque)
        self.queues: dict[int, deque[tuple[int, int]]] | None = None

    def advance(self, rank: int) -> None:
        """Follow a rank up to an awaited communication that has not taken place."""
        events, first, complete, steps = self.events, self.first[rank], self.complete, self.steps
        number, over = self.at[rank], self.first[rank + 1]
        while number < over:
            event = events[number]
            if event.op in COMMUNICATION:
                # A rank that was held up comes back to the same event, but issues it only once.
                if self.issued[rank] < number:
                    self.issued[rank] = number
                    steps.append(("issue", rank, number, ()))
                    self.issue(rank, number, event)
                    if event.blocking:
                        break  # even if it is over at once: then the rank goes on after those that waited longer
                elif event.blocking:
                    if not complete[number]:
                        break
                    steps.append(("done", rank, number, ()))
            # Events have numbers through all programs, and a wait names one of its own rank.
            elif event.op == "wait":
                target = first + event.arg[0]
                if not complete[target]:
                    break
                steps.append(("done", rank, target, (number,)))
            else:
                begin, number = number, self.stops[bisect(self.stops, number)]
                steps.append(("do", rank, begin, (number,)))
                continue
            number += 1
        self.at[rank] = number

    def finish(self, rank: int, number: int) -> None:
        """Note that a communication is over for a rank, which may go on."""
        self.complete[number] = True
        self.ready.append(rank)

    def issue(self, rank: int, number: int, event: Event) -> None:
        """Issue a call, and complete what it was the last to need."""
        if event.op == "pass_to" and event.peer is not None:
            self.sent[rank, event.peer].append(number)
            self.match(rank, event.peer)
        elif event.op == "receive" and event.peer is not None:
            self.wanted[event.peer, rank].append(number)
            self.match(event.peer, rank)
        elif event.op in READS:
            self.serve(rank)
        elif event.op in COLLECTIVES:
            group = self.communicators.number(event.group)
            # By count, as NCCL does: calls have no names, so members in different orders meet wrongly.
            place = self.count[rank, group]
            self.count[rank, group] = place + 1
            joined = self.open[group, place]
            joined[rank] = number
            if len(joined) == len(event.group):
                del self.open[group, place]
                if self.run.error is not None and self.differ(joined.values()):
                    return  # here the run failed: it never took place
                numbers = tuple([joined[member] for member in event.group])
                self.steps.append(("meet", group, numbers[0], numbers))
                for member, own in zip(event.group, numbers, strict=True):
                    self.finish(member, own)

    def serve(self, rank: int) -> None:
        """Serve the requests to a reader, in the order of the Trace, as soon as they are made."""
        if self.queues is None:
            self.queues = {process: deque(queue) for process, queue in requests(self.run).items()}
        queue = self.queues.get(process_of(self.run.mesh, rank))
        # In the recorded order, even if a later request is there already: what is cached depends on it.
        while queue and self.first[queue[0][0]] + queue[0][1] <= self.issued[queue[0][0]]:
            reader, place = queue.popleft()
            number = self.first[reader] + place
            self.steps.append(("read", reader, number, ()))
            self.finish(reader, number)

    def differ(self, joined: Iterable[int]) -> bool:
        """Tell whether the members that joined called different collectives."""
        events = [self.events[number] for number in joined]
        return len({(event.op, event.layer, event.arg, event.group) for event in events}) > 1

    def match(self, source: int, target: int) -> None:
        """Hand a message to its receive, if both are there. The first one left then has room, so its sender goes on."""
        sent, wanted = self.sent[source, target], self.wanted[source, target]
        if sent and wanted:
            first, second = sent.popleft(), wanted.popleft()
            self.steps.append(("pass", target, second, (first,)))
            self.finish(source, first)
            self.finish(target, second)
        # As in the simulator's channels: room for one message for each pair of ranks.
        if sent and not self.complete[sent[0]]:
            self.finish(source, sent[0])

    def stuck(self) -> TraceError | None:
        """Return the error of ranks that could not reach the end of their programs; None if all did."""
        # The lowest rank is named: the diagnosis finds out which is stuck because of which.
        stuck = [rank for rank, at in enumerate(self.at) if at < self.first[rank + 1]]
        if not stuck:
            return None
        rank = stuck[0]
        return TraceError(
            f"rank {rank} cannot get past its event {self.at[rank] - self.first[rank]} "
            f"({self.events[self.at[rank]].op}): nobody answers it"
            + (f"; ranks {stuck} are stuck" if 1 < len(stuck) <= 16 else "")
        )
