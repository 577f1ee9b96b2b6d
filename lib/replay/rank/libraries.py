"""The libraries' own training steps, on the same layers, weights and data, in the same processes as the replay.

torch's DistributedDataParallel (as it comes, and with a bucket for each layer, as the schedules have it), fully_shard
on a line and on a 2 x n mesh (HSDP), and torch.distributed.pipelining with its GPipe and 1F1B. Data parallel libraries
average gradients over ranks; as the loss is a sum over batches here, it is scaled up before.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lib.replay.layers import layers, optimizers
from lib.replay.plan.library_plan import PIPELINES, batches_of, layers_of
from lib.replay.rank.context import RankContext
from lib.values.collectives import COLLECTIVES

__all__ = ["library_step", "preload"]

MESSAGES = {"send": "pass_to", "recv": "receive"}


def preload(names: tuple[str, ...]) -> None:
    """Imports what the libraries need, once, before ranks are forked."""
    import torch._dynamo  # torch.optim imports it when it is first used

    if set(names) & {"fsdp", "hsdp"}:
        import torch.distributed.fsdp
    if set(names) & set(PIPELINES):
        import torch.distributed.pipelining  # noqa: F401


class _Count(TorchDispatchMode):
    """Counts the communications that torch dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            name = func._schema.name.partition("::")[2]
            self.found[our_name(str(name))] += 1
        return func(*args, **(kwargs or {}))


def our_name(name: str) -> str:
    """What we call an operation of torch's: "_reduce_scatter_base_" is the one with the title "reduce-scatter"."""
    plain = name.strip("_").removesuffix("_base").replace("_", "")
    ours = MESSAGES | {row.title.replace("-", ""): row.name for row in COLLECTIVES.values()}
    return ours.get(plain, name)


class LibraryStep:
    """A library's training step. Subclasses say what the model is wrapped in, and how one step runs."""

    def __init__(self, name: str, context: RankContext) -> None:
        self.name = name
        self.context = context
        plan, initial, device = context.plan, context.initial, context.device
        self.layers = layers_of(plan, name, context.rank)
        self.modules = layers.model(initial.matrix(i).clone().to(device) for i in self.layers)
        batches = range(plan.trace.batches) if name in PIPELINES else batches_of(plan, context.rank)
        self.x = initial.rows("data", batches).to(device)
        self.target = initial.rows("target", batches).to(device)
        self.build()
        states = [initial("state", i).to(device) for i in self.layers]
        self.optimizer = optimizers.reference(context.options.optimizer, self.parameters(), states, self.like)

    def build(self) -> None:
        """Wraps the modules."""
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
        return {"counts": dict(count.found)}

    def keep(self) -> None:
        """Writes gradients, weights and states to this rank's part of the results."""
        kept = self.context.library_results[self.name]
        at = kept.offset
        for layer, parameter in zip(self.layers, self.parameters(), strict=True):
            assert parameter.grad is not None, "every weight takes part in the loss"
            state = optimizers.state_of(self.context.options.optimizer, self.optimizer, parameter, self.whole)
            for tensor in (self.whole(parameter.grad), self.whole(parameter), state):
                if layer in kept.layers:
                    self.context.results[at : at + tensor.numel()].copy_(tensor.reshape(-1))
                    at += tensor.numel()


class DataParallel(LibraryStep):
    """DDP. Its buckets hold several layers unless told otherwise."""

    def build(self) -> None:
        """`ddp_by_layer` is the schedule of the puzzle: one all-reduce a layer, behind the backward of the next."""
        size: dict[str, Any] = {"bucket_cap_mb": 1e-6} if self.name == "ddp_by_layer" else {}
        self.model: Any = nn.parallel.DistributedDataParallel(self.modules, **size)

    def compute(self) -> None:
        """Forward and backward of this rank's batches."""
        (layers.loss(self.model(self.x), self.target, self.context.rows) * dist.get_world_size()).backward()


class FullySharded(DataParallel):
    """FSDP2, a unit for each layer; HSDP has two replicas of it.

    A rank takes its batches in as many parts as the schedule does: it gathers weights and reduces gradients for each.
    """

    def build(self) -> None:
        """Shards each layer over all ranks, or over those of its replica."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        ranks = dist.get_world_size()
        shape, names = ((2, ranks // 2), ("replica", "shard")) if self.name == "hsdp" else ((ranks,), ("shard",))
        mesh = init_device_mesh(self.context.device.type, shape, mesh_dim_names=names)
        for module in self.modules:
            fully_shard(module, mesh=mesh)
        self.model = fully_shard(self.modules, mesh=mesh)

    def compute(self) -> None:
        """Forward and backward of this rank's batches, microbatch by microbatch; gradients add up in their shards."""
        events = self.context.plan.trace.programs[self.context.rank].events
        sizes = [self.context.plan.sizes.length * len(e.batches) for e in events if e.op == "forward" and e.layer == 0]
        for x, target in zip(self.x.split(sizes), self.target.split(sizes), strict=True):
            (layers.loss(self.model(x), target, self.context.rows) * dist.get_world_size()).backward()

    def like(self, parameter: nn.Parameter, flat: Tensor) -> Tensor:
        """Sharded as the parameter is."""
        from torch.distributed.tensor import distribute_tensor

        whole: Any = parameter
        return distribute_tensor(flat.clone().view(parameter.shape), whole.device_mesh, whole.placements)

    def whole(self, tensor: Any) -> Tensor:
        """Gathered."""
        return tensor.full_tensor().detach()


class Pipelined(LibraryStep):
    """torch.distributed.pipelining: a stage a rank, a microbatch a batch."""

    def build(self) -> None:
        """The stage of this rank, with shapes given, so that nothing is sent to find them out."""
        from torch.distributed import pipelining

        plan, device = self.context.plan, self.context.device
        stages, rank = plan.ranks, self.context.rank
        size, dtype = (plan.sizes.length, plan.sizes.hidden), self.context.initial.dtype
        output = torch.empty(size, dtype=dtype, device="meta").requires_grad_()
        inputs = output if rank else output.detach()
        stage = pipelining.PipelineStage(
            self.modules, rank, stages, device, input_args=(inputs,), output_args=(output,)
        )
        kind = pipelining.ScheduleGPipe if self.name == "gpipe" else pipelining.Schedule1F1B
        self.schedule = kind(stage, plan.trace.batches, loss_fn=self.loss, scale_grads=False)
        self.first, self.last = rank == 0, rank == stages - 1

    def loss(self, y: Tensor, target: Tensor) -> Tensor:
        """The loss of a microbatch."""
        return layers.loss(y, target, self.context.rows)

    def compute(self) -> None:
        """This rank's part of the schedule."""
        inputs = (self.x,) if self.first else ()
        self.schedule.step(*inputs, target=self.target if self.last else None)


def library_step(name: str, context: RankContext) -> LibraryStep:
    """A library by name."""
    kinds = {"ddp": DataParallel, "ddp_by_layer": DataParallel, "fsdp": FullySharded, "hsdp": FullySharded}
    return kinds.get(name, Pipelined)(name, context)
