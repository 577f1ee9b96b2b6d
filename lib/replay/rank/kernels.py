"""Kernels: what each operation of a rank does with real tensors, one row each.

A kernel is told of its call and given the tensors of its inputs, and gives those of its outputs. All tensors are flat,
of the ranges that `Call.ranges` says. What nobody will use again may be overwritten (`Call.own`), which is what the
simulator's memory means; what nobody ever uses need not be computed. An operation that the table lacks cannot be
replayed: another one is one row more. Communication has its own (see communication).
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lib.replay.layers import layers, optimizers
from lib.replay.layers.ranges import join, select
from lib.replay.rank.context import Call, KernelTable
from lib.values.values import Value

__all__ = ["KERNELS", "PREPARED", "Kernel"]

Kernel = Callable[[Call, Sequence[Tensor]], Sequence[Tensor]]


def _forward(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x, weight = map(call.matrix, range(2))
    return [layers.forward(x, weight).view(-1)]


def _loss(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    context = call.context
    y = call.input(0)
    target = context.initial.rows("target", _batches(y))
    if not y.place.dims[-1].whole:
        features = [number for first, last in context.sizes.sides(y) for number in range(first, last)]
        target = target[:, features].contiguous()
    return [layers.loss_gradient(call.matrix(0), target.to(context.device), context.rows).view(-1)]


def _backward(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x, grad, weight = map(call.matrix, range(3))
    backward = layers.autograd if call.context.options.backward == "autograd" else layers.backward
    by_weight, by_input = backward(x, grad, weight, call.is_used(1))
    return [by_weight.reshape(-1), call.empty(x.numel()) if by_input is None else by_input.reshape(-1)]


def _backward_input(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x, grad, weight = map(call.matrix, range(3))
    if call.context.options.backward == "autograd":
        return [layers.autograd_input(x, grad, weight).reshape(-1)]
    return [layers.input_gradient(torch.tanh(x), grad, weight).reshape(-1)]


def _backward_weight(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x, grad = map(call.matrix, range(2))
    if call.context.options.backward == "autograd":
        return [layers.autograd_weight(x, grad).reshape(-1)]
    return [layers.weight_gradient(torch.tanh(x), grad).reshape(-1)]


def _update(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    ranges, held = call.ranges(call.input(1)), call.ranges(call.input(2))
    grad, weight = select(inputs[0], call.ranges(call.input(0)), ranges), call.own(1)
    # Of a larger state only the part that goes one step on is kept.
    state = call.own(2) if held == ranges else select(inputs[2], held, ranges, call.context.sizes.moments).clone()
    optimizers.step(call.context.options.optimizer, grad, weight, state)
    return [weight, state]


def _add(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    left, right = (1, 0) if call.may_overwrite(1) and not call.may_overwrite(0) else (0, 1)
    return [call.own(left).add_(inputs[right])]


def _combine(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    parts = [(tensor, call.ranges(call.input(place))) for place, tensor in enumerate(inputs)]
    return [join(parts, call.context.sizes.width(call.input(0)))]


def _shard(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    have, want = call.ranges(call.input(0)), call.ranges(call.output(0))
    return [select(inputs[0], have, want, call.context.sizes.width(call.output(0))).clone()]


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
