"""Communication of the interpreter: what each operation brings to the transport, and what becomes of what it gets.

One function for each operation, named alike. Buffers have exactly the size that the simulator counts, wherever the
members' parts are equal: outputs are made when the operation is issued, and an in-place operation works in its input
unless somebody still needs that.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from lib.replay.layers.tensors import in_order, join
from lib.replay.plan.plan import Joint
from lib.replay.plan.sizes import cut_range
from lib.replay.transports.transport import Done, Handle, Several
from lib.trace.event import Event
from lib.values.collectives import COLLECTIVES
from lib.values.values import Value

if TYPE_CHECKING:
    from lib.replay.rank.interpreter import Interpreter

__all__ = ["Exchange", "issue"]


def _nothing() -> None:
    pass


class Exchange:
    """A communication that was issued. `finish` takes what it brought.

    `bytes` is what the rank sends: whole messages, and of collectives what a ring of this size sends. `tensors` are
    its buffers, which live until it is over even where the values in them do not.
    """

    __slots__ = ("bytes", "finish", "handle", "is_send", "noticed", "tensors")

    def __init__(
        self,
        handle: Handle,
        moved: float = 0,
        finish: Callable[[], None] = _nothing,
        tensors: Sequence[Tensor] = (),
        is_send: bool = False,
    ) -> None:
        self.handle = handle
        self.bytes = moved
        self.finish = finish
        self.tensors = tensors
        self.is_send = is_send
        self.noticed = False


def issue(rank: Interpreter, index: int, event: Event) -> Exchange:
    """Issues one communication of a rank."""
    if event.op == "pass_to":
        return _pass_to(rank, index, event)
    if event.op == "receive":
        return _receive(rank, index, event)
    joint = rank.desk.joints.get(index)
    if joint is None:  # it never takes place, and nobody waits for it
        return Exchange(Done())
    return _COLLECTIVES[event.op](rank, index, event, joint)


def _give(rank: Interpreter, event: Event, tensors: Sequence[Tensor]) -> None:
    """Outputs that nobody ever waits for have no ids."""
    for number, tensor in zip(event.outputs, tensors, strict=False):
        rank.tensors[number] = tensor


def _moved(rank: Interpreter, joint: Joint, root: int = 0) -> float:
    """Bytes that this member sends, as the row of the collective says."""

    def size(values: Sequence[Value]) -> int:
        return sum(map(rank.sizes.numel, values))

    row = COLLECTIVES[joint.op]
    return (
        float(row.sent(row.brought(joint.brought), root, size)[joint.members.index(rank.kit.rank)]) * rank.sizes.bytes
    )


def _alone(rank: Interpreter, event: Event, inp: Tensor) -> Exchange:
    """A collective of one rank, which brings a copy of what it was given."""
    out = inp.clone()
    return Exchange(Done(), 0, lambda: _give(rank, event, [out]), [out])


def _allreduce(rank: Interpreter, index: int, event: Event, joint: Joint) -> Exchange:
    buffer = rank.mine(index, event.inputs[0])
    handle = Done() if len(joint.members) == 1 else rank.kit.transport.all_reduce(joint.members, buffer)
    return Exchange(handle, _moved(rank, joint), lambda: _give(rank, event, [buffer]), [buffer])


def _allgather(rank: Interpreter, index: int, event: Event, joint: Joint) -> Exchange:
    values = [brought[0] for brought in joint.brought]
    ranges, width = [rank.sizes.ranges(value) for value in values], rank.sizes.width(values[0])
    sizes = [rank.sizes.numel(value) for value in values]
    inp = rank.tensors[event.inputs[0]]
    if len(sizes) == 1:
        return _alone(rank, event, inp)
    out = rank.empty(sum(sizes))
    handle = rank.kit.transport.all_gather(joint.members, out, inp, sizes)

    def finish() -> None:
        ordered = out if in_order(ranges) else join(list(zip(out.split(sizes), ranges, strict=True)), width)
        _give(rank, event, [ordered])

    return Exchange(handle, _moved(rank, joint), finish, [out])


def _scatterreduce(rank: Interpreter, index: int, event: Event, joint: Joint) -> Exchange:
    inp, members = rank.tensors[event.inputs[0]], len(joint.members)
    if members == 1:
        return _alone(rank, event, inp)
    parts = [cut_range(inp.numel(), i, members) for i in range(members)]
    sizes = [stop - start for start, stop in parts]
    out = rank.empty(sizes[joint.members.index(rank.kit.rank)])
    handle = rank.kit.transport.reduce_scatter(joint.members, out, inp, sizes)
    return Exchange(handle, _moved(rank, joint), lambda: _give(rank, event, [out]), [out])


def _alltoall(rank: Interpreter, index: int, event: Event, joint: Joint) -> Exchange:
    me = joint.members.index(rank.kit.rank)
    mine = [rank.tensors[number] for number in event.inputs]
    out_sizes = [rank.sizes.numel(brought[me]) for brought in joint.brought]
    if len(mine) == 1:
        return _alone(rank, event, mine[0])
    out = rank.empty(sum(out_sizes))
    handle = rank.kit.transport.all_to_all(joint.members, out, mine, out_sizes)

    def finish() -> None:
        _give(rank, event, [part.clone() for part in out.split(out_sizes)])

    return Exchange(handle, _moved(rank, joint), finish, [out])


def _broadcast(rank: Interpreter, index: int, event: Event, joint: Joint) -> Exchange:
    root = event.arg[0]
    number = event.inputs[0]
    numel = rank.sizes.numel(joint.brought[root][0])
    if rank.tensors[number].numel() == numel:
        buffer = rank.mine(index, number)
    else:  # of uneven shards, one may be a number longer than another: then this member is not the root
        buffer = rank.empty(numel)
        if (index, number) in rank.desk.owned:
            del rank.tensors[number]  # it would have been overwritten
    handle = Done() if len(joint.members) == 1 else rank.kit.transport.broadcast(joint.members, buffer, root)
    return Exchange(handle, _moved(rank, joint, root), lambda: _give(rank, event, [buffer]), [buffer])


def _pass_to(rank: Interpreter, index: int, event: Event) -> Exchange:
    letter = rank.desk.letters.get(index)
    if letter is None:  # nobody receives it
        return Exchange(Done(), is_send=True)
    tensors = [rank.tensors[number] for number in event.inputs]
    handle: Handle = Several([rank.kit.transport.send(letter.target, tensor) for tensor in tensors])
    moved = sum(tensor.numel() for tensor in tensors) * rank.sizes.bytes
    return Exchange(handle, moved, tensors=tensors, is_send=True)


def _receive(rank: Interpreter, index: int, event: Event) -> Exchange:
    letter = rank.desk.letters.get(index)
    if letter is None:  # nobody sends it, and nobody waits for it
        return Exchange(Done())
    buffers = [rank.empty(rank.sizes.numel(value)) for value in letter.values]
    handle = Several([rank.kit.transport.receive(letter.source, buffer) for buffer in buffers])
    return Exchange(handle, 0, lambda: _give(rank, event, buffers), buffers)


_COLLECTIVES = {
    "allreduce": _allreduce,
    "allgather": _allgather,
    "scatterreduce": _scatterreduce,
    "alltoall": _alltoall,
    "broadcast": _broadcast,
}
