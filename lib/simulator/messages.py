"""Messages between ranks, matched by sender and receiver, or, where any sender will do, by which comes first.

Sends and receives pair off as in MPI without tags: in order for each pair of ranks, and none overtakes another. One
message fits in a channel, as in the original; the buffers of real libraries differ, and may hide a deadlock.

Everything that waits here has a `kind`, and says which ranks it `awaits`, so that a deadlock can be explained.
"""

from __future__ import annotations

import gc
from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from functools import partial
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, cast

from lib.cluster.costs import Costs, Stream
from lib.errors.exceptions import RuleError
from lib.errors.wording import is_awaitable
from lib.record import record
from lib.simulator.engine import Signal
from lib.trace.event import BATCHES, FIELDS, ISSUED, LAYER, LENGTH, PEER, START
from lib.values.laws import total_elements
from lib.values.rules import need
from lib.values.values import Value, definite, describe

if TYPE_CHECKING:
    from lib.simulator.dist import Dist


Call = list[Any]
"""A communication that is under way: the fields of its Event. Times and outputs are filled in later; BLOCKING is None
until it is awaited. Making a list takes a quarter of the time of an Event."""


class AsEvent:
    """A Call with the attributes of an Event, for error messages to read and the network to set."""

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
    """A message on its way. `over` is when its send ends, `posted` when it found room, `length` the time it takes alone
    on its links. Most find room at once; the others wait for `room`. A receive that finds it there needs no other
    Signal: this one has fired."""

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
        """Return the source, or all other ranks."""
        return [r for r in self.others if r != rank] if self.source is None else [self.source]


class Channel:
    """A channel from one rank to another: room for one message, and a queue for it. Its two ends are streams."""

    __slots__ = ("arrivals", "ready", "receives", "sends", "source", "target", "waiting")

    def __init__(self, source: int, target: int) -> None:
        self.source, self.target = source, target
        # Stored and forwarded: a message takes its length at both ends, one after the other. NCCL overlaps them.
        self.sends, self.arrivals = Stream(), Stream()
        self.ready, self.waiting, self.receives = deque[Message](), deque[Message](), deque[Receive]()


class Messages:
    """The channels of a world. Where links are shared, the network determines when a message is over."""

    def __init__(self, dist: Dist) -> None:
        self.engine = dist.engine
        self.prices, self.network, self.ranks = dist.prices, dist.network, dist.ranks
        # The length of a message, if it is the same for all: it is needed a million times.
        self._each = self.prices.message(1, 0, 0) if type(self.prices).message is Costs.message else None
        # By receiver, then by sender.
        self._incoming: dict[int, dict[int, Channel]] = {}
        self._any: dict[int, deque[Receive]] = {}

    def _channel(self, source: int, target: int) -> Channel:
        incoming = self._incoming.setdefault(target, {})
        if source not in incoming:
            incoming[source] = Channel(source, target)
        return incoming[source]

    def send(self, source: int, target: int, call: Call, load: Value | Parcel) -> Signal:
        """Send a message. The signal fires when it has found room: one message fits in a channel.

        Waiting for room takes no simulated time, as in the original, unless links are shared.
        """
        try:
            channel = self._incoming[target][source]
        except KeyError:
            channel = self._channel(source, target)
        length = self._each
        if length is None:
            sent = (load,) if isinstance(load, Value) else load.values
            length = self.prices.message(total_elements(sent), source, target)
        call[LENGTH] = length
        if self.network is not None:  # it has room when it is over, which takes time
            message = Message(call, load, 0)
            message.room = Signal(message)
            channel.waiting.append(message)
            self.network.send(source, target, AsEvent(call), length, partial(self._sent, channel, message))
            return message.room
        call[START] = start = channel.sends.carry(call[ISSUED], length)
        if channel.receives:  # it need not lie there
            wanted = channel.receives.popleft()
            self._hand_over(channel, call, load, length, start + length, wanted.call, wanted)
            return _ROOM
        message = Message(call, load, start + length)
        # One message fits, as in the original: a second send waits for the first to be received.
        if channel.ready:
            message.room = Signal(message)
            channel.waiting.append(message)
            return message.room
        self._post(channel, message)
        return _ROOM

    def _sent(self, channel: Channel, message: Message) -> None:
        """Called when the network has brought a message to its room."""
        message.over = message.posted = message.call[START] + message.call[LENGTH]
        self._post(channel, channel.waiting.popleft())
        self.engine.fire(message.room)

    def _post(self, channel: Channel, message: Message) -> None:
        """Put a message into the room of its channel."""
        if channel.receives:
            wanted = channel.receives.popleft()
            self._hand_over(channel, message.call, message.value, message.length, message.over, wanted.call, wanted)
            return
        channel.ready.append(message)
        if self._any and (waiting := self._any.get(channel.target)):
            self._offer(waiting[0], message.posted)

    def unread(self) -> list[tuple[int, int, Any]]:
        """Return the messages that were never received: sender, receiver and event, in order."""
        channels = [channel for each in self._incoming.values() for channel in each.values()]
        found = [(c.source, c.target, m.event) for c in channels for m in (*c.ready, *c.waiting)]
        return sorted(found, key=lambda item: item[:2])

    def receive(self, rank: int, source: int | None, call: Call) -> Signal:
        """Receive, on a rank, the next message of a source, or the message that is first in simulated time.

        Receives are answered in the order in which they were issued: one behind a bare receive waits until that has
        its message, as in MPI. So the program's order determines which receive gets which message.
        """
        queue = self._any.get(rank)
        if source is not None:
            try:
                channel = self._incoming[rank][source]
            except KeyError:
                channel = self._channel(source, rank)
            if channel.ready and not queue:
                return self._take(channel, call, None if self.network is None else Signal())
            wanted = Receive(call, rank, source)
            # A named receive waits for a bare one before it, which may take its message.
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
        """Return the incoming channel whose message is first in simulated time; of equals the lowest source."""
        ready = [c for c in self._incoming.get(rank, {}).values() if c.ready]
        # Never by which rank was stepped first: that is an accident of our own order.
        return min(ready, key=lambda c: (c.ready[0].posted, c.source), default=None)

    def _offer(self, wanted: Receive, posted: int) -> None:
        time = max(wanted.call[ISSUED], posted)
        self.engine.choose_later(time, wanted.rank, lambda: self._take_any(wanted))

    def _take_any(self, wanted: Receive) -> None:
        queue = self._any[wanted.rank]
        # Each message that arrived meanwhile was offered: the first choice takes one, later ones find it done.
        if wanted.fired or not queue or queue[0] is not wanted:
            return
        if (channel := self._first(wanted.rank)) is None:
            return
        queue.popleft()
        wanted.call[PEER] = channel.source
        self._take(channel, wanted.call, wanted)
        # Named receives behind it need no choice, and are answered up to the next bare one.
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
        """Let a receive take the message that is ready, and one that waits for room take its place. Return the signal
        of the receive, or else the message itself."""
        message = channel.ready.popleft()
        start = self._hand_over(channel, message.call, message.value, message.length, message.over, call, signal)
        if channel.waiting and self.network is None:
            following = channel.waiting.popleft()
            # It finds room when the receive of the one before begins, and no earlier.
            following.posted = max(following.posted, start)
            self._post(channel, following)
            self.engine.fire(following.room)
        return signal or message

    def _hand_over(
        self, channel: Channel, sent: Call, load: Any, length: int, over: int, call: Call, signal: Signal | None
    ) -> int:
        """Time a receive of what a send has brought by the time that it was `over`, fill in what it received, and fire
        its signal. Return when it begins, unless the network determines that later."""
        call[LAYER], call[BATCHES] = sent[LAYER], sent[BATCHES]
        if self.network is not None:
            fire = partial(self.engine.fire, cast(Signal, signal), load)
            self.network.receive(channel.source, channel.target, AsEvent(call), length, over, fire)
            return over
        call[LENGTH] = length
        call[START] = start = channel.arrivals.carry(call[ISSUED], length, over)
        if signal is None:
            self.engine.moves += 1
        else:
            self.engine.fire(signal, load)
        return start


# -- what is in a message ----------------------------------------------------------------------------------------


@record()
class Parcel:
    """A message other than a single value: the object that arrives, and the values in it, in order."""

    thing: Any
    values: list[Value]


def copy_message(item: Any) -> tuple[Parcel, list[Value]]:
    """Copy an object that is sent: return the Parcel that arrives, and the values that are sent with it.

    Values and the lists, tuples (also named ones) and dicts that hold them are copied; what is there twice is sent
    once. Anything else arrives as it is. RuleError if it holds a value, which would still be the sender's.
    """
    sent: list[Value] = []
    values: list[Value] = []
    copies: dict[int, Any] = {}

    def copied(part: Any) -> Any:
        # As pickle does: what is there twice, or within itself, arrives so.
        if id(part) not in copies:
            copies[id(part)] = anew(part)
        return copies[id(part)]

    def anew(part: Any) -> Any:
        kind = cast("type[Any]", type(part))
        if isinstance(part, Value):
            sent.append(part)
            values.append(part.at(part.place))
            return values[-1]
        # Only Python's own classes are opened: a subclass may answer anything.
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
"""Kinds of objects that lead everywhere, and hold no values of their own."""
MOST_LOOKED_AT = 10**5


def _held(thing: object) -> object:
    """Return a value, or an unawaited call, that an object of any other class holds, however deep; None where there is
    none. Calls none of its methods."""
    # The garbage collector knows; attributes and items of a student's class may run code, or lie.
    seen, queue = {id(thing)}, [thing] if gc.is_tracked(thing) else []
    for part in queue:
        if isinstance(part, Value) or is_awaitable(part):
            return cast("object", part)
        if len(queue) < MOST_LOOKED_AT and not isinstance(part, CODE):
            new = {id(inner): inner for inner in gc.get_referents(part) if gc.is_tracked(inner)}
            queue.extend(inner for number, inner in new.items() if number not in seen)
            seen |= new.keys()
    return None
