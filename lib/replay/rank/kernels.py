"""Kernels: what each operation of a rank does with real tensors, one row each.

A kernel is told of its call and given the tensors of its inputs, and gives those of its outputs. All tensors are flat,
of the ranges that `Call.ranges` says. What nobody will use again may be overwritten (`Call.own`), which is what the
simulator's memory means; what nobody ever uses need not be computed. An operation that the table lacks cannot be
replayed: another one is one row more. Communication has its own (see communication).
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from lib.replay.layers import optimizers
from lib.replay.layers.layers import Gradients, Held
from lib.replay.layers.ranges import common, join, select, within
from lib.replay.plan.plan import softmax_of
from lib.replay.plan.sizes import length, merged
from lib.replay.rank.context import Call, KernelTable
from lib.values.values import Value, WeightGrad

__all__ = ["KERNELS", "PREPARED", "Kernel"]

Kernel = Callable[[Call, Sequence[Tensor]], Sequence[Tensor]]


def _forward(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    return [call.made(0, call.layer.forward(call.held(0), call.held(len(inputs) - 1)))]


def _loss(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    context, y = call.context, call.input(0)
    batches = _batches(y)
    each = context.sizes.batch(y.layer)
    have = merged([(batch * each, (batch + 1) * each) for batch in batches])
    target = select(context.initial.rows("target", batches).view(-1), have, call.ranges(y)).to(context.device)
    grad = call.made(0, context.initial.layers[-1].loss_gradient(inputs[0], target, context.rows))
    padding = [place for place, batch in enumerate(batches) if batch >= context.plan.trace.batches]
    if padding:
        grad.view(len(batches), -1)[padding] = 0
    return [grad]


def _backward(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """What has one gradient alone has that of its weight, and without a weight that of its input."""
    both = len(call.event.outputs) > 1
    wanted = (both or isinstance(call.output(0), WeightGrad), call.is_used(1) if both else not call.layer.kind.takes)
    by_other, by_input = _gradients(call, call.held(2 if len(inputs) > 2 else 0), wanted)
    found = [by_other] if by_other is not None else []
    if both or not found:
        found.append(call.empty(inputs[0].numel()) if by_input is None else by_input)
    return [call.made(place, one) for place, one in enumerate(found)]


def _backward_input(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    return [call.made(0, cast(Tensor, _gradients(call, call.held(2), (False, True))[1]))]


def _backward_weight(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """Of the weight only the form is known."""
    weight = call.form(call.output(0), inputs[0].new_zeros(()))
    return [call.made(0, cast(Tensor, _gradients(call, weight, (True, False))[0]))]


def _gradients(call: Call, other: Held, wanted: tuple[bool, bool]) -> Gradients:
    if call.layer.kind.keeps:
        x, grad = call.held(0), call.held(1)
    else:  # of the input the form will do, which is that of its gradient
        x, grad = call.form(call.output(0), call.empty(0).new_zeros(())), call.held(len(call.event.inputs) - 1)
    kept = _softmax(call)
    if call.context.options.backward == "autograd" and kept is None:
        return call.layer.differentiated(x, grad, other, wanted)
    return call.layer.backward(x, grad, other, wanted, kept)


def _softmax(call: Call) -> Tensor | None:
    """The running sums of the rows that go back, where they do not follow of what is here."""
    context = call.context
    value = softmax_of(context.plan.trace.shape, call.event, call.plan.inputs(call.event))
    if value is None:
        return None
    want, width = call.ranges(value), 1 + value.place.schema.running
    found = call.empty(int(length(want) * width))
    for have, tensor in context.softmaxes[value.layer]:
        both = common(have, want)
        for (low, high), (first, last) in zip(within(want, both), within(have, both), strict=True):
            found[int(low * width) : int(high * width)] = tensor[int(first * width) : int(last * width)]
    return found


def _update(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    ranges, held = call.ranges(call.input(1)), call.ranges(call.input(2))
    grad, weight = select(inputs[0], call.ranges(call.input(0)), ranges), call.own(1)
    # Of a larger state only the part that goes one step on is kept.
    state = call.own(2) if held == ranges else select(inputs[2], held, ranges, call.context.sizes.moments).clone()
    optimizers.step(call.context.options.optimizer, grad, weight, state)
    return [weight, state]


def _add(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    if call.input(0).place.schema.running:
        return [call.sum(0, [call.input(0), call.input(1)], inputs)]
    left, right = (1, 0) if call.may_overwrite(1) and not call.may_overwrite(0) else (0, 1)
    return [call.own(left).add_(inputs[right])]


def _combine(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    parts = [(tensor, call.ranges(call.input(place))) for place, tensor in enumerate(inputs)]
    return [join(parts, call.context.sizes.width(call.input(0)))]


def _shard(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    have, want = call.ranges(call.input(0)), call.ranges(call.output(0))
    return [call.made(0, select(inputs[0], have, want, call.context.sizes.width(call.input(0))).clone())]


def _zeros(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """A zero contribution. (One that pretends to have batches never gets into a final weight: see check.)"""
    return [call.empty(call.numel(call.output(0))).zero_()]


def _nothing(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    return []


def _load_weights(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    initial, weight = call.context.initial, call.output(0)
    of_weight = initial.slice("weight", weight.layer, call.ranges(weight))
    return [of_weight, initial.slice("state", weight.layer, call.ranges(call.output(1)), call.context.sizes.moments)]


def _get_activation(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    return [call.context.initial.rows("data", _batches(call.output(0))).view(-1)]


def _read(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """From files, which the reader of the process opens once a step."""
    context = call.context
    data = b"".join(context.reader.read(sorted(call.event.batches), context.step))
    return [torch.frombuffer(bytearray(data), dtype=context.initial.dtype).to(context.device)]


def _batches(value: Value) -> list[int]:
    return sorted(value.place.batches)


KERNELS: KernelTable[Kernel] = KernelTable(
    {
        "forward": _forward,
        "loss": _loss,
        "backward": _backward,
        "backward_input": _backward_input,
        "backward_weight": _backward_weight,
        "update": _update,
        "add": _add,
        "combine": _combine,
        "shard": _shard,
        "cut": _shard,
        "fake_grad": _zeros,
        "foreign": _zeros,
        "set_final_weight": _nothing,
        "read": _read,
    }
)
"""By the name of the operation."""

PREPARED: dict[str, Kernel] = {"load_weights": _load_weights, "get_activation": _get_activation}
"""Kernels that run on the CPU before the step begins, as a data loader would; their operation hands over the result."""
