"""The critical path of a run: the chain of operations that determines its end, and how late all others may be.

Slack is worked out in one backward pass over the dependencies, with all operations as long as they were. This includes
those on shared links, though at another time they might take longer or shorter: only a new timing could tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple, cast, overload

from lib.analysis.dependencies import At, causes_of
from lib.analysis.feeding import feeds
from lib.analysis.figures import makespan
from lib.analysis.waiting.chains import Step, followed, pieces
from lib.cluster.costs import in_units, ticks, units
from lib.cluster.reader import Readers, process_of
from lib.errors.wording import exact, numbered
from lib.trace.event import Event, operations
from lib.trace.order import messages, order, requests
from lib.trace.retiming import alone
from lib.trace.trace import Answer, ModelLike, Trace, asked, kept
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMPUTE, MESSAGES, OPERATIONS

PARTS = {
    "compute": "compute",
    "messages": "messages",
    "collectives": "collectives",
    "reading": "reading",
    "links": "waiting for shared links",
}
"""What a critical path is made of, in words."""


class Tight(NamedTuple):
    """The slack of a rank: how many of its computations have none, how many there are, and the least slack of any, in
    ticks."""

    tight: int
    every: int
    least: int

    def text(self) -> str:
        """Say it in words."""
        if not self.every:
            return "computes nothing"
        if not self.tight:
            return f"slack {in_units(self.least)} or more"
        return f"no slack in {self.tight} of {self.every}"


@dataclass(frozen=True, repr=False)
class Path(Answer):
    """The critical path: operations that each begin exactly when the one before is over, from 0 to the end.

    A message that waits for room is not on it; what the receiver did to let the sender go on is. `chain` has its
    steps, the last first.
    """

    run: Trace
    chain: tuple[Step, ...]

    @cached_property
    def steps(self) -> tuple[At, ...]:
        """Its operations in order; reads only until their reader turns to the next one, as the copy after that is on no
        path."""
        found: list[At] = []
        for here, start, end, *_ in reversed(self.chain):
            event = here.event if here.event.end == end else here.event.at(here.event.issued, start, end - start)
            found.append(here._replace(event=event))
        return tuple(found)

    def parts(self) -> tuple[tuple[str, int], ...]:
        """Ticks of the path by kind of operation: forward, backward, update, messages, and each collective."""
        rows = [row.title for row in OPERATIONS.values() if row.name in COMPUTE]
        found: dict[str, int] = dict.fromkeys([*rows, "messages"], 0)
        for _, _, event in self.steps:
            found[operations(event)] = found.get(operations(event), 0) + event.length
        return tuple(part for part in found.items() if part[1])

    def by_rank(self) -> list[dict[str, int]]:
        """Add up each rank's own ticks on the path, by PARTS; a collective counts for the rank where the path leaves
        it."""
        found = [dict.fromkeys(PARTS, 0) for _ in self.run.programs]
        for at, shared, took in pieces(causes_of(self.run), self.chain, 0, makespan(self.run)):
            found[at.rank]["links" if shared else time_kind(at.event)] += took
        return found

    def tight(self) -> list[Tight]:
        """Count how many computations of each rank have no slack."""
        found: list[Tight] = []
        for program, left in zip(self.run.programs, slack(self.run), strict=True):
            pairs = zip(program.events, left, strict=True)
            own = [late for event, late in pairs if late is not None and event.op in COMPUTE and event.length]
            found.append(Tight(own.count(0), len(own), min(own, default=0)))
        return found

    def ranks(self) -> tuple[int, ...]:
        """Return the ranks on the path, in order."""
        ranks = [step.rank for step in self.steps]
        return tuple(rank for i, rank in enumerate(ranks) if i == 0 or ranks[i - 1] != rank)

    def made_of(self) -> str:
        """Say what it is made of: "16 forward, 16 backward, 2.4 messages, 1 update"."""
        return ", ".join(f"{exact(units(ticks))} {name}" for name, ticks in self.parts())

    def head(self) -> str:
        """Say when the run is over, and what the path is made of."""
        over = "ends" if self.run.error is None else "stopped"
        return f"The run {over} at {exact(units(makespan(self.run)))}. Critical path: {self.made_of() or 'nothing'}."

    def lines(self) -> list[str]:
        """Say each rank's part of the path, and its slack; ranks with the same share a line."""
        found: dict[str, list[int]] = {}
        for rank, (mine, late) in enumerate(zip(self.by_rank(), self.tight(), strict=True)):
            parts = ", ".join(f"{exact(units(mine[part]))} {words}" for part, words in PARTS.items() if mine[part])
            found.setdefault(f"{parts or 'nothing of it'}; {late.text()}", []).append(rank)
        return [f"{numbered('rank', ranks)}: {words}" for words, ranks in found.items()]


def time_kind(event: Event) -> str:
    """Return what an operation's time counts as: "compute", "messages", "collectives" or "reading"."""
    if event.op in COLLECTIVES:
        return "collectives"
    return "messages" if event.op in MESSAGES else "reading" if feeds(event) else "compute"


@overload
def critical_path(models: Trace) -> Path: ...
@overload
def critical_path(models: Sequence[ModelLike]) -> Path | None: ...
def critical_path(models: Trace | Sequence[ModelLike]) -> Path | None:
    """Follow the chain of operations that determines the end, back from the one that ends last.

    Takes a Trace, or the Models that simulate returned; None, with a message, if there is no run. Among causes at one
    moment the rank's own is preferred, so that the path changes ranks only where it must.

    >>> async def slow_pair(model):
    ...     model.forward(0, model.get_activation([model.rank]), model.load_weights(0)[0])
    ...     await model.allreduce(model.fake_grad(0, [model.rank]), 0)
    >>> run = simulate(slow_pair, ranks=2, layers=1, batches=2, costs=Uneven(ranks=(1, 2)))
    >>> print(critical_path(run))
    The run ends at 2.3. Critical path: 2 forward, 0.3 all-reduce.
      rank 0: 0.3 collectives; slack 1 time unit or more
      rank 1: 2 compute; no slack in 1 of 1
    """
    if (run := asked(models, "critical_path")) is None:
        return None
    causes = causes_of(run)
    return Path(run, followed(causes, causes.last(), causes.end))


# -- slack --------------------------------------------------------------------------------------------------------


@kept
def slack(run: Trace) -> list[list[int | None]]:
    """Return how much later each event of each rank may be over, in ticks; None for what never began, and for waits,
    which take whatever time is left."""
    latest, first = _Latest(run).over, order(run).first
    return [
        [
            None if event.end is None or event.op == "wait" else latest[number] - event.end
            for number, event in enumerate(program.events, begin)
        ]
        for program, begin in zip(run.programs, first, strict=False)
    ]


class _Latest:
    """The latest moments at which things may happen. What nothing waits for may happen as late as the end of the run.

    Events have their numbers in `order`, which is processed backwards.
    """

    def __init__(self, run: Trace) -> None:
        self.run, self.order = run, order(run)
        self.events, first, end = self.order.events, self.order.first, makespan(run)
        # When a rank has to reach its next event, when an event has to be over, and, if anything waits for that, when
        # it has to be issued.
        self.clocks, self.over, self.issued = [end] * run.ranks, [end] * len(self.events), dict[int, int]()
        # When the next communication on a stream has to begin, or a reader has to turn to the next request; and when a
        # process must have read a batch.
        self.next, self.there = (defaultdict[Hashable, int](lambda: end) for _ in range(2))
        self.later: dict[tuple[int, int], int] = {}  # by pair of ranks, the message after the current one
        causes, by_itself, readers = causes_of(run), alone(run), Readers(run.costs, run.mesh)
        self.lengths = {  # for messages that waited for room
            first[source] + sent: by_itself[source, sent]
            for source, sent, _, _ in (messages(run) if by_itself else ())
            if causes.room(causes.at(source, sent)) is not None
        }
        self.fresh: dict[int, tuple[int, ...]] = {}  # what a reader first read for a request
        for rank, number in chain.from_iterable(requests(run).values()):
            event = run.programs[rank].events[number]
            self.fresh[first[rank] + number] = readers.read(rank, event.batches, event.issued).fresh
        for kind, rank, number, others in reversed(self.order.steps):
            if kind == "do":
                for one in reversed(range(number, others[0])):
                    self.over[one] = self.clocks[rank]
                    self.clocks[rank] -= self.events[one].length
            elif kind == "done":
                self.over[number] = min(self.over[number], self.clocks[rank])
            elif kind == "issue":
                if self.events[number].op == "pass_to":
                    self._send(rank, number)
                self.clocks[rank] = min(self.clocks[rank], self.issued.get(number, self.clocks[rank]))
            elif kind == "meet":  # rank is the group's number; a group has one stream
                self.over[number] = min([self.over[member] for member in others])
                start = self._begin(rank, number)
                for member in others:
                    self.over[member], self.issued[member] = self.over[number], start
            elif kind == "pass":
                self._receive(others[0], rank, number)
            else:
                self._read(rank, number)

    def _begin(self, stream: Hashable, number: int) -> int:
        """Return when an event has to begin, given what follows on its stream."""
        over = self.over[number] = min(self.over[number], self.next[stream])
        start = self.next[stream] = over - self.lengths.get(number, self.events[number].length)
        return start

    def _send(self, source: int, number: int) -> None:
        if number not in self.issued:
            self.issued[number] = self._begin((source, self.events[number].peer, "send"), number)

    def _receive(self, sent: int, target: int, received: int) -> None:
        source = cast(int, self.events[received].peer)
        later, stream = self.later.get((source, target)), (source, target, "receive")
        if later is not None:
            self._send(source, later)
        start = self._begin(stream, received)
        if later is not None and self.run.costs.shared:  # it has room once this one begins to be received
            self.next[stream] = start = min(start, self.over[later])
            self.over[received] = start + self.events[received].length
        self.issued[received] = start
        self.over[sent] = min(self.over[sent], start)
        self.later[source, target] = sent

    def _read(self, rank: int, number: int) -> None:
        process, batches = ("reader", process_of(self.run.mesh, rank)), self.events[number].batches
        one, copied = ticks(self.run.costs.read), len(batches) * ticks(self.run.costs.to_device)
        self.over[number] = min(self.over[number], self.next["copy", rank])
        start = self.next["copy", rank] = self.over[number] - copied
        for batch in batches:
            self.there[process, batch] = min(self.there[process, batch], start)
        if fresh := self.fresh[number]:
            read = [self.there[process, batch] - place * one for place, batch in enumerate(fresh, 1)]
            start = self.next[process] = min(*read, self.next[process] - len(fresh) * one)
        self.issued[number] = start
