"""The libraries' own training steps, on the same layers, weights and data, in the same processes as the replay.

torch's DistributedDataParallel (as it comes; with a bucket for each layer, as the schedules have it; and with the
ZeroRedundancyOptimizer), fully_shard on a line and on a mesh of replicas and shards (HSDP), parallelize_module for
tensor parallelism, with rows whole or cut, and torch.distributed.pipelining with its GPipe and 1F1B, or with the order
of the Trace. Data parallel libraries average gradients over ranks; as the loss is a sum over batches here, it is scaled
up before.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import inspect
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lib.replay.layers import layers, optimizers
from lib.replay.options import TENSOR
from lib.replay.plan.library_plan import HYBRID, PIPELINES, layers_of, lines_of, microbatches_of, pipeline_plan
from lib.replay.rank.context import RankContext
from lib.schedules.formats.kineto import our_name
from lib.schedules.formats.orders import to_csv

__all__ = ["library_step", "preload"]

AFTERWARDS = ("wait_tensor", "_wrap_tensor_autograd")
"""What torch calls after each communication of a tensor that is cut."""


def preload(names: tuple[str, ...]) -> None:
    """Import what the libraries need, once, before ranks are forked."""
    import torch._dynamo  # torch.optim imports it when it is first used

    if set(names) & {"fsdp", "hsdp", "zero2"}:
        import torch.distributed.fsdp
    if set(names) & set(TENSOR):
        import torch.distributed.tensor.parallel
    if "zero1" in names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it compiles functions in a way that torch gives up
            import torch.distributed.optim
    if set(names) & set(PIPELINES):
        import torch.distributed.pipelining  # noqa: F401


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


class LibraryStep:
    """A library's training step. Subclasses say what the model is wrapped in, and how one step runs.

    `by` is what of the library runs, where its name does not say it.
    """

    by = ""

    def __init__(self, name: str, context: RankContext) -> None:
        self.name = name
        self.context = context
        plan, initial, device = context.plan, context.initial, context.device
        self.layers = layers_of(plan, name, context.rank)
        self.modules = layers.model(initial.matrix(i).clone().to(device) for i in self.layers)
        self.parts = microbatches_of(plan, name, context.rank)
        batches = [batch for part in self.parts for batch in part]
        self.x = initial.rows("data", batches).to(device)
        self.target = initial.rows("target", batches).to(device)
        self.build()
        states = [initial("state", i).to(device) for i in self.layers]
        self.optimizer = self.make_optimizer(states)

    def make_optimizer(self, states: list[Tensor]) -> torch.optim.Optimizer:
        """Torch's own optimizer, in the state from which training goes on."""
        return optimizers.reference(self.context.options.optimizer, self.parameters(), states, self.like)

    def state(self, parameter: nn.Parameter) -> Tensor:
        """Return what the optimizer keeps for a weight, whole."""
        return optimizers.state_of(self.context.options.optimizer, self.optimizer, parameter, self.whole)

    def build(self) -> None:
        """Wrap the modules."""
        raise NotImplementedError

    def compute(self) -> None:
        """Forward and backward."""
        raise NotImplementedError

    def like(self, parameter: nn.Parameter, flat: Tensor) -> Tensor:
        """A state in the form of its parameter."""
        return flat.clone().view_as(parameter)

    def whole(self, tensor: Tensor) -> Tensor:
        """A tensor with all its shards."""
        return tensor.detach()

    def parameters(self) -> list[nn.Parameter]:
        """The weights, in the order of the layers."""
        return list(self.modules.parameters())

    def run(self) -> None:
        """One training step."""
        self.optimizer.zero_grad(set_to_none=True)
        self.compute()
        self.optimizer.step()

    def step(self) -> tuple[int, int]:
        """One training step, and when it began and ended."""
        begun = time.perf_counter_ns()
        self.run()
        if self.context.device.type == "cuda":
            torch.cuda.synchronize()
        return begun, time.perf_counter_ns()

    def prove(self) -> dict[str, Any]:
        """One step whose numbers are kept to be compared; then one whose communications are counted.

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
        kept = self.context.library_results[self.name]
        at = kept.offset
        for layer, parameter in zip(self.layers, self.parameters(), strict=True):
            assert parameter.grad is not None, "every weight takes part in the loss"
            for tensor in (self.whole(parameter.grad), self.whole(parameter), self.state(parameter)):
                if layer in kept.layers:
                    self.context.results[at : at + tensor.numel()].copy_(tensor.reshape(-1))
                    at += tensor.numel()


class DataParallel(LibraryStep):
    """DDP. Its buckets hold several layers unless told otherwise."""

    def build(self) -> None:
        # With a bucket for each layer, each has its all-reduce, behind the backward of the next: so has the puzzle.
        size: dict[str, Any] = {} if self.name == "ddp" else {"bucket_cap_mb": 1e-6}
        self.model: Any = nn.parallel.DistributedDataParallel(self.modules, **size)

    def compute(self) -> None:
        (layers.loss(self.model(self.x), self.target, self.context.rows) * dist.get_world_size()).backward()


class ShardedOptimizer(DataParallel):
    """DDP with a bucket for each layer, and ZeRO's first stage as torch has it: the optimizer of each weight is on one
    rank, which broadcasts the weight when it has updated it."""

    def make_optimizer(self, states: list[Tensor]) -> torch.optim.Optimizer:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        parameters, name = self.parameters(), self.context.options.optimizer
        kind, told = optimizers.made_of(name)
        made: Any = ZeroRedundancyOptimizer(parameters, kind, **told)
        parts = enumerate(made._partition_parameters())  # torch gives it no public name
        self.owners = {id(one): rank for rank, groups in parts for group in groups for one in group["params"]}
        mine = [i for i, one in enumerate(parameters) if self.owners[id(one)] == self.context.rank]
        optimizers.go_on(name, made.optim, [parameters[i] for i in mine], [states[i] for i in mine], self.like)
        self.local = made.optim
        return made

    def state(self, parameter: nn.Parameter) -> Tensor:
        options, owner = self.context.options, self.owners[id(parameter)]
        if owner == self.context.rank:
            kept = optimizers.state_of(options.optimizer, self.local, parameter)
        else:
            kept = parameter.new_empty(parameter.numel() * options.moments)
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
        mesh = _mesh(kind, lines_of(self.context.plan)) if hybrid else init_device_mesh(kind, (ranks,))
        for module in self.modules:
            fully_shard(module, mesh=mesh, reshard_after_forward=self.name != "zero2")
        self.model = fully_shard(self.modules, mesh=mesh)

    def compute(self) -> None:
        sizes = [self.context.sizes.rows * len(part) for part in self.parts]
        for x, target in zip(self.x.split(sizes), self.target.split(sizes), strict=True):
            (layers.loss(self.model(x), target, self.context.rows) * dist.get_world_size()).backward()

    def like(self, parameter: nn.Parameter, flat: Tensor) -> Tensor:
        whole: Any = parameter
        return distribute_tensor(flat.clone().view(parameter.shape), whole.device_mesh, whole.placements)

    def whole(self, tensor: Any) -> Tensor:
        return tensor.full_tensor().detach()


class TensorParallel(LibraryStep):
    """parallelize_module: layers are cut into columns and rows in turn. With `sequence_parallel` what goes from one
    pair to the next is cut into rows. As torch takes no other layers, these are its own Linear ones."""

    def build(self) -> None:
        """Cut each layer, and the data where that is part of it."""
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
        layers.loss(self.modules(self.x), self.target, self.context.rows).backward()

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
        """The stages of this rank, with shapes given, so that nothing is sent to find them out."""
        from torch.distributed import pipelining

        plan, rank = self.context.plan, self.context.rank
        self.pipeline = pipeline_plan(plan, self.name)
        count, rows = len(self.pipeline.layers_of), len(self.pipeline.microbatches[0]) * plan.sizes.rows
        output = torch.empty(rows, self.x.shape[1], dtype=self.context.initial.dtype, device="meta").requires_grad_()
        self.stages: list[pipelining.PipelineStage] = []
        at = 0
        for stage in self.pipeline.stages(rank):
            after = at + len(self.pipeline.layers_of[stage])
            shapes: dict[str, Any] = {"input_args": (output if stage else output.detach(),), "output_args": (output,)}
            modules = self.modules[at:after]
            self.stages.append(pipelining.PipelineStage(modules, stage, count, self.context.device, **shapes))
            at = after
        self.schedule = self.of_torch() or self.executed()
        mine = self.pipeline.stages(rank)
        self.first, self.last = 0 in mine, count - 1 in mine

    def of_torch(self) -> Any:
        """Make torch's own class, where it has this schedule, and takes this size."""
        from torch.distributed.pipelining import schedules

        if self.pipeline.torch is None:
            return None
        self.by = self.pipeline.torch
        kind: Any = getattr(schedules, self.by)
        single = issubclass(kind, schedules.PipelineScheduleSingle)
        try:
            return kind(self.stages[0] if single else self.stages, **self.settings())
        except ValueError:
            return None

    def executed(self) -> Any:
        """Make torch's executor with our order, in the file that it reads."""
        from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

        self.by = "torch's executor with this order"
        made: Any = _PipelineScheduleRuntime(self.stages, **self.settings())
        with tempfile.TemporaryDirectory(prefix="puzzles-replay-") as folder:
            path = Path(folder, "order.csv")
            path.write_text(to_csv(self.pipeline.order, comms=True).text, encoding="utf-8")
            made._load_csv(str(path), format="compute_comms")
        return made

    def settings(self) -> dict[str, Any]:
        """Return the settings that all schedules of torch's have."""
        return {"n_microbatches": len(self.pipeline.microbatches), "loss_fn": self.loss, "scale_grads": False}

    def loss(self, y: Tensor, target: Tensor) -> Tensor:
        return layers.loss(y, target, self.context.rows)

    def compute(self) -> None:
        inputs = (self.x,) if self.first else ()
        self.schedule.step(*inputs, target=self.target if self.last else None)


KINDS: dict[str, type[LibraryStep]] = {
    **dict.fromkeys(("ddp", "ddp_by_layer"), DataParallel),
    "zero1": ShardedOptimizer,
    **dict.fromkeys(("zero2", "fsdp", "hsdp"), FullySharded),
    **dict.fromkeys(TENSOR, TensorParallel),
}


def library_step(name: str, context: RankContext) -> LibraryStep:
    """Make the training step of a library by name: a pipeline, where it is no other."""
    return KINDS.get(name, Pipelined)(name, context)
