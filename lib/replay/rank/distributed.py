"""The transports `gloo` and `nccl`: torch.distributed between processes.

Groups of the same ranks are one process group, as in the simulator: one stream, one collective after the other. Its
order is ascending, as torch before 2.12 knows no other; where a group is named in another order, parts are put in order
here. On nccl, each direction between two ranks that pass messages has a process group as well (one stream for both
directions would deadlock when two ranks pass to each other). All messages are sent without blocking, as `dist.send` of
gloo is a rendezvous. Ranks that share a process have groups that torch.distributed knows nothing of. Sums are plain
sums: gloo hangs after PREMUL_SUM. Parts of unequal size are padded, as neither backend gathers them. Gloo moves what is
on a GPU by way of main memory. What a transport copies for that is in no figure.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore

from lib.replay.plan.plan import Plan
from lib.replay.rank.transport import Handle, Handles

__all__ = ["ProcessTransport", "SocketCounters", "ThreadGroups", "TorchGroups", "exchange"]

Group = tuple[int, ...]

# Torch 2.13 calls these by new names, and warns of the old ones.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def exchange(said: Any, device: torch.device) -> list[Any]:
    """Give every process what all say, as plain data: it goes round as JSON in tensors, never pickled."""
    mine = torch.frombuffer(bytearray(json.dumps(said).encode()), dtype=torch.uint8).to(device)
    world = dist.get_world_size()
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([mine.numel()], device=device))
    lengths = [int(size) for size in sizes]
    padded = torch.zeros(max(lengths), dtype=torch.uint8, device=device)
    padded[: mine.numel()] = mine
    every = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(every, padded)
    return [json.loads(bytes(one[:length].tolist())) for one, length in zip(every, lengths, strict=True)]


class WorkHandle:
    """A Work of torch, and what is to be done once it is over. Waiting a second time does nothing."""

    def __init__(self, work: dist.Work | None, keep: object, after: Callable[[], object] | None = None) -> None:
        self.work = work
        self.keep = keep
        self.after = after

    def done(self) -> bool:
        return self.work is None or self.work.is_completed()

    def wait(self) -> None:
        if self.work is not None:
            self.work.wait()
        if self.after is not None:
            self.after()
        self.work = self.keep = self.after = None


class TorchGroups:
    """Process groups of torch.distributed, where each rank has a process. Everybody makes all, in the same order."""

    world = None
    """Torch's own group of all."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timedelta(seconds=timeout)

    def new(self, ranks: Group) -> Any:
        """Make a group, whose members stand in ascending order."""
        return dist.new_group(list(ranks), timeout=self.timeout)


class ThreadGroups:
    """Process groups (of gloo) of one rank that shares its process with others, each of which is a thread.

    Members meet in the store where the processes have met, each with a connection of its own: who waits there would
    keep the others of its process from saying what it waits for.
    """

    def __init__(self, rank: int, ranks: int, store: Any, timeout: float) -> None:
        self.rank = rank
        self.timeout = timedelta(seconds=timeout)
        self.store = store.clone()
        self.world = self.new(tuple(range(ranks)))

    def new(self, ranks: Group) -> Any:
        """A group in this order, if the rank is a member."""
        if self.rank not in ranks:
            return None
        store = PrefixStore(f"ranks/{','.join(map(str, ranks))}", self.store)
        place = ranks.index(self.rank)
        made = dist.ProcessGroup(store, place, len(ranks))
        gloo = dist.ProcessGroupGloo(store, place, len(ranks), timeout=self.timeout)
        made._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
        return made


class ProcessTransport:
    """One rank's way to the others. torch.distributed is initialised already, with all processes of the replay."""

    def __init__(
        self,
        rank: int,
        plan: Plan,
        groups: TorchGroups | ThreadGroups,
        device: torch.device,
        shared_clock: bool,
        sockets: SocketCounters,
    ) -> None:
        self.rank = rank
        self.device = device
        self.shared_clock = shared_clock
        self.sockets = sockets
        nccl = dist.get_backend() == "nccl"
        self.staged = device.type == "cuda" and not nccl
        self.world = groups.world
        everybody = tuple(range(plan.ranks))
        self.alone = len(everybody) == 1
        self.groups: dict[Group, Any] = {everybody: groups.world}
        self.orders: dict[Group, list[int]] = {}
        for group in plan.groups:
            own = tuple(sorted(group))
            if own not in self.groups:
                self.groups[own] = groups.new(own)
            if own != group:
                self.groups[group] = self.groups[own]
                self.orders[group] = [group.index(rank) for rank in own]
        self.channels = {pair: groups.new(pair) for pair in plan.pairs} if nccl else {}
        self.token = torch.zeros(1, device=device if nccl else "cpu")

    def _stage(self, tensor: Tensor) -> Tensor:
        """The tensor itself, or its copy in main memory."""
        return tensor.to("cpu", copy=True) if self.staged else tensor

    def _room(self, tensor: Tensor) -> Tensor:
        """The tensor itself, or room in main memory for what it is to hold."""
        return torch.empty(tensor.shape, dtype=tensor.dtype) if self.staged else tensor

    def _handle(self, work: dist.Work | None, keep: Sequence[Tensor], room: Tensor, out: Tensor) -> Handle:
        return WorkHandle(work, keep, None if room is out else lambda: out.copy_(room))

    def all_reduce(self, group: Group, buffer: Tensor) -> Handle:
        room = self._stage(buffer)
        work = dist.all_reduce(room, group=self.groups[group], async_op=True)
        return self._handle(work, [room], room, buffer)

    def all_gather(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle:
        inp = self._stage(inp)
        largest, order = max(sizes), self.orders.get(group)
        if min(sizes) == largest and order is None:
            room = self._room(out)
            work = _all_gather(room, inp, group=self.groups[group], async_op=True)
            return self._handle(work, [room, inp], room, out)
        padded = inp.new_empty(largest)
        padded[: inp.numel()] = inp
        room = inp.new_empty(largest * len(sizes))
        work = _all_gather(room, padded, group=self.groups[group], async_op=True)

        def unpad() -> None:
            targets = out.split(list(sizes))
            for place, part in zip(order or range(len(sizes)), room.split(largest), strict=True):
                targets[place].copy_(part[: sizes[place]])

        return WorkHandle(work, [room, padded], unpad)

    def reduce_scatter(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle:
        inp, room = self._stage(inp), self._room(out)
        order = self.orders.get(group)
        if order is not None:
            parts = inp.split(list(sizes))
            inp, sizes = torch.cat([parts[place] for place in order]), [sizes[place] for place in order]
        if min(sizes) == max(sizes):
            work = _reduce_scatter(room, inp, group=self.groups[group], async_op=True)
        else:
            work = dist.reduce_scatter(room, list(inp.split(list(sizes))), group=self.groups[group], async_op=True)
        return self._handle(work, [room, inp], room, out)

    def all_to_all(self, group: Group, out: Tensor, parts: Sequence[Tensor], out_sizes: Sequence[int]) -> Handle:
        order = self.orders.get(group) or range(len(parts))
        inp = self._stage(torch.cat([parts[place] for place in order]))
        room = self._room(out) if group not in self.orders else inp.new_empty(out.numel())
        in_sizes, sizes = [parts[place].numel() for place in order], [out_sizes[place] for place in order]
        work = dist.all_to_all_single(room, inp, sizes, in_sizes, group=self.groups[group], async_op=True)

        def ordered() -> None:
            targets = out.split(list(out_sizes))
            for place, part in zip(order, room.split(sizes), strict=True):
                targets[place].copy_(part)

        return WorkHandle(work, [room, inp], None if room is out else ordered)

    def broadcast(self, group: Group, buffer: Tensor, root: int) -> Handle:
        room = self._stage(buffer)
        order = self.orders.get(group)
        first = root if order is None else order.index(root)
        work = dist.broadcast(room, group=self.groups[group], group_src=first, async_op=True)
        return self._handle(work, [room], room, buffer)

    def _channel(self, source: int, target: int, other: int) -> tuple[Any, int]:
        """The group in which messages of this pair go, and the other's place there."""
        if not self.channels:
            return self.world, other
        return self.channels[source, target], int(other == max(source, target))

    def send(self, target: int, buffer: Tensor) -> Handle:
        room = self._stage(buffer)
        group, place = self._channel(self.rank, target, target)
        work = dist.isend(room, group=group, group_dst=place)
        return WorkHandle(work, [room])

    def receive(self, source: int, buffer: Tensor) -> Handle:
        room = self._room(buffer)
        group, place = self._channel(source, self.rank, source)
        work = dist.irecv(room, group=group, group_src=place)
        return self._handle(work, [room], room, buffer)

    def barrier(self) -> Handle:
        if self.alone:
            return Handles()
        handle = WorkHandle(dist.all_reduce(self.token, group=self.world, async_op=True), self.token)
        if self.token.is_cuda:
            handle.after = torch.cuda.synchronize
        return handle

    def bytes_sent(self) -> int | None:
        return self.sockets.sent()


_BYTES_SENT = 200
"""Where tcpi_bytes_sent lies in struct tcp_info (Linux 4.19 and later)."""


class SocketCounters:
    """The bytes sent over connections that were opened after it was made: those of the ranks, not of a notebook."""

    def __init__(self) -> None:
        self.others = {*_sockets()}

    def sent(self) -> int | None:
        """Return the bytes sent so far over the connections that are open now; None where the system does not tell."""
        if sys.platform != "linux":
            return None
        return sum(_sent(number) for name, number in _sockets().items() if name not in self.others)


def _sockets() -> dict[str, int]:
    """Return the numbers of the open sockets, by the system's name for each."""
    found: dict[str, int] = {}
    for path in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):  # the listing's own is gone by now
            if (name := os.readlink(path)).startswith("socket:"):
                found[name] = int(path.name)
    return found


def _sent(number: int) -> int:
    try:
        with socket.socket(fileno=os.dup(number)) as one:
            if one.type != socket.SOCK_STREAM or one.family not in (socket.AF_INET, socket.AF_INET6):
                return 0
            info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:  # closed in the meantime, or no connection
        return 0
    if len(info) < _BYTES_SENT + 8:
        return 0
    return int(struct.unpack_from("Q", info, _BYTES_SENT)[0])
