"""Kernels: what each operation of a rank does with real tensors, one row each, for all transports.

A kernel takes its call and the tensors of its inputs, and returns those of its outputs; a collective's kernel starts
it, and returns what will give them. All tensors are flat, of the elements `Call.elements`. What is not used again may
be overwritten (`Call.own`), as the simulator's memory assumes. The buffers of a collective have exactly the size that
the simulator counts, wherever the members' parts are equal.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from lib.replay.grids import Averages
from lib.replay.layers import Held, RealLayer
from lib.replay.plan import PlannedCollective, RankPlan
from lib.replay.rank.transport import Handle
from lib.replay.sizes import in_order, within
from lib.replay.training import join, select, step
from lib.trace.event import Event
from lib.values.dims import NAMES, RunSet
from lib.values.laws import cut
from lib.values.operations import READS
from lib.values.values import Value, WeightGrad

if TYPE_CHECKING:
    from lib.replay.rank.interpreter import RankContext


@dataclass
class Call:
    """One operation of a rank, as its kernel sees it. Inputs and outputs are numbered as in the Trace, from 0.

    `tensors` are those of the rank, by value id. All are flat: see `sizes`.
    """

    context: RankContext
    plan: RankPlan
    index: int
    event: Event
    tensors: dict[int, Tensor]

    def __post_init__(self) -> None:
        sizes = self.context.sizes
        self.elements, self.numel, self.empty = sizes.elements, sizes.numel, self.context.empty

    def input(self, place: int) -> Value:
        """Return the planned value of an input."""
        return self.plan.value(self.event.inputs[place])

    def output(self, place: int) -> Value:
        """Return the planned value of an output."""
        return self.plan.value(self.event.outputs[place])

    @property
    def layer(self) -> RealLayer:
        """The layer called."""
        return self.context.initial.layers[self.event.layer or 0]

    def held(self, place: int) -> Held:
        """Return an input in the form of its dims, as layers take it."""
        number, by_torch = self.event.inputs[place], self.context.options.backward == "autograd"
        first = None if by_torch else self.plan.first.get((self.index, number))  # torch needs the input itself
        return self.form(self.input(place), self.tensors[number], first)

    def form(self, value: Value, flat: Tensor, first: bool | None = None) -> Held:
        """Return a value in the form of its dims, or tokens at experts as a matrix. A scalar is expanded."""
        parts = self.context.sizes.parts(value)
        sizes = [*map(len, parts.values())]
        if value.place.schema.route is not None:
            sizes = [self.numel(value) // max(sizes[-1], 1), sizes[-1]]
        return Held(flat.view(sizes) if flat.ndim else flat.expand(sizes), parts, first)

    def made(self, place: int, tensor: Tensor) -> Tensor:
        """Return an output with these numbers: flat, in memory of its own, and finished where its sum is complete."""
        value, flat = self.output(place), tensor.reshape(-1)
        if value.place.schema.running and not value.place.open and flat.numel() != self.numel(value):
            if any(value.layer == needed.layer for needed in self.plan.softmaxes.values()):
                self.context.softmaxes.setdefault(value.layer, []).append((self.elements(value), flat))
            flat = self.context.initial.layers[value.layer - 1].finish(flat)
        return flat if flat.untyped_storage().nbytes() == flat.nbytes else flat.clone()

    def sum(self, place: int, values: Sequence[Value], tensors: Sequence[Tensor]) -> Tensor:
        """Return an output that is the sum of these values. Some may be zero; all may carry a running softmax."""
        some = [tensor for value, tensor in zip(values, tensors, strict=True) if not value.place.zero] or tensors[:1]
        softmax = values[0].place.schema.running
        add = self.context.initial.layers[values[0].layer - 1].merge if softmax else torch.add
        return self.made(place, reduce(add, some) if len(some) > 1 else some[0].clone())

    def may_overwrite(self, place: int) -> bool:
        """Tell whether an input is not needed afterwards."""
        return (self.index, self.event.inputs[place]) in self.plan.overwritable

    def own(self, place: int) -> Tensor:
        """Return a tensor to work in: the input's own if it is not needed afterwards, else a copy."""
        tensor = self.tensors[self.event.inputs[place]]
        return tensor if self.may_overwrite(place) else tensor.clone()

    def is_used(self, place: int) -> bool:
        """Tell whether any event uses an output."""
        return self.event.outputs[place] in self.plan.used


# -- operations on one rank ---------------------------------------------------------------------------------------

Kernel = Callable[[Call, Sequence[Tensor]], Sequence[Tensor]]


def _loss(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    context, y = call.context, call.input(0)
    batches = sorted(y.place.batches)
    if (target := context.targets.get(y.place)) is None:
        each = context.sizes.batch(y.layer)
        have = RunSet.union(RunSet.span(batch * each, (batch + 1) * each) for batch in batches)
        rows = context.initial.rows("target", batches)
        target = select(rows.view(-1), have, call.elements(y)).to(context.device)
        context.targets[y.place] = target
    grad = call.made(0, context.initial.layers[-1].loss_gradient(inputs[0], target, context.rows))
    padding = [place for place, batch in enumerate(batches) if batch >= context.plan.trace.batches]
    if padding:
        grad.view(len(batches), -1)[padding] = 0
    return [grad]


def _backward(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """Run a backward, whole or half. A single output is the gradient of the weight, or else that of the input."""
    both, of_weight = len(call.event.outputs) > 1, isinstance(call.output(0), WeightGrad)
    wanted = (True, call.is_used(1)) if both else (of_weight, not of_weight)
    if call.layer.kind.keeps:
        x, grad = call.held(0), call.held(1)
    else:  # only the form of the input is needed, and its gradient has the same
        x, grad = call.form(call.output(0), inputs[0].new_zeros(())), call.held(len(inputs) - 1)
    if of_weight and len(inputs) < 3:  # the weight half alone is not given the weight
        other = call.form(call.output(0), inputs[0].new_zeros(()))
    else:
        other = call.held(2 if len(inputs) > 2 else 0)
    kept = _softmax(call)
    if call.context.options.backward == "autograd" and kept is None:
        by_other, by_input = call.layer.differentiated(x, grad, other, wanted)
    else:
        by_other, by_input = call.layer.backward(x, grad, other, wanted, kept)
    found = [by_other, by_input] if both else [by_other if of_weight else by_input]
    return [call.made(i, call.empty(inputs[0].numel()) if one is None else one) for i, one in enumerate(found)]


def _softmax(call: Call) -> Tensor | None:
    """Return the running sums of a backward's rows, where they do not follow from its inputs."""
    if (value := call.plan.softmaxes.get(call.index)) is None:
        return None
    want, width = call.elements(value), 1 + value.place.schema.running
    found = call.empty(int(len(want) * width))
    for have, tensor in call.context.softmaxes[value.layer]:
        both = have & want
        for (low, high), (first, last) in zip(within(want, both), within(have, both), strict=True):
            found[int(low * width) : int(high * width)] = tensor[int(first * width) : int(last * width)]
    return found


def _update(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    want, held = call.elements(call.input(1)), call.elements(call.input(2))
    grad, weight = select(inputs[0], call.elements(call.input(0)), want), call.own(1)
    # Only the updated part of a larger state is kept.
    state = call.own(2) if held == want else select(inputs[2], held, want, call.context.sizes.moments).clone()
    step(call.context.options.optimizer, [grad], [weight], [state])
    return [weight, state]


def _add(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    if call.input(0).place.schema.running:
        return [call.sum(0, [call.input(0), call.input(1)], inputs)]
    left, right = (1, 0) if call.may_overwrite(1) and not call.may_overwrite(0) else (0, 1)
    return [call.own(left).add_(inputs[right])]


def _combine(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    parts = [(tensor, call.elements(call.input(place))) for place, tensor in enumerate(inputs)]
    return [join(parts, call.context.sizes.width(call.input(0)))]


def _shard(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    have, want = call.elements(call.input(0)), call.elements(call.output(0))
    return [call.made(0, select(inputs[0], have, want, call.context.sizes.width(call.input(0))).clone())]


def _zeros(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """Make a zero contribution. (If it claims batches, it never reaches a final weight: see check.)"""
    return [call.empty(call.numel(call.output(0))).zero_()]


def _load_weights(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    initial, weight, state = call.context.initial, call.output(0), call.output(1)
    of_weight = initial.slice("weight", weight.layer, call.elements(weight))
    return [of_weight, initial.slice("state", weight.layer, call.elements(state), call.context.sizes.moments)]


def _data(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    return [call.context.initial.rows("data", sorted(call.event.batches)).view(-1)]


KERNELS: dict[str, Kernel] = {
    "forward": lambda call, inputs: [call.made(0, call.layer.forward(call.held(0), call.held(len(inputs) - 1)))],
    "loss": _loss,
    "backward": _backward,
    "backward_input": _backward,
    "backward_weight": _backward,
    "update": _update,
    "add": _add,
    "combine": _combine,
    "shard": _shard,
    "cut": _shard,
    "fake_grad": _zeros,
    "foreign": _zeros,
    "set_final_weight": lambda call, inputs: [],
    "read": lambda call, inputs: [data.to(call.context.device) for data in _data(call, inputs)],
}
"""By the name of the operation."""

PREPARED: dict[str, Kernel] = {"load_weights": _load_weights, "get_activation": _data}
"""Kernels that run on the CPU before the step, as a data loader would; the operation hands over the result."""


# -- communication ------------------------------------------------------------------------------------------------


class CollectiveCall(Call):
    """A collective of a rank, as its kernel sees it. Members are numbered from 0 in the order of their ranks, as in
    transports: `me` is this rank's number, `brought` the values that each member brings, `width` how many numbers each
    of their elements has. The program may list its group in another order: `places` has the place of each member
    there, `numbers` the member at each place. `said` is the call's further argument, such as the place of its root."""

    def __init__(self, call: Call, collective: PlannedCollective) -> None:
        super().__init__(call.context, call.plan, call.index, call.event, call.tensors)
        self.transport, self.said = call.context.transport, collective.root
        self.group = tuple(sorted(collective.members))
        self.places = [collective.members.index(rank) for rank in self.group]
        self.numbers = [self.group.index(rank) for rank in collective.members]
        self.brought = [collective.brought[place] for place in self.places]
        self.me = self.group.index(call.context.rank)
        self.place = self.places[self.me]
        self.width = call.context.sizes.width(self.brought[self.me][0])

    @property
    def root(self) -> int:
        """The number of the root."""
        return self.numbers[self.said]


@dataclass(slots=True)
class Started:
    """A started communication: its buffers, and a function that returns its outputs once it is over (None: the buffers
    are the outputs). Buffers live until it is over, even where the values in them do not."""

    handle: Handle
    buffers: Sequence[Tensor] = ()
    outputs: Callable[[], Sequence[Tensor]] | None = None
    is_send: bool = False
    noticed: bool = False


CollectiveKernel = Callable[[CollectiveCall, Sequence[Tensor]], Started]


def issue(call: Call) -> Started:
    """Issue one communication of a rank. One that never takes place is over at once, as nothing waits for it."""
    op, transport = call.event.op, call.context.transport
    inputs = [call.tensors[number] for number in call.event.inputs]
    if op in READS:
        return Started(Handle(), KERNELS[op](call, ()))
    if (message := call.plan.messages.get(call.index)) is not None:
        if op == "pass_to":
            return Started(Handle(*[transport.send(message.target, one) for one in inputs]), inputs, is_send=True)
        buffers = [call.empty(call.numel(value)) for value in message.values]
        return Started(Handle(*[transport.receive(message.source, buffer) for buffer in buffers]), buffers)
    if (collective := call.plan.collectives.get(call.index)) is None:
        return Started(Handle(), is_send=op == "pass_to")
    if len(collective.members) == 1:
        own = [call.own(i) if collective.row.in_place else tensor.clone() for i, tensor in enumerate(inputs)]
        return Started(Handle(), own)
    return COLLECTIVE_KERNELS[op](CollectiveCall(call, collective), inputs)


def _all_reduce(call: CollectiveCall, inputs: Sequence[Tensor]) -> Started:
    value = call.input(0)
    if value.place.schema.running and call.context.sizes.shape.kinds[value.layer - 1].softmax:
        return _each_adds_up(call, inputs)
    buffer = call.own(0)
    handle = call.transport.all_reduce(call.group, buffer)
    return Started(handle, [buffer], (lambda: [call.made(0, buffer)]) if value.place.schema.running else None)


def _all_reduce_mean(call: CollectiveCall, inputs: Sequence[Tensor]) -> Started:
    """Average means without their counts of points, which are the same on all members."""
    sums, count = cast(Averages, call.context.initial.layers[call.input(0).layer - 1]).split(inputs[0])
    buffer, members = sums / count, len(call.group)
    handle = call.transport.all_reduce(call.group, buffer)
    return Started(handle, [buffer], lambda: [call.made(0, torch.cat([buffer * count, count * members], 1))])


def _all_reduce_bucket(call: CollectiveCall, inputs: Sequence[Tensor]) -> Started:
    """Sum all inputs in one flat buffer, as torch's DDP does."""
    if any(value.place.schema.running for value in call.brought[call.me]):
        return _each_adds_up(call, inputs)
    buffer, sizes = torch.cat(list(inputs)), [tensor.numel() for tensor in inputs]
    for place, number in enumerate(call.event.inputs):
        if call.may_overwrite(place):
            call.tensors.pop(number, None)  # its memory is the buffer's now
    handle = call.transport.all_reduce(call.group, buffer)
    return Started(handle, [buffer], lambda: [part.clone() for part in buffer.split(sizes)])


def _each_adds_up(call: CollectiveCall, inputs: Sequence[Tensor]) -> Started:
    """Gather all contributions on every member, as no transport adds up softmaxes: a buffer as large as all of them."""
    sizes = [[call.numel(value) for value in brought] for brought in call.brought]
    out = call.empty(sum(map(sum, sizes)))
    handle = call.transport.all_gather(call.group, out, torch.cat(list(inputs)), [*map(sum, sizes)])

    def outputs() -> Sequence[Tensor]:
        parts = iter(out.split([size for mine in sizes for size in mine]))
        tensors = [[next(parts) for _ in mine] for mine in sizes]
        each = zip(zip(*call.brought, strict=True), zip(*tensors, strict=True), strict=True)
        return [call.sum(place, values, parts) for place, (values, parts) in enumerate(each)]

    return Started(handle, [out], outputs)


def _all_gather(call: CollectiveCall, inputs: Sequence[Tensor]) -> Started:
    values = [brought[0] for brought in call.brought]
    sizes, elements = [*map(call.numel, values)], [*map(call.elements, values)]
    out = call.empty(sum(sizes))
    handle = call.transport.all_gather(call.group, out, inputs[0], sizes)
    if in_order(elements):
        return Started(handle, [out])
    return Started(handle, [out], lambda: [join(list(zip(out.split(sizes), elements, strict=True)), call.width)])


def _reduce_scatter(call: CollectiveCall, inputs: Sequence[Tensor]) -> Started:
    members, role = len(call.group), NAMES[call.said] or None  # the dim, where the call names one
    values, whole = [brought[0] for brought in call.brought], inputs[0]
    mine = values[call.me]
    have, wants = call.elements(mine), [call.elements(cut(mine, place, members, role)) for place in call.places]
    if mine.place.schema.running:
        sizes = [int(len(wants[call.me]) * call.context.sizes.width(value)) for value in values]
        parts, out = [select(whole, have, want, call.width) for want in wants], call.empty(sum(sizes))
        handle = call.transport.all_to_all(call.group, out, parts, sizes)
        return Started(handle, [out], lambda: [call.sum(0, values, out.split(sizes))])
    if not in_order(wants):
        whole = torch.cat([select(whole, have, want) for want in wants])
    sizes = [*map(len, wants)]
    out = call.empty(sizes[call.me])
    return Started(call.transport.reduce_scatter(call.group, out, whole, sizes), [out])


def _all_to_all(call: CollectiveCall, inputs: Sequence[Tensor], padded: bool = False) -> Started:
    coming = {one: call.brought[one][call.place] for one in call.numbers}
    return _exchange(call, dict(zip(call.numbers, inputs, strict=True)), coming, padded)


def _broadcast(call: CollectiveCall, inputs: Sequence[Tensor]) -> Started:
    numel = call.numel(call.brought[call.root][0])
    if inputs[0].numel() == numel:
        buffer = call.own(0)
    else:  # uneven shards may differ by a number: then this member is not the root
        buffer = call.empty(numel)
        if call.may_overwrite(0):
            del call.tensors[call.event.inputs[0]]  # it would have been overwritten
    return Started(call.transport.broadcast(call.group, buffer, call.root), [buffer])


def _shift(call: CollectiveCall, inputs: Sequence[Tensor]) -> Started:
    before, after = call.numbers[call.place - 1], call.numbers[(call.place + 1) % len(call.group)]
    return _exchange(call, {after: inputs[0]}, {before: call.brought[before][0]})


def _halo(call: CollectiveCall, inputs: Sequence[Tensor]) -> Started:
    ends = {place: end for place, end in ((call.place - 1, -1), (call.place + 1, 0)) if place in call.places}
    beside = [call.numbers[place] for place in ends]
    coming = {one: call.brought[one][end] for one, end in zip(beside, ends.values(), strict=True)}
    return _exchange(call, dict(zip(beside, inputs, strict=True)), coming)


def _exchange(
    call: CollectiveCall, parts: Mapping[int, Tensor], coming: Mapping[int, Value], padded: bool = False
) -> Started:
    """Exchange by an all-to-all: `parts` go to some members, and values come from some, in the order of `coming`."""
    sent = [parts.get(one, call.empty(0)) for one in range(len(call.group))]
    sizes = rooms = [call.numel(coming[one]) if one in coming else 0 for one in range(len(call.group))]
    if padded:
        largest = max(call.numel(value) for brought in call.brought for value in brought)
        rooms = [largest] * len(sizes)
        sent = [torch.nn.functional.pad(part, (0, largest - part.numel())) for part in sent]
    out = call.empty(sum(rooms))
    handle = call.transport.all_to_all(call.group, out, sent, rooms)
    if len(coming) == 1:
        return Started(handle, [out])
    pieces = out.split(rooms)
    return Started(handle, [out], lambda: [pieces[one][: sizes[one]].clone() for one in coming])


COLLECTIVE_KERNELS: dict[str, CollectiveKernel] = {
    "allreduce": _all_reduce,
    "allreduce_bucket": _all_reduce_bucket,
    "allgather": _all_gather,
    "allgather_padded": _all_gather,  # no transport needs padding: unequal parts are exchanged
    "scatterreduce": _reduce_scatter,
    "alltoall": _all_to_all,
    "alltoall_padded": partial(_all_to_all, padded=True),
    "broadcast": _broadcast,
    "shift": _shift,
    "halo": _halo,
    "allreduce_mean": _all_reduce_mean,
}
"""By the name of the collective, for two or more members: a rank alone keeps what it brings."""
