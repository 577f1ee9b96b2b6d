"""Model: one rank's view of the world, with its stores and every operation that a student's function may call."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from lib.cluster.costs import Costs, units
from lib.errors.exceptions import Given, PuzzleError, RuleError
from lib.errors.source_lines import MARK, student_frame
from lib.errors.wording import plain, written
from lib.record import record
from lib.simulator import attached
from lib.simulator.dist import SANDBOX, Dist, Group
from lib.simulator.recorder import Recorder, Work
from lib.simulator.stores import STORE_CLASSES, Store
from lib.trace.event import NO_BATCHES, STORES
from lib.trace.trace import Trace
from lib.values import facts, rules
from lib.values.collectives import COLLECTIVES, Collective
from lib.values.dims import DIMS, NAMES
from lib.values.layers import Shape
from lib.values.operations import COMPUTE, MESSAGES, OPERATIONS, TIMED
from lib.values.placement import MOST
from lib.values.values import KINDS, Activation, ActivationGrad, OptState, Value, Weight, WeightGrad

if TYPE_CHECKING:
    from lib.checker import check
    from lib.cluster.mesh import Mesh

T = TypeVar("T", bound=Value)
_frame = sys._getframe  # pyright: ignore[reportPrivateUsage]


@record()
class LogEvent:
    """An entry of `model.log`, under the original's names. Times in time units, memory in elements."""

    typ: str
    layer: int | None
    rank: int
    time: float
    length: float
    memory: float
    batches: frozenset[int] = frozenset()


ANOTHER = "make another world: simulate(..., {}=...)"
HAND_IN = "model.set_final_weight(layer, weights[layer])"
_HELD = {
    "rank": ("which rank this is", "the Models of the other ranks are theirs: simulate runs the function once on each"),
    "RANKS": ("the number of ranks of the world", ANOTHER.format("ranks")),
    "LAYERS": ("the number of layers to train", ANOTHER.format("layers")),
    "BATCHES": ("the number of batches of the step", ANOTHER.format("batches")),
    "PADDING": ("the number of batches that are padding", ANOTHER.format("padding")),
    "dist": ("the world of this rank", "make another Model: Model(rank=..., dist=...)"),
    "program": ("the record of what this rank did", "call operations: they are recorded"),
    "shape": ("the size of the training step", "make another world: simulate(..., layers=..., batches=...)"),
    "sandbox": SANDBOX,
    "final_weights": ("what this rank has handed in", f"hand in a weight: {HAND_IN}"),
    **{
        name: (f"the store of this rank's {kind}s", f"store a value: model.{name}[layer] = ...")
        for name, kind in zip(STORES, KINDS, strict=True)
    },
}
# Last, copies of what each operation needs: they save two look-ups, a million times.
_SLOTS = (*_HELD, "_costs", "_forward", "_backward", "_update")
# The read-only names of a Model, in words, and what to do instead of setting them.
_GIVEN = {
    **_HELD,
    "time": ("this rank's clock", "operations move it on"),
    "mesh": ("how the ranks are arranged", ANOTHER.format("mesh")),
    "coord": ("the place of this rank in the mesh", ANOTHER.format("mesh")),
    "process": ("the process that owns this rank's device", ANOTHER.format("mesh")),
    "log": ("what this rank did", "call operations: they are recorded"),
    "trace": ("what all ranks did", "call operations: they are recorded"),
}


class Model(Given):
    """One rank of a training step of `layers` layers on `batches` batches, and `padding` more that do not count.

    Without a `dist` it is a sandbox for trying operations: its check accepts made-up gradients. An operation that is
    wrong raises a PuzzleError with the reason, and leaves the clock where it was.

    >>> model = Model(0, None, layers=2, batches=4)
    >>> weight, opt_state = model.load_weights(0)
    >>> print(model.forward(0, model.get_activation([0, 1]), weight))
    activation 1, batches 0, 1
    """

    given = _GIVEN
    __slots__ = ("__dict__", "__weakref__", *_SLOTS)
    rank: int
    RANKS: int
    LAYERS: int
    BATCHES: int
    PADDING: int
    dist: Dist
    program: Recorder
    shape: Shape
    sandbox: bool
    final_weights: dict[int, Weight]
    weights: Store[Weight]
    opt_states: Store[OptState]
    activations: Store[Activation]
    grad_activations: Store[ActivationGrad]
    grad_weights: Store[WeightGrad]
    _costs: Costs
    _forward: int | None
    _backward: int | None
    _update: int | None

    def __init__(
        self, rank: int = 0, dist: Dist | None = None, layers: int = 2, batches: int = 1, padding: int = 0
    ) -> None:
        rank, layers, batches = plain(rank), plain(layers), plain(batches)
        padding = padding if isinstance(padding, bool) else plain(padding)
        whole = type(rank) is int
        if dist is not None and not isinstance(dist, Dist):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"dist= is the world of all ranks, such as Dist(4); got {dist!r}")
        sandbox = dist is None
        dist = Dist(max(rank, 0) + 1 if whole else 1) if dist is None else dist
        for name, value in (("layers", layers), ("batches", batches)):
            if type(value) is not int or value < 1:
                raise ValueError(f"a model has at least one of its {name}; got {name}={written(value)}")
            if value > MOST:
                raise ValueError(f"a model has at most {MOST} of its {name}; got {name}={written(value)}")
        if type(padding) is not int or not 0 <= padding <= MOST:
            raise ValueError(f"padding is how many batches count for nothing, 0 to {MOST}; got {written(padding)}")
        if not whole or not 0 <= rank < dist.ranks:
            raise ValueError(f"Dist({dist.ranks}) has ranks 0 to {dist.ranks - 1}; got rank={written(rank)}")
        # Groups of such a world have counted calls that will never be complete.
        if dist.failure is not None:
            raise ValueError("this Dist has seen a run that failed; make a new one: dist = Dist(...)")
        program = Recorder(rank, dist, dist.budget)
        shape = dist.enter(self, rank, layers, batches, padding, sandbox=sandbox)
        stores = [make(program, index) for index, make in enumerate(STORE_CLASSES)]
        held: list[Any] = [rank, dist.ranks, layers, batches, padding, dist, program, shape, dist.sandbox, {}]
        # In the order of the slots, and past `__setattr__`, which would ask for each whether it may still be set.
        for put, item in zip(_PUT, (*held, *stores, dist.prices, *dist.flat), strict=True):
            put(self, item)

    # -- where it is, what it holds -----------------------------------------------------------------------------

    @property
    def time(self) -> float:
        """This rank's compute clock, in time units."""
        return units(self.program.clock)

    @property
    def mesh(self) -> Mesh:
        """The mesh of the world. ValueError if it has none."""
        if self.dist.mesh is None:
            raise ValueError("this world has no mesh; give Dist(mesh=...) or simulate(..., mesh=...) one")
        return self.dist.mesh

    @property
    def coord(self) -> dict[str, int]:
        """This rank's place on each axis of the mesh."""
        return self.mesh.coordinates(self.rank)

    @property
    def process(self) -> int:
        """The number of the process that owns this rank's device. ValueError if the world has no mesh."""
        return self.mesh.process(self.rank)

    def group(self, name: str | Sequence[str] | Sequence[int] | None = None) -> tuple[int, ...]:
        """Return the ranks of this rank's group along a mesh axis (None: all), in the order of the group."""
        try:
            return self.dist.group(self.rank, name).ranks
        except PuzzleError as error:
            self._blame(error)

    def storage(
        self,
    ) -> tuple[Store[Weight], Store[OptState], Store[Activation], Store[ActivationGrad], Store[WeightGrad]]:
        """Return the five stores: weights, opt_states, activations, grad_activations, grad_weights."""
        return self.weights, self.opt_states, self.activations, self.grad_activations, self.grad_weights

    def memory(self) -> float:
        """Return the elements in the five stores now."""
        return float(sum(v.elements() for store in self.storage() for v in store.values()))

    def status(self) -> None:
        """Print a line for each value in the stores: its store and key, and what it is."""
        print("\n".join([repr(store) for store in self.storage() if store]) or "all stores are empty")

    @property
    def log(self) -> list[LogEvent]:
        """The timed operations so far, as the original logs them, with the memory of the stores at their start."""
        found: list[LogEvent] = []
        moves, at, total = self.program.moves, 0, 0
        values = self.program.values
        for index, event in enumerate(self.program.events):
            # Moves with an event's number come before it: memory is what the stores hold when it starts.
            while at < len(moves) and moves[at][0] <= index:
                value = values[moves[at][2]]
                total += moves[at][3] * (0 if value is None else value.elements())
                at += 1
            if event.op in TIMED and event.start is not None:
                typ = "pass" if event.op in MESSAGES else event.op
                # The original's log names no layer there.
                layer = None if typ in ("pass", "update") else event.layer
                batches = event.batches if event.op in COMPUTE and OPERATIONS[event.op].per_batch else NO_BATCHES
                when, length = units(event.start), units(event.length)
                found.append(LogEvent(typ, layer, self.rank, when, length, float(total), batches))
        return found

    # -- operations on this rank --------------------------------------------------------------------------------

    # `_compute` does all of these. Five that a run calls a million times ask their rule directly if all arguments are
    # values of this rank; the rule then numbers its results. Without varargs and the table an operation takes two
    # thirds of the time. Rules and the record are not repeated, of prices only that of a whole layer;
    # tests/simulator/test_by_hand.py holds the two ways to the same Trace.

    def load_weights(self, layer: int, shard: int = 0, total: int = 1, dim: str = "in") -> tuple[Weight, OptState]:
        """Return the initial weight and optimizer state of a layer, or shard `shard` of `total` of both. Takes no time.

        A shard has some of the rows of the weight (`dim="in"`), or some of its columns (`dim="out"`).
        """
        if type(shard) is not int or type(total) is not int:
            shard, total = plain(shard), plain(total)
        if dim not in ("in", "out"):
            self._blame(RuleError(facts.NoDim(dim)))
        program, frame = self.program, _frame(1)
        try:
            out = rules.load_weights(self.shape, layer, shard, total, dim == "out", program)
        except PuzzleError as error:
            self._blame(error)
        # For rows, the classic case, nothing is added, so that files stay as they were before there were columns.
        said = (shard, total) if dim == "in" else (shard, total, 1)
        first = out[0]
        program.did(("load_weights", first.layer, first.number, 2, 0, frame.f_code, frame.f_lasti, said))
        return out

    def get_activation(self, batches: Iterable[int]) -> Activation:
        """Return the input data of the batches: the activation of layer 0. Takes the time of its copy to the device
        (`to_device`, 0)."""
        if self._costs.refuse(OPERATIONS["get_activation"]):
            self._blame(RuleError(facts.Unread("get_activation")))
        return self._compute("get_activation", None, said=(batches,))

    def forward(self, layer: int, inp: Activation, weight: Weight | Activation | None = None) -> Activation:
        """Return activation layer + 1, from activation `layer` and the layer's weight. One time unit a batch.

        Some kinds of layer take another activation instead of a weight, such as attention its keys, or nothing.
        """
        program = self.program
        try:
            away = inp.home is not program or weight.home is not program  # pyright: ignore[reportOptionalMemberAccess]
        # None, or no value at all, such as a call that was not awaited: the rule complains below.
        except AttributeError:
            away = True
        if away or weight is None:
            return self._compute("forward", layer, *((inp,) if weight is None else (inp, weight)))
        frame = _frame(1)
        try:
            out = rules.forward(self.shape, layer, inp, weight, program)
        except PuzzleError as error:
            self._blame(error)
        layer, batches = out.layer - 1, out.place.batches
        if (length := self._forward) is None or not (weight.place.complete and inp.place.plain):
            length = self._length("forward", layer, batches, (inp, weight))
        else:
            length *= len(batches)
        program.did((
            "forward", layer, out.number, 1, length, frame.f_code, frame.f_lasti, (), inp.number, weight.number
        ))  # fmt: skip
        program.clock += length
        return out

    def loss(self, inp: Activation) -> ActivationGrad:
        """Return the gradient of the loss, from the activation of layer LAYERS. Takes no time."""
        return self._compute("loss", None, inp)

    def backward(
        self, layer: int, inp: Activation | None, grad: ActivationGrad, weight: Weight | Activation | None = None
    ) -> Any:
        """Return the gradients of a layer's weight and of its input. One time unit a batch.

        If the layer takes another activation instead of a weight, the gradients of that and of its input; if it takes
        nothing, the gradient of its input alone. Dispatch and combine do not need their input: None will do.
        """
        program = self.program
        try:
            away = grad.home is not program or weight.home is not program or inp.home is not program  # pyright: ignore
        except AttributeError:
            away = True
        if away or inp is None or weight is None:
            if inp is None and weight is None and type(grad) is ActivationGrad:
                return self._compute("backward", layer, grad)
            return self._compute("backward", layer, *((inp, grad) if weight is None else (inp, grad, weight)))
        frame, first = _frame(1), len(program.values)
        try:
            out = rules.backward(self.shape, layer, inp, grad, weight, program)
        except PuzzleError as error:
            self._blame(error)
        if (length := self._backward) is None or not (weight.place.complete and inp.place.plain):
            length = self._length("backward", grad.layer, grad.place.batches, (inp, grad, weight))
        else:
            length *= len(grad.place.batches)
        count = len(program.values) - first  # an embedding gives no gradient of what it takes
        program.did((
            "backward", grad.layer, first, count, length, frame.f_code, frame.f_lasti, (),
            inp.number, grad.number, weight.number,
        ))  # fmt: skip
        program.clock += length
        return out

    def shard(self, value: T, dim: str, shard: int, total: int) -> T:
        """Return a shard of a value along a dim, as in model.shard(x, "rows", model.rank, model.RANKS)."""
        return value.shard(shard, total, dim)

    def backward_input(self, layer: int, inp: Activation, grad: ActivationGrad, weight: Weight) -> ActivationGrad:
        """Return the input half of backward: the gradient of the layer's input. Half a time unit a batch."""
        return self._compute("backward_input", layer, inp, grad, weight)

    def backward_weight(self, layer: int, inp: Activation, grad: ActivationGrad) -> WeightGrad:
        """Return the weight half of backward: the gradient of its weight, now or later. Half a time unit a batch."""
        return self._compute("backward_weight", layer, inp, grad)

    def update(
        self, layer: int, weight_grad: WeightGrad, weight: Weight, opt_state: OptState, shard: int = 0
    ) -> tuple[Weight, OptState]:
        """Take the optimizer's step on a layer: weight and state, one step on. Half a time unit. `shard` is not used.

        The gradient must have every batch, and cover the shards of the weight.
        """
        program = self.program
        try:
            away = weight_grad.home is not program or weight.home is not program or opt_state.home is not program
        except AttributeError:
            away = True
        if away:
            return self._compute("update", layer, weight_grad, weight, opt_state)
        frame = _frame(1)
        try:
            out = rules.update(self.shape, layer, weight_grad, weight, opt_state, program)
        except PuzzleError as error:
            self._blame(error)
        if (length := self._update) is None:
            length = self._length("update", weight.layer, NO_BATCHES, (weight_grad, weight, opt_state))
        program.did((
            "update", weight.layer, out[0].number, 2, length, frame.f_code, frame.f_lasti, (),
            weight_grad.number, weight.number, opt_state.number,
        ))  # fmt: skip
        program.clock += length
        return out

    def fake_grad(self, layer: int, batches: Iterable[int] = ()) -> WeightGrad:
        """Return a made-up gradient. Without batches a zero contribution; with batches for the sandbox only."""
        return self._compute("fake_grad", layer, said=(batches,))

    def set_final_weight(self, layer: int, weight: Weight) -> None:
        """Hand in the updated weight (or shards) of a layer as this rank's result."""
        program, frame = self.program, _frame(1)
        code, instruction = frame.f_code, frame.f_lasti
        try:
            # The common case is a weight of this rank and of this very number, and needs no rule.
            if type(weight) is not Weight or weight.home is not program or weight.layer is not layer:
                rules.final(self.shape, layer, weight)
            number = weight.number if weight.home is program else program.id(weight, (code, instruction))
        except PuzzleError as error:
            self._blame(error)
        program.did(("set_final_weight", weight.layer, 0, 0, 0, code, instruction, (), number))
        self.final_weights[weight.layer] = weight

    def _compute(self, op: str, layer: Any, *values: Any, said: tuple[Any, ...] = ()) -> Any:
        """Do an operation without communication, for the method of that name: its rule, price and record.

        `said` is what the call says beside its layer and values: batches, or numbers for the event's argument.
        """
        row, program, shape, frame = OPERATIONS[op], self.program, self.shape, _frame(2)
        source = (frame.f_code, frame.f_lasti)
        rule: Any = row.rule
        inputs: tuple[int, ...] = ()
        # Loops instead of comprehensions, which are calls: this runs a million times.
        try:
            out = rule(shape, layer, *said, *values) if said else rule(shape, layer, *values)
            for value in values:
                inputs += (value.number if value.home is program else program.id(value, source),)
        except PuzzleError as error:
            self._blame(error)
        made: Any = out if type(out) is tuple else (out,)  # pyright: ignore[reportUnknownVariableType]
        batches = made[0].place.batches if made else NO_BATCHES
        if row.about != "call":
            layer = (made if row.about == "output" else values)[0].layer
        elif type(layer) is not int:
            layer = plain(layer)
        length = 0 if row.cost is None else self._length(op, layer, batches, values)
        first, arg = len(program.values), () if row.says == "batches" else said
        for value in made:
            program.new(value)
        program.did((op, layer, first, len(made), length, frame.f_code, frame.f_lasti, arg, *inputs))
        program.clock += length
        return out  # pyright: ignore[reportUnknownVariableType]

    def _length(self, op: str, layer: Any, batches: frozenset[int], values: Any) -> int:
        """Return the ticks of an operation on values of a layer."""
        row = OPERATIONS[op]
        return self._costs.compute(row, self.rank, layer, row.work(self.shape, layer, len(batches), values))

    # -- communication: calling issues it, awaiting waits for it --------------------------------------------------

    def allreduce(self, v: T, layer: int, group: Any = None) -> Work[T]:
        """All-reduce: every member gets the sum of all their values."""
        return self._communicate("allreduce", v, layer, group)

    def allreduce_bucket(self, gradients: Sequence[T], *, group: Any = None) -> Work[list[T]]:
        """All-reduce of several gradients in one go, of any layers: every member gets the list of their sums."""
        return self._communicate("allreduce_bucket", gradients, None, group)

    def allreduce_mean(self, v: T, layer: int, group: Any = None) -> Work[T]:
        """All-reduce that averages: every member gets the mean of all their means, each over equally many points."""
        return self._communicate("allreduce_mean", v, layer, group)

    def allgather(self, v: T, layer: int, group: Any = None) -> Work[T]:
        """All-gather: every member gets the shards of all members put together."""
        return self._communicate("allgather", v, layer, group)

    def allgather_padded(self, v: T, layer: int, group: Any = None) -> Work[T]:
        """All-gather in which each shard is padded to the largest, as NCCL takes only equal ones."""
        return self._communicate("allgather_padded", v, layer, group)

    def scatterreduce(self, v: T, layer: int, group: Any = None, *, dim: str | None = None) -> Work[T]:
        """Reduce-scatter: member i gets shard i of the sum of all members' values.

        The sum is cut along `dim`, such as "rows"; by default a gradient of a weight into its shards, and activations
        by their batches.
        """
        return self._communicate("scatterreduce", v, layer, group, dim)

    def alltoall(self, values: Sequence[T], layer: int, group: Any = None) -> Work[list[T]]:
        """All-to-all: member i gets value number i of each member, in the order of the group."""
        return self._communicate("alltoall", values, layer, group)

    def alltoall_padded(self, values: Sequence[T], layer: int, group: Any = None) -> Work[list[T]]:
        """All-to-all in which each value is padded to the largest, such as the unused slots of an expert."""
        return self._communicate("alltoall_padded", values, layer, group)

    def broadcast(self, v: T, layer: int, root: int = 0, group: Any = None) -> Work[T]:
        """Broadcast: every member gets the value of rank `root`; the others bring a value to overwrite."""
        return self._communicate("broadcast", v, layer, group, root)

    def shift(self, v: T, layer: int, group: Any = None) -> Work[T]:
        """Shift: every member gets the value of the member before it, the first member that of the last."""
        return self._communicate("shift", v, layer, group)

    def halo(self, edges: Sequence[T], layer: int, group: Any = None) -> Work[list[T]]:
        """Halo exchange: the first edge goes to the member before, the last one to the member after, and a member gets
        their edges in return. The first and the last member have one neighbour, and one edge."""
        return self._communicate("halo", edges, layer, group)

    def pass_to(self, rank: int, v: Any) -> Work[None]:
        """Send any object to a rank; values in it travel in lists, tuples and dicts. There is room for one message that
        has not been received."""
        frame, program = _frame(1), self.program
        # One quick test, which nearly always holds; `_peer` has the words.
        if type(rank) is not int or not 0 <= rank < self.RANKS or rank == self.rank:
            rank = self._peer(rank, "pass_to")
        call, signal = program.send(rank, v, (frame.f_code, frame.f_lasti))
        return Work(program, call, signal)

    def receive(self, source: int | None = None) -> Work[Any]:
        """Return the next message of rank `source`; without one, the message that is first in simulated time."""
        frame, program = _frame(1), self.program
        if source is not None and (type(source) is not int or not 0 <= source < self.RANKS or source == self.rank):
            source = self._peer(source, "receive")
        call, signal = program.receive(source, (frame.f_code, frame.f_lasti))
        return Work(program, call, signal)

    def read(self, batches: Iterable[int]) -> Work[Activation]:
        """Return the input data of the batches from the reader of this rank's process, which reads each batch once."""
        frame = _frame(1)
        try:
            value = rules.get_activation(self.shape, batches)
        except PuzzleError as error:
            self._blame(error)
        program, source = self.program, (frame.f_code, frame.f_lasti)
        about = value.layer, value.place.batches
        call = ["read", *about, (), (), program.clock, None, 0, source, (), (), None, None]
        program.append(call)
        return Work(program, call, self.dist.read(self.rank, call, value))

    def _communicate(self, op: str, v: Any, layer: int | None, group: Any, root: Any = None) -> Work[Any]:
        """Issue a collective of a group, for the method of that name. `root` is a rank or a dim, if there is one."""
        frame, program, dist, row = _frame(2), self.program, self.dist, COLLECTIVES[op]
        if MARK in (code := frame.f_code).co_filename:  # in a given helper: the line that calls it
            frame = student_frame(frame) or frame
            code = frame.f_code
        source, said, arg = (code, frame.f_lasti), 0, ()
        try:
            members = dist.everybody if group is None else dist.group(self.rank, group)
            if row.root is not None or root is not None:
                said = self._said(row, root, members)
                arg = (said,)
            if type(layer) is not int:
                layer = plain(layer)
            if row.many:
                if type(v) not in (list, tuple) and isinstance(v, list | tuple):
                    # A student's own class, whose length may be wrong.
                    v = list(islice(cast("Iterable[Any]", v), len(members.ranks) + 1))
                rules.bring(row, v, layer, len(members.ranks), members.position[self.rank])
                v = list(v)
                inputs = tuple([program.id(value, source) for value in v])
                first = v[0]
                # A bucket has the layer of its first value; all layers are in the argument.
                if row.bucket:
                    layer, arg = first.layer, tuple([value.layer for value in v])
                rules.named_layer(self.shape, layer, op)
            else:
                # The common case is a value of the layer that is named, and needs no rule.
                if not isinstance(v, Value) or type(layer) is not int or v.layer != layer:
                    rules.bring(row, v, layer, len(members.ranks))
                    rules.named_layer(self.shape, layer, op)
                inputs = (v.number if v.home is program else program.id(v, source),)
                first = v
            if program.shared is not None:
                source, inputs = program.common((op, frame.f_lasti), source), program.common(inputs, inputs)
            ranks, batches = members.ranks, first.place.batches
            call = [op, layer, batches, inputs, (), program.clock, None, 0, source, arg, ranks, None, None]
            program.append(call)
            # Only now that nothing can go wrong on this side: a rank that joins counts as a member.
            same: tuple[Any, ...] = (op, layer, said, type(v), ranks)  # pyright: ignore[reportUnknownVariableType]
            signal, position = dist.join(members, self.rank, same, v, call)
        except PuzzleError as error:
            self._blame(error)
        return Work(program, call, signal, position)

    def _said(self, row: Collective, root: Any, members: Group) -> int:
        """Return what a call says beside its value: the place of its root in the group, or the number of a dim."""
        if row.root is not None:
            root = plain(root)
            if type(root) is int and root in members.ranks:
                return members.position[root]
            raise RuleError(
                f"rank {written(root)} cannot be the root of this {row.title}: it is not in the group",
                expected=f"the root is one of ranks {list(members.ranks)}",
                got=f"root={written(root)}",
                fix=f"the root is the rank, by its own number, {row.root[1]}",
            )
        if isinstance(root, str) and root in DIMS:
            return NAMES.index(root)
        tensor = ", ".join(role for role, kind in DIMS.items() if not kind.partial)
        raise RuleError(f"there is no dim {written(root)}", expected=f"a dim of a tensor: {tensor}")

    # -- the result ---------------------------------------------------------------------------------------------

    @property
    def trace(self) -> Trace:
        """The Trace of the whole run so far, of all ranks of the world."""
        return Trace.of(list(self.dist.models.values()))

    if TYPE_CHECKING:
        check = staticmethod(check)
    else:
        check = staticmethod(attached["check"])

    def _peer(self, rank: Any, call: str) -> int:
        """Return another rank as a plain int. A bool is refused: it comes from a comparison where a rank belongs."""
        found = rank if isinstance(rank, bool) else plain(rank)
        if type(found) is int and 0 <= found < self.RANKS and found != self.rank:
            return found
        from lib import diagnosis  # here and not above: a run that goes well needs none of it

        self._blame(diagnosis.no_peer(self.program, found, call))

    def _blame(self, error: PuzzleError) -> NoReturn:
        raise self.program.blame(error)


_PUT: list[Any] = [Model.__dict__[name].__set__ for name in _SLOTS]
