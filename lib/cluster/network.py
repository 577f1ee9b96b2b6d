"""A network whose links are shared by what uses them at the same time.

What goes over it is a flow. Alone it takes its `length`. Of each link that it passes it needs a share of the capacity:
1 of the slowest, less of faster ones. Where the flows on a link need more than there is, they are slowed: all go at one
pace until a link is full, those on it stay at that pace, and the others go on to the next (max-min fairness: Bertsekas
and Gallager, Data Networks, 1992, 6.5.2). So no link carries more than it can, and who is slow passes one that is full.

Everything happens in the order of simulated time: `step` goes on to the next moment at which a flow begins or ends.
Paces are exact fractions, and a flow is over with the tick in which its last bit arrives. Who asks first changes
nothing. The only copy of this timing: the simulator and `retime` both ask here.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Protocol

BEFORE = -1
"""What comes before all ranks that choose at the same time."""
Share = Fraction | int
Shares = Mapping[Hashable, Share]
"""The links that a flow passes, and what it needs of each: more than 0, at most 1."""
Then = Callable[[], object]


class Timed(Protocol):
    """Something that takes part in a communication: an event. It is asked for when it is `issued`."""

    issued: int
    start: int | None
    length: int


class Routes(Protocol):
    """The links that a collective passes, and a message when it is sent and when it is received."""

    def passes(self, members: Sequence[int]) -> Shares: ...
    def passes_out(self, source: int, target: int) -> Shares: ...
    def passes_in(self, source: int, target: int) -> Shares: ...


@dataclass(slots=True, eq=False)
class Flow:
    """Something on its way over the network, or waiting for its stream. `timed` are told its times, and `then` is
    called when it is over."""

    number: int
    stream: Hashable
    length: int
    links: Shares
    timed: Sequence[Timed]
    then: Then
    left: Share
    """Ticks of work, at full pace, that were left when its pace was last `settled`."""
    room: tuple[_Room, int] | None = None
    """Of a message that is sent: where it needs room, and how many have to be received for that."""
    due: int = -1
    """When it begins, or once it has begun, ends: as things are. -1 where that is for others to say."""
    start: int = -1
    settled: int = 0
    pace: Share = 1

    def note(self, end: int) -> None:
        """Tells what has its time."""
        for timed in self.timed:
            timed.start, timed.length = self.start, end - self.start


@dataclass(slots=True, eq=False)
class _Room:
    """The place of messages of one rank for another until they are received, one at a time. `held` is a message that is
    through, and has no room yet."""

    sent: int = 0
    received: int = 0
    held: Flow | None = None


class Network:
    """Flows on shared links, in streams: each carries one flow after the other.

    `later` has an action done when simulated time has come to a moment and nothing that is before can happen any more,
    as `Engine.choose_later` does. A caller that needs none calls `step` itself.
    """

    def __init__(self, routes: Routes, later: Callable[[int, int, Callable[[], None]], object] | None = None) -> None:
        self.now = 0
        self._routes = routes
        self._later = later
        self._promised: set[int] = set()
        self._count = 0
        self._due: list[tuple[int, int, Flow]] = []
        self._streams: dict[Hashable, tuple[Shares, deque[tuple[int, Flow]]]] = {}
        """The links of each, and its flows, with the moments from which they are ready."""
        self._under_way: dict[Flow, None] = {}
        self._users: dict[Hashable, dict[Flow, Share]] = {}
        self._rooms: dict[tuple[int, int], _Room] = {}
        self._receives: dict[Flow, _Room] = {}

    # -- what goes over it ---------------------------------------------------------------------------------------

    def meet(self, stream: Hashable, ranks: Sequence[int], members: Sequence[Timed], length: int, then: Then) -> None:
        """A collective. It begins when its last member has issued it, and those before it on its stream are over.
        `then` is called when it is over."""
        if stream not in self._streams:
            self._streams[stream] = self._routes.passes(ranks), deque()
        self._queue(stream, max([one.issued for one in members]), length, members, then)
        self._promise()

    def send(self, source: int, target: int, one: Timed, length: int, then: Then) -> None:
        """A message goes out. It is over when it is through and has room: the one before has begun to be received."""
        stream = source, target, "send"
        if stream not in self._streams:
            self._streams[stream] = self._routes.passes_out(source, target), deque()
        room = self._rooms.setdefault((source, target), _Room())
        self._queue(stream, one.issued, length, [one], then).room = room, room.sent
        room.sent += 1
        self._promise()

    def receive(self, source: int, target: int, one: Timed, length: int, sent: int, then: Then) -> None:
        """A message that was `sent` comes in, and leaves its room when it begins to."""
        stream = source, target, "receive"
        if stream not in self._streams:
            self._streams[stream] = self._routes.passes_in(source, target), deque()
        flow = self._queue(stream, max(one.issued, sent), length, [one], then)
        self._receives[flow] = self._rooms.setdefault((source, target), _Room())
        self._promise()

    def _queue(self, stream: Hashable, ready: int, length: int, timed: Sequence[Timed], then: Then) -> Flow:
        links, queue = self._streams[stream]
        flow = Flow(self._count, stream, length, links, timed, then, length)
        self._count += 1
        queue.append((ready, flow))
        if len(queue) == 1:
            self._expect(flow, ready)
        return flow

    # -- time ----------------------------------------------------------------------------------------------------

    def next(self) -> int | None:
        """The next moment at which something happens, if anything does."""
        due = self._due
        while due and due[0][0] != due[0][2].due:
            heapq.heappop(due)
        return due[0][0] if due else None

    def step(self) -> bool:
        """Goes on to the next moment at which something happens; whether there was one."""
        now = self.next()
        if now is None:
            return False
        self.now = now
        over: list[Flow] = []
        touched: dict[Hashable, None] = {}
        """Links that others pass, too: their paces change. Most links have one flow at a time."""
        due = self._due
        while due and due[0][0] <= now:
            time, _, flow = heapq.heappop(due)
            if time != flow.due:
                continue  # its pace has changed since
            if flow in self._under_way:
                self._through(flow, over, touched)
            else:
                self._begin(flow, over, touched)
        if touched:
            self._settle(touched)
        for flow in over if len(over) == 1 else sorted(over, key=lambda flow: flow.number):
            flow.note(now)
            flow.then()
        return True

    def note(self) -> None:
        """Tells all that is under way how long it will take if nothing more comes, or goes."""
        for flow in self._under_way:
            flow.note(flow.due)

    def _expect(self, flow: Flow, time: int) -> None:
        flow.due = max(time, self.now)
        heapq.heappush(self._due, (flow.due, flow.number, flow))

    def _promise(self) -> None:
        if self._later is None:
            return
        time = self.next()
        if time is not None and time not in self._promised:
            self._promised.add(time)
            self._later(time, BEFORE, lambda: self._arrive(time))

    def _arrive(self, time: int) -> None:
        self._promised.discard(time)
        if self.next() == time:
            self.step()
        self._promise()

    # -- beginning and end ---------------------------------------------------------------------------------------

    def _begin(self, flow: Flow, over: list[Flow], touched: dict[Hashable, None]) -> None:
        flow.start = flow.settled = self.now
        self._under_way[flow] = None
        for link, share in flow.links.items():
            users = self._users.setdefault(link, {})
            users[flow] = share
            if len(users) > 1:
                touched[link] = None
        self._expect(flow, self.now + flow.length)
        flow.note(flow.due)
        room = self._receives.pop(flow, None)
        if room is not None:
            room.received += 1
            if room.held is not None:
                held, room.held = room.held, None
                self._end(held, over)

    def _through(self, flow: Flow, over: list[Flow], touched: dict[Hashable, None]) -> None:
        """A flow has done its work, and its links are free."""
        flow.due = -1
        del self._under_way[flow]
        for link in flow.links:
            users = self._users[link]
            del users[flow]
            if users:
                touched[link] = None
        if flow.room is not None and flow.room[0].received < flow.room[1]:
            flow.room[0].held = flow
        else:
            self._end(flow, over)

    def _end(self, flow: Flow, over: list[Flow]) -> None:
        over.append(flow)
        _, queue = self._streams[flow.stream]
        queue.popleft()
        if queue:
            self._expect(queue[0][1], queue[0][0])

    # -- paces ---------------------------------------------------------------------------------------------------

    def _settle(self, touched: Iterable[Hashable]) -> None:
        """Gives all flows their paces whose links, or the links of those with whom they share one, were touched."""
        seen: set[Hashable] = set()
        for link in touched:
            if link not in seen:
                flows = self._joined(link, seen)
                shared = paces([flow.links for flow in flows]) if len(flows) > 1 else [1] * len(flows)
                for flow, pace in zip(flows, shared, strict=True):
                    if pace != flow.pace:
                        flow.left -= flow.pace * (self.now - flow.settled)
                        flow.pace, flow.settled = pace, self.now
                        self._expect(flow, self.now + ceil(flow.left / pace))

    def _joined(self, link: Hashable, seen: set[Hashable]) -> list[Flow]:
        """The flows on a link, and all that share one with them, or with those."""
        flows: dict[Flow, None] = {}
        links = [link]
        seen.add(link)
        while links:
            for flow in self._users.get(links.pop(), ()):
                if flow not in flows:
                    flows[flow] = None
                    new = [one for one in flow.links if one not in seen]
                    seen.update(new)
                    links += new
        return list(flows)


def paces(needs: Sequence[Shares]) -> list[Share]:
    """The pace of each flow, at most 1, where they need these shares of links.

    All go at one pace until a link is full. What passes it stays at that pace, and the others go on.
    """
    found: list[Share] = [1] * len(needs)
    users: dict[Hashable, dict[int, Share]] = {}
    for number, shares in enumerate(needs):
        for link, share in shares.items():
            users.setdefault(link, {})[number] = share
    users = {link: mine for link, mine in users.items() if len(mine) > 1 and sum(mine.values()) > 1}
    free = dict.fromkeys(users, Fraction(1))
    while users:
        levels = {link: free[link] / sum(mine.values()) for link, mine in users.items()}
        level = min(levels.values())
        if level >= 1:
            break
        for number in {number: None for link, mine in users.items() if levels[link] == level for number in mine}:
            found[number] = level
            for link, share in needs[number].items():
                if link in users:
                    free[link] -= share * level
                    del users[link][number]
        users = {link: mine for link, mine in users.items() if mine}
    return found
