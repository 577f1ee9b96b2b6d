"""Messages that ranks pass to each other, matched by both their ranks, or by who comes first.

Sends and receives pair off as in MPI without tags: in order for each pair of ranks, and none overtakes another. One
message fits in a channel, as in the original; the buffers of real libraries differ, and may hide a deadlock.

What waits here says of itself what it is (`kind`), and for whom it waits (`awaits`), so that a deadlock can be told.
"""

from __future__ import annotations

import gc
from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from functools import partial
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, cast

from lib.cluster.costs import Costs
from lib.errors.exceptions import RuleError
from lib.errors.wording import is_awaitable
from lib.record import record
from lib.simulator.engine import Signal
from lib.trace.event import BATCHES, FIELDS, ISSUED, LAYER, LENGTH, PEER, START
from lib.values.rules import need
from lib.values.values import Elements, Value, definite, describe

if TYPE_CHECKING:
    from lib.simulator.dist import Dist


Call = list[Any]
"""A communication as the record has it while it is under way: what its Event will say, field by field. Its times, and
what it brings, come later; BLOCKING is None until it is awaited. A list is made in a fourth of the time of an Event."""


class AsEvent:
    """A Call with the attributes of an Event: what a message tells, and the network sets."""

    issued: int
    start: int | None
    length: int

    def __init__(self, call: Call) -> None:
        self.__dict__["call"] = call

    def __getattr__(self, name: str) -> Any:
        return self.call[FIELDS.index(name)]

    def __setattr__(self, name: str, item: Any) -> None:
        self.call[FIELDS.index(name)] = item


class Message(Signal):
    """Something on its way. `over` is when its sender is through with it, `posted` when it found room: its place in
    time. `length` is what it takes alone on its links. Most find room at once; what others wait for is `room`. A
    receive that finds it there needs no other Signal: this one has fired."""

    kind = "pass"
    fired, _made_for = True, None
    room: Signal
    __slots__ = ("call", "length", "over", "posted", "room")

    def __init__(self, call: Call, value: Any, over: int) -> None:
        self.call, self.value, self.length = call, value, call[LENGTH]
        self.over = self.posted = over

    event = property(lambda self: AsEvent(self.call))

    def awaits(self, rank: int) -> list[int]:
        """Return the receiver."""
        return [self.call[PEER]]


# What every send that finds room at once returns.
_ROOM = Signal()
_ROOM.fired = True


class Receive(Signal):
    """A receive that no message has answered yet. `source` is None where any source will do."""

    kind = "receive"
    event = Message.event
    __slots__ = ("call", "others", "rank", "source")

    def __init__(self, call: Call, rank: int, source: int | None, others: Sequence[int] = ()) -> None:
        Signal.__init__(self)  # as super() does, in half the time
        self.call, self.rank, self.source, self.others = call, rank, source, others

    def awaits(self, rank: int) -> list[int]:
        """Return the source, or everybody else."""
        return [r for r in self.others if r != rank] if self.source is None else [self.source]


class Channel:
    """The way from one rank to another: room for one message, and a queue for room. Its two ends are streams."""

    __slots__ = ("arrivals", "ready", "receives", "sends", "source", "target", "waiting")

    def __init__(self, source: int, target: int) -> None:
        self.source, self.target = source, target
        # Stored and forwarded: a message takes its length at both ends, one after the other. NCCL overlaps them.
        self.sends, self.arrivals = object(), object()
        self.ready, self.waiting, self.receives = deque[Message](), deque[Message](), deque[Receive]()


class Messages:
    """The channels of a world. Where its links are shared the network says when a message is over."""

    def __init__(self, dist: Dist) -> None:
        self.engine, self.streams = dist.engine, dist.streams
        self.prices, self.network, self.ranks = dist.prices, dist.network, dist.ranks
        # What each message takes, where that is the same for all: it is asked for a million times.
        self._each = self.prices.message(1, 0, 0) if type(self.prices).message is Costs.message else None
        self._channels: dict[tuple[int, int], Channel] = {}
        self._incoming: dict[int, dict[int, Channel]] = {}
        self._any: dict[int, deque[Receive]] = {}

    def _channel(self, source: int, target: int) -> Channel:
        if (source, target) not in self._channels:
            found = self._channels[source, target] = Channel(source, target)
            self._incoming.setdefault(target, {})[source] = found
        return self._channels[source, target]

    def send(self, source: int, target: int, call: Call, load: Any, elements: Elements) -> Signal:
        """Start a message on its way. The signal fires when it has found room: one message fits in a channel.

        Waiting for room takes no simulated time, as in the original: the send itself is over at its own end. Where
        links are shared it does.
        """
        channel = self._channels.get((source, target)) or self._channel(source, target)
        length = self._each
        call[LENGTH] = length = self.prices.message(elements, source, target) if length is None else length
        if self.network is not None:  # it has room when it is over, so that takes time
            message = Message(call, load, 0)
            message.room = Signal(message)
            channel.waiting.append(message)
            self.network.send(source, target, AsEvent(call), length, partial(self._sent, channel, message))
            return message.room
        call[START] = start = self.streams.carry(channel.sends, call[ISSUED], length)
        message = Message(call, load, start + length)
        # One message fits, as in the original: a second send waits for the first to be received.
        if channel.ready:
            message.room = Signal(message)
            channel.waiting.append(message)
            return message.room
        self._post(channel, message)
        return _ROOM

    def _sent(self, channel: Channel, message: Message) -> None:
        """The network has brought a message to its room."""
        message.over = message.posted = message.call[START] + message.call[LENGTH]
        self._post(channel, channel.waiting.popleft())
        self.engine.fire(message.room)

    def _post(self, channel: Channel, message: Message) -> None:
        """A message has found room in its channel."""
        if channel.receives:
            wanted = channel.receives.popleft()
            self._hand_over(channel, message, wanted.call, wanted)
            return
        channel.ready.append(message)
        waiting = self._any.get(channel.target)
        if waiting:
            self._offer(waiting[0], message.posted)

    def unread(self) -> list[tuple[int, int, Any]]:
        """Return the messages that nobody has received: who passed them to whom, and the event, in order."""
        found = [(*pair, m.event) for pair, c in self._channels.items() for m in (*c.ready, *c.waiting)]
        return sorted(found, key=lambda item: item[:2])

    def receive(self, rank: int, source: int | None, call: Call) -> Signal:
        """Ask, for a rank, for the next message of a source, or for the message that is first in simulated time.

        Receives are answered in the order in which they were issued: one that comes after a bare receive waits until
        that has its message, as in MPI. So the order in the program says who got what.
        """
        queue = self._any.get(rank)
        if source is not None:
            channel = self._channels.get((source, rank)) or self._channel(source, rank)
            if channel.ready and not queue:
                return self._take(channel, call, None if self.network is None else Signal())
            wanted = Receive(call, rank, source)
            # A named receive behind a bare one has to wait for it: which message that takes is not known yet.
            (queue or channel.receives).append(wanted)
            return wanted
        wanted = Receive(call, rank, None, range(self.ranks))
        if queue is None:
            queue = self._any[rank] = deque()
        queue.append(wanted)
        if len(queue) == 1 and (first := self._first(rank)) is not None:
            self._offer(wanted, first.ready[0].posted)
        return wanted

    def _first(self, rank: int) -> Channel | None:
        """The incoming channel whose message is first in simulated time; of equals the lowest source."""
        ready = [c for c in self._incoming.get(rank, {}).values() if c.ready]
        # Never by who was stepped first: that is an accident of our own order.
        return min(ready, key=lambda c: (c.ready[0].posted, c.source), default=None)

    def _offer(self, wanted: Receive, posted: int) -> None:
        time = max(wanted.call[ISSUED], posted)
        self.engine.choose_later(time, wanted.rank, lambda: self._take_any(wanted))

    def _take_any(self, wanted: Receive) -> None:
        queue = self._any[wanted.rank]
        # Each message that arrives meanwhile is offered; the first choice took one, and the others find it done.
        if wanted.fired or not queue or queue[0] is not wanted:
            return
        if (channel := self._first(wanted.rank)) is None:
            return
        queue.popleft()
        self._take(channel, wanted.call, wanted)
        # Those behind it that name their source need no choice, and are answered up to the next bare one.
        while queue and (source := queue[0].source) is not None:
            named = queue.popleft()
            channel = self._channel(source, named.rank)
            if channel.ready:
                self._take(channel, named.call, named)
            else:
                channel.receives.append(named)
        if queue and (first := self._first(wanted.rank)) is not None:
            self._offer(queue[0], first.ready[0].posted)

    def _take(self, channel: Channel, call: Call, signal: Signal | None) -> Signal:
        """A receive takes the message that is ready; if another waits for room, it has it now. Return what tells that
        it has come: the message itself, where there is no other signal."""
        message = channel.ready.popleft()
        start = self._hand_over(channel, message, call, signal)
        if channel.waiting and self.network is None:
            following = channel.waiting.popleft()
            # It finds room when the one before begins to be received, and no earlier.
            following.posted = max(following.posted, start)
            self._post(channel, following)
            self.engine.fire(following.room)
        return signal or message

    def _hand_over(self, channel: Channel, message: Message, call: Call, signal: Signal | None) -> int:
        """Times a receive, tells it what it received, and fires its signal. Returns when it begins, where the network
        does not say that later."""
        sent, length = message.call, message.length
        call[PEER], call[LAYER], call[BATCHES] = channel.source, sent[LAYER], sent[BATCHES]
        if self.network is not None:
            over = partial(self.engine.fire, cast(Signal, signal), message.value)
            self.network.receive(channel.source, channel.target, AsEvent(call), length, message.over, over)
            return message.over
        call[LENGTH] = length
        call[START] = start = self.streams.carry(channel.arrivals, call[ISSUED], length, message.over)
        if signal is None:
            self.engine.moves += 1
        else:
            self.engine.fire(signal, message.value)
        return start


# -- what a message brings ---------------------------------------------------------------------------------------


@record()
class Parcel:
    """A message that is more than one value: what arrives, and the values in it, in their order."""

    thing: Any
    values: list[Value]


def copy_message(item: Any) -> tuple[Parcel, list[Value]]:
    """Copy an object that is sent: return what arrives, and which values are sent with it.

    Values arrive anew, in lists, tuples (those with names too), dicts and their like, which are copied; what is there
    twice is sent once. Anything else arrives as it is, and RuleError says so where it has a value in it: on the other
    side that would still be the sender's.
    """
    sent: list[Value] = []
    values: list[Value] = []
    copies: dict[int, Any] = {}

    def copied(part: Any) -> Any:
        # As pickle does it: what is there twice, or within itself, arrives so.
        if id(part) not in copies:
            copies[id(part)] = anew(part)
        return copies[id(part)]

    def anew(part: Any) -> Any:
        kind = cast("type[Any]", type(part))
        if isinstance(part, Value):
            sent.append(part)
            values.append(part.at(part.place))
            return values[-1]
        # Only Python's own classes are asked for what is in them: one made from them may answer anything.
        if kind in (list, deque):
            copies[id(part)] = items = deque[Any](maxlen=part.maxlen) if kind is deque else list[Any]()
            items.extend([copied(inner) for inner in part])
            return items
        if kind in (dict, OrderedDict, defaultdict):
            pairs = defaultdict[Any, Any](part.default_factory) if kind is defaultdict else cast("Any", kind)()
            copies[id(part)] = pairs
            pairs.update([(copied(key), copied(inner)) for key, inner in part.items()])
            return pairs
        named = issubclass(kind, _tuple) and hasattr(kind, "_fields") and not kind.__dictoffset__
        if kind is tuple or named:  # a NamedTuple with nothing beside its items
            return _tuple.__new__(kind, [copied(inner) for inner in _tuple.__iter__(part)])
        if (held := _held(part)) is not None:
            name = kind.__name__
            value = need(Value, held, "value given to pass_to", "pass_to")
            raise RuleError(
                f"pass_to was given a {name} with a value in it, which would not arrive",
                expected="values travel in lists, tuples and dicts",
                got=f"a {name} that holds {definite(describe(value))}",
                fix="send the value itself, or a list, a tuple or a dict of what is to arrive",
            )
        return part

    try:
        return Parcel(copied(item), values), sent
    except RecursionError:
        raise RuleError(
            "pass_to was given something that is nested too deeply",
            expected="a value, or lists, tuples and dicts of values",
            fix="send its parts, each in a message of its own",
        ) from None


_tuple: Any = tuple
CODE = (type, ModuleType, FunctionType, CodeType, FrameType)
"""What leads to all that there is, and has no values of its own."""
MOST_LOOKED_AT = 10**5


def _held(thing: object) -> object:
    """A value in an object of any other class, or in what that holds, or one that was not awaited; None where there is
    none. None of its methods are called."""
    # By what the garbage collector knows, as attributes and items of a student's class may run code, or lie.
    seen, queue = {id(thing)}, [thing] if gc.is_tracked(thing) else []
    for part in queue:
        if isinstance(part, Value) or is_awaitable(part):
            return cast("object", part)
        if len(queue) < MOST_LOOKED_AT and not isinstance(part, CODE):
            new = {id(inner): inner for inner in gc.get_referents(part) if gc.is_tracked(inner)}
            queue.extend(inner for number, inner in new.items() if number not in seen)
            seen |= new.keys()
    return None
