"""Torch's own training steps, in a replay's processes on its layers, weights and data: DDP, FSDP2, and the Trace's
order on torch's pipelines. What each rank trains with them, and whether they can train this model.

Data parallel libraries average gradients over ranks; here the loss is a sum over batches, so it is scaled up first.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lib.replay import ReplayError, training
from lib.replay.plan import Plan
from lib.replay.rank.interpreter import Clock, RankContext
from lib.replay.rank.transport import Handle
from lib.replay.training import Kept
from lib.schedules.formats.chrome import our_name
from lib.schedules.formats.orders import to_csv
from lib.schedules.formats.trace import Pipeline, pipeline_of
from lib.schedules.pipelines.action import Order, parts_of, places
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.lowering import compute_only
from lib.trace.trace import Trace, kept
from lib.values.dims import RunSet
from lib.values.kinds.kind import USUAL
from lib.values.values import WeightGrad

TORCH: Final = "torch-pipelining"
STATES: Final = {"sgd": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq")}
"""The names of the states that torch's optimizers keep for a weight."""


def prepare(plan: Plan, against: Sequence[str]) -> None:
    """Import what the libraries need. ReplayError where one cannot train this model."""
    for name in against:
        _refuse(plan, name)
    needs = {"fsdp": "torch.distributed.fsdp", TORCH: "torch.distributed.pipelining"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # one compiles functions in a way that torch deprecates
        for module in ("torch._dynamo", *(needs[name] for name in against if name in needs)):  # torch.optim needs that
            import_module(module)


def _refuse(plan: Plan, name: str) -> None:
    ranks, batches = plan.ranks, plan.trace.batches
    needs = {
        "linear layers of one size, and nothing else": plan.trace.descriptions == USUAL,
        "more than one rank": ranks > 1,
        f"a batch for every rank: there are {batches} for {ranks}": name == TORCH or batches >= ranks,
    }
    for need, met in needs.items():
        if not met:
            raise ReplayError(f"{name} cannot train beside this Trace: it needs {need}")
    if name == TORCH:
        _pipeline(plan.trace)


@kept
def _pipeline(trace: Trace) -> Pipeline:
    """Return the pipeline of a Trace, in torch's terms. ReplayError where there is none, or none that torch can run."""
    try:
        found = pipeline_of(trace)
    except ValueError as error:
        raise ReplayError(f"{TORCH} cannot train beside this Trace: {error}") from None
    if len(found.order) != trace.ranks:
        raise ReplayError(f"{TORCH} is one pipeline, and this Trace has several beside each other")
    if len(set(map(len, found.microbatches))) > 1:
        raise ReplayError(f"{TORCH} needs microbatches of one size: torch fixes the shape of what stages pass on")
    return found._replace(order=compute_only(found.order))


def _class_of_torch(pipeline: Pipeline) -> str | None:
    """Return the name of torch's class for this order, where one of our schedules that it covers is the same order."""
    order, stages, batches = pipeline.order, len(pipeline.layers_of), len(pipeline.microbatches)

    def words(order: Order) -> list[list[str]]:  # pairs split into their parts, as in a Trace
        return [[str(action) for action in parts_of(actions)] for actions in order]

    ranks = len(order)
    for row in SCHEDULES.values():
        chunks = stages // ranks if "chunks" in row.takes else row.chunks
        if row.torch is not None and chunks * ranks == stages:
            with suppress(ValueError):  # no schedule of this size
                if words(row.order(ranks, batches, chunks=chunks)) == words(order):
                    return row.torch
    return None


class _Count(TorchDispatchMode):
    """A count of the communications that torch dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it is first turned into each rank's operations, which come here again
        if func.namespace == "c10d":
            self.found[our_name(func._schema.name.partition("::")[2])] += 1
        return func(*args, **(kwargs or {}))


class Layer(nn.Module):
    """A linear layer as torch's own libraries take it."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x) @ self.weight


def _whole(tensor: Tensor) -> Tensor:
    """Return a tensor with all its shards, flat."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().reshape(-1)


class LibraryStep:
    """A library's training step. Subclasses say what the model is wrapped in, and how one step runs.

    `by` names the part of the library that runs, where `name` does not.
    """

    by = ""

    def __init__(self, name: str, context: RankContext) -> None:
        self.name, self.context, self.clock = name, context, Clock(0, context.device.type == "cuda")
        plan, initial, device = context.plan, context.initial, context.device
        self.layers, self.parts = self.share(plan, context.rank)
        self.modules = nn.Sequential(*(Layer(initial.matrix(i).clone().to(device)) for i in self.layers))
        batches = [batch for part in self.parts for batch in part]
        self.x, self.target = (initial.rows(kind, batches).to(device) for kind in ("data", "target"))
        self.build()
        parameters = list(self.modules.parameters())
        if context.options.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(parameters, training.RATE, training.MOMENTUM)
        else:
            self.optimizer = torch.optim.Adam(parameters, training.RATE, training.BETAS, training.EPS)
        # The optimizer continues in mid-training, from the initial states.
        names = STATES[context.options.optimizer]
        for layer, parameter in zip(self.layers, parameters, strict=True):
            moments = initial("state", layer).to(device).view(-1, len(names)).unbind(1)
            kept = {name: _like(parameter, moment) for name, moment in zip(names, moments, strict=True)}
            age = {"step": torch.tensor(float(training.AGE))} if len(names) > 1 else {}
            self.optimizer.state[parameter] = age | kept

    def share(self, plan: Plan, rank: int) -> tuple[Sequence[int], Sequence[Sequence[int]]]:
        """Return the layers that a rank trains, and its batches in the parts that it takes in turn: the schedule's,
        where the ranks share out the batches in equally many parts; else every n-th batch, in one part."""
        taken = [
            [sorted(event.batches) for event in each.program.events if event.op == "forward" and event.layer == 0]
            for each in plan.rank_plans
        ]
        every = [batch for parts in taken for part in parts for batch in part]
        alike = sorted(every) == list(range(plan.trace.batches)) and len(set(map(len, taken))) == 1
        return range(plan.trace.layers), taken[rank] if alike else [range(rank, plan.trace.batches, plan.ranks)]

    def build(self) -> None:
        """Wrap the modules."""
        raise NotImplementedError

    def compute(self) -> None:
        """Do forward and backward."""
        raise NotImplementedError

    def loss(self, y: Tensor, target: Tensor) -> Tensor:
        """Return the loss of some rows."""
        return self.context.initial.layers[-1].loss(y, target, self.context.rows)

    def run(self) -> Sequence[Handle]:
        """Do one training step, of which nothing is left to wait for."""
        self.optimizer.zero_grad(set_to_none=True)
        self.compute()
        self.optimizer.step()
        return ()

    def prove(self) -> tuple[dict[str, int], list[Kept]]:
        """Do one step whose numbers are kept for comparison, one unrecorded, and one whose communications are counted.

        The third is an ordinary step: DDP, for one, rebuilds its buckets in the second.
        """
        self.run()
        kept = [*self.kept()]
        self.run()
        with _Count() as count:
            self.run()
        return dict(count.found), kept if self.name == TORCH or self.context.rank == 0 else []

    def kept(self) -> Iterator[Kept]:
        """Yield gradients, weights and states, each whole: all ranks that hold shards of it take part."""
        for layer, parameter in zip(self.layers, self.modules.parameters(), strict=True):
            assert parameter.grad is not None, "every weight takes part in the loss"
            state, whole = self.optimizer.state[parameter], RunSet.span(0, parameter.numel())
            moments = [_whole(state[name]) for name in STATES[self.context.options.optimizer]]
            tensors = _whole(parameter.grad), _whole(parameter), torch.stack(moments, 1).view(-1)
            for what, tensor in zip(training.WHATS, tensors, strict=False):
                yield Kept(what, layer, whole, None, tensor.to("cpu", copy=True))


def _like(parameter: Any, flat: Tensor) -> Tensor:
    """Return a copy of a state, shaped and sharded like its parameter."""
    copy = flat.clone().view(parameter.shape)
    is_cut = isinstance(parameter, DTensor)
    return distribute_tensor(copy, parameter.device_mesh, parameter.placements) if is_cut else copy


class DataParallel(LibraryStep):
    """DDP, with the schedule's bucket size where it has one, so that both sum as many gradients at a time."""

    def build(self) -> None:
        sums = [
            sum(map(self.context.sizes.numel, one.brought[0])) * self.context.sizes.bytes
            for one in self.context.mine.collectives.values()
            if one.row.name.startswith("allreduce") and all(isinstance(value, WeightGrad) for value in one.brought[0])
        ]
        size: dict[str, Any] = {"bucket_cap_mb": max(sums) / 2**20} if sums else {}
        self.model: Any = nn.parallel.DistributedDataParallel(self.modules, **size)

    def compute(self) -> None:
        (self.loss(self.model(self.x), self.target) * dist.get_world_size()).backward()


class FullySharded(LibraryStep):
    """FSDP2, with a unit per layer. Weights are gathered and gradients reduced for each part of the batches."""

    def build(self) -> None:
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self.context.device.type, (dist.get_world_size(),))
        for module in self.modules:
            fully_shard(module, mesh=mesh, reshard_after_forward=True)
        self.model: Any = fully_shard(self.modules, mesh=mesh)

    def compute(self) -> None:
        sizes = [self.context.options.length * len(part) for part in self.parts]
        for x, target in zip(self.x.split(sizes), self.target.split(sizes), strict=True):
            (self.loss(self.model(x), target) * dist.get_world_size()).backward()


class Pipelined(LibraryStep):
    """torch.distributed.pipelining: its own class for a schedule, or its executor with our order where it has none."""

    def share(self, plan: Plan, rank: int) -> tuple[Sequence[int], Sequence[Sequence[int]]]:
        self.pipeline = _pipeline(plan.trace)
        self.mine = [stage for stage, place in places(self.pipeline.order).items() if place == rank]
        layers = [layer for stage in self.mine for layer in self.pipeline.layers_of[stage]]
        return layers, self.pipeline.microbatches

    def build(self) -> None:
        """Make this rank's stages, with given shapes, so that nothing is sent to find them out."""
        from torch.distributed import pipelining

        count, rows = len(self.pipeline.layers_of), len(self.pipeline.microbatches[0]) * self.context.options.length
        output = torch.empty(rows, self.x.shape[1], dtype=self.context.initial.dtype, device="meta").requires_grad_()
        self.stages, at = list[pipelining.PipelineStage](), 0
        for stage in self.mine:
            after = at + len(self.pipeline.layers_of[stage])
            shapes: dict[str, Any] = {"input_args": (output if stage else output.detach(),), "output_args": (output,)}
            modules = self.modules[at:after]
            self.stages.append(pipelining.PipelineStage(modules, stage, count, self.context.device, **shapes))
            at = after
        told = {"n_microbatches": len(self.pipeline.microbatches), "loss_fn": self.loss, "scale_grads": False}
        self.schedule = self.of_torch(told) or self.executed(told)
        self.first, self.last = 0 in self.mine, count - 1 in self.mine

    def of_torch(self, told: dict[str, Any]) -> Any:
        """Make an instance of torch's own class, where it has this schedule and takes this size; else return None."""
        from torch.distributed.pipelining import schedules

        if (name := _class_of_torch(self.pipeline)) is None:
            return None
        self.by = name
        kind: Any = getattr(schedules, name)
        single = issubclass(kind, schedules.PipelineScheduleSingle)
        with suppress(ValueError):
            return kind(self.stages[0] if single else self.stages, **told)

    def executed(self, told: dict[str, Any]) -> Any:
        """Make torch's executor with our order, from a file that it reads."""
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


KINDS: dict[str, type[LibraryStep]] = {"ddp": DataParallel, "fsdp": FullySharded, TORCH: Pipelined}
"""The training step of each library, by its name."""
