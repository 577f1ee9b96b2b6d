"""Slack: how much later each operation may be over without the run's ending later, if all else takes as long as it did.

One pass back over what depends on what. What takes shared links is taken to be as long as it was in this run: how long
it would be at another time, only a new timing can say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import cast

from lib.analysis.dependencies import causes_of
from lib.analysis.figures import makespan
from lib.cluster.costs import ticks
from lib.cluster.reader import Readers, process_of
from lib.trace.event import Event
from lib.trace.order import Communicators, messages, order, requests
from lib.trace.retiming import alone
from lib.trace.trace import Trace, kept

__all__ = ["slack"]


@kept
def slack(run: Trace) -> list[list[int | None]]:
    """For each event of each rank, in ticks how much later it may be over. None for what never began, and for a wait,
    which takes what is left."""
    return _Slack(run).found()


class _Slack:
    """The latest moments at which things may be, by the events (their ids), ranks and streams. What nothing waits for
    may be at the end of the run."""

    def __init__(self, run: Trace) -> None:
        self.run = run
        self.clocks = [makespan(run)] * run.ranks
        """When a rank has to come to what it does next."""
        self.over = self._latest()
        """When an event has to be over, and when it has to be issued."""
        self.issued = self._latest()
        self.next = self._latest()
        """When the next communication on a stream has to begin, or a reader to turn to the next request."""
        self.there = self._latest()
        """When a process has to have read a batch."""
        self.communicator = Communicators()
        self.lengths: dict[int, int] = {}
        """What messages took that waited for room then."""
        self.later: dict[tuple[int, int], Event] = {}
        """Of each pair of ranks the message after the one that is looked at."""
        self.fresh: dict[int, tuple[int, ...]] = {}
        """What a reader read for a request, and had not read before."""
        self._prepare()

    def _latest(self) -> dict[Hashable, int]:
        return defaultdict(lambda: makespan(self.run))

    def _prepare(self) -> None:
        run, causes, by_itself = self.run, causes_of(self.run), alone(self.run)
        for source, sent, _, _ in messages(run) if by_itself else ():
            if causes.room(here := causes.at(source, sent)) is not None:
                self.lengths[id(here.event)] = by_itself[source, sent]
        readers = Readers(run.costs, run.mesh)
        for queue in requests(run).values():
            for rank, number in queue:
                event = run.programs[rank].events[number]
                self.fresh[id(event)] = readers.read(rank, event.batches, event.issued).fresh

    def found(self) -> list[list[int | None]]:
        """The slack of all events: what `slack` gives."""
        events, _, steps, *_ = order(self.run)
        for kind, rank, number, others in reversed(steps):
            event = events[number]
            if kind == "do":
                self.over[id(event)] = self.clocks[rank]
                self.clocks[rank] -= event.length
            elif kind == "done":
                self._before(self.over, id(event), self.clocks[rank])
            elif kind == "issue":
                if event.op == "pass_to":
                    self._send(rank, event)
                self.clocks[rank] = min(self.clocks[rank], self.issued[id(event)])
            elif kind == "meet":
                self._meet([events[n] for n in others])
            elif kind == "pass":
                self._receive(events[others[0]], rank, event)
            else:
                self._read(rank, event)
        return [[self._left(event) for event in program.events] for program in self.run.programs]

    def _left(self, event: Event) -> int | None:
        return None if event.end is None or event.op == "wait" else self.over[id(event)] - event.end

    @staticmethod
    def _before(latest: dict[Hashable, int], what: Hashable, moment: int) -> None:
        latest[what] = min(latest[what], moment)

    def _begin(self, stream: Hashable, event: Event) -> int:
        """When an event has to begin that is followed by others on its stream."""
        self._before(self.over, id(event), self.next[stream])
        self.next[stream] = self.over[id(event)] - self.lengths.get(id(event), event.length)
        return self.next[stream]

    def _meet(self, events: list[Event]) -> None:
        over = min(self.over[id(event)] for event in events)
        for event in events:
            self.over[id(event)] = over
        start = self._begin(self.communicator(events[0].group), events[0])
        for event in events:
            self.over[id(event)] = self.over[id(events[0])]
            self.issued[id(event)] = start

    def _send(self, source: int, event: Event) -> None:
        if id(event) not in self.issued:
            self.issued[id(event)] = self._begin((source, event.peer, "send"), event)

    def _receive(self, sent: Event, target: int, received: Event) -> None:
        source = cast(int, received.peer)
        pair = source, target
        later = self.later.get(pair)
        if later is not None:
            self._send(source, later)
        start = self._begin((*pair, "receive"), received)
        if later is not None and self.run.costs.shared:  # which has room when this one begins to be received
            self.next[(*pair, "receive")] = start = min(start, self.over[id(later)])
            self.over[id(received)] = start + received.length
        self.issued[id(received)] = start
        self._before(self.over, id(sent), start)
        self.later[pair] = sent

    def _read(self, rank: int, event: Event) -> None:
        process = "reader", process_of(self.run.mesh, rank)
        one, copied = ticks(self.run.costs.read), len(event.batches) * ticks(self.run.costs.to_device)
        self._before(self.over, id(event), self.next["copy", rank])
        start = self.next["copy", rank] = self.over[id(event)] - copied
        for batch in event.batches:
            self._before(self.there, (process, batch), start)
        fresh = self.fresh[id(event)]
        if fresh:
            read = [self.there[process, batch] - place * one for place, batch in enumerate(fresh, 1)]
            start = self.next[process] = min(*read, self.next[process] - len(fresh) * one)
        self.issued[id(event)] = start
