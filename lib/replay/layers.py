"""Real layers, a class for each kind: what the ranks compute, the truth to compare it with, and the loss.

A layer takes parts of its tensors, as `Held`, and gives the part of its output that follows from them; `whole` does the
same for one process that has everything, with a function of torch's where `forward` has none. A new kind of layer is a
new subclass of RealLayer: `forward` is enough, as torch can differentiate it. Layers over grids are in `grids`.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import torch
from torch import Generator, Tensor
from torch.nn import functional

from lib.values.dims import RunSet
from lib.values.kinds.experts import Route
from lib.values.kinds.kind import LayerKind

EPS = 1e-5
"""What a norm adds to the mean of the squares."""
Gradients = tuple[Tensor | None, Tensor | None]
"""With respect to what a layer takes beside its input, and to its input; None where not wanted or absent."""
Wanted = tuple[bool, bool]
Kept = Tensor | None


def normal(count: int, generator: Generator) -> Tensor:
    """Draw standard normal numbers."""
    return torch.randn(count, generator=generator, dtype=torch.float64)


class Held(NamedTuple):
    """A part of a tensor in the form of its dims, and which elements of each dim it has. `first`, of an input that only
    one layer uses: whether it is used for the first time."""

    tensor: Tensor
    parts: Mapping[str, RunSet]
    first: bool | None = None

    def numbers(self, role: str) -> Tensor:
        """Return the numbers of the elements of a dim."""
        device = self.tensor.device
        return torch.cat([torch.arange(*ends, device=device) for ends in self.parts[role].runs or [(0, 0)]])

    @property
    def rows(self) -> Tensor:
        """The tensor as a matrix: its last dim across, all others down."""
        return self.tensor.flatten(0, -2)

    def tanh(self) -> Tensor:
        """Return its tanh as a matrix: once and for all, in its own memory, where only one layer uses it."""
        return torch.tanh(self.rows) if self.first is None else self.rows.tanh_() if self.first else self.rows


REAL_LAYERS: dict[str, type[RealLayer]] = {}
"""By the name of the kind."""


class RealLayer:
    """A layer of one kind, which a subclass names. `classes` gives the number of the right answer for each row of a
    batch. A layer that takes nothing beside its input is given that twice.

    A sum that it gives may carry running values, such as a maximum, beside the numbers that they are for: `merge` and
    `finish` say what becomes of them.
    """

    def __init_subclass__(cls, kind: str = "") -> None:
        if kind:  # else it is a base of several kinds
            REAL_LAYERS[kind] = cls

    def __init__(self, kind: LayerKind, classes: Callable[[int], Tensor]) -> None:
        self.kind, self.described, self.classes = kind, kind.layer, classes

    def weight(self, count: int, generator: Generator) -> Tensor:
        """Draw the initial numbers of its weight."""
        return normal(count, generator).mul_(1.3 / math.sqrt(self.described.inputs))  # activations keep their size

    def data(self, count: int, generator: Generator) -> Tensor:
        """Draw the numbers of a batch, where this is the first layer."""
        return normal(count, generator)

    def forward(self, x: Held, other: Held) -> Tensor:
        """Return the part of its output that follows from a part of its input and of what it takes beside it."""
        raise NotImplementedError

    def backward(self, x: Held, grad: Held, other: Held, wanted: Wanted, kept: Kept = None) -> Gradients:
        """Return the wanted gradients. `kept` are the running sums of these rows, where they do not follow from the
        parts given. For the weight half alone, `other` has no numbers, only a form."""
        return self.differentiated(x, grad, other, wanted)

    def differentiated(self, x: Held, grad: Held, other: Held, wanted: Wanted) -> Gradients:
        """Return the gradients by torch's autograd through `forward`: slower, as that runs again."""
        beside, inp = other.tensor.detach(), x.tensor.detach()
        sought = [one.requires_grad_() for one, want in zip((beside, inp), wanted, strict=True) if want]
        with torch.enable_grad():
            y = self.finish(self.forward(x._replace(tensor=inp), other._replace(tensor=beside)))
        results = torch.autograd.grad(y, sought, grad.tensor.reshape(y.shape))
        found = iter([one.clone() if one.data_ptr() == grad.tensor.data_ptr() else one for one in results])
        by_other, by_input = (next(found) if want else None for want in wanted)
        return by_other, by_input

    def whole(self, x: Held, other: Held) -> Tensor:
        """Return the whole output for whole inputs: the truth."""
        return self.finish(self.forward(x, other))

    def merge(self, one: Tensor, other: Tensor) -> Tensor:
        """Add two sums with the running values that they carry; all are flat."""
        return one + other

    def finish(self, tensor: Tensor) -> Tensor:
        """Return the final form of a sum that carries running values."""
        return tensor

    def loss(self, y: Tensor, target: Tensor, rows: int) -> Tensor:
        """Return the loss of the last layer's output: half the squared distance to a target over the step's `rows`."""
        return (y - target).square().sum() * (0.5 / rows)

    def loss_gradient(self, y: Tensor, target: Tensor, rows: int) -> Tensor:
        """Return the gradient of the loss with respect to y."""
        return (y - target).mul_(1.0 / rows)


class Linear(RealLayer, kind="linear"):
    """y = tanh(x) W. Backward needs only x, or tanh(x) in its memory, and W, as the simulator says."""

    def forward(self, x: Held, other: Held) -> Tensor:
        return x.tanh() @ other.tensor

    def backward(self, x: Held, grad: Held, other: Held, wanted: Wanted, kept: Kept = None) -> Gradients:
        inner, rows = x.tanh(), grad.rows
        by_weight = inner.t() @ rows if wanted[0] else None
        if not wanted[1]:
            return by_weight, None
        by_inner = rows @ other.tensor.t()
        # In one pass, and in the memory of the product: the derivative of tanh is 1 - inner^2.
        return by_weight, torch.ops.aten.tanh_backward.grad_input(by_inner, inner, grad_input=by_inner)


class Norm(RealLayer, kind="norm"):
    """Each row divided by its root mean square, times a gain."""

    def weight(self, count: int, generator: Generator) -> Tensor:
        return normal(count, generator).mul_(0.1).add_(1)

    def forward(self, x: Held, other: Held) -> Tensor:
        return functional.rms_norm(x.tensor, x.tensor.shape[-1:], other.tensor, EPS)


class LayerNorm(Norm, kind="layer_norm"):
    """Each row less its mean, divided by the root of its variance, times a gain."""

    def forward(self, x: Held, other: Held) -> Tensor:
        return functional.layer_norm(x.tensor, x.tensor.shape[-1:], other.tensor, eps=EPS)


class Add(RealLayer, kind="add"):
    """A residual connection."""

    def forward(self, x: Held, other: Held) -> Tensor:
        return x.tensor + other.tensor

    def differentiated(self, x: Held, grad: Held, other: Held, wanted: Wanted) -> Gradients:
        return grad.tensor.clone(), grad.tensor.clone()  # for both, whatever parts of them are here


class Embedding(RealLayer, kind="embedding"):
    """The rows of a table that the tokens name."""

    def weight(self, count: int, generator: Generator) -> Tensor:
        return normal(count, generator)

    def data(self, count: int, generator: Generator) -> Tensor:
        return torch.randint(self.described.inputs, (count,), generator=generator).double()

    def chosen(self, x: Held, table: Held) -> tuple[Tensor, Tensor]:
        """Return where the row of each token is in a part of the table, and whether it is there."""
        numbers = table.numbers("in")
        tokens = x.tensor.flatten().long() % self.described.inputs  # a small dtype may have rounded up the last one
        at = torch.searchsorted(numbers, tokens).clamp(max=max(len(numbers) - 1, 0))
        return at, (numbers[at] == tokens)[:, None]

    def forward(self, x: Held, other: Held) -> Tensor:
        at, here = self.chosen(x, other)
        return other.tensor[at] * here

    def differentiated(self, x: Held, grad: Held, other: Held, wanted: Wanted) -> Gradients:
        at, here = self.chosen(x, other)
        by_table = grad.tensor.new_zeros(len(other.tensor), grad.tensor.shape[-1])  # the columns that the gradient has
        return by_table.index_add_(0, at, grad.rows * here), None


class Attention(RealLayer, kind="attention"):
    """Causal attention. Partial sums have the highest score and the sum of exponentials behind each head's numbers."""

    @property
    def unit(self) -> int:
        """Numbers of a head."""
        return self.described.inputs // self.described.heads

    def parts(self, tensor: Tensor) -> tuple[Tensor, ...]:
        """Split running sums into the numbers, the maximum and the sum of each head."""
        return tensor.split([self.unit, 1, 1], -1)

    def merge(self, one: Tensor, other: Tensor) -> Tensor:
        mine, its = (self.parts(each.view(-1, self.unit + 2)) for each in (one, other))
        highest = torch.maximum(mine[1], its[1])
        (my_scale, its_scale) = (torch.exp(each[1] - highest.nan_to_num(neginf=0)) for each in (mine, its))
        total, divides = (mine[part] * my_scale + its[part] * its_scale for part in (0, 2))
        return torch.cat([total, highest, divides], 1).flatten()

    def queries(self, x: Held) -> Tensor:
        """Return the input by batch, head, row, and number in the head."""
        return x.tensor.unflatten(-1, (-1, self.unit)).transpose(1, 2)

    def keys(self, other: Held) -> tuple[Tensor, Tensor]:
        """Return the keys and values of each head in the same form, repeated for the heads that share them."""
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
        none = scores.new_full((*scores.shape[:-1], 1), -math.inf)  # no keys, so no largest score
        highest = scores.detach().amax(-1, keepdim=True) if scores.shape[-1] else none
        each = torch.exp(scores - highest.nan_to_num(neginf=0))
        total = each @ self.keys(other)[1]
        return torch.cat([total, highest, each.sum(-1, keepdim=True)], -1).transpose(1, 2)

    def finish(self, tensor: Tensor) -> Tensor:
        total, _, divides = self.parts(tensor.reshape(-1, self.unit + 2))
        return (total / divides).flatten()

    def backward(self, x: Held, grad: Held, other: Held, wanted: Wanted, kept: Kept = None) -> Gradients:
        q, g, (k, v) = self.queries(x), self.queries(grad), self.keys(other)
        running = self.forward(x, other) if kept is None else kept.view(*x.tensor.shape[:2], -1, self.unit + 2)
        total, highest, divides = self.parts(running.transpose(1, 2))
        each = torch.exp(self.scores(x, other) - highest) / divides
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


class CrossEntropy(RealLayer, kind="cross_entropy"):
    """The loss of each row: log-sum-exp of its logits less the right one. Partial sums have both, the right first."""

    def right(self, x: Held) -> Tensor:
        """Return the right class of each row."""
        points = torch.zeros(1, dtype=torch.long, device=x.tensor.device)
        for role, size in self.described.space.items():
            points = (points[:, None] * size + x.numbers(role)).flatten()
        chosen = [self.classes(int(batch)).to(points.device)[points] for batch in x.numbers("batch")]
        return torch.cat(chosen or [points[:0]]) % self.described.inputs

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
        return torch.full_like(y, 1.0 / rows)


class _Routed(RealLayer):
    """A layer of tokens at experts. A formula weighs a token's choices, which with the dropped ones sum to 1."""

    def __init__(self, kind: LayerKind, classes: Callable[[int], Tensor]) -> None:
        super().__init__(kind, classes)
        self.experts = kind.dims.get("experts") or kind.gives["experts"]
        self.route = cast(Route, self.experts.route)

    def gate(self, token: int, expert: int) -> float:
        """Return how much the result of an expert counts for a token."""
        chosen = self.route.choices[token % len(self.route.choices)]
        weights = [1 + (7 * token + 3 * choice) % 5 for choice in range(len(chosen))]
        return weights[chosen.index(expert)] / sum(weights)

    def lines(self, x: Held) -> tuple[Tensor, Tensor, Tensor]:
        """Return, for each line of the batches, rows and experts of `x` (all experts where it has none), the place of
        its row among the rows of the batches, the place of its expert, and how much that expert's result counts."""
        batches, rows = x.parts["batch"], x.parts["rows"]
        experts = x.parts.get("experts", range(self.experts.size))
        here = {row: place for place, row in enumerate(rows)}
        found = [
            (at * len(rows) + here[row], place, self.gate(batch * self.route.rows + row, expert))
            for at, batch in enumerate(batches)
            for place, expert in enumerate(experts)
            for row in self.route.rows_of(expert, batch, rows)
        ]
        at, places, gates = zip(*found, strict=True) if found else ((), (), ())
        one, other = (torch.tensor(each, dtype=torch.long, device=x.tensor.device) for each in (at, places))
        return one, other, x.tensor.new_tensor(gates)[:, None]


class Dispatch(_Routed, kind="dispatch"):
    """A copy of each token for each of its experts."""

    def forward(self, x: Held, other: Held) -> Tensor:
        return x.rows[self.lines(x)[0]]

    def differentiated(self, x: Held, grad: Held, other: Held, wanted: Wanted) -> Gradients:
        # The sum over the experts that the gradient comes from.
        return None, torch.zeros_like(x.rows).index_add_(0, self.lines(grad)[0], grad.tensor)


class Experts(_Routed, kind="experts"):
    """A linear layer for each expert."""

    def forward(self, x: Held, other: Held) -> Tensor:
        (_, at, _), inner = self.lines(x), torch.tanh(x.tensor)
        y = inner.new_zeros(len(at), other.tensor.shape[-1])
        for expert, weight in enumerate(other.tensor):
            y[at == expert] = inner[at == expert] @ weight
        return y


class Combine(_Routed, kind="combine"):
    """Each token again: the weighted sum of its experts' results."""

    def forward(self, x: Held, other: Held) -> Tensor:
        (at, _, gates), rows = self.lines(x), len(x.parts["batch"]) * len(x.parts["rows"])
        return x.tensor.new_zeros(rows, x.tensor.shape[-1]).index_add(0, at, gates * x.tensor)
