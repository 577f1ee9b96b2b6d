"""A network whose links are shared by simultaneous flows.

Each communication is a flow. Alone it takes its `length`. It needs a share of the capacity of each link that it passes:
all of the slowest, less of faster ones. Where flows need more than a link has, they are slowed: the pace of all rises
until a link is full, flows on it stay at that pace, and the others go on (max-min fairness: Bertsekas and Gallager,
Data Networks, 1992, 6.5.2). So no link is overloaded, and each flow that is slowed passes a full one. It is a fluid
model: no packets, no protocol that has to find its rate first, and routes that never change.

Everything happens in the order of simulated time: `step` goes to the next moment at which a flow begins or ends. Paces
are exact fractions, and a flow ends with the tick in which its last bit arrives. The order of calls changes nothing.
The only copy of this timing: the simulator and `retime` both ask here, `retime` only where flows meet.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from lib.cluster.costs import Costs

# Ranks choose by what has arrived, so at equal times the network goes first.
BEFORE = -1
"""A number that comes before all ranks that choose at the same time."""
Share = Fraction | int
Shares = Mapping[Hashable, Share]
"""The links that a flow passes, and the share that it needs of each: more than 0, at most 1."""
Then = Callable[[], object]


class Timed(Protocol):
    """An event of a communication, called at `issued`; the network fills in the rest."""

    issued: int
    start: int | None
    length: int


@dataclass(slots=True, eq=False)
class Flow:
    """A flow on the network, or waiting for its stream. `timed` get its times; `then` is called at its end."""

    number: int
    stream: Hashable
    length: int
    timed: Sequence[Timed]
    then: Then
    room: tuple[_Room, int] | None = None
    """Of a send: the room that it needs, and how many messages have to be received first."""
    due: int = -1
    """When it begins, as far as known, or -1."""
    start: int = -1

    def note(self, end: int) -> None:
        """Fill in the times of its events."""
        for timed in self.timed:
            timed.start, timed.length = self.start, end - self.start


@dataclass(slots=True, eq=False)
class _Bundle:
    """The flows under way over the same links, which all have one pace.

    Its clock is the work that a flow would have `done` from the beginning, in ticks at full pace. By that clock the end
    of a flow never changes, so a change of pace touches the bundle and none of its flows.
    """

    links: Shares
    flows: list[tuple[Share, int, Flow]] = field(default_factory=list[tuple[Share, int, Flow]])
    """A heap: the work done when a flow is over, its number, and the flow."""
    done: Share = 0
    settled: int = 0
    """When that was done."""
    pace: Share = 1
    due: int = -1
    """When its first flow ends, at the present pace."""

    def at(self, now: int) -> Share:
        """Return the work done by now."""
        return self.done + self.pace * (now - self.settled)

    def when(self, done: Share) -> int:
        """Return the tick in which an amount of work is done."""
        # The tick in which the last bit arrives: minus the floor of the negative is the ceiling, exactly.
        return self.settled - (self.done - done) // self.pace


@dataclass(slots=True, eq=False)
class _Room:
    """Room for one message from one rank to another. `held` has come through the links, and waits for room."""

    sent: int = 0
    received: int = 0
    held: Flow | None = None


class Network:
    """Flows on shared links, in streams that each carry one flow after the other. `costs` determine their links.

    `later` schedules an action for a moment before which nothing more can happen, as `Engine.choose_later` does.
    Without it the caller calls `step`.
    """

    def __init__(self, costs: Costs, later: Callable[[int, int, Callable[[], None]], object] | None = None) -> None:
        self.now = 0
        self._costs = costs
        self._later = later
        self._promised: set[int] = set()
        self._count = 0
        # A heap of what is due: a flow that begins, or a bundle whose first flow ends, with the flow's number.
        self._due: list[tuple[int, int, Flow | _Bundle]] = []
        # By stream: the bundle of its flows, and those that are not over, with the moments at which they are ready.
        self._streams: dict[Hashable, tuple[_Bundle, deque[tuple[int, Flow]]]] = {}
        self._bundles: dict[frozenset[tuple[Hashable, Share]], _Bundle] = {}
        # Bundles with a flow on a link.
        self._users: dict[Hashable, dict[_Bundle, None]] = {}
        self._rooms: dict[tuple[int, int], _Room] = {}
        self._receives: dict[Flow, _Room] = {}

    # -- flows ---------------------------------------------------------------------------------------------------

    def meet(self, stream: Hashable, ranks: Sequence[int], members: Sequence[Timed], length: int, then: Then) -> None:
        """Begin a collective once all have issued it and its stream is free. `then` is called when it is over."""
        ready = max([one.issued for one in members])
        self._queue(stream, ready, length, members, then, self._costs.passes, ranks)

    def send(self, source: int, target: int, one: Timed, length: int, then: Then) -> None:
        """Send a message. It is over when it is through and has room: the receive of the one before has begun."""
        room = self._rooms.setdefault((source, target), _Room())
        ends = "out", source, target
        self._queue(ends, one.issued, length, [one], then, self._costs.passes_at, *ends).room = room, room.sent
        room.sent += 1

    def receive(self, source: int, target: int, one: Timed, length: int, sent: int, then: Then) -> None:
        """Receive a message that was `sent`. It leaves its room when the receive begins."""
        ends = "in", target, source
        flow = self._queue(ends, max(one.issued, sent), length, [one], then, self._costs.passes_at, *ends)
        self._receives[flow] = self._rooms.setdefault((source, target), _Room())

    def _queue(
        self, stream: Hashable, ready: int, length: int, timed: Sequence[Timed], then: Then, passes: Any, *ends: Any
    ) -> Flow:
        if stream not in self._streams:
            links: Shares = passes(*ends)
            bundle = self._bundles.setdefault(frozenset(links.items()), _Bundle(links))
            self._streams[stream] = bundle, deque()
        _, queue = self._streams[stream]
        flow = Flow(self._count, stream, length, timed, then)
        self._count += 1
        queue.append((ready, flow))
        if len(queue) == 1:
            self._expect(flow, ready)
        if self._later is not None:
            self._promise()
        return flow

    # -- time ----------------------------------------------------------------------------------------------------

    def next(self) -> int | None:
        """Return the next moment at which something happens, if anything does."""
        due = self._due
        # Outdated entries stay in the heap until they come up: paces change often, and a search is expensive.
        while due and due[0][0] != due[0][2].due:
            heapq.heappop(due)
        return due[0][0] if due else None

    def step(self) -> bool:
        """Go on to the next moment at which something happens; return whether there was one."""
        now = self.next()
        if now is None:
            return False
        self.now = now
        over: list[Flow] = []
        # Links that several flows pass, whose paces change. Most links have one flow at a time.
        touched: dict[Hashable, None] = {}
        due = self._due
        while due and due[0][0] <= now:
            time, _, item = heapq.heappop(due)
            if time != item.due:
                continue  # its pace has changed since
            if isinstance(item, Flow):
                self._begin(item, over, touched)
            else:
                self._through(item, over, touched)
        if touched:
            self._settle(touched)
        # Last, when all paces are settled, as `then` may send; by number, as one tick has no order.
        for flow in over if len(over) == 1 else sorted(over, key=lambda flow: flow.number):
            flow.note(now)
            flow.then()
        return True

    def note(self) -> None:
        """Fill in the times of all flows under way, as if nothing more came."""
        for bundle in self._bundles.values():
            for done, _, flow in bundle.flows:
                flow.note(bundle.when(done))

    def _expect(self, flow: Flow, time: int) -> None:
        # It may have been ready long before its stream was free.
        flow.due = max(time, self.now)
        heapq.heappush(self._due, (flow.due, flow.number, flow))

    def _foresee(self, bundle: _Bundle) -> None:
        done, number, _ = bundle.flows[0]
        time = bundle.when(done)
        if time != bundle.due:
            bundle.due = time
            heapq.heappush(self._due, (time, number, bundle))

    def _promise(self) -> None:
        time = self.next()
        if self._later is not None and time is not None and time not in self._promised:
            # Once for each moment: every queued flow calls this.
            self._promised.add(time)
            self._later(time, BEFORE, lambda: self._arrive(time))

    def _arrive(self, time: int) -> None:
        self._promised.discard(time)
        # Else a pace has changed since, and nothing is due now.
        if self.next() == time:
            self.step()
        self._promise()

    # -- beginning and end ---------------------------------------------------------------------------------------

    def _begin(self, flow: Flow, over: list[Flow], touched: dict[Hashable, None]) -> None:
        flow.due, flow.start = -1, self.now
        bundle, _ = self._streams[flow.stream]
        if bundle.flows:
            heapq.heappush(bundle.flows, (bundle.at(self.now) + flow.length, flow.number, flow))
        else:
            # An idle bundle starts over with whole numbers: denominators would grow over a long run.
            bundle.done, bundle.settled, bundle.pace, bundle.due = 0, self.now, 1, -1
            bundle.flows.append((flow.length, flow.number, flow))
        for link in bundle.links:
            users = self._users.setdefault(link, {})
            users[bundle] = None
            # Alone on its links a flow keeps the pace of 1, as most do: nothing has to be worked out.
            if len(users) > 1 or len(bundle.flows) > 1:
                touched[link] = None
        self._foresee(bundle)
        flow.note(self.now + flow.length)
        # The receive has begun, so its message leaves the channel and the one behind it has room.
        room = self._receives.pop(flow, None)
        if room is not None:
            room.received += 1
            if room.held is not None:
                held, room.held = room.held, None
                self._end(held, over)

    def _through(self, bundle: _Bundle, over: list[Flow], touched: dict[Hashable, None]) -> None:
        """End the first flows of a bundle, whose work is done and whose links are free."""
        bundle.due, done = -1, bundle.at(self.now)
        while bundle.flows and bundle.flows[0][0] <= done:
            _, _, flow = heapq.heappop(bundle.flows)
            # It is through, but the message before it is not received: its sender waits, its links are free.
            if flow.room is not None and flow.room[0].received < flow.room[1]:
                flow.room[0].held = flow
            else:
                self._end(flow, over)
        for link in bundle.links:
            users = self._users[link]
            if not bundle.flows:
                del users[bundle]
            if users:
                touched[link] = None
        if bundle.flows:
            self._foresee(bundle)

    def _end(self, flow: Flow, over: list[Flow]) -> None:
        over.append(flow)
        _, queue = self._streams[flow.stream]
        queue.popleft()
        if queue:
            self._expect(queue[0][1], queue[0][0])

    # -- paces ---------------------------------------------------------------------------------------------------

    def _settle(self, touched: Iterable[Hashable]) -> None:
        """Set the paces of all flows that are connected to touched links."""
        seen: set[Hashable] = set()
        for link in touched:
            if link not in seen:
                # Only among connected flows: the others are not affected.
                bundles = self._joined(link, seen)
                shared = paces([one.links for one in bundles], [len(one.flows) for one in bundles])
                for bundle, pace in zip(bundles, shared, strict=True):
                    # Settle the work at the old pace; from now on the bundle's clock runs at the new one.
                    if pace != bundle.pace:
                        bundle.done, bundle.settled, bundle.pace = bundle.at(self.now), self.now, pace
                        self._foresee(bundle)

    def _joined(self, link: Hashable, seen: set[Hashable]) -> list[_Bundle]:
        """Return the bundles on a link, and all that are connected to them through shared links."""
        bundles: dict[_Bundle, None] = {}
        links = [link]
        seen.add(link)
        while links:
            for bundle in self._users.get(links.pop(), ()):
                if bundle not in bundles:
                    bundles[bundle] = None
                    new = [one for one in bundle.links if one not in seen]
                    seen.update(new)
                    links += new
        return list(bundles)


def paces(needs: Sequence[Shares], counts: Sequence[int] | None = None) -> list[Share]:
    """Return the pace, at most 1, of each flow that needs these shares of links, or of each of `counts` such flows.

    The pace of all rises until a link is full. Flows that pass it stay at that pace, and the others go on.
    """
    pace_of: list[Share] = [1] * len(needs)
    counts = counts or [1] * len(needs)
    if sum(counts) == 1:
        return pace_of
    users: dict[Hashable, dict[int, Share]] = {}
    for number, shares in enumerate(needs):
        for link, share in shares.items():
            users.setdefault(link, {})[number] = share * counts[number]
    # A link with enough capacity slows no flow.
    users = {link: mine for link, mine in users.items() if sum(mine.values()) > 1}
    free = dict.fromkeys(users, Fraction(1))
    while users:
        # Progressive filling: the link that is full first determines the pace of all flows on it.
        levels = {link: free[link] / sum(mine.values()) for link, mine in users.items()}
        level = min(levels.values())
        # No flow is faster than alone, so all others go at full pace.
        if level >= 1:
            break
        # A dict as a set: several links may fill at once and share flows, and the order must not be that of hashes.
        for number in {number: None for link, mine in users.items() if levels[link] == level for number in mine}:
            pace_of[number] = level
            for link in needs[number]:
                if link in users:
                    free[link] -= users[link].pop(number) * level
        users = {link: mine for link, mine in users.items() if mine}
    return pace_of
