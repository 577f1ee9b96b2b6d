"""Real layers over a grid: convolutions, pooling, neighborhood attention, averages, transforms."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from lib.replay import layers
from lib.replay.layers import Attention, Gradients, Held, Kept, RealLayer, Wanted
from lib.values.kinds import attention, grid
from lib.values.kinds.grid import Stencil

Around = Mapping[str, tuple[Iterable[int], Callable[[int], Sequence[int]], int]]
"""By dim of a grid: the rows of the outputs, a function to the rows around one, and how many those are."""


def _around(x: Held, dims: Around) -> Tensor:
    """Return the points of a part of a grid that lie around each output, by output and place; -1 where none does."""
    found = torch.zeros(1, 1, dtype=torch.long)
    for role, (outputs, around, kernel) in dims.items():
        places = {row: place for place, row in enumerate(x.parts[role])}
        rows = [[places.get(one, -1) for one in around(row)] for row in outputs]
        at = torch.tensor(rows, dtype=torch.long).view(-1, kernel)
        both = found[:, None, :, None] * len(places) + at[None, :, None, :]
        there = (found >= 0)[:, None, :, None] & (at >= 0)[None, :, None, :]
        found = both.where(there, -1).flatten(2).flatten(0, 1)
    return found.to(x.tensor.device)


class Swept(RealLayer):
    """A layer whose outputs take the points around their own place in a grid."""

    @property
    def stencils(self) -> dict[str, Stencil]:
        """The stencils of the dims of the grid."""
        return {role: cast(grid.Swept, self.kind).stencils[role] for role in self.described.space}

    def taken(self, x: Held) -> Tensor:
        """Return the points that each computable output takes, by their numbers among the points here."""
        dims = self.stencils.items()
        return _around(x, {role: (one.given(x.parts[role]), partial(self.taps, one), one.kernel) for role, one in dims})

    def taps(self, stencil: Stencil, row: int) -> Sequence[int]:
        """Return the row at each place of the kernel; where there is none, a row that does not exist."""
        return stencil.needs(row)

    def differentiated(self, x: Held, grad: Held, other: Held, wanted: Wanted) -> Gradients:
        tensor = grad.tensor  # outputs whose gradient is not here get zeros
        for dim, (role, stencil) in enumerate(self.stencils.items(), 1):
            given = torch.tensor([*stencil.given(x.parts[role])], device=tensor.device)
            if len(given) > tensor.shape[dim]:
                sizes = (*tensor.shape[:dim], len(given), *tensor.shape[dim + 1 :])
                at = torch.searchsorted(given, grad.numbers(role))
                tensor = tensor.new_zeros(sizes).index_copy_(dim, at, tensor)
        return super().differentiated(x, grad._replace(tensor=tensor), other, wanted)

    def points(self, x: Tensor) -> Tensor:
        """Return a grid by batch, point and feature, with a point of zeros after the others."""
        return functional.pad(x.flatten(1, -2), (0, 0, 0, 1))

    def by_torch(self, name: str, x: Tensor, *arguments: Any) -> Tensor:
        """Apply a function of torch's, which takes a grid as batch, feature, and the dims of the grid."""
        act: Callable[..., Tensor] = getattr(functional, f"{name}{len(self.described.space)}d")
        return act(x.movedim(-1, 1), *arguments).movedim(1, -1)


class Convolution(Swept, kind="convolution"):
    """The points around each one, times the weights of their places, summed."""

    def forward(self, x: Held, other: Held) -> Tensor:
        return torch.einsum("bpti,iot->bpo", self.points(torch.tanh(x.tensor))[:, self.taken(x)], other.tensor)

    def whole(self, x: Held, other: Held) -> Tensor:
        layer, weight = self.described, self.kernel(other).transpose(0, 1)
        inner = torch.tanh(x.tensor)
        return self.by_torch("conv", inner, weight, None, layer.stride, layer.padding, layer.dilation)

    def kernel(self, weight: Held) -> Tensor:
        """Return the weight by input, output and the dims of the kernel."""
        return weight.tensor.unflatten(-1, [self.described.kernel] * len(self.described.space))


class TransposedConvolution(Convolution, kind="transposed_convolution"):
    """Each point, times a weight for each place around it, added to what lies there."""

    def taps(self, stencil: Stencil, row: int) -> Sequence[int]:
        layer = self.described
        ahead = [row + layer.padding - tap for tap in range(layer.kernel)]
        return [-1 if one % layer.stride else one // layer.stride for one in ahead]

    def whole(self, x: Held, other: Held) -> Tensor:
        layer, inner = self.described, torch.tanh(x.tensor)
        return self.by_torch("conv_transpose", inner, self.kernel(other), None, layer.stride, layer.padding)


class Pooling(Swept, kind="pooling"):
    """The mean of the points around each one."""

    def forward(self, x: Held, other: Held) -> Tensor:
        return self.points(x.tensor)[:, self.taken(x)].mean(2)

    def whole(self, x: Held, other: Held) -> Tensor:
        return self.by_torch("avg_pool", x.tensor, self.described.kernel, self.described.stride)


class NeighborhoodAttention(Attention, kind="neighborhood_attention"):
    """Attention of each point to those in its window."""

    def windows(self, x: Held, other: Held) -> Tensor:
        """Return the numbers of the points in the window of each query, among those whose keys are here."""
        windows = cast(attention.NeighborhoodAttention, self.kind).windows
        return _around(other, {role: (x.parts[role], one.needs, one.kernel) for role, one in windows.items()})

    def forward(self, x: Held, other: Held) -> Tensor:
        flat, beside = (one._replace(tensor=one.tensor.flatten(1, -2)) for one in (x, other))
        q, windows = self.queries(flat), self.windows(x, other)
        k, v = (one[:, :, windows] for one in self.keys(beside))  # by batch, head, query, place in the window
        each = torch.softmax((q[..., None, :] * k).sum(-1) * self.unit**-0.5, -1)
        return (each[..., None] * v).sum(-2).transpose(1, 2)

    def finish(self, tensor: Tensor) -> Tensor:
        return tensor

    def whole(self, x: Held, other: Held) -> Tensor:
        return self.forward(x, other)

    def backward(self, x: Held, grad: Held, other: Held, wanted: Wanted, kept: Kept = None) -> Gradients:
        return self.differentiated(x, grad, other, wanted)


class Averages(RealLayer):
    """Sums over a grid, of `each` numbers a point. A partial sum carries its count, and is divided by it at the end."""

    each = 1

    def sums(self, x: Held) -> Tensor:
        """Return the sums by batch and group, several side by side."""
        raise NotImplementedError

    def forward(self, x: Held, other: Held) -> Tensor:
        sums = self.sums(x)
        return torch.cat([sums, sums.new_full((*sums.shape[:-1], 1), self.each * prod(x.tensor.shape[1:-1]))], -1)

    def differentiated(self, x: Held, grad: Held, other: Held, wanted: Wanted) -> Gradients:
        inp = x.tensor.detach().requires_grad_()
        with torch.enable_grad():
            sums = self.sums(x._replace(tensor=inp))
        total = self.each * self.described.points  # the sums here, divided by the number of all points
        return None, torch.autograd.grad(sums, inp, grad.tensor.reshape(sums.shape) / total)[0]

    def split(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Split a sum into its sums and the count of numbers in each."""
        beside = int(1 / self.kind.running)
        sums, count = tensor.view(-1, beside + 1).split([beside, 1], 1)
        return sums, count

    def finish(self, tensor: Tensor) -> Tensor:
        sums, count = self.split(tensor.flatten())
        return (sums / count).flatten()


class Mean(Averages, kind="mean"):
    """The mean of all points."""

    def sums(self, x: Held) -> Tensor:
        return x.tensor.flatten(1, -2).sum(1)


class Moments(Averages, kind="moments"):
    """The mean, and the mean of the squares, of each group of features."""

    def __init__(self, kind: Any, classes: Callable[[int], Tensor]) -> None:
        super().__init__(kind, classes)
        self.each = self.described.inputs // cast(grid.Moments, kind).groups

    def sums(self, x: Held) -> Tensor:
        groups = x.tensor.flatten(1, -2).unflatten(-1, (-1, self.each))  # by batch, point, group, feature of a group
        return torch.stack([groups.sum((1, 3)), groups.square().sum((1, 3))], -1)


class GroupNorm(RealLayer, kind="group_norm"):
    """Each number less the mean of its group, divided by the root of the group's variance."""

    def forward(self, x: Held, other: Held) -> Tensor:
        mean, squares = other.tensor.flatten(1).unflatten(-1, (-1, 1, 2)).unbind(-1)
        groups = x.tensor.flatten(1, -2).unflatten(-1, (mean.shape[1], -1))
        return (groups - mean[:, None]) * (squares - mean.square() + layers.EPS).rsqrt()[:, None]

    def whole(self, x: Held, other: Held) -> Tensor:
        groups = cast(grid.GroupNorm, self.kind).groups
        return functional.group_norm(x.tensor.flatten(1, -2).movedim(-1, 1), groups, eps=layers.EPS).movedim(1, -1)


class Transform(RealLayer, kind="transform"):
    """The cosine transform along a dim of a grid (orthonormal DCT-II)."""

    def forward(self, x: Held, other: Held) -> Tensor:
        dim = 1 + [*self.described.space].index(self.described.along)
        size, tensor = self.described.space[self.described.along], x.tensor
        at = torch.arange(size, dtype=tensor.dtype, device=tensor.device)
        waves = torch.cos(math.pi / size * at[:, None] * (at[None, :] + 0.5)) * math.sqrt(2 / size)
        waves[0] /= math.sqrt(2)
        return (tensor.movedim(dim, -1) @ waves.t()).movedim(-1, dim)
