"""Where ranks meet: Dist, a world of ranks. Collectives are matched by their number in a group, messages by both ranks.

It works like torch.distributed and NCCL, with one difference that students need: members that disagree get an error
that names two of them. NCCL does not notice; it would hang, or mix up their data. (torch checks it only with
TORCH_DISTRIBUTED_DEBUG=DETAIL.)

Everything that waits here has a `kind`, and says which ranks it `awaits`, so that a deadlock can be explained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from lib.cluster.costs import UNIT, Costs, Stream
from lib.errors.exceptions import Given, MismatchError, PuzzleError
from lib.errors.wording import name_of, plain, written
from lib.record import replace
from lib.simulator.engine import Engine, Signal
from lib.simulator.messages import AsEvent, Call, Messages
from lib.simulator.recorder import BUDGET
from lib.trace.event import ARG, BATCHES, GROUP, ISSUED, LAYER, LENGTH, OP, START, located
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.kinds.kind import USUAL, Layer
from lib.values.layers import Shape
from lib.values.operations import OPERATIONS
from lib.values.placement import MOST
from lib.values.rules import Member, agree, agreed
from lib.values.values import Value

if TYPE_CHECKING:
    from lib.cluster.mesh import Mesh
    from lib.cluster.reader import Readers
    from lib.simulator.event_loop import OwnLoop
    from lib.simulator.model import Model
    from lib.simulator.running_loop import RunningLoop

FEW = 2_000
"""Ranks above which the memory of each rank's record matters."""
SANDBOX = "whether made-up gradients will do", "leave the dist out for a sandbox: Model(layers=..., batches=...)"
"""What a sandbox is, and how to get one, for the error when the name is set."""


class Group:
    """An ordered process group: member i is `ranks[i]`.

    Groups of the same ranks, in any order, share one `communicator`, as they share links: it has one stream, and one
    sequence of collectives. It is the group with the ranks in ascending order, and keeps how many collectives each
    rank has issued, and those that are open.
    """

    __slots__ = ("communicator", "issued", "open", "partial", "position", "ranks", "stream")

    def __init__(self, ranks: tuple[int, ...], world: tuple[int, ...], communicator: Group | None = None) -> None:
        self.ranks = ranks
        self.partial = ranks != world
        # In a group of all, rank i is at place i: a dict would cost 100 bytes a rank.
        each = {rank: i for i, rank in enumerate(ranks)} if self.partial else ranks
        self.position: Mapping[int, int] | Sequence[int] = each
        self.communicator = communicator or self
        self.issued, self.stream = [0] * len(ranks), Stream()
        self.open: dict[int, PendingCollective] = {}


class PendingCollective(Signal):
    """A collective of a group that not all members have joined yet. Members are in ascending order of their ranks, so
    that nothing depends on which comes first; `group` is that of the first: agreement is checked once every member has
    joined. As a Signal it brings the results, in the order of the group. `same` is what the first one says (see
    `rules.agree`), and `alike` whether all others say it too.
    """

    kind = "collective"
    __slots__ = ("alike", "calls", "count", "group", "number", "same", "values")

    def __init__(self, group: Group, number: int, same: tuple[Any, ...]) -> None:
        Signal.__init__(self)  # as super() does, in half the time
        self.group, self.number, self.same, self.alike = group, number, same, True
        self.calls: list[Any] = [None] * len(group.ranks)
        self.values: list[Any] = [None] * len(group.ranks)
        self.count = 0

    def member(self, rank: int) -> Member | None:
        """Return what a rank called, or None if it has not joined. Made on demand: few runs need it."""
        place = self.group.communicator.position[rank]
        call, value = self.calls[place], self.values[place]
        said = call and COLLECTIVES[call[OP]].said(call[ARG])
        return call and Member(rank, call[OP], call[LAYER], value, said, call[GROUP])

    @property
    def members(self) -> list[Member | None]:
        """Return what each rank of the communicator called."""
        return [*map(self.member, self.group.communicator.ranks)]

    def awaits(self, rank: int) -> list[int]:
        """Return the ranks that have not joined."""
        return [r for r, call in zip(self.group.communicator.ranks, self.calls, strict=True) if call is None]

    def disagreement(self) -> PuzzleError | None:
        """Return the error between the members that have joined, if there is one."""
        try:
            return agree(self.members)
        except MismatchError as error:
            self.locate(error)
            return error

    def locate(self, error: PuzzleError) -> None:
        """Add to an error the source lines of the two members that it is about, or the one, and the likely reason."""
        from lib import diagnosis  # here and not above: a run that goes well needs none of it

        diagnosis.advise(error)
        two = getattr(error, "ranks", ())
        for rank, call in zip(self.group.communicator.ranks, self.calls, strict=True):
            if call is not None and rank in (*two, error.rank):
                located(error, rank if rank in two else None, cast(Any, AsEvent(call)))


class Dist(Given):
    """`total` ranks that can talk to each other, on an optional mesh, at some costs.

    Give every Model of a run the same Dist: `asyncio.gather(*[ddp(Model(..., rank=i, dist=dist)) for i in ...])`, or
    let `simulate` do that.

    >>> dist = Dist(2)
    >>> async def total(rank):
    ...     model = Model(rank=rank, dist=dist, layers=1, batches=2)
    ...     return await model.allreduce(model.fake_grad(0, [rank]), 0)
    >>> async def run():
    ...     return await asyncio.gather(total(0), total(1))
    >>> print(asyncio.run(run())[0])
    weight gradient of layer 0, batches 0, 1
    """

    given = {  # noqa: RUF012
        "ranks": ("the number of ranks of the world", "make another world: simulate(..., ranks=...) or Dist(...)"),
        "mesh": ("how the ranks are arranged", "make another world: simulate(..., mesh=...) or Dist(..., mesh=...)"),
        "costs": ("what operations take here", "make another world: simulate(..., costs=...) or Dist(..., costs=...)"),
        "budget": ("how long a run may become", "make another world: simulate(..., budget=...)"),
        "models": ("the Models of this world", "make another world: Dist(...)"),
        "engine": ("what steps the ranks", "make another world: Dist(...)"),
        "shape": (
            "the size of the training step",
            "give the Models their sizes: simulate(..., layers=..., batches=...)",
        ),
        "sandbox": SANDBOX,
    }
    __slots__ = ("__dict__", "__weakref__", *given)
    shape: Shape
    sandbox: bool

    def __init__(self, total: int, *, mesh: Mesh | None = None, costs: Costs = UNIT, budget: int = BUDGET) -> None:
        total = total if isinstance(total, bool) else plain(total)
        if type(total) is not int or total < 1:
            raise ValueError(f"a world has at least one rank; got {written(total)}")
        if total > MOST:
            raise ValueError(f"a world has at most {MOST} ranks; got {written(total)}")
        budget = budget if isinstance(budget, bool) else plain(budget)
        if type(budget) is not int or budget < 1:
            wanted = "the budget is how many events a rank may record, at least 1"
            raise ValueError(f"{wanted}; got budget={written(budget)}")
        if mesh is not None:
            from lib.cluster.mesh import plain_mesh  # here and not above: most worlds have none

            mesh = plain_mesh(mesh)
        if not isinstance(costs, Costs):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"costs= takes costs, such as Costs(p2p=0.1) or LINKS; got {costs!r}")
        if costs is UNIT:
            costs = replace(UNIT)  # its own: changed by hand, it changes no other world
        if mesh is not None and len(mesh) != total:
            raise ValueError(f"{mesh} has {len(mesh)} ranks, the world has {total}: {mesh.instead(total)}")
        self.mesh, self.costs, self.budget = mesh, costs, budget
        self.models: dict[int, Model] = {}
        self.engine = Engine(self._on_stuck, lambda: sum(len(model.program.moved) for model in self.models.values()))
        self.ranks = total
        self.failure: PuzzleError | None = None
        # Whether this world and its Models were made without `simulate`, as in the original's notebook.
        self.by_hand = True
        # When a rank failed, and which, if one did: what comes after that is in no Trace.
        self.until: tuple[int, int] | None = None
        # The puzzle that is run, if simulate was given one.
        self.puzzle: str | None = None
        # The function that simulate runs on each rank. It is in no Trace.
        self.function: Callable[[Model], Any] | None = None
        # The Trace of that run, and the state of all programs when it was taken.
        self.taken: tuple[Any, Trace] | None = None
        self.asks: frozenset[str] | None = None
        # The descriptions of the layers; one stands for all if they are alike.
        self.descriptions: Sequence[Layer] = USUAL
        self.prices = costs.on(mesh)
        # The ticks of forward and backward of a batch, and of an update. None unless they are the same on all ranks and
        # for all layers.
        self.flat: tuple[int | None, ...] = (None, None, None)
        self.network = None
        if costs.shared:
            from lib.cluster.network import Network

            self.network = Network(self.prices, self.engine.choose_later)
        # One object for all equal ones, in a large world: rows that are the same on all ranks, inputs of operations,
        # numbers of instructions. It makes a rank 20% smaller and 5% slower.
        self.shared: dict[Any, Any] | None = {} if total > FEW else None
        everybody = tuple(range(total))
        self.everybody = Group(everybody, everybody)
        self._groups = {everybody: self.everybody}
        self._by_name: dict[tuple[int, str], Group] = {}
        self.messages = Messages(self)

    def enter(self, model: Model, rank: int, *size: int, sandbox: bool) -> Shape:
        """Let a rank enter with its Model. The first one determines the size of this world's training step."""
        if not self.models:
            layers, batches, padding = size
            # Copies, as a student may reach these. The Shape refuses what is not a Layer.
            given: Sequence[Any] = self.descriptions
            own = [replace(layer) if isinstance(layer, Layer) else layer for layer in given]
            object.__setattr__(self, "shape", Shape(layers, batches, own, padding))
            object.__setattr__(self, "sandbox", sandbox)
            # Saves a million look-ups. Not for a student's own class of costs, which may answer anything.
            if self.shape.usual and type(self.prices).compute is Costs.compute:
                flat = [self.prices.compute(OPERATIONS[op], 0, 0, 1) for op in ("forward", "backward", "update")]
                self.flat = tuple(flat)
        elif size != (given := (self.shape.layers, self.shape.batches, self.shape.padding)):
            names = ("layers", "batches", "padding") if size[2] or given[2] else ("layers", "batches")
            first, other = (", ".join(f"{n}={k}" for n, k in zip(names, one, strict=False)) for one in (given, size))
            raise ValueError(f"the Models of one Dist are of one size, which the first one gave: {first}; got {other}")
        self.models[rank] = model
        return self.shape

    @cached_property
    def driver(self) -> RunningLoop | OwnLoop:
        """Return the asyncio loop that steps the ranks if the engine does not: a notebook's, say, or our own."""
        from lib.simulator.running_loop import RunningLoop  # here and not above: simulate does not need it

        return RunningLoop(self)

    def begin(self, rank: int) -> bool:
        """Note which asyncio task steps a rank, to know when it ends; return whether that is known. A single rank need
        not be watched."""
        return self.engine.driving or self.ranks == 1 or rank in self.driver.tasks or self.driver.adopt_current(rank)

    def so_far(self, error: str) -> Trace | None:
        """Return the Trace of all ranks up to now, for the error of one of them."""
        if not self.models:
            return None
        if self.network is not None:
            self.network.note()
        trace = Trace.of(list(self.models.values()), error=error)
        if self.until is None:
            return trace
        from lib.simulator.failures import cut

        return cut(trace, self.until[0])

    def settle(self) -> None:
        """Finish what is not awaited, once all ranks that are run by hand have ended."""
        if self.by_hand and self.network is not None and all(task.done() for task in self.driver.tasks.values()):
            while self.engine.choose():
                pass

    def _on_stuck(self) -> Callable[[], PuzzleError] | None:
        from lib import diagnosis

        return diagnosis.on_stuck(self)

    # -- groups -------------------------------------------------------------------------------------------------

    def group(self, rank: int, name: str | Sequence[str] | Sequence[int] | None) -> Group:
        """Return the group of a rank: all ranks (None), a line of the mesh by axis name(s), or the ranks named."""
        if name is None:
            return self.everybody
        if isinstance(name, str):
            axis: str = name if type(name) is str else name_of(name)
            found = self._by_name.get((rank, axis))
            if found is None:
                found = self._intern(self._line(rank, (axis,)))
                self._by_name.update(((member, axis), found) for member in found.ranks)  # the line of each of them
            return found
        try:
            # One more than there are ranks: an endless iterator has to be refused too.
            items: tuple[Any, ...] = tuple(islice(name, self.ranks + 1))
        except TypeError:
            if isinstance(number := plain(name), int):  # refused like an unknown axis
                return self._intern(self._line(rank, (number,)))
            items = (name,)
        if items and all(isinstance(item, str) for item in items):
            return self._intern(self._line(rank, tuple(map(name_of, items))))
        ranks = tuple(map(plain, items))
        allowed = len(ranks) <= self.ranks and all(type(item) is int and 0 <= item < self.ranks for item in ranks)
        if not allowed or rank not in ranks or len(set(ranks)) != len(ranks):
            from lib import diagnosis

            raise diagnosis.not_a_group(rank, ranks, self.ranks, self.mesh)
        return self._intern(ranks)

    def _line(self, rank: int, axes: tuple[Any, ...]) -> tuple[int, ...]:
        mesh = self.mesh
        if mesh is not None and mesh.axes.keys() >= {*axes} and len({*axes}) == len(axes):
            return mesh.group(rank, *axes)
        from lib import diagnosis  # here and not above: a run that goes well needs none of it

        for axis in axes:
            if mesh is None or axis not in mesh.axes:
                raise diagnosis.no_axis(axis, rank, mesh)
        raise diagnosis.axis_twice(next(axis for axis in axes if axes.count(axis) > 1), axes)

    def _intern(self, ranks: tuple[int, ...]) -> Group:
        if ranks not in self._groups:
            # A group in another order shares the communicator of the sorted one: one stream, one count.
            members = tuple(sorted(ranks))
            communicator = None if members == ranks else self._intern(members)
            self._groups[ranks] = Group(ranks, self.everybody.ranks, communicator)
        return self._groups[ranks]

    # -- collectives --------------------------------------------------------------------------------------------

    def join(self, group: Group, rank: int, same: tuple[Any, ...], value: Any, call: Call) -> tuple[Signal, int]:
        """Register one member's call; the last member to join starts the collective. `same` has to be equal
        for all members (see `rules.agree`). Returns its signal, and the member's place in the group."""
        communicator = group.communicator
        position = communicator.position[rank]
        # The n-th calls of all members belong together, as in NCCL: calls have no names.
        number = communicator.issued[position]
        communicator.issued[position] = number + 1
        pending = communicator.open.get(number)
        if pending is None:
            pending = communicator.open[number] = PendingCollective(group, number, same)
        elif same != pending.same:
            pending.alike = False
        pending.calls[position] = call
        pending.values[position] = value
        pending.count += 1
        if pending.count == len(group.ranks):
            del communicator.open[number]
            self._meet(pending)
        return pending, group.position[rank]

    def _meet(self, pending: PendingCollective) -> None:
        calls, values = pending.calls, pending.values  # none is missing now
        group, communicator = pending.group, pending.group.communicator
        # They are in the order of ranks; results are in the order of the group that the members have named.
        if group.ranks != communicator.ranks:
            values = [values[communicator.position[rank]] for rank in group.ranks]
        row, said = COLLECTIVES[calls[0][OP]], pending.same[2]
        issued = max([call[ISSUED] for call in calls])
        try:
            if not pending.alike:
                agree(pending.members)
            results = agreed(row, values, said, lambda: [*map(pending.member, group.ranks)])
        except PuzzleError as error:
            pending.locate(error)
            # It fails when its last member comes, in whatever order ranks are stepped.
            error.time = issued
            raise
        length = self.prices.communicate(row, row.paced(values, said), group.ranks)
        if self.network is not None:
            over = partial(self.engine.fire, pending, results)
            self.network.meet(communicator, communicator.ranks, [*map(AsEvent, calls)], length, over)
            return
        start = communicator.stream.carry(issued, length)
        for call in calls:
            call[START] = start
            call[LENGTH] = length
        self.engine.fire(pending, results)

    # -- reading ------------------------------------------------------------------------------------------------

    @cached_property
    def _readers(self) -> Readers:
        from lib.cluster.reader import Readers  # here and not above: few runs read

        return Readers(self.costs, self.mesh)

    def read(self, rank: int, call: Call, value: Value) -> Signal:
        """Request the data of a call from the reader of a rank's process. Requests are served in simulated time."""
        from lib.cluster.reader import Asked

        def serve() -> None:
            found = self._readers.read(rank, call[BATCHES], call[ISSUED])
            call[ARG], call[START], call[LENGTH] = (found.number,), found.start, found.length
            self.engine.fire(signal, value)

        signal = Signal(Asked(call[BATCHES]))
        # Later, as another rank of the process, not stepped so far, may make an earlier request.
        self.engine.choose_later(call[ISSUED], rank, serve)
        return signal
