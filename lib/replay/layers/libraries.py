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

from lib.replay.layers import layers, optim
from lib.replay.plan.libraries_plan import PIPELINES, batches_of, layers_of
from lib.replay.rank.interpreter import Kit

__all__ = ["contender", "preload"]

NAMES = {
    "allreduce_": "allreduce",
    "_allgather_base_": "allgather",
    "_reduce_scatter_base_": "scatterreduce",
    "broadcast_": "broadcast",
    "send": "pass_to",
    "recv_": "receive",
}


def preload(names: tuple[str, ...]) -> None:
    """Imports what the libraries need, once, before ranks are forked."""
    import torch._dynamo  # torch.optim imports it when it is first used

    if set(names) & {"fsdp", "hsdp"}:
        import torch.distributed.fsdp
    if set(names) & set(PIPELINES):
        import torch.distributed.pipelining  # noqa: F401


class Layer(nn.Module):
    """One layer of the replay as a module."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        """y = tanh(x) W, as in `layers`."""
        return layers.forward(x, self.weight)


class _Count(TorchDispatchMode):
    """Counts the communications that torch dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            name = func._schema.name.partition("::")[2]
            self.found[NAMES.get(name, str(name))] += 1
        return func(*args, **(kwargs or {}))


class Contender:
    """A library's training step. Subclasses say what the model is wrapped in, and how one step runs."""

    def __init__(self, name: str, kit: Kit) -> None:
        self.name = name
        self.kit = kit
        plan, source, device = kit.plan, kit.source, kit.device
        hidden = plan.sizes.hidden
        self.layers = layers_of(plan, name, kit.rank)
        weights = [source("weight", i).clone().view(hidden, hidden).to(device) for i in self.layers]
        self.modules = [Layer(weight) for weight in weights]
        self.rows = plan.trace.batches * plan.sizes.length
        batches = range(plan.trace.batches) if name in PIPELINES else batches_of(plan, kit.rank)
        self.x = source.rows("data", batches).to(device)
        self.target = source.rows("target", batches).to(device)
        self.build()
        states = [source("state", i).to(device) for i in self.layers]
        self.optimizer = optim.reference(kit.options.optimizer, self.parameters(), states, self.like)

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
        return [module.weight for module in self.modules]

    def run(self) -> None:
        """One training step."""
        self.optimizer.zero_grad(set_to_none=True)
        self.compute()
        self.optimizer.step()

    def step(self) -> tuple[int, int]:
        """One training step, and when it began and ended."""
        begun = time.perf_counter_ns()
        self.run()
        if self.kit.device.type == "cuda":
            torch.cuda.synchronize()
        return begun, time.perf_counter_ns()

    def prove(self) -> dict[str, Any]:
        """One step whose numbers are kept for the truth; then one whose communications are counted.

        The second and third step are the first ordinary ones: DDP, for one, rebuilds its buckets in the second.
        """
        self.run()
        self.keep()
        self.run()
        with _Count() as count:
            self.run()
        return {"counts": dict(count.found)}

    def keep(self) -> None:
        """Writes gradients, weights and states to this rank's share of the results."""
        share, at = self.kit.shares[self.name], 0
        at = share.offset
        for layer, parameter in zip(self.layers, self.parameters(), strict=True):
            assert parameter.grad is not None, "every weight takes part in the loss"
            state = optim.state_of(self.kit.options.optimizer, self.optimizer, parameter, self.whole)
            for tensor in (self.whole(parameter.grad), self.whole(parameter), state):
                if layer in share.layers:
                    self.kit.results[at : at + tensor.numel()].copy_(tensor.reshape(-1))
                    at += tensor.numel()


class DataParallel(Contender):
    """DDP. Its buckets hold several layers unless told otherwise."""

    def build(self) -> None:
        """`ddp_by_layer` is the schedule of the puzzle: one all-reduce a layer, behind the backward of the next."""
        size: dict[str, Any] = {"bucket_cap_mb": 1e-6} if self.name == "ddp_by_layer" else {}
        self.model: Any = nn.parallel.DistributedDataParallel(nn.Sequential(*self.modules), **size)

    def compute(self) -> None:
        """Forward and backward of this rank's batches."""
        (layers.loss(self.model(self.x), self.target, self.rows) * dist.get_world_size()).backward()


class FullySharded(DataParallel):
    """FSDP2, a unit for each layer; HSDP has two replicas of it."""

    def build(self) -> None:
        """Shards each layer over all ranks, or over those of its replica."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        ranks = dist.get_world_size()
        shape, names = ((2, ranks // 2), ("replica", "shard")) if self.name == "hsdp" else ((ranks,), ("shard",))
        mesh = init_device_mesh(self.kit.device.type, shape, mesh_dim_names=names)
        for module in self.modules:
            fully_shard(module, mesh=mesh)
        self.model = fully_shard(nn.Sequential(*self.modules), mesh=mesh)

    def like(self, parameter: nn.Parameter, flat: Tensor) -> Tensor:
        """Sharded as the parameter is."""
        from torch.distributed.tensor import distribute_tensor

        whole: Any = parameter
        return distribute_tensor(flat.clone().view(parameter.shape), whole.device_mesh, whole.placements)

    def whole(self, tensor: Any) -> Tensor:
        """Gathered."""
        return tensor.full_tensor().detach()


class Pipelined(Contender):
    """torch.distributed.pipelining: a stage a rank, a microbatch a batch."""

    def build(self) -> None:
        """The stage of this rank, with shapes given, so that nothing is sent to find them out."""
        from torch.distributed import pipelining

        plan, device = self.kit.plan, self.kit.device
        stages, rank = plan.ranks, self.kit.rank
        size, dtype = (plan.sizes.length, plan.sizes.hidden), self.kit.source.dtype
        output = torch.empty(size, dtype=dtype, device="meta").requires_grad_()
        inputs = output if rank else output.detach()
        stage = pipelining.PipelineStage(
            nn.Sequential(*self.modules), rank, stages, device, input_args=(inputs,), output_args=(output,)
        )
        kind = pipelining.ScheduleGPipe if self.name == "gpipe" else pipelining.Schedule1F1B
        self.schedule = kind(stage, plan.trace.batches, loss_fn=self.loss, scale_grads=False)
        self.first, self.last = rank == 0, rank == stages - 1

    def loss(self, y: Tensor, target: Tensor) -> Tensor:
        """The loss of a microbatch."""
        return layers.loss(y, target, self.rows)

    def compute(self) -> None:
        """This rank's part of the schedule."""
        inputs = (self.x,) if self.first else ()
        self.schedule.step(*inputs, target=self.target if self.last else None)


def contender(name: str, kit: Kit) -> Contender:
    """A library by name."""
    kinds = {"ddp": DataParallel, "ddp_by_layer": DataParallel, "fsdp": FullySharded, "hsdp": FullySharded}
    return kinds.get(name, Pipelined)(name, kit)
