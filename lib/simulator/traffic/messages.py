"""Messages: what ranks pass to each other, matched by both their ranks, and who receives from whoever comes first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from lib.cluster.clock import Streams
from lib.cluster.costs import Costs
from lib.cluster.network import Network
from lib.simulator.engine import Engine, Signal
from lib.simulator.matching import Channel, Message, Receive
from lib.trace.event import Event
from lib.values.values import Elements

__all__ = ["Messages"]


class Messages:
    """The channels of a world. Where its links are shared the network says when a message is over."""

    def __init__(
        self,
        engine: Engine,
        streams: Streams,
        prices: Costs,
        network: Network | None,
        ranks: int,
        begin: Callable[[int], None],
    ) -> None:
        self.engine = engine
        self.streams = streams
        self.prices = prices
        self.network = network
        self.ranks = ranks
        self.begin = begin
        self._channels: dict[tuple[int, int], Channel] = {}
        self._incoming: dict[int, dict[int, Channel]] = {}
        self._any: dict[int, deque[Receive]] = {}

    def _channel(self, source: int, target: int) -> Channel:
        found = self._channels.get((source, target))
        if found is None:
            found = self._channels[source, target] = Channel(source, target)
            self._incoming.setdefault(target, {})[source] = found
        return found

    def send(self, source: int, target: int, event: Event, load: Any, elements: Elements) -> Signal:
        """A message starts on its way. The signal fires when it has found room: one message fits in a channel.

        Waiting for room takes no simulated time, as in the original: the send itself is over at its own end. Where
        links are shared it does.
        """
        self.begin(source)
        channel = self._channels.get((source, target)) or self._channel(source, target)
        length = self.prices.message(elements, source, target)
        if self.network is not None:
            return self._send(channel, event, load, length)
        start = self.streams.carry(channel.sends, event, length)
        message = Message(event, load, start + length)
        if not channel.ready:
            self._post(channel, message)
            return _SENT
        message.signal = Signal(message)
        channel.waiting.append(message)
        return message.signal

    def _send(self, channel: Channel, event: Event, load: Any, length: int) -> Signal:
        """A message starts on its way where links are shared: it has room when it is over, so that takes time."""
        event.length = length  # for as long as it has not begun
        message = Message(event, load, 0)
        message.signal = signal = Signal(message)
        channel.waiting.append(message)

        over = partial(self._sent, channel, message)
        cast(Network, self.network).send(channel.source, channel.target, event, length, over)
        return signal

    def _sent(self, channel: Channel, message: Message) -> None:
        """The network has brought a message to its room."""
        message.over = message.posted = cast(int, message.event.end)
        self._post(channel, channel.waiting.popleft())
        self.engine.fire(cast(Signal, message.signal))

    def _post(self, channel: Channel, message: Message) -> None:
        """A message has found room in its channel."""
        if channel.receives:
            wanted = channel.receives.popleft()
            self._hand_over(channel, message, wanted.event, wanted.signal)
            return
        channel.ready.append(message)
        waiting = self._any.get(channel.target)
        if waiting:
            self._offer(waiting[0], message.posted)

    def unread(self) -> list[tuple[int, int, Event]]:
        """The messages that nobody has received: who passed them to whom, and the event, in order."""
        found = [(channel, m) for channel in self._channels.values() for m in (*channel.ready, *channel.waiting)]
        return sorted(((c.source, c.target, m.event) for c, m in found), key=lambda item: item[:2])

    def receive(self, rank: int, source: int | None, event: Event) -> Signal:
        """A rank asks for the next message of a source, or for the message that is first in simulated time.

        Receives are answered in the order in which they were issued: one that comes after a bare receive waits until
        that has its message, as in MPI. So the order in the program says who got what.
        """
        self.begin(rank)
        queue = self._any.get(rank)
        if source is not None:
            channel = self._channels.get((source, rank)) or self._channel(source, rank)
            if channel.ready and not queue:
                return self._take(channel, event, Signal())
            wanted = Receive(event, rank, source)
            (queue or channel.receives).append(wanted)
            return wanted.signal
        wanted = Receive(event, rank, None)
        wanted.others = range(self.ranks)
        if queue is None:
            queue = self._any[rank] = deque()
        queue.append(wanted)
        if len(queue) == 1 and (first := self._first(rank)) is not None:
            self._offer(wanted, first.ready[0].posted)
        return wanted.signal

    def _first(self, rank: int) -> Channel | None:
        """The incoming channel whose message is first in simulated time; of equals the lowest source."""
        ready = [c for c in self._incoming.get(rank, {}).values() if c.ready]
        return min(ready, key=lambda c: (c.ready[0].posted, c.source), default=None)

    def _offer(self, wanted: Receive, posted: int) -> None:
        time = max(wanted.event.issued, posted)
        self.engine.choose_later(time, wanted.rank, lambda: self._take_any(wanted))

    def _take_any(self, wanted: Receive) -> None:
        queue = self._any[wanted.rank]
        if wanted.signal.fired or not queue or queue[0] is not wanted:
            return
        channel = self._first(wanted.rank)
        if channel is None:
            return
        queue.popleft()
        self._take(channel, wanted.event, wanted.signal)
        while queue and (source := queue[0].source) is not None:
            named = queue.popleft()
            channel = self._channel(source, named.rank)
            if channel.ready:
                self._take(channel, named.event, named.signal)
            else:
                channel.receives.append(named)
        if queue and (first := self._first(wanted.rank)) is not None:
            self._offer(queue[0], first.ready[0].posted)

    def _take(self, channel: Channel, event: Event, signal: Signal) -> Signal:
        """A receive takes the message that is ready; if another waits for room, it has it now."""
        start = self._hand_over(channel, channel.ready.popleft(), event, signal)
        if channel.waiting and self.network is None:
            following = channel.waiting.popleft()
            following.posted = max(following.posted, start)
            self._post(channel, following)
            self.engine.fire(cast(Signal, following.signal))
        return signal

    def _hand_over(self, channel: Channel, message: Message, event: Event, signal: Signal) -> int:
        """Times a receive, tells its event what it received, and fires its signal. Returns when it begins, where
        the network does not say that later."""
        sent = message.event
        event.peer = channel.source
        event.layer = sent.layer
        event.batches = sent.batches
        if self.network is not None:
            over = partial(self.engine.fire, signal, message.load)
            self.network.receive(channel.source, channel.target, event, message.length, message.over, over)
            return message.over
        start = self.streams.carry(channel.arrivals, event, message.length, message.over)
        self.engine.fire(signal, message.load)
        return start


_SENT = Signal.happened()
"""What every send that finds room at once returns."""
