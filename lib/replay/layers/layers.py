"""The mathematics of a layer, in one place: what the ranks compute, and the module that ordinary training is made of.

A layer is y = tanh(x) W. Its backward needs only what the simulator says it needs, the input x and the weight W, and
computes no product twice: tanh(x) is cheap to do again. A batch is `length` rows, and rows never mix, so a gradient
of the weight is a sum over batches; the loss is a sum too, of half the squared distance to a fixed target, divided by
the rows of all batches together.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

__all__ = [
    "Layer",
    "autograd",
    "autograd_input",
    "autograd_weight",
    "backward",
    "forward",
    "input_gradient",
    "loss",
    "loss_gradient",
    "model",
    "weight_gradient",
]


def forward(x: Tensor, weight: Tensor) -> Tensor:
    """The output of a layer."""
    return torch.tanh(x) @ weight


def backward(x: Tensor, grad: Tensor, weight: Tensor, need_input: bool = True) -> tuple[Tensor, Tensor | None]:
    """The gradients of the loss by weight and by input, from that by the output. Without `need_input` only the first:
    autograd leaves out what nobody asks for, too."""
    inner = torch.tanh(x)
    return weight_gradient(inner, grad), input_gradient(inner, grad, weight) if need_input else None


def weight_gradient(inner: Tensor, grad: Tensor) -> Tensor:
    """The weight half of backward. `inner` is tanh(x)."""
    return inner.t() @ grad


def input_gradient(inner: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
    """The input half of backward. `inner` is tanh(x), whose derivative is 1 - inner^2."""
    by_inner = grad @ weight.t()
    # In one pass, and in the memory of the product.
    return torch.ops.aten.tanh_backward.grad_input(by_inner, inner, grad_input=by_inner)


def autograd(x: Tensor, grad: Tensor, weight: Tensor, need_input: bool = True) -> tuple[Tensor, Tensor | None]:
    """The same as `backward`, by torch's own differentiation of `forward`: slower, as forward is done again."""
    weight = weight.detach().requires_grad_()
    x = x.detach().requires_grad_(need_input)
    with torch.enable_grad():
        y = forward(x, weight)
    found = torch.autograd.grad(y, [weight, x] if need_input else [weight], grad)
    return found[0], found[1] if need_input else None


def autograd_input(x: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
    """The input half alone, by torch's own differentiation."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        y = forward(x, weight.detach())
    return torch.autograd.grad(y, x, grad)[0]


def autograd_weight(x: Tensor, grad: Tensor) -> Tensor:
    """The weight half alone, by torch's own differentiation: the layer is linear in its weight, so any will do."""
    weight = x.new_zeros(x.shape[1], grad.shape[1], requires_grad=True)
    with torch.enable_grad():
        y = forward(x.detach(), weight)
    return torch.autograd.grad(y, weight, grad)[0]


def loss(y: Tensor, target: Tensor, rows: int) -> Tensor:
    """Half the squared distance to the target, divided by `rows`, those of all batches."""
    return (y - target).square().sum() * (0.5 / rows)


def loss_gradient(y: Tensor, target: Tensor, rows: int) -> Tensor:
    """The gradient of `loss` by y. Takes the memory of `target`, which must be the caller's own."""
    return target.neg_().add_(y).mul_(1.0 / rows)


class Layer(nn.Module):
    """A layer as ordinary training and torch's own libraries take it."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        """The output of a layer."""
        return forward(x, self.weight)


def model(weights: Iterable[Tensor]) -> nn.Sequential:
    """Layers of these weights (which training changes), one after the other."""
    return nn.Sequential(*map(Layer, weights))
