"""What the interpreter asks of a transport: operations on flat tensors, each of which gives a handle to wait for.

The transport `local` has all ranks in one process, taking turns: for tests and notebooks, on any machine. Ranks are
generators that yield a handle when they have to wait for it; `drive` goes on with whoever can go on. Tensors are copied
from rank to rank for real, so freeing, overwriting and order mean what they mean between processes. In `distributed`
are gloo and nccl; one conformance suite runs over all of them.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, Protocol

import torch
from torch import Tensor

__all__ = ["Handle", "Handles", "LocalTransport", "LocalWorld", "Transport", "drive"]

Group = tuple[int, ...]


class Handle(Protocol):
    """A communication under way. It keeps its tensors alive until it is done."""

    def done(self) -> bool:
        """Tell whether it is over; what it brings may be used only after `wait`."""
        ...

    def wait(self) -> None:
        """Return when it is over. On a GPU: when whatever is launched next will find it over."""
        ...


class Transport(Protocol):
    """One rank's way to the others. Members of a group, and sizes, are in the order of the group.

    Every member calls the collectives of a group in the same order; messages between two ranks arrive in the order in
    which they were sent. `shared_clock`: all ranks read the same clock.
    """

    shared_clock: bool

    def all_reduce(self, group: Group, buffer: Tensor) -> Handle:
        """Sum `buffer` over the group, in place."""
        ...

    def all_gather(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle:
        """Put the `inp` of all members, of `sizes` numbers each, one after the other into `out`."""
        ...

    def reduce_scatter(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle:
        """Sum `inp` over the group, and give member i the i-th part of it, of `sizes[i]` numbers."""
        ...

    def all_to_all(self, group: Group, out: Tensor, parts: Sequence[Tensor], out_sizes: Sequence[int]) -> Handle:
        """Send part i to member i, and put what members send, of `out_sizes`, one after the other into `out`."""
        ...

    def broadcast(self, group: Group, buffer: Tensor, root: int) -> Handle:
        """Overwrite `buffer` with that of member number `root`."""
        ...

    def send(self, target: int, buffer: Tensor) -> Handle:
        """Send a tensor. It must not change until the handle is done."""
        ...

    def receive(self, source: int, buffer: Tensor) -> Handle:
        """Receive the next tensor of a rank into `buffer`."""
        ...

    def barrier(self) -> Handle:
        """Give a handle that is over when every rank has come here."""
        ...

    def bytes_sent(self) -> int | None:
        """Return the bytes that have really left this process so far, where the system counts them."""
        ...


class Handles:
    """Some handles as one; without any it is over at once."""

    def __init__(self, *handles: Handle) -> None:
        self.handles = handles

    def done(self) -> bool:
        return all(handle.done() for handle in self.handles)

    def wait(self) -> None:
        for handle in self.handles:
            handle.wait()


class LocalHandle:
    """A communication between local ranks, done when the last one that it needs has come."""

    def __init__(self, *keep: Any) -> None:
        self.keep = keep
        self.over = False

    def done(self) -> bool:
        return self.over

    def wait(self) -> None:
        # Ranks that take turns cannot block: they yield the handle to `drive`, which comes back when it is over.
        assert self.over, "a local rank goes on only when what it waits for is over"

    def finish(self) -> None:
        """End it: its tensors are no longer needed."""
        self.over = True
        self.keep = ()


class LocalWorld:
    """The meetings and messages of local ranks that are under way."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.open: dict[tuple[Group, int], dict[int, tuple[Any, LocalHandle]]] = defaultdict(dict)
        self.mail: dict[tuple[int, int], deque[tuple[Tensor, LocalHandle]]] = defaultdict(deque)
        self.wanted: dict[tuple[int, int], deque[tuple[Tensor, LocalHandle]]] = defaultdict(deque)

    def match(self, source: int, target: int) -> None:
        """Hand over messages that are both sent and asked for."""
        sent, wanted = self.mail[source, target], self.wanted[source, target]
        while sent and wanted:
            (tensor, out), (buffer, coming) = sent.popleft(), wanted.popleft()
            buffer.copy_(tensor)
            out.finish()
            coming.finish()


class LocalTransport:
    """One rank's way to the others of a LocalWorld. Sums are added up in the order of the group."""

    shared_clock = True

    def __init__(self, rank: int, world: LocalWorld) -> None:
        self.rank = rank
        self.world = world
        self.count: dict[Group, int] = defaultdict(int)

    def _meet(self, group: Group, brought: Any, act: Callable[[list[Any]], None]) -> Handle:
        """Bring something to the next meeting of a group; the last one who comes does what is to be done."""
        number = self.count[group]
        self.count[group] = number + 1
        meeting = self.world.open[group, number]
        handle = LocalHandle(brought)
        meeting[self.rank] = (brought, handle)
        if len(meeting) == len(group):
            del self.world.open[group, number]
            act([meeting[rank][0] for rank in group])
            for _, other in meeting.values():
                other.finish()
        return handle

    def all_reduce(self, group: Group, buffer: Tensor) -> Handle:
        def act(buffers: list[Tensor]) -> None:
            total = reduce(torch.add, buffers)
            for one in buffers:
                one.copy_(total)

        return self._meet(group, buffer, act)

    def all_gather(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle:
        def act(brought: list[tuple[Tensor, Tensor]]) -> None:
            whole = torch.cat([part for _, part in brought])
            for target, _ in brought:
                target.copy_(whole)

        return self._meet(group, (out, inp), act)

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
        def act(buffers: list[Tensor]) -> None:
            for one in buffers:
                one.copy_(buffers[root])

        return self._meet(group, buffer, act)

    def send(self, target: int, buffer: Tensor) -> Handle:
        handle = LocalHandle()
        self.world.mail[self.rank, target].append((buffer, handle))
        self.world.match(self.rank, target)
        return handle

    def receive(self, source: int, buffer: Tensor) -> Handle:
        handle = LocalHandle()
        self.world.wanted[source, self.rank].append((buffer, handle))
        self.world.match(source, self.rank)
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
            handle = waiting.pop(rank)
            while handle.done():
                following = next(jobs[rank], None)
                if following is None:
                    break
                handle = following
            else:
                waiting[rank] = handle
