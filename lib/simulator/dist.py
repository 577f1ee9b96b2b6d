"""Dist: where ranks meet. Collectives are matched by sequence number in their group, messages by both their ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from lib import diagnosis
from lib.cluster.clock import Streams
from lib.cluster.costs import UNIT, Costs
from lib.cluster.mesh import Mesh, named_twice
from lib.cluster.reader import Asked, Readers
from lib.errors.arguments import Given, name_of, plain, written
from lib.errors.exceptions import PuzzleError
from lib.simulator.asyncio_support.drivers import Driver, RunningLoop
from lib.simulator.engine import TURNS, Engine, Signal
from lib.simulator.failures.cut import cut
from lib.simulator.matching import Channel, Communicator, Group, Message, PendingCollective, Receive
from lib.simulator.recorder import BUDGET
from lib.trace.event import Event
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.layers import Shape
from lib.values.placement import MOST
from lib.values.rules import Member, collective
from lib.values.values import Elements, Value

if TYPE_CHECKING:
    from lib.simulator.model import Model

__all__ = ["Dist"]


class Dist(Given):
    """`total` ranks that can talk to each other, on an optional mesh, at some costs.

    Give every Model of a run the same Dist: `asyncio.gather(*[ddp(Model(..., rank=i, dist=dist)) for i in ...])`, or
    let `simulate` do that.
    """

    given = {  # noqa: RUF012
        "ranks": ("the number of ranks of the world", "make another world: simulate(..., ranks=...) or Dist(...)"),
        "mesh": ("how the ranks are arranged", "make another world: simulate(..., mesh=...) or Dist(..., mesh=...)"),
        "costs": ("what operations take here", "make another world: simulate(..., costs=...) or Dist(..., costs=...)"),
        "budget": ("how long a run may become", "make another world: simulate(..., budget=...)"),
        "models": ("the Models of this world", "make another world: Dist(...)"),
        "engine": ("what steps the ranks", "make another world: Dist(...)"),
        "streams": ("the clocks of communication", "make another world: Dist(...)"),
        "shape": (
            "the size of the training step",
            "give the Models their sizes: simulate(..., layers=..., batches=...)",
        ),
        "sandbox": (
            "whether made-up gradients will do",
            "leave the dist out for a sandbox: Model(layers=..., batches=...)",
        ),
    }
    __slots__ = ("__dict__", "__weakref__", *given)
    ranks: int
    mesh: Mesh | None
    costs: Costs
    budget: int
    models: dict[int, Model]
    engine: Engine
    streams: Streams
    shape: Shape
    sandbox: bool

    def __init__(
        self,
        total: int,
        *,
        mesh: Mesh | None = None,
        costs: Costs = UNIT,
        budget: int = BUDGET,
    ) -> None:
        total = total if isinstance(total, bool) else plain(total)
        if type(total) is not int or total < 1:
            raise ValueError(f"a world has at least one rank; got {written(total)}")
        if total > MOST:
            raise ValueError(f"a world has at most {MOST} ranks; got {written(total)}")
        budget = budget if isinstance(budget, bool) else plain(budget)
        if type(budget) is not int or budget < 1:
            raise ValueError(
                f"the budget is how many events a rank may record, at least 1; got budget={written(budget)}"
            )
        if mesh is not None and not isinstance(mesh, Mesh):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f'mesh= takes a mesh, such as Mesh({{"data": 2}}); got {mesh!r}')
        if not isinstance(costs, Costs):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"costs= takes costs, such as Costs(p2p=0.1) or LINKS; got {costs!r}")
        if mesh is not None and len(mesh) != total:
            raise ValueError(f"{mesh} has {len(mesh)} ranks, the world has {total}: {mesh.instead(total)}")
        self._give(
            ranks=total,
            mesh=mesh,
            costs=costs,
            budget=budget,
            models={},
            engine=Engine(self._on_stuck, self._progress),
            streams=Streams(),
        )
        self.driver: Driver = RunningLoop(self.engine, self._on_failed, self._on_spinning)
        self.failure: PuzzleError | None = None
        self.by_hand = True
        """Whether somebody made this world and its Models themselves, as the original's notebook does."""
        self.until: tuple[int, int] | None = None
        """When a rank failed, and which, once one did: what lies behind that is in no Trace."""
        self.puzzle: str | None = None
        """The puzzle that is run here, where simulate was told one."""
        self.asks: frozenset[str] | None = None
        self._prices = costs.on(mesh)
        self._readers = Readers(costs, mesh)
        self._groups: dict[tuple[int, ...], Group] = {}
        self._communicators: dict[tuple[int, ...], Communicator] = {}
        self._by_name: dict[tuple[int, str], Group] = {}
        self._channels: dict[tuple[int, int], Channel] = {}
        self._incoming: dict[int, dict[int, Channel]] = {}
        self._any: dict[int, deque[Receive]] = {}

    def enter(self, model: Model, rank: int, *size: int, sandbox: bool) -> Shape:
        """A rank has its Model. The first one says how large the training step of this world is."""
        if not self.models:
            layers, batches, padding = size
            self._give(shape=Shape(layers, batches, padding=padding), sandbox=sandbox)
        elif size != (given := (self.shape.layers, self.shape.batches, self.shape.padding)):
            names = ("layers", "batches", "padding") if size[2] or given[2] else ("layers", "batches")
            first, other = (", ".join(f"{n}={k}" for n, k in zip(names, one, strict=False)) for one in (given, size))
            raise ValueError(f"the Models of one Dist are of one size, which the first one gave: {first}; got {other}")
        self.models[rank] = model
        return self.shape

    def begin(self, rank: int) -> None:
        """Notes which asyncio task steps a rank, to know when it ends. Under our own driver, or alone, nobody asks."""
        if not self.engine.driving and self.ranks > 1:
            self.driver.adopt_current(rank)

    def so_far(self, error: str) -> Trace | None:
        """The Trace of all ranks up to now, for the error of one of them to show."""
        if not self.models:
            return None
        trace = Trace.of(list(self.models.values()), error=error)
        return trace if self.until is None else cut(trace, self.until[0])

    # What goes wrong is told by `stuck`, imported when it does: `import lib` should be quick.
    def _on_stuck(self) -> Callable[[], PuzzleError] | None:
        return diagnosis.on_stuck(self)

    def _on_failed(self, rank: int, error: BaseException) -> None:
        diagnosis.on_failed(self, rank, error)

    def _on_spinning(self, rank: int, task: Any) -> PuzzleError | None:
        return diagnosis.on_spinning(self, rank, task, TURNS)

    def _progress(self) -> int:
        """A number that grows with whatever a rank records."""
        return sum(len(model.program.events) + len(model.program.moves) for model in self.models.values())

    # -- groups -------------------------------------------------------------------------------------------------

    def group(self, rank: int, name: str | Sequence[str] | Sequence[int] | None) -> Group:
        """The group of a rank: all ranks (None), a line of the mesh by axis name(s), or the ranks named."""
        if name is None:
            found = self._by_name.get((-1, ""))
            if found is None:
                found = self._by_name[-1, ""] = self._intern(tuple(range(self.ranks)))
            return found
        if isinstance(name, str):
            axis: str = name if type(name) is str else name_of(name)
            found = self._by_name.get((rank, axis))
            if found is None:
                found = self._intern(self._line(rank, (axis,)))
                self._by_name.update(((member, axis), found) for member in found.ranks)  # it is the line of all of them
            return found
        try:
            items: tuple[Any, ...] = tuple(islice(name, self.ranks + 1))
        except TypeError:
            items = (name,)
        if items and all(isinstance(item, str) for item in items):
            return self._intern(self._line(rank, tuple(map(name_of, items))))
        ranks = tuple(map(plain, items))
        allowed = len(ranks) <= self.ranks and all(type(item) is int and 0 <= item < self.ranks for item in ranks)
        if not allowed or rank not in ranks or len(set(ranks)) != len(ranks):
            raise diagnosis.not_a_group(rank, ranks, self.ranks, self.mesh)
        return self._intern(ranks)

    def _line(self, rank: int, axes: tuple[str, ...]) -> tuple[int, ...]:
        if self.mesh is None:
            raise diagnosis.no_mesh(axes[0])
        unknown = next((axis for axis in axes if axis not in self.mesh.axes), None)
        if unknown is not None:
            raise diagnosis.no_axis(unknown, rank, self.mesh)
        if (twice := named_twice(axes)) is not None:
            raise diagnosis.axis_twice(twice, axes)
        return self.mesh.group(rank, *axes)

    def _intern(self, ranks: tuple[int, ...]) -> Group:
        found = self._groups.get(ranks)
        if found is None:
            members = tuple(sorted(ranks))
            communicator = self._communicators.get(members)
            if communicator is None:
                communicator = self._communicators[members] = Communicator(members)
            found = self._groups[ranks] = Group(ranks, self.ranks, communicator)
        return found

    # -- collectives --------------------------------------------------------------------------------------------

    def join(self, group: Group, member: Member, event: Event) -> tuple[Signal, int]:
        """A member issues its next collective in a group. The last one to come starts it."""
        self.begin(member.rank)
        communicator = group.communicator
        position = communicator.position[member.rank]
        number = communicator.issued[position]
        communicator.issued[position] = number + 1
        pending = communicator.open.get(number)
        if pending is None:
            pending = communicator.open[number] = PendingCollective(group, number)
        pending.members[position] = member
        pending.events[position] = event
        pending.count += 1
        if pending.count == len(group.ranks):
            del communicator.open[number]
            self._meet(pending)
        return pending.signal, group.position[member.rank]

    def _meet(self, pending: PendingCollective) -> None:
        members = cast("list[Member]", pending.members)
        events = cast("list[Event]", pending.events)
        group, communicator = pending.group, pending.group.communicator
        if group.ranks != communicator.ranks and all(member.group == group.ranks for member in members):
            members = [members[communicator.position[rank]] for rank in group.ranks]
        row = COLLECTIVES[members[0].op]
        try:
            results = collective(row, members)
        except PuzzleError as error:
            pending.locate(error)
            error.time = max([event.issued for event in events])
            raise
        whole = row.size([m.value for m in members], members[0].root)
        length = self._prices.communicate(row, whole, group.ranks)
        start = self.streams.start(communicator, max([event.issued for event in events]), length)
        for event in events:
            event.start = start
            event.length = length
        self.engine.fire(pending.signal, results)

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, rank: int, event: Event, value: Value) -> Signal:
        """A rank asks the reader of its process for the data of an event. Requests are served in simulated time."""
        self.begin(rank)
        signal = Signal(Asked(event.batches))
        self.engine.choose_later(event.issued, rank, lambda: self._serve(rank, signal, event, value))
        return signal

    def _serve(self, rank: int, signal: Signal, event: Event, value: Value) -> None:
        found = self._readers.read(rank, event.batches, event.issued)
        event.arg, event.start, event.length = (found.number,), found.start, found.length
        self.engine.fire(signal, value)

    # -- messages -----------------------------------------------------------------------------------------------

    def _channel(self, source: int, target: int) -> Channel:
        found = self._channels.get((source, target))
        if found is None:
            found = self._channels[source, target] = Channel(source, target)
            self._incoming.setdefault(target, {})[source] = found
        return found

    def send(self, source: int, target: int, event: Event, load: Any, elements: Elements) -> Signal:
        """A message starts on its way. The signal fires when it has found room: one message fits in a channel.

        Waiting for room takes no simulated time, as in the original: the send itself is over at its own end.
        """
        self.begin(source)
        channel = self._channels.get((source, target)) or self._channel(source, target)
        event.length = self._prices.message(elements, source, target)
        event.start = start = self.streams.start(channel.sends, event.issued, event.length)
        message = Message(event, load, start + event.length)
        if not channel.ready:
            self._post(channel, message)
            return _SENT
        message.signal = Signal(message)
        channel.waiting.append(message)
        return message.signal

    def _post(self, channel: Channel, message: Message) -> None:
        """A message has found room in its channel."""
        if channel.receives:
            wanted = channel.receives.popleft()
            self._time(channel, message, wanted.event)
            self.engine.fire(wanted.signal, message.load)
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
                return Signal.happened(self._take(channel, event))
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
        self.engine.fire(wanted.signal, self._take(channel, wanted.event))
        while queue and (source := queue[0].source) is not None:
            named = queue.popleft()
            channel = self._channel(source, named.rank)
            if channel.ready:
                self.engine.fire(named.signal, self._take(channel, named.event))
            else:
                channel.receives.append(named)
        if queue and (first := self._first(wanted.rank)) is not None:
            self._offer(queue[0], first.ready[0].posted)

    def _take(self, channel: Channel, event: Event) -> Any:
        """A receive takes the message that is ready; if another waits for room, it has it now."""
        message = channel.ready.popleft()
        start = self._time(channel, message, event)
        if channel.waiting:
            following = channel.waiting.popleft()
            following.posted = max(following.posted, start)
            self._post(channel, following)
            self.engine.fire(cast(Signal, following.signal))
        return message.load

    def _time(self, channel: Channel, message: Message, event: Event) -> int:
        """Times a receive, and tells its event what it received."""
        sent = message.event
        event.peer = channel.source
        event.layer = sent.layer
        event.batches = sent.batches
        event.length = sent.length
        event.start = start = self.streams.start(channel.arrivals, max(event.issued, message.over), sent.length)
        return start


_SENT = Signal.happened()
"""What every send that finds room at once returns."""
