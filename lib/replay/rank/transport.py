"""Transports: the operations on flat tensors that the interpreter needs; each returns a handle to wait for.

`local` has all ranks in one process, taking turns: generators yield a handle when they have to wait for it. Tensors are
really copied from rank to rank, so freeing, overwriting and order mean what they mean between processes.

`gloo` and `nccl` are torch.distributed between processes. On nccl, each direction between two ranks that pass messages
has a process group of its own (with one stream for both, ranks that pass to each other would deadlock). Messages are
sent without blocking, as gloo's `dist.send` is a rendezvous. Sums are plain sums: gloo hangs after PREMUL_SUM. Parts of
unequal size are exchanged, as neither backend gathers them. Gloo moves GPU tensors through main memory. No figure
counts the copies made for this.

Groups are in ascending order, as torch before 2.12 knows no other; members and sizes are in the order of the group.
Every member calls the collectives of a group in the same order; messages between two ranks arrive in the order in
which they were sent.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import os
import socket
import struct
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lib.replay.plan import Plan

Group = tuple[int, ...]

# Torch 2.13 has new names for these, and warns about the old ones.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Handle:
    """A communication under way: torch's works or similar ones, none where it is over at once, and a call to make
    `after` them. It keeps its tensors alive until it is done; its results may be used only after `wait`, which returns
    when it is over: on a GPU, when anything launched later will run after it."""

    def __init__(self, *works: Any, keep: object = None, after: Callable[[], object] | None = None) -> None:
        self.works, self.keep, self.after = works, keep, after

    def is_completed(self) -> bool:
        """Tell whether it is over."""
        return all(work.is_completed() for work in self.works)

    def wait(self) -> None:
        """Wait until it is over. A second time does nothing."""
        for work in self.works:
            work.wait()
        if self.after is not None:
            self.after()
        self.works, self.keep, self.after = (), None, None


# -- all ranks in one process -------------------------------------------------------------------------------------


class LocalWork:
    """A local rank's part in a meeting: what it has brought, released when all have come."""

    def __init__(self, brought: Any) -> None:
        self.brought: Any = brought
        self.over = False

    def is_completed(self) -> bool:
        return self.over

    def wait(self) -> None:
        # Ranks that take turns cannot block: they yield the handle to `drive`, which resumes them when it is over.
        assert self.over, "a local rank goes on only when what it waits for is over"


class LocalTransport:
    """One rank's connection to the others in this process. Sums are added up in the order of the group.

    All share `meetings`: those where some ranks have come, but not yet all. A message is a meeting of two.
    `shared_clock`: all ranks read the same clock.
    """

    shared_clock = True

    def __init__(self, rank: int, ranks: int, meetings: dict[Any, dict[int, LocalWork]]) -> None:
        self.rank, self.ranks, self.meetings = rank, ranks, meetings
        self.count: dict[Any, int] = defaultdict(int)

    def _meet(
        self, who: Group, brought: Any, act: Callable[[list[Any]], object], message_end: int | None = None
    ) -> Handle:
        """Bring something to the next meeting of a group, or to an end of a message. The last rank does the work."""
        key, place = (who, message_end is None), who.index(self.rank) if message_end is None else message_end
        at = key, self.count[key, place]
        self.count[key, place] += 1
        meeting = self.meetings.setdefault(at, {})
        meeting[place] = work = LocalWork(brought)
        if len(meeting) == len(who):
            del self.meetings[at]
            act([meeting[place].brought for place in range(len(who))])
            for one in meeting.values():
                one.brought, one.over = None, True
        return Handle(work)

    def all_reduce(self, group: Group, buffer: Tensor) -> Handle:
        """Sum `buffer` over the group, in place."""

        def act(buffers: list[Tensor]) -> None:
            total = reduce(torch.add, buffers)
            for one in buffers:
                one.copy_(total)

        return self._meet(group, buffer, act)

    def all_gather(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle:
        """Concatenate the tensors of all members, of these sizes, into `out`."""
        return self.all_to_all(group, out, [inp] * len(group), sizes)

    def reduce_scatter(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle:
        """Sum `inp` over the group; member i gets the i-th part, of `sizes[i]` numbers."""

        def act(brought: list[tuple[Tensor, Tensor]]) -> None:
            total = reduce(torch.add, [one for _, one in brought])
            for (target, _), part in zip(brought, total.split(list(sizes)), strict=True):
                target.copy_(part)

        return self._meet(group, (out, inp), act)

    def all_to_all(self, group: Group, out: Tensor, parts: Sequence[Tensor], out_sizes: Sequence[int]) -> Handle:
        """Send part i to member i, and concatenate the members' parts, of `out_sizes`, into `out`."""

        def act(brought: list[tuple[Tensor, Sequence[Tensor]]]) -> None:
            for place, (target, _) in enumerate(brought):
                target.copy_(torch.cat([parts[place] for _, parts in brought]))

        return self._meet(group, (out, parts), act)

    def broadcast(self, group: Group, buffer: Tensor, root: int) -> Handle:
        """Overwrite `buffer` with that of member number `root`."""
        return self._meet(group, buffer, lambda buffers: [one.copy_(buffers[root]) for one in buffers])

    def send(self, target: int, buffer: Tensor) -> Handle:
        """Send a tensor, which must not change until the handle is done."""
        return self._meet((self.rank, target), buffer, _hand_over, 0)

    def receive(self, source: int, buffer: Tensor) -> Handle:
        """Receive the next tensor of a rank into `buffer`."""
        return self._meet((source, self.rank), buffer, _hand_over, 1)

    def barrier(self) -> Handle:
        """Return a handle that is over when every rank has reached the barrier."""
        return self._meet(tuple(range(self.ranks)), None, lambda _: None)

    def bytes_sent(self) -> int | None:
        """Return the bytes that have really left this process so far; None where the system does not count them."""
        return None  # nothing leaves the process


def _hand_over(ends: list[Tensor]) -> None:
    sent, buffer = ends
    buffer.copy_(sent)


def drive(jobs: Sequence[Iterator[Handle]]) -> None:
    """Run all ranks to their ends, each until it has to wait for another."""
    waiting: dict[int, Handle] = dict.fromkeys(range(len(jobs)), Handle())
    while waiting:
        ready = [rank for rank, handle in waiting.items() if handle.is_completed()]
        if not ready:
            raise AssertionError(f"ranks {sorted(waiting)} wait for each other, though the Trace does not")
        for rank in ready:
            while waiting[rank].is_completed():
                following = next(jobs[rank], None)
                if following is None:
                    del waiting[rank]
                    break
                waiting[rank] = following


# -- processes ----------------------------------------------------------------------------------------------------


class ProcessTransport:
    """The same over torch.distributed, already initialised: all processes of the replay have met in `store`."""

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
        groups = {tuple(sorted(one.members)) for each in plan.rank_plans for one in each.collectives.values()}
        pairs = {(one.source, one.target) for each in plan.rank_plans for one in each.messages.values() if one.values}
        some = sorted(group for group in groups if 1 < len(group) < plan.ranks)  # all ranks make them in one order
        self.groups: dict[Group, Any] = {group: dist.new_group(list(group), timeout=timeout) for group in some}
        self.groups[tuple(range(plan.ranks))] = None  # torch's own, of all
        self.channels = {pair: dist.new_group(list(pair), timeout=timeout) for pair in sorted(pairs) if nccl}
        self.token = torch.zeros(1, device=device if nccl else "cpu")

    def _at_hand(self, tensor: Tensor) -> Tensor:
        """Return the tensor itself, or a copy in main memory where the backend needs one."""
        return tensor.to("cpu", copy=True) if self.staged else tensor

    def _start(self, act: Callable[..., Any], group: Group, out: Tensor, *inputs: Tensor, **more: Any) -> Handle:
        """Start a collective of torch that overwrites a tensor."""
        room, *others = map(self._at_hand, (out, *inputs))
        work = act(room, *others, group=self.groups[group], async_op=True, **more)
        return Handle(work, keep=(room, others), after=(lambda: out.copy_(room)) if self.staged else None)

    def all_reduce(self, group: Group, buffer: Tensor) -> Handle:
        return self._start(dist.all_reduce, group, buffer)

    def all_gather(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle:
        if min(sizes) != max(sizes):
            return self.all_to_all(group, out, [inp] * len(sizes), sizes)
        return self._start(_all_gather, group, out, inp)

    def reduce_scatter(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle:
        if min(sizes) != max(sizes):
            return self._start(_reduce_scatter_unevenly, group, out, inp, sizes=sizes)
        return self._start(_reduce_scatter, group, out, inp)

    def all_to_all(self, group: Group, out: Tensor, parts: Sequence[Tensor], out_sizes: Sequence[int]) -> Handle:
        sizes = {"output_split_sizes": [*out_sizes], "input_split_sizes": [part.numel() for part in parts]}
        return self._start(dist.all_to_all_single, group, out, torch.cat([*parts]), **sizes)

    def broadcast(self, group: Group, buffer: Tensor, root: int) -> Handle:
        return self._start(dist.broadcast, group, buffer, group_src=root)

    def _channel(self, source: int, target: int, other: int) -> tuple[Any, int]:
        """Return the group that carries messages of this pair, and the other rank's place in it."""
        if not self.channels:
            return None, other
        return self.channels[source, target], int(other == max(source, target))

    def send(self, target: int, buffer: Tensor) -> Handle:
        room, (group, place) = self._at_hand(buffer), self._channel(self.rank, target, target)
        return Handle(dist.isend(room, group=group, group_dst=place), keep=room)

    def receive(self, source: int, buffer: Tensor) -> Handle:
        room, (group, place) = self._at_hand(buffer), self._channel(source, self.rank, source)
        work = dist.irecv(room, group=group, group_src=place)
        return Handle(work, keep=room, after=(lambda: buffer.copy_(room)) if self.staged else None)

    def barrier(self) -> Handle:
        after = torch.cuda.synchronize if self.token.is_cuda else None
        return Handle(dist.all_reduce(self.token, async_op=True), after=after)

    def bytes_sent(self) -> int | None:
        return self.sockets.sent()


def _reduce_scatter_unevenly(out: Tensor, inp: Tensor, sizes: Sequence[int], **more: Any) -> Any:
    return dist.reduce_scatter(out, [*inp.split([*sizes])], **more)


Transport = LocalTransport | ProcessTransport


_BYTES_SENT = 200
"""Where tcpi_bytes_sent lies in struct tcp_info (Linux 4.19 and later)."""


class SocketCounters:
    """A count of bytes sent over connections opened after it was made: those of the ranks, not of a notebook."""

    def __init__(self) -> None:
        self.others = {*_sent()}

    def sent(self) -> int | None:
        """Return the bytes sent so far over the connections that are open now; None where the system does not tell."""
        if sys.platform != "linux":
            return None
        return sum(sent for name, sent in _sent().items() if name not in self.others)


def _sent() -> dict[str, int]:
    """Return the bytes sent over each open connection, by the system's name for it."""
    found: dict[str, int] = {}
    for path in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):  # closed in the meantime, or no connection over TCP
            if (name := os.readlink(path)).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(path.name))) as one:
                    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                if len(info) >= _BYTES_SENT + 8:
                    (found[name],) = struct.unpack_from("Q", info, _BYTES_SENT)
    return found
