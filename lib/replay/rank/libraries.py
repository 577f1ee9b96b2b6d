"""The libraries' own training steps, on the same layers, weights and data, in the same processes as the replay; what
each rank trains with them, and whether they can train this model on these ranks.

Data parallel libraries average gradients over ranks; as the loss is a sum over batches here, it is scaled up before.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import inspect
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lib.replay import ReplayError
from lib.replay.layers import training
from lib.replay.options import DATA, TENSOR
from lib.replay.plan import Plan
from lib.replay.rank.context import RankContext
from lib.schedules.formats.kineto import our_name
from lib.schedules.formats.orders import to_csv
from lib.schedules.formats.trace import pipeline_of
from lib.schedules.pipelines.action import Order, parts_of, places
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.lowering import compute_only
from lib.trace.trace import Trace, kept
from lib.values.kinds.kind import USUAL

TORCH: Final = "torch-pipelining"
"""The order of the Trace itself, on torch's pipelines."""
PIPELINES: Final = {"gpipe": "gpipe", "1f1b": "one_f_one_b", TORCH: ""}
"""The libraries that are pipelines, and the schedule that each has; TORCH that of the Trace."""
HYBRID = ("replica", "shard")
"""The axes of hybrid sharding, wherever they stand in the mesh. Other two axes are taken in their order."""
AFTERWARDS = ("wait_tensor", "_wrap_tensor_autograd")
"""What torch calls after each communication of a tensor that is cut."""
STATES: Final = {"sgd": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq")}
"""What torch's optimizers call the numbers that they keep for a weight."""


# -- what each rank trains ----------------------------------------------------------------------------------------


def library_results(plan: Plan, against: Sequence[str], rank: int) -> tuple[dict[str, tuple[int, Sequence[int]]], int]:
    """Return from which number on a rank keeps gradient, weight and state of which layers of each library's step, and
    how many numbers it keeps in all. ReplayError where a library cannot train this model."""
    at, found = plan.rank_plans[rank].kept, dict[str, tuple[int, Sequence[int]]]()
    for name in against:
        _refuse(plan, name)
        layers = _layers_of(plan, name, rank) if name in PIPELINES or rank == 0 else ()
        found[name] = at, layers
        at += sum(map(plan.sizes.weight, layers)) * (2 + plan.sizes.moments)
    return found, at


def _refuse(plan: Plan, name: str) -> None:
    ranks, layers, batches = plan.ranks, plan.trace.layers, plan.trace.batches
    wrong = None
    if plan.trace.descriptions != USUAL:
        wrong = "linear layers of one size, and nothing else"
    elif ranks == 1:
        wrong = "more than one rank"
    elif name in PIPELINES and name != TORCH and layers % ranks:
        wrong = f"as many layers on each rank: {layers} do not divide by {ranks}"
    elif name in TENSOR and (width := plan.sizes.shape.descriptions[0].inputs) % ranks:
        wrong = f"as many columns on each rank: {width} do not divide by {ranks}"
    elif name == "sequence_parallel" and batches * plan.sizes.rows % ranks:
        wrong = f"as many rows on each rank: {batches * plan.sizes.rows} do not divide by {ranks}"
    elif name in DATA and batches < ranks:
        wrong = f"a batch for every rank: there are {batches} for {ranks}"
    elif name == "hsdp" and len(set(map(len, _lines_of(plan)))) > 1:
        wrong = f"a mesh of replicas and shards, or an even number of ranks; there are {ranks}"
    if wrong is not None:
        raise ReplayError(f"{name} cannot train beside this Trace: it needs {wrong}")


def _layers_of(plan: Plan, name: str, rank: int) -> tuple[int, ...]:
    """Return the layers that a rank trains: all, or those of its stages."""
    if name not in PIPELINES:
        return tuple(range(plan.trace.layers))
    pipeline = _pipeline(plan, name)
    return tuple(layer for stage in pipeline.stages(rank) for layer in pipeline.layers_of[stage])


def _microbatches_of(plan: Plan, name: str, rank: int) -> Sequence[Sequence[int]]:
    """Return the batches of a rank, in the parts in which it takes them one after the other. With a data parallel
    library as the schedule does it, where all ranks take batches of their own in as many parts; else every n-th batch,
    in one."""
    if name in PIPELINES:
        return _pipeline(plan, name).microbatches
    if name in TENSOR:
        return (range(plan.trace.batches),)
    taken = [
        [
            sorted(plan.rank_plans[other].value(event.inputs[0]).place.batches)
            for event in program.events
            if event.op == "forward" and event.layer == 0
        ]
        for other, program in enumerate(plan.trace.programs)
    ]
    every = [batch for parts in taken for part in parts for batch in part]
    if sorted(every) == list(range(plan.trace.batches)) and len(set(map(len, taken))) == 1:
        return taken[rank]
    return (range(rank, plan.trace.batches, plan.ranks),)


def _lines_of(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """Return the ranks that hybrid sharding shards over, one line for each replica, by coordinate: those of the Trace's
    mesh, or two halves where it has no axes for that."""
    mesh = plan.trace.mesh
    if mesh is not None and len(mesh.axes) == 2:
        replica, shard = HYBRID if set(mesh.axes) == set(HYBRID) else tuple(mesh.axes)
        return tuple(mesh.group(first, shard) for first in mesh.group(mesh.ranks[0], replica))
    half = plan.ranks // 2
    return tuple(range(half)), tuple(range(half, plan.ranks))


class _Pipeline(NamedTuple):
    """A pipeline as torch is told of it: its order, the layers of each stage, the batches of each microbatch, and the
    class of torch.distributed.pipelining that has this schedule, if any."""

    order: Order
    layers_of: Sequence[range]
    microbatches: Sequence[Sequence[int]]
    torch: str | None

    def stages(self, rank: int) -> list[int]:
        return [stage for stage, place in places(self.order).items() if place == rank]


def _pipeline(plan: Plan, name: str) -> _Pipeline:
    """Return the pipeline that a library is to be. ReplayError where the Trace of TORCH is none, or none for torch."""
    ranks, batches = plan.ranks, plan.trace.batches
    if name == TORCH:
        return _own_pipeline(plan.trace)
    row, each = SCHEDULES[PIPELINES[name]], plan.trace.layers // ranks
    stages = [range(rank * each, (rank + 1) * each) for rank in range(ranks)]
    return _Pipeline(row.order(ranks, batches), stages, [(batch,) for batch in range(batches)], row.torch)


@kept
def _own_pipeline(trace: Trace) -> _Pipeline:
    try:
        order, layers, microbatches = pipeline_of(trace)
    except ValueError as error:
        raise ReplayError(f"{TORCH} cannot train beside this Trace: {error}") from None
    if len(order) != trace.ranks:
        raise ReplayError(f"{TORCH} is one pipeline, and this Trace has several beside each other")
    if len(set(map(len, microbatches))) > 1:
        raise ReplayError(f"{TORCH} needs microbatches of one size: torch fixes the shape of what stages pass on")
    order = compute_only(order)
    return _Pipeline(order, layers, microbatches, _class_of_torch(order, len(layers), len(microbatches)))


def _class_of_torch(order: Order, stages: int, batches: int) -> str | None:
    """Name the class of torch's that has an order as its own, if our schedule of that name is this order."""

    def words(order: Order) -> list[list[str]]:  # the parts of a pair each on its own, as a Trace has them
        return [[str(action) for action in parts_of(actions)] for actions in order]

    ranks = len(order)
    for row in SCHEDULES.values():
        chunks = stages // ranks if "chunks" in row.takes else row.chunks
        if row.torch is not None and chunks * ranks == stages:
            try:
                named = row.order(ranks, batches, chunks=chunks)
            except ValueError:  # it has none of this size
                continue
            if words(named) == words(order):
                return row.torch
    return None


# -- how they train it --------------------------------------------------------------------------------------------


NEEDS: Final = {
    **dict.fromkeys(("zero2", "fsdp", "hsdp"), "torch.distributed.fsdp"),
    **dict.fromkeys(TENSOR, "torch.distributed.tensor.parallel"),
    **dict.fromkeys(PIPELINES, "torch.distributed.pipelining"),
    "zero1": "torch.distributed.optim",
}


def preload(names: Sequence[str]) -> None:
    """Import what the libraries need, once, before ranks are forked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # one compiles functions in a way that torch gives up
        for module in ("torch._dynamo", *(NEEDS[name] for name in names if name in NEEDS)):  # torch.optim needs that
            import_module(module)


class _Count(TorchDispatchMode):
    """A count of the communications that torch dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # first it becomes what each rank does, and that comes by here again
        name = str(func._schema.name.partition("::")[2])
        if func.namespace in ("c10d", "_c10d_functional") and name not in AFTERWARDS:
            self.found[our_name(name.removesuffix("_tensor").removesuffix("_into"))] += 1
        return func(*args, **(kwargs or {}))


class Layer(nn.Module):
    """A linear layer as torch's own libraries take it."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x) @ self.weight


class LibraryStep:
    """A library's training step. Subclasses say what the model is wrapped in, and how one step runs.

    `by` is what of the library runs, where its name does not say it.
    """

    by = ""

    def __init__(self, name: str, context: RankContext) -> None:
        self.name, self.context = name, context
        plan, initial, device = context.plan, context.initial, context.device
        self.layers = _layers_of(plan, name, context.rank)
        self.modules = nn.Sequential(*(Layer(initial.matrix(i).clone().to(device)) for i in self.layers))
        self.parts = _microbatches_of(plan, name, context.rank)
        batches = [batch for part in self.parts for batch in part]
        self.x = initial.rows("data", batches).to(device)
        self.target = initial.rows("target", batches).to(device)
        self.build()
        self.optimizer = self.make_optimizer([initial("state", i).to(device) for i in self.layers])

    def make_optimizer(self, states: list[Tensor]) -> torch.optim.Optimizer:
        """Make torch's own optimizer, in the state from which training goes on. `local` is what this rank has of it."""
        kind, told = self.kind_of_optimizer()
        self.local = kind(self.parameters(), **told)
        self.go_on(self.parameters(), states)
        return self.local

    def kind_of_optimizer(self) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        """Name the class of torch's optimizer, and what it is told."""
        if self.context.options.optimizer == "sgd":
            return torch.optim.SGD, {"lr": training.RATE, "momentum": training.MOMENTUM}
        return torch.optim.Adam, {"lr": training.RATE, "betas": training.BETAS, "eps": training.EPS}

    def go_on(self, parameters: Sequence[nn.Parameter], states: list[Tensor]) -> None:
        """Put the optimizer into the middle of training, with these states (flat, as `training.step` has them)."""
        names = STATES[self.context.options.optimizer]
        for parameter, state in zip(parameters, states, strict=True):
            moments = state.view(-1, len(names)).unbind(1)
            kept = {name: self.like(parameter, moment) for name, moment in zip(names, moments, strict=True)}
            age = {"step": torch.tensor(float(training.AGE))} if len(names) > 1 else {}
            self.local.state[parameter] = age | kept

    def state(self, parameter: nn.Parameter) -> Tensor:
        """Return what the optimizer keeps for a weight, whole and flat."""
        kept = self.local.state[parameter]
        moments = [self.whole(kept[name]).reshape(-1) for name in STATES[self.context.options.optimizer]]
        return torch.stack(moments, 1).view(-1)

    def build(self) -> None:
        """Wrap the modules."""
        raise NotImplementedError

    def compute(self) -> None:
        """Do forward and backward."""
        raise NotImplementedError

    def loss(self, y: Tensor, target: Tensor) -> Tensor:
        """Return the loss of some rows."""
        return self.context.initial.layers[-1].loss(y, target, self.context.rows)

    def like(self, parameter: nn.Parameter, flat: Tensor) -> Tensor:
        """Return a copy of a state in the form of its parameter."""
        return flat.clone().view_as(parameter)

    def whole(self, tensor: Tensor) -> Tensor:
        """Return a tensor with all its shards."""
        return tensor.detach()

    def parameters(self) -> list[nn.Parameter]:
        """Return the weights, in the order of the layers."""
        return list(self.modules.parameters())

    def run(self) -> None:
        """Do one training step."""
        self.optimizer.zero_grad(set_to_none=True)
        self.compute()
        self.optimizer.step()

    def step(self) -> tuple[int, int]:
        """Do one training step; return when it began and ended."""
        begun = time.perf_counter_ns()
        self.run()
        if self.context.device.type == "cuda":
            torch.cuda.synchronize()
        return begun, time.perf_counter_ns()

    def prove(self) -> dict[str, Any]:
        """Do one step whose numbers are kept to be compared; then one whose communications are counted.

        The second and third step are the first ordinary ones: DDP, for one, rebuilds its buckets in the second.
        """
        self.run()
        self.keep()
        self.run()
        with _Count() as count:
            self.run()
        return {"counts": dict(count.found), "by": self.by}

    def keep(self) -> None:
        """Write gradients, weights and states to this rank's part of the results."""
        at, layers = self.context.library_results[self.name]
        for layer, parameter in zip(self.layers, self.parameters(), strict=True):
            assert parameter.grad is not None, "every weight takes part in the loss"
            for tensor in (self.whole(parameter.grad), self.whole(parameter), self.state(parameter)):
                if layer in layers:
                    self.context.results[at : at + tensor.numel()].copy_(tensor.reshape(-1))
                    at += tensor.numel()


class DataParallel(LibraryStep):
    """DDP. Its buckets hold several layers unless told otherwise."""

    def build(self) -> None:
        # With a bucket for each layer, each has its all-reduce, behind the backward of the next: so has the puzzle.
        size: dict[str, Any] = {} if self.name == "ddp" else {"bucket_cap_mb": 1e-6}
        self.model: Any = nn.parallel.DistributedDataParallel(self.modules, **size)

    def compute(self) -> None:
        (self.loss(self.model(self.x), self.target) * dist.get_world_size()).backward()


class ShardedOptimizer(DataParallel):
    """DDP with a bucket for each layer, and ZeRO's first stage as torch has it: the optimizer of each weight is on one
    rank, which broadcasts the weight when it has updated it."""

    def make_optimizer(self, states: list[Tensor]) -> torch.optim.Optimizer:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        parameters, (kind, told) = self.parameters(), self.kind_of_optimizer()
        made: Any = ZeroRedundancyOptimizer(parameters, kind, **told)
        parts = enumerate(made._partition_parameters())  # torch gives it no public name
        self.owners = {id(one): rank for rank, groups in parts for group in groups for one in group["params"]}
        mine = [i for i, one in enumerate(parameters) if self.owners[id(one)] == self.context.rank]
        self.local = made.optim
        self.go_on([parameters[i] for i in mine], [states[i] for i in mine])
        return made

    def state(self, parameter: nn.Parameter) -> Tensor:
        owner = self.owners[id(parameter)]
        room = parameter.new_empty(parameter.numel() * self.context.options.moments)
        kept = super().state(parameter) if owner == self.context.rank else room
        dist.broadcast(kept, owner)
        return kept


class FullySharded(DataParallel):
    """FSDP2, a unit for each layer, over all ranks or (HSDP) over those of a replica. `zero2` keeps the weights that
    forward has gathered for backward.

    A rank takes its batches in as many parts as the schedule does: it gathers weights and reduces gradients for each.
    """

    def build(self) -> None:
        from torch.distributed.fsdp import fully_shard

        kind, ranks = self.context.device.type, dist.get_world_size()
        hybrid = self.name == "hsdp"
        mesh = _mesh(kind, _lines_of(self.context.plan)) if hybrid else init_device_mesh(kind, (ranks,))
        for module in self.modules:
            fully_shard(module, mesh=mesh, reshard_after_forward=self.name != "zero2")
        self.model = fully_shard(self.modules, mesh=mesh)

    def compute(self) -> None:
        sizes = [self.context.sizes.rows * len(part) for part in self.parts]
        for x, target in zip(self.x.split(sizes), self.target.split(sizes), strict=True):
            (self.loss(self.model(x), target) * dist.get_world_size()).backward()

    def like(self, parameter: nn.Parameter, flat: Tensor) -> Tensor:
        whole: Any = parameter
        return distribute_tensor(flat.clone().view(parameter.shape), whole.device_mesh, whole.placements)

    def whole(self, tensor: Any) -> Tensor:
        return tensor.full_tensor().detach()


class TensorParallel(LibraryStep):
    """parallelize_module: layers are cut into columns and rows in turn. With `sequence_parallel` what goes from one
    pair to the next is cut into rows. As torch takes no other layers, these are its own Linear ones."""

    def build(self) -> None:
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        ranks, between = dist.get_world_size(), Shard(0) if self.name == "sequence_parallel" else Replicate()
        mesh, made = init_device_mesh(self.context.device.type, (ranks,)), nn.Sequential()
        for number, old in enumerate(self.parameters()):
            linear = nn.Linear(*old.shape, bias=False, dtype=old.dtype, device="meta")
            linear.weight = nn.Parameter(old.detach().t().contiguous())
            after = between if number == len(self.layers) - 1 else Shard(-1)  # a row layer takes what is cut like this
            columns = ColwiseParallel(input_layouts=between, output_layouts=after)
            style = RowwiseParallel(output_layouts=between) if number % 2 else columns
            made.extend([nn.Tanh(), parallelize_module(linear, mesh, style)])
        self.modules = made
        if between.is_shard():
            self.x, self.target = (one.chunk(ranks)[self.context.rank] for one in (self.x, self.target))

    def compute(self) -> None:
        self.loss(self.modules(self.x), self.target).backward()

    def like(self, parameter: nn.Parameter, flat: Tensor) -> Tensor:
        cut: Any = parameter
        return distribute_tensor(flat.view(*parameter.shape[::-1]).t().contiguous(), cut.device_mesh, cut.placements)

    def whole(self, tensor: Any) -> Tensor:
        return tensor.full_tensor().detach().t()


def _mesh(kind: str, lines: Sequence[Sequence[int]]) -> Any:
    """Torch's mesh of these lines, whatever the order of their ranks. Left to itself it sorts the ranks of each group,
    and says nothing where a rank is then in another place of its line: so it is given groups that are as the lines.
    RuntimeError where torch is too old for groups in another order than that of their ranks."""
    groups: list[Any] = []
    in_order = all(sorted(line) == [*line] for line in (*lines, *zip(*lines, strict=True)))
    kept: dict[str, Any] = {} if in_order else {"sort_ranks": False}
    if kept and "sort_ranks" not in inspect.signature(dist.new_group).parameters:
        raise RuntimeError(f"torch {torch.__version__} sorts the ranks of each group, and these are {lines}: take 2.12")
    for along in (tuple(zip(*lines, strict=True)), lines):
        made = {tuple(line): dist.new_group(list(line), **kept) for line in along}
        groups.append(next(group for line, group in made.items() if dist.get_rank() in line))
    return DeviceMesh.from_group(groups, kind, mesh=torch.tensor(lines), mesh_dim_names=HYBRID)


class Pipelined(LibraryStep):
    """torch.distributed.pipelining: its own class of a schedule, or its executor with our order where it has none."""

    def build(self) -> None:
        """Make the stages of this rank, with shapes given, so that nothing is sent to find them out."""
        from torch.distributed import pipelining

        plan, rank = self.context.plan, self.context.rank
        self.pipeline = _pipeline(plan, self.name)
        count, rows = len(self.pipeline.layers_of), len(self.pipeline.microbatches[0]) * plan.sizes.rows
        output = torch.empty(rows, self.x.shape[1], dtype=self.context.initial.dtype, device="meta").requires_grad_()
        self.stages, at, mine = list[pipelining.PipelineStage](), 0, self.pipeline.stages(rank)
        for stage in mine:
            after = at + len(self.pipeline.layers_of[stage])
            shapes: dict[str, Any] = {"input_args": (output if stage else output.detach(),), "output_args": (output,)}
            modules = self.modules[at:after]
            self.stages.append(pipelining.PipelineStage(modules, stage, count, self.context.device, **shapes))
            at = after
        told = {"n_microbatches": len(self.pipeline.microbatches), "loss_fn": self.loss, "scale_grads": False}
        self.schedule = self.of_torch(told) or self.executed(told)
        self.first, self.last = 0 in mine, count - 1 in mine

    def of_torch(self, told: dict[str, Any]) -> Any:
        """Make torch's own class, where it has this schedule, and takes this size."""
        from torch.distributed.pipelining import schedules

        if self.pipeline.torch is None:
            return None
        self.by = self.pipeline.torch
        kind: Any = getattr(schedules, self.by)
        single = issubclass(kind, schedules.PipelineScheduleSingle)
        try:
            return kind(self.stages[0] if single else self.stages, **told)
        except ValueError:
            return None

    def executed(self, told: dict[str, Any]) -> Any:
        """Make torch's executor with our order, in the file that it reads."""
        from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

        self.by = "torch's executor with this order"
        made: Any = _PipelineScheduleRuntime(self.stages, **told)
        with tempfile.TemporaryDirectory(prefix="puzzles-replay-") as folder:
            path = Path(folder, "order.csv")
            path.write_text(to_csv(self.pipeline.order, comms=True).text, encoding="utf-8")
            made._load_csv(str(path), format="compute_comms")
        return made

    def compute(self) -> None:
        inputs = (self.x,) if self.first else ()
        self.schedule.step(*inputs, target=self.target if self.last else None)


KINDS: dict[str, type[LibraryStep]] = {
    **dict.fromkeys(("ddp", "ddp_by_layer"), DataParallel),
    "zero1": ShardedOptimizer,
    **dict.fromkeys(("zero2", "fsdp", "hsdp"), FullySharded),
    **dict.fromkeys(TENSOR, TensorParallel),
    **dict.fromkeys(PIPELINES, Pipelined),
}
"""The training step of each library, by its name."""
