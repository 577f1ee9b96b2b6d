"""Real layers, a class for each kind: what the ranks compute, the truth that it is compared with, and the loss.

A layer takes parts of its tensors, as `Held` says them, and gives the part that follows of them; `whole` is the same
for one process that has everything, by torch's own functions where torch has them. Another kind of layer is a row more
in REAL_LAYERS: `forward` will do, as torch can differentiate it.

The loss is a sum over all rows, of half the squared distance to a fixed target, divided by the rows of all batches
together; after a cross entropy it is that of the rows, divided in the same way.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import NamedTuple, cast

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from lib.replay.plan.sizes import Range
from lib.values.dims import RunSet
from lib.values.kinds import attention, grid
from lib.values.kinds.experts import Route
from lib.values.kinds.grid import Stencil
from lib.values.kinds.kind import LayerKind

__all__ = ["REAL_LAYERS", "Averages", "Gradients", "Held", "Layer", "RealLayer", "loss", "model", "normal"]

GAIN = 1.3
"""Weights are normal with a spread of GAIN / sqrt(inputs), so that activations neither vanish nor grow."""
EPS = 1e-5
"""What a norm adds to the mean of the squares."""
Gradients = tuple[Tensor | None, Tensor | None]
"""By what a layer takes beside its input, and by its input. None where nobody wants it, or there is none."""
Wanted = tuple[bool, bool]
Kept = Tensor | None


class Held(NamedTuple):
    """A part of a tensor in the form of its dims, and which elements of each dim it has."""

    tensor: Tensor
    parts: Mapping[str, tuple[Range, ...]]

    def numbers(self, role: str) -> Tensor:
        """The elements of a dim."""
        device = self.tensor.device
        return torch.cat([torch.arange(*ends, device=device) for ends in self.parts[role] or [(0, 0)]])

    @property
    def rows(self) -> Tensor:
        """It as a matrix: its last dim across, all others down."""
        return self.tensor.flatten(0, -2)


class RealLayer:
    """A layer of one kind. `classes` are the numbers that name the right answer for each row of a batch. What takes
    nothing beside its input is given that twice.

    Where the sum that it gives has something running, such as a maximum and a sum, this stands beside the numbers that
    it is for, and `merge` and `finish` say what becomes of it.
    """

    def __init__(self, kind: LayerKind, classes: Callable[[int], Tensor]) -> None:
        self.kind, self.described, self.classes = kind, kind.layer, classes

    def weight(self, count: int, generator: Generator) -> Tensor:
        """The numbers of its weight that training starts from."""
        return normal(count, generator).mul_(GAIN / math.sqrt(self.described.inputs))

    def data(self, count: int, generator: Generator) -> Tensor:
        """The numbers of a batch, where it is the first layer."""
        return normal(count, generator)

    def forward(self, x: Held, other: Held) -> Tensor:
        """The part of its output that follows of a part of its input, and of what it takes besides."""
        raise NotImplementedError

    def backward(self, x: Held, grad: Held, other: Held, wanted: Wanted, kept: Kept = None) -> Gradients:
        """The gradients that are wanted. `kept` are the running sums of these rows, where the parts at hand do not say
        them. Of the weight half alone, `other` has no numbers, only a form."""
        return self.differentiated(x, grad, other, wanted)

    def differentiated(self, x: Held, grad: Held, other: Held, wanted: Wanted) -> Gradients:
        """The gradients by torch's own differentiation of `forward`: slower, as that is done again."""
        beside, inp = other.tensor.detach(), x.tensor.detach()
        sought = [one.requires_grad_() for one, want in zip((beside, inp), wanted, strict=True) if want]
        with torch.enable_grad():
            y = self.finish(self.forward(x._replace(tensor=inp), other._replace(tensor=beside)))
        results = torch.autograd.grad(y, sought, grad.tensor.reshape(y.shape))
        found = iter([one.clone() if one.data_ptr() == grad.tensor.data_ptr() else one for one in results])
        by_other, by_input = (next(found) if want else None for want in wanted)
        return by_other, by_input

    def whole(self, x: Held, other: Held) -> Tensor:
        """All of its output, of all that it takes: the truth."""
        return self.finish(self.forward(x, other))

    def merge(self, one: Tensor, other: Tensor) -> Tensor:
        """The sum of two sums with what runs along; all are flat."""
        raise NotImplementedError

    def finish(self, tensor: Tensor) -> Tensor:
        """Return what a sum with what runs along becomes when it is done."""
        return tensor

    def loss(self, y: Tensor, target: Tensor, rows: int) -> Tensor:
        """The loss, where it is the last layer and y its output."""
        return loss(y, target, rows)

    def loss_gradient(self, y: Tensor, target: Tensor, rows: int) -> Tensor:
        """The gradient of the loss by y. Takes the memory of `target`, which must be the caller's own."""
        return target.neg_().add_(y).mul_(1.0 / rows)


class Linear(RealLayer):
    """y = tanh(x) W. Backward needs only what the simulator says it needs, x and W, and computes no product twice:
    tanh(x) is cheap to do again."""

    def forward(self, x: Held, other: Held) -> Tensor:
        return torch.tanh(x.rows) @ other.tensor

    def backward(self, x: Held, grad: Held, other: Held, wanted: Wanted, kept: Kept = None) -> Gradients:
        inner = torch.tanh(x.rows)
        by_weight = inner.t() @ grad.rows if wanted[0] else None
        if not wanted[1]:
            return by_weight, None
        by_inner = grad.rows @ other.tensor.t()
        # In one pass, and in the memory of the product: the derivative of tanh is 1 - inner^2.
        return by_weight, torch.ops.aten.tanh_backward.grad_input(by_inner, inner, grad_input=by_inner)


class Norm(RealLayer):
    """Each row by the root of the mean of its squares, times a gain."""

    def weight(self, count: int, generator: Generator) -> Tensor:
        return normal(count, generator).mul_(0.1).add_(1)

    def forward(self, x: Held, other: Held) -> Tensor:
        return x.tensor * _over_root(x.tensor) * other.tensor

    def backward(self, x: Held, grad: Held, other: Held, wanted: Wanted, kept: Kept = None) -> Gradients:
        rows, over = x.rows, _over_root(x.rows)
        by_gain = (grad.rows * rows * over).sum(0) if wanted[0] else None
        if not wanted[1]:
            return by_gain, None
        scaled = grad.rows * other.tensor
        return by_gain, scaled * over - rows * (scaled * rows).mean(-1, keepdim=True) * over**3

    def whole(self, x: Held, other: Held) -> Tensor:
        return functional.rms_norm(x.tensor, x.tensor.shape[-1:], other.tensor, EPS)


class LayerNorm(Norm):
    """Each row less its mean, by the root of its variance, times a gain."""

    def forward(self, x: Held, other: Held) -> Tensor:
        return super().forward(_centred(x), other)

    def backward(self, x: Held, grad: Held, other: Held, wanted: Wanted, kept: Kept = None) -> Gradients:
        by_gain, by_rows = super().backward(_centred(x), grad, other, wanted)
        return by_gain, None if by_rows is None else by_rows - by_rows.mean(-1, keepdim=True)

    def whole(self, x: Held, other: Held) -> Tensor:
        return functional.layer_norm(x.tensor, x.tensor.shape[-1:], other.tensor, eps=EPS)


class Add(RealLayer):
    """A residual connection."""

    def forward(self, x: Held, other: Held) -> Tensor:
        return x.tensor + other.tensor

    def differentiated(self, x: Held, grad: Held, other: Held, wanted: Wanted) -> Gradients:
        """The gradient for both, whatever parts of them are here."""
        return grad.tensor.clone(), grad.tensor.clone()


class Embedding(RealLayer):
    """Rows of a table, which the tokens name."""

    def weight(self, count: int, generator: Generator) -> Tensor:
        return normal(count, generator)

    def data(self, count: int, generator: Generator) -> Tensor:
        return torch.randint(self.described.inputs, (count,), generator=generator).double()

    def tokens(self, x: Held) -> Tensor:
        """The token of each row of a batch."""
        return x.tensor.flatten().long() % self.described.inputs  # a small dtype may have rounded up the last one

    def chosen(self, x: Held, table: Held) -> tuple[Tensor, Tensor]:
        """Return where the row of each token is in a part of the table, and whether it is there."""
        numbers, tokens = table.numbers("in"), self.tokens(x)
        at = torch.searchsorted(numbers, tokens).clamp(max=max(len(numbers) - 1, 0))
        return at, (numbers[at] == tokens)[:, None]

    def forward(self, x: Held, other: Held) -> Tensor:
        at, here = self.chosen(x, other)
        return other.tensor[at] * here

    def differentiated(self, x: Held, grad: Held, other: Held, wanted: Wanted) -> Gradients:
        """The gradient of the rows that are here, for the columns that the gradient has."""
        at, here = self.chosen(x, other)
        by_table = grad.tensor.new_zeros(len(other.tensor), grad.tensor.shape[-1])
        return by_table.index_add_(0, at, grad.rows * here), None

    def whole(self, x: Held, other: Held) -> Tensor:
        return functional.embedding(self.tokens(x), other.tensor)


class Attention(RealLayer):
    """Causal attention, scaled as ever: the values by the exponentials of their scores. Partial sums have the maximum
    of these and their sum, behind the numbers of each head."""

    def __init__(self, kind: LayerKind, classes: Callable[[int], Tensor]) -> None:
        super().__init__(kind, classes)
        self.unit = self.described.inputs // self.described.heads

    def parts(self, tensor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The numbers, the maximum and the sum."""
        total, highest, divides = tensor.view(-1, self.unit + 2).split([self.unit, 1, 1], 1)
        return total, highest, divides

    def merge(self, one: Tensor, other: Tensor) -> Tensor:
        (mine, my_highest, my_sum), (its, its_highest, its_sum) = self.parts(one), self.parts(other)
        highest = torch.maximum(my_highest, its_highest)
        my_scale, its_scale = (torch.exp(each - _finite(highest)) for each in (my_highest, its_highest))
        total = mine * my_scale + its * its_scale
        return torch.cat([total, highest, my_sum * my_scale + its_sum * its_scale], 1).flatten()

    def queries(self, x: Held) -> Tensor:
        """It by batch, head, row, and number in the head."""
        return x.tensor.unflatten(-1, (-1, self.unit)).transpose(1, 2)

    def keys(self, other: Held) -> tuple[Tensor, Tensor]:
        """The keys and values of each head in the same form, those that several heads share once for each."""
        if not self.described.kv_heads:
            return self.queries(other), self.queries(other)
        both = other.tensor.unflatten(-1, (-1, 2, self.unit)).transpose(1, 2)
        both = both.repeat_interleave(self.described.heads // self.described.kv_heads, 1)
        return both[..., 0, :], both[..., 1, :]

    def scores(self, x: Held, other: Held) -> Tensor:
        """Return how much each row attends to each key."""
        later = other.numbers("rows")[None, :] > x.numbers("rows")[:, None]
        products = self.queries(x) @ self.keys(other)[0].transpose(-1, -2)
        return (products * self.unit**-0.5).masked_fill(later, -math.inf)

    def forward(self, x: Held, other: Held) -> Tensor:
        scores = self.scores(x, other)
        highest = _maximum(scores)
        each = torch.exp(scores - _finite(highest))
        total = each @ self.keys(other)[1]
        return torch.cat([total, highest, each.sum(-1, keepdim=True)], -1).transpose(1, 2)

    def finish(self, tensor: Tensor) -> Tensor:
        total, _, divides = self.parts(tensor.flatten())
        return (total / divides).flatten()

    def backward(self, x: Held, grad: Held, other: Held, wanted: Wanted, kept: Kept = None) -> Gradients:
        kv, q, g = other, self.queries(x), self.queries(grad)
        k, v = self.keys(kv)
        running = self.forward(x, other).flatten() if kept is None else kept
        form = (*x.tensor.shape[:2], -1, self.unit + 2)
        total, highest, divides = running.view(form).transpose(1, 2).split([self.unit, 1, 1], -1)
        each = torch.exp(self.scores(x, kv) - highest) / divides
        by_scores = each * (g @ v.transpose(-1, -2) - (g * total / divides).sum(-1, keepdim=True)) * self.unit**-0.5
        by_q = (by_scores @ k).transpose(1, 2)
        by_k, by_v = by_scores.transpose(-1, -2) @ q, each.transpose(-1, -2) @ g
        if not self.described.kv_heads:
            return (by_k + by_v).transpose(1, 2), by_q
        shared = (-1, self.described.heads // self.described.kv_heads)
        return torch.stack([by_k, by_v], 3).unflatten(1, shared).sum(2).transpose(1, 2), by_q

    def whole(self, x: Held, other: Held) -> Tensor:
        q, (k, v) = self.queries(x), self.keys(other)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


class CrossEntropy(RealLayer):
    """The loss of each row: the logarithm of the sum of the exponentials, less the logit of the right class. Partial
    sums have the two side by side, in the other order."""

    def right(self, x: Held) -> Tensor:
        """The right class of each row."""
        batches = [self.classes(int(batch)) for batch in x.numbers("batch")]
        rows, *others = (x.numbers(role) for role in self.described.space)
        points = rows
        for numbers, size in zip(others, [*self.described.space.values()][1:], strict=True):
            points = (points[:, None] * size + numbers).flatten()
        chosen = [batch.to(x.tensor.device)[points] for batch in batches] or [points[:0]]
        return torch.cat(chosen) % self.described.inputs

    def is_right(self, x: Held) -> Tensor:
        """Tell whether a logit is that of the right class, as 1 or 0."""
        return (x.numbers("features") == self.right(x)[:, None]).to(x.tensor.dtype)

    def forward(self, x: Held, other: Held) -> Tensor:
        right = (x.rows * self.is_right(x)).sum(1)
        return torch.stack([right, torch.logsumexp(x.rows, 1)], 1)

    def merge(self, one: Tensor, other: Tensor) -> Tensor:
        (mine, my_log), (its, its_log) = (each.view(-1, 2).unbind(1) for each in (one, other))
        return torch.stack([mine + its, torch.logaddexp(my_log, its_log)], 1).flatten()

    def finish(self, tensor: Tensor) -> Tensor:
        right, log = tensor.view(-1, 2).unbind(1)
        return log - right

    def backward(self, x: Held, grad: Held, other: Held, wanted: Wanted, kept: Kept = None) -> Gradients:
        log = (self.forward(x, other) if kept is None else kept.view(-1, 2))[:, 1:]
        return None, (torch.exp(x.rows - log) - self.is_right(x)) * grad.rows

    def whole(self, x: Held, other: Held) -> Tensor:
        return functional.cross_entropy(x.rows, self.right(x), reduction="none")

    def loss(self, y: Tensor, target: Tensor, rows: int) -> Tensor:
        return y.sum() / rows

    def loss_gradient(self, y: Tensor, target: Tensor, rows: int) -> Tensor:
        return target.fill_(1.0 / rows)


class Lines(NamedTuple):
    """The lines of a matrix of tokens at experts: the place of each one's row among the rows of the batches that are
    here, that of its expert among the experts, and how much that expert's result counts."""

    rows: Tensor
    experts: Tensor
    gates: Tensor


class _Routed(RealLayer):
    """A layer of tokens at experts. The first choice of a token counts for more than the second or less, by a formula;
    all its choices together for 1, those that are dropped too."""

    def __init__(self, kind: LayerKind, classes: Callable[[int], Tensor]) -> None:
        super().__init__(kind, classes)
        experts = dict(kind.dims).get("experts") or dict(kind.gives)["experts"]
        self.route = cast(Route, experts.route)
        self.number = experts.size

    def gate(self, token: int, expert: int) -> float:
        """Return how much the result of an expert counts for a token."""
        chosen = self.route.choices[token % len(self.route.choices)]
        weights = [1 + (7 * token + 3 * choice) % 5 for choice in range(len(chosen))]
        return weights[chosen.index(expert)] / sum(weights)

    def lines(self, x: Held) -> Lines:
        """The lines of what has the batches, rows and experts of `x`; all experts where it has none."""
        batches, rows = (x.numbers(role).tolist() for role in ("batch", "rows"))
        experts = x.numbers("experts").tolist() if "experts" in x.parts else range(self.number)
        here = {row: place for place, row in enumerate(rows)}
        found = [
            (at * len(rows) + here[row], place, self.gate(batch * self.route.rows + row, expert))
            for at, batch in enumerate(batches)
            for place, expert in enumerate(experts)
            for row in self.route.rows_of(expert, batch, frozenset(rows))
        ]
        columns = zip(*found, strict=True) if found else ((), (), ())
        kinds = (torch.long, torch.long, x.tensor.dtype)
        one, other, gates = (
            torch.tensor(column, dtype=kind, device=x.tensor.device)
            for column, kind in zip(columns, kinds, strict=True)
        )
        return Lines(one, other, gates[:, None])

    def gates(self, x: Held) -> Tensor:
        """By batch, expert and row how much it counts, 0 where the row is not there; for all of a step."""
        lines, (batches, rows) = self.lines(x), (len(x.numbers(role)) for role in ("batch", "rows"))
        found = lines.gates.new_zeros(batches, self.number, rows)
        found[lines.rows // rows, lines.experts, lines.rows % rows] = lines.gates[:, 0]
        return found[..., None]


class Dispatch(_Routed):
    """A copy of each token for each of its experts."""

    def forward(self, x: Held, other: Held) -> Tensor:
        return x.rows[self.lines(x).rows]

    def differentiated(self, x: Held, grad: Held, other: Held, wanted: Wanted) -> Gradients:
        """The sum over the experts that the gradient is of."""
        return None, torch.zeros_like(x.rows).index_add_(0, self.lines(grad).rows, grad.tensor)

    def whole(self, x: Held, other: Held) -> Tensor:
        return (self.gates(x) > 0) * x.tensor[:, None]


class Experts(_Routed):
    """A linear layer for each expert."""

    def forward(self, x: Held, other: Held) -> Tensor:
        at, inner = self.lines(x).experts, torch.tanh(x.tensor)
        y = inner.new_zeros(len(at), other.tensor.shape[-1])
        for expert, weight in enumerate(other.tensor):
            y[at == expert] = inner[at == expert] @ weight
        return y

    def backward(self, x: Held, grad: Held, other: Held, wanted: Wanted, kept: Kept = None) -> Gradients:
        at, inner = self.lines(x).experts, torch.tanh(x.tensor)
        tokens = [at == expert for expert in range(len(other.tensor))]
        by_weight = torch.stack([inner[one].t() @ grad.tensor[one] for one in tokens]) if wanted[0] else None
        if not wanted[1]:
            return by_weight, None
        by_input = torch.zeros_like(inner)
        for one, weight in zip(tokens, other.tensor, strict=True):
            by_input[one] = grad.tensor[one] @ weight.t() * (1 - inner[one] ** 2)
        return by_weight, by_input

    def whole(self, x: Held, other: Held) -> Tensor:
        return torch.stack([torch.tanh(x.tensor[:, expert]) @ weight for expert, weight in enumerate(other.tensor)], 1)


class Combine(_Routed):
    """Each token again: what its experts made of it, as much as each counts."""

    def forward(self, x: Held, other: Held) -> Tensor:
        lines, rows = self.lines(x), len(x.numbers("batch")) * len(x.numbers("rows"))
        return x.tensor.new_zeros(rows, x.tensor.shape[-1]).index_add(0, lines.rows, lines.gates * x.tensor)

    def differentiated(self, x: Held, grad: Held, other: Held, wanted: Wanted) -> Gradients:
        """For those tokens at experts that are here."""
        lines = self.lines(x)
        return None, lines.gates * grad.rows[lines.rows]

    def whole(self, x: Held, other: Held) -> Tensor:
        return (self.gates(x) * x.tensor).sum(1)


class Swept(RealLayer):
    """A layer whose outputs take what lies around their own place in a grid."""

    @property
    def space(self) -> list[str]:
        """The dims of the grid."""
        return [*self.described.space]

    def taken(self, x: Held) -> Tensor:
        """Return which points each output takes that follows of what is here, by output and place of the kernel:
        their numbers among those that are here, and for what is outside the number after the last one."""
        kind = cast(grid.Swept, self.kind)
        found = torch.zeros(1, 1, dtype=torch.long)
        outside = torch.zeros(1, 1, dtype=torch.bool)
        for role in self.space:
            stencil, rows = kind.stencils[role], x.numbers(role).tolist()
            places = {row: place for place, row in enumerate(rows)}
            taken = [[places.get(one, -1) for one in self.taps(stencil, q)] for q in stencil.given(RunSet.of(rows))]
            at = torch.tensor(taken, dtype=torch.long).view(-1, stencil.kernel)
            found = (found[:, None, :, None] * len(rows) + at[None, :, None, :]).flatten(2).flatten(0, 1)
            outside = (outside[:, None, :, None] | (at < 0)[None, :, None, :]).flatten(2).flatten(0, 1)
        points = prod(len(x.numbers(role)) for role in self.space)
        return found.masked_fill(outside, points).to(x.tensor.device)

    def taps(self, stencil: Stencil, row: int) -> Sequence[int]:
        """The row that lies at each place of the kernel; one that does not exist where none does."""
        return stencil.needs(row)

    def differentiated(self, x: Held, grad: Held, other: Held, wanted: Wanted) -> Gradients:
        """Of outputs whose gradient is not here that is zero."""
        tensor, stencils = grad.tensor, cast(grid.Swept, self.kind).stencils
        for dim, role in enumerate(self.space, 1):
            given = torch.tensor([*stencils[role].given(RunSet.of(x.numbers(role).tolist()))], device=tensor.device)
            if len(given) > tensor.shape[dim]:
                sizes = (*tensor.shape[:dim], len(given), *tensor.shape[dim + 1 :])
                at = torch.searchsorted(given, grad.numbers(role))
                tensor = tensor.new_zeros(sizes).index_copy_(dim, at, tensor)
        return super().differentiated(x, grad._replace(tensor=tensor), other, wanted)

    def points(self, x: Tensor) -> Tensor:
        """It by batch, point, and feature, with a point of zeros behind the others."""
        return functional.pad(x.flatten(1, -2), (0, 0, 0, 1))

    def by_feature(self, x: Tensor) -> Tensor:
        """It as torch takes a grid: batch, feature, and the dims of the grid."""
        return x.movedim(-1, 1)


class Convolution(Swept):
    """Points around each one, times the weight for their place."""

    def forward(self, x: Held, other: Held) -> Tensor:
        return torch.einsum("bpti,iot->bpo", self.points(torch.tanh(x.tensor))[:, self.taken(x)], other.tensor)

    def whole(self, x: Held, other: Held) -> Tensor:
        layer, inner, weight = self.described, torch.tanh(x.tensor), self.kernel(other).transpose(0, 1)
        convolution = (functional.conv1d, functional.conv2d, functional.conv3d)[len(self.space) - 1]
        y = convolution(self.by_feature(inner), weight, None, layer.stride, layer.padding, layer.dilation)
        return y.movedim(1, -1)

    def kernel(self, weight: Held) -> Tensor:
        """The weight by input, output, and the dims of the kernel."""
        return weight.tensor.unflatten(-1, [self.described.kernel] * len(self.space))


class TransposedConvolution(Convolution):
    """Each point, times a weight for each place around it, added to what lies there."""

    def taps(self, stencil: Stencil, row: int) -> Sequence[int]:
        layer = self.described
        ahead = [row + layer.padding - tap for tap in range(layer.kernel)]
        return [-1 if one % layer.stride else one // layer.stride for one in ahead]

    def whole(self, x: Held, other: Held) -> Tensor:
        layer, inner, weight = self.described, torch.tanh(x.tensor), self.kernel(other)
        convolution = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)
        y = convolution[len(self.space) - 1](self.by_feature(inner), weight, None, layer.stride, layer.padding)
        return y.movedim(1, -1)


class Pooling(Swept):
    """The mean of the points around each one."""

    def forward(self, x: Held, other: Held) -> Tensor:
        return self.points(x.tensor)[:, self.taken(x)].mean(2)

    def whole(self, x: Held, other: Held) -> Tensor:
        layer, pool = self.described, (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)
        return pool[len(self.space) - 1](self.by_feature(x.tensor), layer.kernel, layer.stride).movedim(1, -1)


class NeighborhoodAttention(Attention):
    """Attention of each point to those in its window."""

    def windows(self, x: Held, other: Held) -> Tensor:
        """The numbers of the points in the window of each query, among those whose keys are here."""
        found = torch.zeros(1, 1, dtype=torch.long)
        for role, window in cast(attention.NeighborhoodAttention, self.kind).windows.items():
            places = {row: place for place, row in enumerate(other.numbers(role).tolist())}
            taken = [[places[one] for one in window.needs(row)] for row in x.numbers(role).tolist()]
            at = torch.tensor(taken, dtype=torch.long).view(-1, window.kernel)
            found = (found[:, None, :, None] * len(places) + at[None, :, None, :]).flatten(2).flatten(0, 1)
        return found.to(x.tensor.device)

    def forward(self, x: Held, other: Held) -> Tensor:
        flat, beside = (one._replace(tensor=one.tensor.flatten(1, -2)) for one in (x, other))
        q, windows = self.queries(flat), self.windows(x, other)
        k, v = (one[:, :, windows] for one in self.keys(beside))  # by batch, head, query, place in the window
        each = torch.softmax((q[..., None, :] * k).sum(-1) * self.unit**-0.5, -1)
        return (each[..., None] * v).sum(-2).transpose(1, 2)

    def finish(self, tensor: Tensor) -> Tensor:
        return tensor

    def backward(self, x: Held, grad: Held, other: Held, wanted: Wanted, kept: Kept = None) -> Gradients:
        return self.differentiated(x, grad, other, wanted)

    def whole(self, x: Held, other: Held) -> Tensor:
        """By a loop over all points, as NATTEN's reference has it, each with torch's own attention to its window."""
        kernel, space = self.described.kernel, [*self.described.space.values()]
        q, k, v = x.tensor, *self.keys(other._replace(tensor=other.tensor.flatten(1, -2)))
        k, v = (one.unflatten(2, space) for one in (k, v))
        found = []
        for point in product(*map(range, space)):
            first = [min(max(i - kernel // 2, 0), size - kernel) for i, size in zip(point, space, strict=True)]
            window = tuple(slice(low, low + kernel) for low in first)
            query = q[(slice(None), *point)].unflatten(-1, (-1, self.unit))[:, :, None]
            near, seen = (one[(slice(None), slice(None), *window)].flatten(2, -2) for one in (k, v))
            found.append(functional.scaled_dot_product_attention(query, near, seen)[:, :, 0].flatten(1))
        return torch.stack(found, 1)


class Averages(RealLayer):
    """Sums over the points of a grid, with their number beside them in a part of one; divided by it when it is done."""

    def sums(self, x: Held) -> Tensor:
        """The sums by batch and group, several side by side."""
        raise NotImplementedError

    @property
    def each(self) -> int:
        """Numbers of each point that are added up."""
        return 1

    def forward(self, x: Held, other: Held) -> Tensor:
        sums = self.sums(x)
        return torch.cat([sums, sums.new_full((*sums.shape[:-1], 1), self.each * prod(x.tensor.shape[1:-1]))], -1)

    def differentiated(self, x: Held, grad: Held, other: Held, wanted: Wanted) -> Gradients:
        """That of the part of the sums that is here, by the number of all points."""
        inp = x.tensor.detach().requires_grad_()
        with torch.enable_grad():
            sums = self.sums(x._replace(tensor=inp))
        total = self.each * self.described.points
        return None, torch.autograd.grad(sums, inp, grad.tensor.reshape(sums.shape) / total)[0]

    def split(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """The sums, and how many numbers are in each."""
        beside = int(1 / self.kind.running)
        sums, count = tensor.view(-1, beside + 1).split([beside, 1], 1)
        return sums, count

    def merge(self, one: Tensor, other: Tensor) -> Tensor:
        return one + other

    def finish(self, tensor: Tensor) -> Tensor:
        sums, count = self.split(tensor.flatten())
        return (sums / count).flatten()


class Mean(Averages):
    """The mean of all points."""

    def sums(self, x: Held) -> Tensor:
        return x.tensor.flatten(1, -2).sum(1)

    def whole(self, x: Held, other: Held) -> Tensor:
        return x.tensor.flatten(1, -2).mean(1)


class Moments(Averages):
    """The mean, and the mean of the squares, of each group of features."""

    def sums(self, x: Held) -> Tensor:
        groups = self.grouped(x)
        return torch.stack([groups.sum((1, 3)), groups.square().sum((1, 3))], -1)

    @property
    def each(self) -> int:
        return self.described.inputs // cast(grid.Moments, self.kind).groups

    def grouped(self, x: Held) -> Tensor:
        """It by batch, point, group, and feature of a group."""
        return x.tensor.flatten(1, -2).unflatten(-1, (-1, self.each))

    def whole(self, x: Held, other: Held) -> Tensor:
        groups = self.grouped(x)
        variance, mean = torch.var_mean(groups, (1, 3), correction=0)
        return torch.stack([mean, variance + mean.square()], -1)


class GroupNorm(RealLayer):
    """Each number less the mean of its group, by the root of its variance."""

    def forward(self, x: Held, other: Held) -> Tensor:
        mean, squares = other.tensor.flatten(1).unflatten(-1, (-1, 1, 2)).unbind(-1)
        groups = x.tensor.flatten(1, -2).unflatten(-1, (mean.shape[1], -1))
        return (groups - mean[:, None]) * (squares - mean.square() + EPS).rsqrt()[:, None]

    def whole(self, x: Held, other: Held) -> Tensor:
        groups = cast(grid.GroupNorm, self.kind).groups
        return functional.group_norm(x.tensor.flatten(1, -2).movedim(-1, 1), groups, eps=EPS).movedim(1, -1)


class Transform(RealLayer):
    """The cosine transform along a dim of a grid (DCT-II, as orthonormal)."""

    def matrix(self, x: Tensor) -> Tensor:
        """Return what a line is multiplied by."""
        size = self.described.space[self.described.along]
        at = torch.arange(size, dtype=x.dtype, device=x.device)
        waves = torch.cos(math.pi / size * at[:, None] * (at[None, :] + 0.5)) * math.sqrt(2 / size)
        waves[0] /= math.sqrt(2)
        return waves

    def forward(self, x: Held, other: Held) -> Tensor:
        return self.along(x.tensor, self.matrix(x.tensor).t())

    def along(self, x: Tensor, matrix: Tensor) -> Tensor:
        """It with each of its lines multiplied by a matrix."""
        dim = 1 + [*self.described.space].index(self.described.along)
        return (x.movedim(dim, -1) @ matrix).movedim(-1, dim)

    def differentiated(self, x: Held, grad: Held, other: Held, wanted: Wanted) -> Gradients:
        return None, self.along(grad.tensor, self.matrix(grad.tensor))

    def whole(self, x: Held, other: Held) -> Tensor:
        """By the Fourier transform of a line and its mirror image."""
        dim = 1 + [*self.described.space].index(self.described.along)
        lines, size = x.tensor.movedim(dim, -1), x.tensor.shape[dim]
        spectrum = torch.fft.fft(torch.cat([lines, lines.flip(-1)], -1))[..., :size]
        turned = torch.exp(torch.arange(size, dtype=torch.float64) * (-0.5j * math.pi / size)) * spectrum
        scale = torch.full((size,), math.sqrt(0.5 / size), dtype=lines.dtype)
        scale[0] /= math.sqrt(2)
        return (turned.real * scale).movedim(-1, dim)


REAL_LAYERS: dict[str, type[RealLayer]] = {
    "linear": Linear,
    "norm": Norm,
    "layer_norm": LayerNorm,
    "add": Add,
    "attention": Attention,
    "embedding": Embedding,
    "cross_entropy": CrossEntropy,
    "dispatch": Dispatch,
    "experts": Experts,
    "combine": Combine,
    "convolution": Convolution,
    "transposed_convolution": TransposedConvolution,
    "pooling": Pooling,
    "neighborhood_attention": NeighborhoodAttention,
    "mean": Mean,
    "moments": Moments,
    "group_norm": GroupNorm,
    "transform": Transform,
}
"""By the name of the kind."""


def normal(count: int, generator: Generator) -> Tensor:
    """Numbers of a spread of 1."""
    return torch.randn(count, generator=generator, dtype=torch.float64)


def _centred(x: Held) -> Held:
    return x._replace(tensor=x.tensor - x.tensor.mean(-1, keepdim=True))


def _over_root(x: Tensor) -> Tensor:
    return (x.square().mean(-1, keepdim=True) + EPS).rsqrt()


def _maximum(x: Tensor) -> Tensor:
    """The largest number of each row, however few there are."""
    return x.detach().amax(-1, keepdim=True) if x.shape[-1] else x.new_full((*x.shape[:-1], 1), -math.inf)


def _finite(highest: Tensor) -> Tensor:
    """A maximum to be taken away: that of nothing is none."""
    return highest.masked_fill(highest == -math.inf, 0)


def loss(y: Tensor, target: Tensor, rows: int) -> Tensor:
    """Half the squared distance to the target, divided by `rows`, those of all batches."""
    return (y - target).square().sum() * (0.5 / rows)


class Layer(nn.Module):
    """A linear layer as torch's own libraries take it."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        """The output of a layer."""
        return torch.tanh(x) @ self.weight


def model(weights: Iterable[Tensor]) -> nn.Sequential:
    """Layers of these weights (which training changes), one after the other."""
    return nn.Sequential(*map(Layer, weights))
