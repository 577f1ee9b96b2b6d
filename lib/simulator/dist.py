"""Dist: where ranks meet. Collectives are matched by sequence number in their group, messages by both their ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from lib import diagnosis
from lib.cluster.clock import Streams
from lib.cluster.costs import UNIT, Costs
from lib.cluster.mesh import Mesh, mesh_from, named_twice
from lib.cluster.network import Network
from lib.cluster.reader import Asked, Readers
from lib.errors.arguments import Given, name_of, plain, written
from lib.errors.exceptions import PuzzleError
from lib.errors.wording import message_of
from lib.simulator.asyncio_support.drivers import Driver, RunningLoop
from lib.simulator.engine import TURNS, Engine, Signal
from lib.simulator.failures.cut import cut
from lib.simulator.matching import Communicator, Group, PendingCollective
from lib.simulator.recorder import BUDGET
from lib.simulator.traffic.messages import Messages
from lib.trace.event import Event
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.kinds.kind import USUAL, Layer
from lib.values.layers import Shape
from lib.values.placement import MOST
from lib.values.rules import Member, collective
from lib.values.values import Value

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
        if mesh is not None and type(mesh) is not Mesh:
            mesh = _plain(mesh)
        if not isinstance(costs, Costs):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"costs= takes costs, such as Costs(p2p=0.1) or LINKS; got {costs!r}")
        if costs is UNIT:
            costs = replace(UNIT)  # what a world has is its own: changed by hand, it changes no other
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
        self.descriptions: Sequence[Layer] = USUAL
        """What the layers are; one stands for all where they are alike."""
        self._prices = costs.on(mesh)
        self._network = Network(self._prices, self.engine.choose_later) if costs.shared else None
        self._readers = Readers(costs, mesh)
        self._groups: dict[tuple[int, ...], Group] = {}
        self._communicators: dict[tuple[int, ...], Communicator] = {}
        self._by_name: dict[tuple[int, str], Group] = {}
        messages = Messages(self.engine, self.streams, self._prices, self._network, total, self.begin)
        self.send, self.receive, self.unread = messages.send, messages.receive, messages.unread

    def enter(self, model: Model, rank: int, *size: int, sandbox: bool) -> Shape:
        """A rank has its Model. The first one says how large the training step of this world is."""
        if not self.models:
            layers, batches, padding = size
            own = [replace(layer) for layer in self.descriptions]  # nobody else's: a student may reach them
            self._give(shape=Shape(layers, batches, own, padding), sandbox=sandbox)
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
        if self._network is not None:
            self._network.note()
        trace = Trace.of(list(self.models.values()), error=error)
        return trace if self.until is None else cut(trace, self.until[0])

    def settle(self) -> None:
        """Where all ranks that somebody runs by hand have ended, what nobody waits for comes to its end as well."""
        if self.by_hand and self._network is not None and all(task.done() for task in self.driver.tasks.values()):
            while self.engine.choose():
                pass

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
        whole = row.size([m.value for m in members], members[0].said)
        length = self._prices.communicate(row, whole, group.ranks)
        if self._network is not None:
            over = partial(self.engine.fire, pending.signal, results)
            self._network.meet(communicator, communicator.ranks, events, length, over)
            return
        self.streams.meet(communicator, events, length)
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


def _plain(mesh: Mesh) -> Mesh:
    """A mesh of a class of somebody's own as one of ours: by its axes, ranks, hosts and processes, whatever it says of
    itself."""
    try:
        return mesh_from(Mesh.to_json(mesh))
    except Exception as error:  # what its class does may be anything
        raise ValueError(
            f'mesh= takes a mesh, such as Mesh({{"data": 2}}); got one of the class {type(mesh).__name__}, of which '
            f"none can be made: {message_of(error)}"
        ) from None
