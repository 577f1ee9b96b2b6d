"""Why each operation of a Trace began when it did: who met whom, and what moved each rank's compute clock on.

A rank's compute clock advances with what it computes and what it waits for. A communication begins when its last
member has issued it (a message: when it has been sent) and the stream that it runs on is free; see `costs.Stream`.
On shared links it may take longer than alone, because of other traffic or for want of room; see `cluster.network`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterator
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from lib.analysis.figures import makespan
from lib.cluster.costs import in_units
from lib.cluster.reader import Readers
from lib.trace.event import Event, Program, operation
from lib.trace.order import awaited_at_once, collectives, messages, requests
from lib.trace.retiming import alone
from lib.trace.trace import Trace, kept
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMMUNICATION, COMPUTE, MESSAGES


class At(NamedTuple):
    """An event and its place: its rank, and its number in that rank's program."""

    rank: int
    number: int
    event: Event


class Span(NamedTuple):
    """A stretch of a rank's compute clock, in ticks, spent in event `number`.

    `at` is the number of the event that moved the clock on: `number` itself, or the wait for it. `number` is None
    where it is unknown what the rank did: between the operations of a measured run.
    """

    start: int
    end: int
    at: int
    number: int | None


@kept
def causes_of(run: Trace) -> Causes:
    """Work out what depends on what in a run."""
    return Causes(run)


class Causes:
    """The dependencies of a run: what depends on what. Built once, in time linear in its events; after that every
    question is quick."""

    def __init__(self, run: Trace) -> None:
        self.run = run
        self.end = makespan(run)
        self.spans = [list(_spans(run, program, self.end)) for program in run.programs]
        self._members: list[list[At]] = []
        self._last: list[At] = []
        self._number: dict[tuple[int, int], int] = {}
        self._sent: dict[tuple[int, int], At] = {}
        self._before: dict[tuple[int, int], At] = {}
        self._received: dict[tuple[int, int], At] = {}
        """For each message, the receive of the one before it."""
        streams: dict[Hashable, At] = {}
        for place, (group, calls) in enumerate(collectives(self.run)):
            self._members.append([self.at(*call) for call in calls])
            # On ties max takes the first, and members are in order of rank.
            self._last.append(max(self._members[-1], key=lambda member: member.event.issued))
            for here in self._members[-1]:
                self._number[here[:2]] = place
                self._follow(streams, (here.rank, group), here)
        taken: dict[tuple[int, int], At] = {}
        for source, sent, target, received in messages(self.run):
            if (source, target) in taken:
                self._received[source, sent] = taken[source, target]
            if received is not None:
                self._sent[target, received] = self.at(source, sent)
                taken[source, target] = self.at(target, received)
        readers = Readers(self.run.costs, self.run.mesh)
        for queue in requests(self.run).values():
            for rank, number in queue:
                event = self.run.programs[rank].events[number]
                if (after := readers.read(rank, event.batches, event.issued).after) is not None:
                    self._before[rank, number] = self.at(*queue[after])
        for program in self.run.programs:
            for number, event in enumerate(program.events):
                if event.op in MESSAGES and event.peer is not None:
                    self._follow(streams, (event.op, program.rank, event.peer), At(program.rank, number, event))

    def _follow(self, streams: dict[Hashable, At], stream: Hashable, here: At) -> None:
        if (before := streams.get(stream)) is not None:
            self._before[here[:2]] = before
        streams[stream] = here

    def at(self, rank: int, number: int) -> At:
        """Return an event of a rank by its number."""
        return At(rank, number, self.run.programs[rank].events[number])

    def last_member(self, here: At) -> At:
        """Return the member of a collective that issued it last; on ties the given one, else the lowest rank."""
        last = self._last[self._number[here[:2]]]
        return here if here.event.issued == last.event.issued else last

    def members(self, here: At) -> list[At]:
        """Return all calls of a collective, in order of rank."""
        return self._members[self._number[here[:2]]]

    def sent(self, here: At) -> At | None:
        """Return the send of a message that is received here."""
        return self._sent.get(here[:2])

    def stream(self, here: At) -> At | None:
        """Return the previous communication on the same stream; for a read, the one that kept its reader busy, or that
        brought what it asks for."""
        return self._before.get(here[:2])

    # -- where links are shared ----------------------------------------------------------------------------------

    def by_itself(self, here: At) -> int | None:
        """Return when a communication would have been over with its links to itself; None if that is no earlier than it
        was."""
        length, event = alone(self.run).get(here[:2]), here.event
        return None if length is None or event.start is None or length >= event.length else event.start + length

    def room(self, here: At) -> At | None:
        """Return the receive that made room for a message that had arrived and found none: the previous message's."""
        before = self._received.get(here[:2]) if here.event.op == "pass_to" else None
        waited = before is not None and before.event.start == here.event.end and self.by_itself(here) is not None
        return before if waited else None

    def beside(self, here: At) -> At | None:
        """Return what shared a link with a communication, for longest if there were several."""
        start, end = here.event.start or 0, here.event.end or 0
        number = self._number.get(here[:2], here[:2])
        found: list[tuple[int, int, int, int, At]] = []
        for link in self._links_of(here):
            uses, longest = self._uses[link]
            for place in range(bisect_left(uses, (end,)) - 1, -1, -1):
                begin, over, other = uses[place]
                if begin < start - longest:
                    break
                shared = min(end, over) - max(start, begin)
                if shared > 0 and self._number.get(other[:2], other[:2]) != number:
                    found.append((-shared, begin, other.rank, other.number, other))
        return min(found)[-1] if found else None

    @cached_property
    def _uses(self) -> dict[Hashable, tuple[list[tuple[int, int, At]], int]]:
        """For each link, its uses with start and end, in order, and the length of the longest."""
        found: dict[Hashable, list[tuple[int, int, At]]] = defaultdict(list)
        firsts = [members[0][:2] for members in self._members]
        sides = [where for where in alone(self.run) if where not in self._number]
        for where in (*firsts, *sides):
            here = self.at(*where)
            if where in alone(self.run) and here.event.start is not None and here.event.end is not None:
                for link in self._links_of(here):
                    found[link].append((here.event.start, here.event.end, here))
        return {link: (sorted(uses), max(end - start for start, end, _ in uses)) for link, uses in found.items()}

    def _links_of(self, here: At) -> list[Hashable]:
        prices, event = self.run.costs.on(self.run.mesh), here.event
        if event.op in COLLECTIVES:
            return list(prices.passes(event.group))
        peer = here.rank if event.peer is None else event.peer
        return list(prices.passes_at("out" if event.op == "pass_to" else "in", here.rank, peer))

    def kept(self, here: At) -> At | None:
        """Return what occupied the rank's compute clock until it came to this event."""
        return next(iter(self.kept_by(here)), None)

    def kept_by(self, here: At) -> list[At]:
        """Return the same, followed by what the rank had awaited by then that was over at exactly that moment."""
        spans, events = self.spans[here.rank], self.run.programs[here.rank].events
        place = bisect_left(spans, here.number, key=attrgetter("at")) - 1
        if place < 0 or (first := (span := spans[place]).number) is None:
            return []
        found = [self.at(here.rank, first)]
        for number in range(span.at + 1, here.number):
            awaited = events[number].arg[0] if events[number].op == "wait" else number
            event = events[awaited]
            if event.op in COMMUNICATION and event.end == span.end and (awaited != number or event.blocking):
                found.append(self.at(here.rank, awaited))
        return found

    def last(self) -> At | None:
        """Return the event that ends the run; on ties a computation, on the lowest rank."""
        found = None
        for program in self.run.programs:
            for number, event in enumerate(program.events):
                if event.end != self.end or not event.length or event.op == "wait":
                    continue
                if found is None or (event.op in COMPUTE and found.event.op not in COMPUTE):
                    found = At(program.rank, number, event)
        return found


def slowed(run: Trace, rank: int, number: int) -> str:
    """Say why a communication took longer than alone; "" if it did not."""
    if not run.costs.shared:
        return ""
    here = (causes := causes_of(run)).at(rank, number)
    if (until := causes.by_itself(here)) is None:
        return ""
    took = f"{in_units(until - (here.event.start or 0))} alone"
    if (room := causes.room(here)) is not None:
        return f"{took}: it had no room before rank {room.rank} took the message before it"
    other = causes.beside(here)
    return "" if other is None else f"{took}: it shares a link with {operation(other.event)}"


def _spans(run: Trace, program: Program, end: int) -> Iterator[Span]:
    """Yield the spans of a rank, without holes, from 0 to where its clock stops; none is empty."""
    clock = 0
    for at, event in enumerate(program.events):
        number = at
        if event.op in COMMUNICATION:
            if not awaited_at_once(run, program, at):
                continue
            begin, over = event.issued, end if event.end is None else event.end
        elif event.start is None:
            continue
        else:
            begin, over = event.start, event.start + event.length
            if event.op == "wait":
                number = event.arg[0]
        if begin > clock:
            yield Span(clock, begin, at, None)
            clock = begin
        if over > clock:
            yield Span(clock, over, at, number)
            clock = over
