"""What the interpreter asks of a transport: eight operations on flat tensors, each of which gives a handle.

A handle is one thing that can be waited for. `local` has all ranks in one process, `processes` has torch.distributed
(gloo or nccl); one conformance suite runs over all of them.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

__all__ = ["Done", "Handle", "Transport"]

Group = tuple[int, ...]


class Handle(Protocol):
    """A communication under way. It keeps its tensors alive until it is done."""

    def done(self) -> bool:
        """Whether it is over; what it brings may be used only after `wait`."""
        ...

    def wait(self) -> None:
        """Returns when it is over. On a GPU: when whatever is launched next will find it over."""
        ...


class Transport(Protocol):
    """One rank's way to the others. Members of a group, and sizes, are in the order of the group.

    Every member calls the collectives of a group in the same order; messages between two ranks arrive in the order in
    which they were sent. `shared_clock`: all ranks read the same clock.
    """

    shared_clock: bool

    def all_reduce(self, group: Group, buffer: Tensor) -> Handle:
        """Sums `buffer` over the group, in place."""
        ...

    def all_gather(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle:
        """Puts the `inp` of all members, of `sizes` numbers each, one after the other into `out`."""
        ...

    def reduce_scatter(self, group: Group, out: Tensor, inp: Tensor, sizes: Sequence[int]) -> Handle:
        """Sums `inp` over the group, and gives member i the i-th part of it, of `sizes[i]` numbers."""
        ...

    def all_to_all(self, group: Group, out: Tensor, parts: Sequence[Tensor], out_sizes: Sequence[int]) -> Handle:
        """Sends part i to member i, and puts what members send, of `out_sizes`, one after the other into `out`."""
        ...

    def broadcast(self, group: Group, buffer: Tensor, root: int) -> Handle:
        """Overwrites `buffer` with that of member number `root`."""
        ...

    def send(self, target: int, buffer: Tensor) -> Handle:
        """Sends a tensor. It must not change until the handle is done."""
        ...

    def receive(self, source: int, buffer: Tensor) -> Handle:
        """Receives the next tensor of a rank into `buffer`."""
        ...

    def barrier(self) -> Handle:
        """Is over when every rank has come here."""
        ...

    def bytes_sent(self) -> int | None:
        """Bytes that have really left this process so far, where the system counts them."""
        ...


class Done:
    """The handle of something that was over at once."""

    def done(self) -> bool:
        """It is."""
        return True

    def wait(self) -> None:
        """Nothing to wait for."""


class Several:
    """Some handles as one."""

    def __init__(self, handles: Sequence[Handle]) -> None:
        self.handles = handles

    def done(self) -> bool:
        """Whether all are."""
        return all(handle.done() for handle in self.handles)

    def wait(self) -> None:
        """Waits for one after the other."""
        for handle in self.handles:
            handle.wait()
