"""What the interpreter asks of a transport: operations on flat tensors, each of which gives a handle to wait for.

`local` has all ranks in one process, taking turns: generators yield a handle when they have to wait for it. Tensors are
copied from rank to rank for real, so freeing, overwriting and order mean what they mean between processes.

`gloo` and `nccl` are torch.distributed between processes. Groups of the same ranks are one process group, as in the
simulator. Its order is ascending, as torch before 2.12 knows no other; where a group is named in another order, parts
are put in order here. On nccl, each direction between two ranks that pass messages has a process group as well (one
stream for both would deadlock when two ranks pass to each other). Messages are sent without blocking, as `dist.send` of
gloo is a rendezvous. Sums are plain sums: gloo hangs after PREMUL_SUM. Parts of unequal size are padded, as neither
backend gathers them. Gloo moves what is on a GPU by way of main memory. What is copied for all that is in no figure.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import os
import socket
import struct
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from lib.replay.plan import Plan

Group = tuple[int, ...]

# Torch 2.13 calls these by new names, and warns of the old ones.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Handle(Protocol):
    """A communication under way. It keeps its tensors alive until it is done; what it brings may be used only after
    `wait`, which returns when it is over: on a GPU when whatever is launched next will find it over."""

    def done(self) -> bool: ...
    def wait(self) -> None: ...


class Transport(Protocol):
    """One rank's way to the others. Members of a group, and sizes, are in the order of the group.

    Every member calls the collectives of a group in the same order; messages between two ranks arrive in the order in
    which they were sent. `shared_clock`: all ranks read the same clock.
    """

    shared_clock: bool

    # Sum `buffer` over the group, in place.
    def all_reduce(self, group: Group, buffer: Tensor) -> Handle: ...
    # Put the `inp` of all members, of `sizes` numbers each, one after the other into `out`.
    def all_gather(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle: ...
    # Sum `inp` over the group, and give member i the i-th part of it, of `sizes[i]` numbers.
    def reduce_scatter(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle: ...
    # Send part i to member i, and put what members send, of `out_sizes`, one after the other into `out`.
    def all_to_all(self, group: Group, out: Tensor, parts: Sequence[Tensor], out_sizes: Sequence[int]) -> Handle: ...
    # Overwrite `buffer` with that of member number `root`.
    def broadcast(self, group: Group, buffer: Tensor, root: int) -> Handle: ...
    # Send a tensor, which must not change until the handle is done; receive the next one of a rank into `buffer`.
    def send(self, target: int, buffer: Tensor) -> Handle: ...
    def receive(self, source: int, buffer: Tensor) -> Handle: ...
    # Give a handle that is over when every rank has come here.
    def barrier(self) -> Handle: ...
    # Return the bytes that have really left this process so far, where the system counts them.
    def bytes_sent(self) -> int | None: ...


class Handles:
    """Some handles as one; without any it is over at once."""

    def __init__(self, *handles: Handle) -> None:
        self.handles = handles

    def done(self) -> bool:
        return all(handle.done() for handle in self.handles)

    def wait(self) -> None:
        for handle in self.handles:
            handle.wait()


# -- all ranks in one process -------------------------------------------------------------------------------------


class LocalHandle:
    """A communication between local ranks, done when the last one that it needs has come: then `keep` is let go."""

    def __init__(self, keep: Any) -> None:
        self.keep: Any = keep
        self.over = False

    def done(self) -> bool:
        return self.over

    def wait(self) -> None:
        # Ranks that take turns cannot block: they yield the handle to `drive`, which comes back when it is over.
        assert self.over, "a local rank goes on only when what it waits for is over"

    def finish(self) -> None:
        """End it: its tensors are no longer needed."""
        self.keep, self.over = None, True


class LocalWorld:
    """The meetings and messages of local ranks that are under way: what each has brought, with its handle."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.meetings: dict[tuple[Group, int], dict[int, LocalHandle]] = defaultdict(dict)
        self.sent: dict[tuple[int, int], deque[LocalHandle]] = defaultdict(deque)
        self.wanted: dict[tuple[int, int], deque[LocalHandle]] = defaultdict(deque)

    def deliver(self, source: int, target: int) -> None:
        """Hand over what is both sent and asked for."""
        sent, wanted = self.sent[source, target], self.wanted[source, target]
        while sent and wanted:
            out, coming = sent.popleft(), wanted.popleft()
            coming.keep.copy_(out.keep)
            out.finish()
            coming.finish()


class LocalTransport:
    """One rank's way to the others of a LocalWorld. Sums are added up in the order of the group."""

    shared_clock = True

    def __init__(self, rank: int, world: LocalWorld) -> None:
        self.rank, self.world = rank, world
        self.count: dict[Group, int] = defaultdict(int)

    def _meet(self, group: Group, brought: Any, act: Callable[[list[Any]], object]) -> Handle:
        """Bring something to the next meeting of a group; the last one who comes does what is to be done."""
        at = group, self.count[group]
        self.count[group] += 1
        meeting, handle = self.world.meetings[at], LocalHandle(brought)
        meeting[self.rank] = handle
        if len(meeting) == len(group):
            del self.world.meetings[at]
            act([meeting[rank].keep for rank in group])
            for other in meeting.values():
                other.finish()
        return handle

    def all_reduce(self, group: Group, buffer: Tensor) -> Handle:
        def act(buffers: list[Tensor]) -> None:
            total = reduce(torch.add, buffers)
            for one in buffers:
                one.copy_(total)

        return self._meet(group, buffer, act)

    def all_gather(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle:
        return self.all_to_all(group, out, [inp] * len(group), sizes)

    def reduce_scatter(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle:
        def act(brought: list[tuple[Tensor, Tensor]]) -> None:
            total = reduce(torch.add, [one for _, one in brought])
            for (target, _), part in zip(brought, total.split(list(sizes)), strict=True):
                target.copy_(part)

        return self._meet(group, (out, inp), act)

    def all_to_all(self, group: Group, out: Tensor, parts: Sequence[Tensor], out_sizes: Sequence[int]) -> Handle:
        def act(brought: list[tuple[Tensor, Sequence[Tensor]]]) -> None:
            for place, (target, _) in enumerate(brought):
                target.copy_(torch.cat([parts[place] for _, parts in brought]))

        return self._meet(group, (out, parts), act)

    def broadcast(self, group: Group, buffer: Tensor, root: int) -> Handle:
        return self._meet(group, buffer, lambda buffers: [one.copy_(buffers[root]) for one in buffers])

    def send(self, target: int, buffer: Tensor) -> Handle:
        self.world.sent[self.rank, target].append(handle := LocalHandle(buffer))
        self.world.deliver(self.rank, target)
        return handle

    def receive(self, source: int, buffer: Tensor) -> Handle:
        self.world.wanted[source, self.rank].append(handle := LocalHandle(buffer))
        self.world.deliver(source, self.rank)
        return handle

    def barrier(self) -> Handle:
        return self._meet(tuple(range(self.world.ranks)), None, lambda _: None)

    def bytes_sent(self) -> None:
        return None  # nothing leaves the process


def drive(jobs: Sequence[Iterator[Handle]]) -> None:
    """Run all ranks to their ends, each until it has to wait for another."""
    waiting: dict[int, Handle] = dict.fromkeys(range(len(jobs)), Handles())
    while waiting:
        ready = [rank for rank, handle in waiting.items() if handle.done()]
        if not ready:
            raise AssertionError(f"ranks {sorted(waiting)} wait for each other, though the Trace does not")
        for rank in ready:
            while waiting[rank].done():
                following = next(jobs[rank], None)
                if following is None:
                    del waiting[rank]
                    break
                waiting[rank] = following


# -- processes ----------------------------------------------------------------------------------------------------


class WorkHandle:
    """A Work of torch, and what is to be done once it is over. Waiting a second time does nothing."""

    def __init__(self, work: dist.Work | None, keep: object, after: Callable[[], object] | None = None) -> None:
        self.work, self.keep, self.after = work, keep, after

    def done(self) -> bool:
        return self.work is None or self.work.is_completed()

    def wait(self) -> None:
        if self.work is not None:
            self.work.wait()
        if self.after is not None:
            self.after()
        self.work = self.keep = self.after = None


class ProcessTransport:
    """One rank's way to the others. torch.distributed is initialised already, with all processes of the replay, which
    have met in `store`.

    Of a group that is not named in ascending order, `orders` has the places of its members in that order.
    """

    def __init__(
        self,
        rank: int,
        plan: Plan,
        device: torch.device,
        timeout: timedelta,
        shared_clock: bool,
        sockets: SocketCounters,
        store: Any,
    ) -> None:
        self.rank, self.device, self.shared_clock = rank, device, shared_clock
        self.sockets, self.store = sockets, store
        nccl = dist.get_backend() == "nccl"
        self.staged = device.type == "cuda" and not nccl
        self.alone = plan.ranks == 1
        self.groups: dict[Group, Any] = {tuple(range(plan.ranks)): None}  # torch's own, of all
        self.orders: dict[Group, list[int]] = {}
        for group in plan.groups:
            own = tuple(sorted(group))
            if own not in self.groups:
                self.groups[own] = dist.new_group(list(own), timeout=timeout)
            if own != group:
                self.groups[group] = self.groups[own]
                self.orders[group] = [group.index(rank) for rank in own]
        self.channels = {pair: dist.new_group(list(pair), timeout=timeout) for pair in plan.pairs if nccl}
        self.token = torch.zeros(1, device=device if nccl else "cpu")

    def _stage(self, tensor: Tensor) -> Tensor:
        """Return the tensor itself, or its copy in main memory."""
        return tensor.to("cpu", copy=True) if self.staged else tensor

    def _room(self, tensor: Tensor) -> Tensor:
        """Return the tensor itself, or room in main memory for what it is to hold."""
        return torch.empty(tensor.shape, dtype=tensor.dtype) if self.staged else tensor

    def _handle(self, work: dist.Work | None, keep: Sequence[Tensor], room: Tensor, out: Tensor) -> Handle:
        return WorkHandle(work, keep, None if room is out else lambda: out.copy_(room))

    def all_reduce(self, group: Group, buffer: Tensor) -> Handle:
        room = self._stage(buffer)
        work = dist.all_reduce(room, group=self.groups[group], async_op=True)
        return self._handle(work, [room], room, buffer)

    def all_gather(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle:
        inp, largest, order = self._stage(inp), max(sizes), self.orders.get(group)
        if min(sizes) == largest and order is None:
            room = self._room(out)
            return self._handle(_all_gather(room, inp, self.groups[group], True), [room, inp], room, out)
        padded = inp.new_empty(largest)
        padded[: inp.numel()] = inp
        room = inp.new_empty(largest * len(sizes))
        work, pieces = _all_gather(room, padded, self.groups[group], True), room.split(largest)
        return WorkHandle(work, [room, padded], lambda: _put(out, sizes, order or range(len(sizes)), pieces))

    def reduce_scatter(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle:
        inp, room, order = self._stage(inp), self._room(out), self.orders.get(group)
        parts = inp.split(list(sizes))
        if order is not None:
            parts = [parts[place] for place in order]
            inp = torch.cat(parts)
        if min(sizes) == max(sizes):
            work = _reduce_scatter(room, inp, group=self.groups[group], async_op=True)
        else:
            work = dist.reduce_scatter(room, list(parts), group=self.groups[group], async_op=True)
        return self._handle(work, [room, inp], room, out)

    def all_to_all(self, group: Group, out: Tensor, parts: Sequence[Tensor], out_sizes: Sequence[int]) -> Handle:
        order = self.orders.get(group) or range(len(parts))
        inp = self._stage(torch.cat([parts[place] for place in order]))
        room = self._room(out) if group not in self.orders else inp.new_empty(out.numel())
        in_sizes, sizes = [parts[place].numel() for place in order], [out_sizes[place] for place in order]
        work = dist.all_to_all_single(room, inp, sizes, in_sizes, group=self.groups[group], async_op=True)
        after = None if room is out else lambda: _put(out, out_sizes, order, room.split(sizes))
        return WorkHandle(work, [room, inp], after)

    def broadcast(self, group: Group, buffer: Tensor, root: int) -> Handle:
        room, order = self._stage(buffer), self.orders.get(group)
        first = root if order is None else order.index(root)
        work = dist.broadcast(room, group=self.groups[group], group_src=first, async_op=True)
        return self._handle(work, [room], room, buffer)

    def _channel(self, source: int, target: int, other: int) -> tuple[Any, int]:
        """Return the group in which messages of this pair go, and the other's place there."""
        if not self.channels:
            return None, other
        return self.channels[source, target], int(other == max(source, target))

    def send(self, target: int, buffer: Tensor) -> Handle:
        room, (group, place) = self._stage(buffer), self._channel(self.rank, target, target)
        return WorkHandle(dist.isend(room, group=group, group_dst=place), [room])

    def receive(self, source: int, buffer: Tensor) -> Handle:
        room, (group, place) = self._room(buffer), self._channel(source, self.rank, source)
        return self._handle(dist.irecv(room, group=group, group_src=place), [room], room, buffer)

    def barrier(self) -> Handle:
        if self.alone:
            return Handles()
        after = torch.cuda.synchronize if self.token.is_cuda else None
        return WorkHandle(dist.all_reduce(self.token, async_op=True), self.token, after)

    def bytes_sent(self) -> int | None:
        return self.sockets.sent()


def _put(out: Tensor, sizes: Sequence[int], order: Sequence[int], parts: Sequence[Tensor]) -> None:
    """Put parts, which may be padded, to the places of their members in a tensor."""
    targets = out.split(list(sizes))
    for place, part in zip(order, parts, strict=True):
        targets[place].copy_(part[: sizes[place]])


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
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as one:  # closed in the meantime, or no connection
        if one.type == socket.SOCK_STREAM and one.family in (socket.AF_INET, socket.AF_INET6):
            info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            if len(info) >= _BYTES_SENT + 8:
                return int(struct.unpack_from("Q", info, _BYTES_SENT)[0])
    return 0
