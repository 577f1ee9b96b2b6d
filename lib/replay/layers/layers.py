"""The mathematics: one real differentiable layer, its loss, and the numbers that training starts from.

A layer is y = tanh(x) W. Its backward needs only what the simulator says it needs, the input x and the weight W, and
computes no product twice: tanh(x) is cheap to do again. A batch is `length` rows, and rows never mix, so a gradient
of the weight is a sum over batches; the loss is a sum too, of half the squared distance to a fixed target, divided by
the rows of all batches together. Everything is seeded: each rank makes the numbers that it needs, and asks nobody.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lib.replay.plan.sizes import Range, Sizes

__all__ = ["GAIN", "Source", "backward", "backward_input", "backward_weight", "forward", "loss", "loss_gradient"]

GAIN = 1.3
"""Weights are normal with a spread of GAIN / sqrt(hidden), so that activations neither vanish nor grow."""
KINDS = ("weight", "state", "data", "target")


def forward(x: Tensor, weight: Tensor) -> Tensor:
    """The output of a layer."""
    return torch.tanh(x) @ weight


def backward_weight(x: Tensor, grad: Tensor) -> Tensor:
    """The weight half of backward: the gradient of the loss by the weight, from that by the output."""
    return torch.tanh(x).t() @ grad


def backward_input(x: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
    """The input half of backward: the gradient of the loss by the input."""
    return _through_tanh(torch.tanh(x), grad @ weight.t())


def backward(x: Tensor, grad: Tensor, weight: Tensor, need_input: bool = True) -> tuple[Tensor, Tensor | None]:
    """Both halves. Without `need_input` only the first: autograd leaves out what nobody asks for, too."""
    inner = torch.tanh(x)
    by_weight = inner.t() @ grad
    return by_weight, _through_tanh(inner, grad @ weight.t()) if need_input else None


def _through_tanh(inner: Tensor, grad: Tensor) -> Tensor:
    """grad * (1 - inner^2), in one pass and in the memory of `grad`."""
    return torch.ops.aten.tanh_backward.grad_input(grad, inner, grad_input=grad)


def autograd(x: Tensor, grad: Tensor, weight: Tensor, need_input: bool = True) -> tuple[Tensor, Tensor | None]:
    """The same as `backward`, by torch's own differentiation of `forward`: slower, as forward is done again."""
    weight = weight.detach().requires_grad_()
    x = x.detach().requires_grad_(need_input)
    with torch.enable_grad():
        y = forward(x, weight)
    found = torch.autograd.grad(y, [weight, x] if need_input else [weight], grad)
    return found[0], found[1] if need_input else None


def loss(y: Tensor, target: Tensor, rows: int) -> Tensor:
    """Half the squared distance to the target, divided by `rows`, those of all batches."""
    return (y - target).square().sum() * (0.5 / rows)


def loss_gradient(y: Tensor, target: Tensor, rows: int) -> Tensor:
    """The gradient of `loss` by y. Takes the memory of `target`, which must be the caller's own."""
    return target.neg_().add_(y).mul_(1.0 / rows)


class Source:
    """The numbers that training starts from: weights, optimizer states, data and targets, by layer or by batch.

    They are drawn in float64 and rounded, so all types start from the same. With `share` whole tensors are kept once
    they are made, as ranks that are forked later share them; without, only the parts of weights that are asked for.
    """

    def __init__(self, sizes: Sizes, dtype: torch.dtype, seed: int = 0, share: bool = True) -> None:
        self.sizes = sizes
        self.dtype = dtype
        self.seed = seed
        self.share = share
        self._kept: dict[tuple[str, int], Tensor] = {}
        self._parts: dict[tuple[str, int, tuple[Range, ...]], Tensor] = {}

    def __call__(self, kind: str, index: int) -> Tensor:
        """One whole tensor, flat, on the CPU. Not to be written to."""
        found = self._kept.get((kind, index))
        if found is None:
            found = self._make(kind, index)
            if self.share or kind in ("data", "target"):
                self._kept[kind, index] = found
        return found

    def slice(self, kind: str, index: int, ranges: Sequence[Range], width: int = 1) -> Tensor:
        """A copy of some ranges of one."""
        key = (kind, index, tuple(ranges))
        if key in self._parts:
            return self._parts[key].clone()
        whole = self(kind, index)
        parts = [whole[start * width : stop * width] for start, stop in ranges]
        found = torch.cat(parts) if len(parts) != 1 else parts[0].clone()
        if not self.share:
            self._parts[key] = found
            return found.clone()
        return found

    def rows(self, kind: str, batches: Sequence[int]) -> Tensor:
        """A copy of the data or targets of some batches, one under the other."""
        parts = [self(kind, batch) for batch in batches]
        return torch.cat(parts).view(-1, self.sizes.hidden)

    def _make(self, kind: str, index: int) -> Tensor:
        generator = torch.Generator().manual_seed((self.seed * 8 + KINDS.index(kind)) * 1_000_003 + index)
        sizes = self.sizes
        if kind == "weight":
            numbers = _normal(sizes.weight, generator).mul_(GAIN / math.sqrt(sizes.hidden))
        elif kind == "state":
            # Not zero, so that a state that gets lost or mixed up shows; second moments are squares.
            numbers = _normal(sizes.weight * sizes.moments, generator)
            if sizes.moments == 2:
                numbers.view(-1, 2)[:, 1].square_()
        else:
            numbers = _normal(sizes.batch, generator)
        return numbers.to(self.dtype)


def _normal(count: int, generator: torch.Generator) -> Tensor:
    return torch.randn(count, generator=generator, dtype=torch.float64)
