"""A Trace played on real arrays: each value that is done has to be its box of the undivided computation.

The places of the rules say which box that is. So a rule that forgets a check, or says the wrong place, is noticed here
by whatever program runs into it: nobody has to think of that program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from math import floor, prod
from typing import Any

import numpy as np

from lib import Activation, ActivationGrad, OptState, Trace, Weight
from lib.trace.order import order
from lib.trace.rebuild import rebuild
from lib.values.collectives import COLLECTIVES, values_in
from lib.values.kinds.kind import LayerKind
from lib.values.layers import LAYER_KINDS, Shape
from lib.values.placement import Part, Place
from lib.values.values import Value

__all__ = ["Undivided", "box", "play"]

Array = Any
Index = Any
CLOSE = 1e-9


@lru_cache(4096)
def items(part: Part | None) -> Index:
    """The numbers of the elements of a part."""
    ranges = [] if part is None else [np.arange(floor(low), floor(high)) for low, high in part.ranges]
    return np.concatenate(ranges) if ranges else np.arange(part is None)


def box(place: Place) -> Index:
    """The box of a place, as an index of a whole tensor."""
    return np.ix_(*[items(part) for part in place.dims])


def within(outer: Place, inner: Place) -> Index:
    """Where a box lies within another one; before it any number of arrays."""
    pairs = zip(outer.dims, inner.dims, strict=True)
    at = np.ix_(*[np.searchsorted(items(mine), items(theirs)) for mine, theirs in pairs])
    return (slice(None), *at)


# Arrays have one more dim in front: 1, or of a running sum 3, which are the sum, its maximum and the sum that divides.


class Math:
    """What a layer does to arrays, which lie on their dims as places say; `truth` knows what its forward has kept."""

    def __init__(self, kind: LayerKind, truth: Undivided, number: int) -> None:
        self.kind, self.truth, self.number = kind, truth, number

    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        raise NotImplementedError

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        raise NotImplementedError

    def filled(self, grad: Array, place: Place, at: Place) -> Array:
        """A gradient of all that follows of an input, which lies there."""
        return grad

    def merge(self, one: Array, other: Array) -> Array:
        return one + other

    def finish(self, array: Array) -> Array:
        """What a sum that is done becomes."""
        return array

    def flat(self, x: Array) -> Array:
        """It with all points of the grid in one line."""
        return x.reshape(*x.shape[:2], prod(x.shape[2:-1]), x.shape[-1])


class Linear(Math):
    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        return np.tanh(x) @ other

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        inner = np.tanh(x)
        by_input = None if other is None else (grad @ np.swapaxes(other, -1, -2)) * (1 - inner**2)
        return np.einsum("nri,nro->nio", *[one.reshape(len(x), -1, one.shape[-1]) for one in (inner, grad)]), by_input


class Norm(Math):
    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.1) * other[0]

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        size = np.sqrt((x**2).mean(-1, keepdims=True) + 0.1)
        by_gain = (grad * x / size).sum(tuple(range(1, x.ndim - 1)))
        if other is None:
            return by_gain, None
        scaled = grad * other[0]
        return by_gain, scaled / size - x * (scaled * x).mean(-1, keepdims=True) / size**3


class LayerNorm(Norm):
    """The same for rows less their means."""

    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        return super().forward(x - x.mean(-1, keepdims=True), other, at, beside)

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        by_gain, by_rows = super().backward(x - x.mean(-1, keepdims=True), grad, other, at, beside)
        return by_gain, None if by_rows is None else by_rows - by_rows.mean(-1, keepdims=True)


class Add(Math):
    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        return x + other

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        return grad, grad


class Attention(Math):
    def heads(self, x: Array, keys: bool = False) -> Array:
        """It by heads, with the keys and values of each for all queries that it serves."""
        layer = self.kind.layer
        size = layer.inputs // layer.heads
        if not keys:
            return _grouped(x, size)
        if not layer.kv_heads:
            return np.stack([_grouped(x, size)] * 2)
        found = x.reshape(*x.shape[:3], x.shape[3] // size // 2, 2, size)
        found = np.repeat(found, layer.heads // layer.kv_heads, 3)
        return np.moveaxis(found, 4, 0)

    def scores(self, q: Array, k: Array, at: Place, beside: Place | None) -> Array:
        assert beside is not None
        rows, keys = items(at.part("rows")), items(beside.part("rows"))
        found = np.einsum("nbqhd,nbkhd->nbqkh", q, k) * q.shape[-1] ** -0.5
        return np.where((keys[None, :] <= rows[:, None])[None, None, ..., None], found, -np.inf)

    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        q, (k, v) = self.heads(x), self.heads(other, True)
        scores = self.scores(q, k, at, beside)
        highest = scores.max(3, initial=-np.inf)
        each = np.exp(scores - np.where(np.isfinite(highest), highest, 0)[:, :, :, None])
        total = np.einsum("nbqkh,nbkhd->nbqhd", each, v)
        parts = (total, *[np.broadcast_to(one[..., None], total.shape) for one in (highest, each.sum(3))])
        return np.concatenate([one.reshape(x.shape) for one in parts])

    def merge(self, one: Array, other: Array) -> Array:
        highest = np.maximum(one[1], other[1])
        scale = [np.exp(each[1] - np.where(np.isfinite(highest), highest, 0)) for each in (one, other)]
        sums = (sum(s * each[i] for s, each in zip(scale, (one, other), strict=True)) for i in (0, 2))
        total, divides = sums
        return np.stack([total, highest, divides])

    def finish(self, array: Array) -> Array:
        return (array[0] / np.where(array[2] == 0, 1, array[2]))[None]

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        q, g, (k, v) = self.heads(x), self.heads(grad), self.heads(other, True)
        kept = self.truth.kept[self.number][:, *box(at)]
        highest, divides = (self.heads(one[None])[..., 0] for one in (kept[1], kept[2]))
        out = self.heads(self.truth.x[self.number + 1][:, *box(at)])
        each = np.exp(self.scores(q, k, at, beside) - highest[:, :, :, None]) / divides[:, :, :, None]
        by_each = np.einsum("nbqhd,nbkhd->nbqkh", g, v) - (g * out).sum(-1)[:, :, :, None]
        by_scores = each * by_each * q.shape[-1] ** -0.5
        by_q = np.einsum("nbqkh,nbkhd->nbqhd", by_scores, k).reshape(x.shape)
        by_k, by_v = (np.einsum("nbqkh,nbqhd->nbkhd", a, b) for a, b in ((by_scores, q), (each, g)))
        return self.by_other(by_k, by_v).reshape(other.shape), by_q

    def by_other(self, by_k: Array, by_v: Array) -> Array:
        """The gradient of keys and values, each of all queries that it serves."""
        layer = self.kind.layer
        if not layer.kv_heads:
            return by_k + by_v
        both = np.stack([by_k, by_v], 4)
        return both.reshape(*both.shape[:3], -1, layer.heads // layer.kv_heads, 2, both.shape[-1]).sum(4)


class Embedding(Math):
    def chosen(self, x: Array, vocabulary: Index) -> Array:
        """Which of the vocabulary each row is."""
        tokens = np.round(np.abs(x[..., 0]) * 10).astype(int) % self.kind.layer.inputs
        return (tokens[..., None] == vocabulary).astype(float)

    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        assert beside is not None
        return self.chosen(x, items(beside.part("in"))) @ other

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        whole = np.arange(self.kind.layer.inputs) if beside is None else items(beside.part("in"))
        return np.einsum("nbrv,nbro->nvo", self.chosen(x, whole), grad), None


class CrossEntropy(Math):
    def targets(self, at: Place) -> Array:
        batches, *space, here = (items(part) for part in at.dims)
        grid = np.meshgrid(*space, indexing="ij")
        points = np.ravel_multi_index(grid, [*self.kind.layer.space.values()])
        wanted = (batches.reshape(-1, *[1] * len(space)) * 7 + points * 3) % self.kind.layer.inputs
        return (wanted[..., None] == here).astype(float)[None]

    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        logs = np.logaddexp.reduce(x, axis=-1, keepdims=True, initial=-np.inf)
        return np.concatenate([(x * self.targets(at)).sum(-1, keepdims=True), logs])

    def merge(self, one: Array, other: Array) -> Array:
        return np.stack([one[0] + other[0], np.logaddexp(one[1], other[1])])

    def finish(self, array: Array) -> Array:
        return (array[1] - array[0])[None]

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        points = (*box(at)[:-1], np.zeros([1] * len(at.dims), int))
        _, logs = self.truth.kept[self.number][:, *points]
        return None, (np.exp(x - logs) - self.targets(at)) * grad


class Routed(Math):
    """Tokens by experts are arrays with zeros where a token is not at an expert, from a plain list of who is where."""

    def there(self, at: Place) -> Array:
        """Which rows are at which experts, by batch, expert and row, by counting tokens one after the other."""
        kinds = self.truth.shape.kinds
        layer = next(kind.layer for kind in reversed(kinds[: self.number + 1]) if kind.name == "dispatch")
        batches = self.truth.shape.items
        found = np.zeros((batches, layer.experts, layer.rows))
        groups, size = layer.groups or (layer.rows,), batches * layer.rows
        first = number = 0
        while first < size:
            group = range(first, min(first + groups[number % len(groups)], size))
            left = [size if layer.capacity is None else layer.capacity] * layer.experts
            for choice in range(layer.experts):
                for token in group:
                    chosen = layer.route[token % len(layer.route)]
                    if choice < len(chosen) and left[chosen[choice]]:
                        left[chosen[choice]] -= 1
                        gates = [1 + (7 * token + 3 * one) % 5 for one in range(len(chosen))]
                        found[token // layer.rows, chosen[choice], token % layer.rows] = gates[choice] / sum(gates)
            first, number = group.stop, number + 1
        parts = at.named
        experts = items(parts["experts"]) if "experts" in parts else np.arange(layer.experts)
        return found[np.ix_(items(parts["batch"]), experts, items(parts["rows"]))][None, ..., None]


class Dispatch(Routed):
    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        return (self.there(at) > 0) * x[:, :, None]

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        return None, grad.sum(2)


class Experts(Routed):
    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        return np.einsum("nberi,neio->nbero", np.tanh(x), other)

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        inner = np.tanh(x)
        by_input = None if other is None else np.einsum("nbero,neio->nberi", grad, other) * (1 - inner**2)
        return np.einsum("nberi,nbero->neio", inner, grad), by_input


class Combine(Routed):
    """The gates of a token's choices are 1 together, those that are dropped too."""

    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        return (x * self.there(at)).sum(2)

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        return None, grad[:, :, None] * self.there(at)


class Swept(Math):
    """What lies around each point, by lists of numbers that are worked out one by one."""

    def taken(self, role: str, q: int) -> list[int | None]:
        """The row that lies at each place of the kernel, None where none does."""
        layer = self.kind.layer
        return [q * layer.stride - layer.padding + tap * layer.dilation for tap in range(layer.kernel)]

    def given(self, role: str, size: int, here: list[int]) -> dict[int, list[int | None]]:
        """The rows of the output for which these will do, and what lies at each place of the kernel: None for zeros."""
        of = {q: self.taken(role, q) for q in range(self.kind.gives[role].size)}
        inside = {q: [one if one is not None and 0 <= one < size else None for one in of[q]] for q in of}
        return {q: taken for q, taken in inside.items() if all(one is None or one in here for one in taken)}

    def taps(self, at: Place) -> list[tuple[Index, Index]]:
        """For each place of the kernel the numbers of the points it is taken from, and of those it is taken for: of all
        points of the output whose stencil has no point that is missing."""
        layer = self.kind.layer
        lines: list[list[list[int | None]]] = []
        wide: list[int] = []
        for role, size in layer.space.items():
            here = items(at.part(role)).tolist()
            given = self.given(role, size, here).values()
            lines.append([[None if one is None else here.index(one) for one in taken] for taken in given])
            wide.append(len(here))
        self.gives = [len(line) for line in lines]
        pairs: list[tuple[Index, Index]] = []
        for tap in product(*[range(layer.kernel)] * len(lines)):
            taken, gives = [], []
            for number, point in enumerate(product(*lines)):
                there = [one[t] for one, t in zip(point, tap, strict=True)]
                places = [one for one in there if one is not None]
                if len(places) == len(there):
                    taken.append(np.ravel_multi_index(places, wide))
                    gives.append(number)
            pairs.append((np.array(taken, int), np.array(gives, int)))
        return pairs

    def filled(self, grad: Array, place: Place, at: Place) -> Array:
        """Zeros for what is not here of what the input gives."""
        for axis, (role, size) in enumerate(self.kind.layer.space.items(), 2):
            mine, every = items(place.part(role)).tolist(), [*self.given(role, size, items(at.part(role)).tolist())]
            wide = np.zeros((*grad.shape[:axis], len(every), *grad.shape[axis + 1 :]))
            wide[(slice(None),) * axis + ([every.index(q) for q in mine],)] = grad
            grad = wide
        return grad


class Convolution(Swept):
    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        taps, inner = self.taps(at), np.tanh(self.flat(x))
        y = np.zeros((*x.shape[:2], prod(self.gives), other.shape[2]))
        for tap, (taken, gives) in enumerate(taps):
            y[:, :, gives] += inner[:, :, taken] @ other[..., tap]
        return y.reshape(*x.shape[:2], *self.gives, y.shape[-1])

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        inner, grad = np.tanh(self.flat(x)), self.flat(grad)
        by_input, taps = np.zeros_like(inner), self.taps(at)
        by_weight = np.zeros((1, x.shape[-1], grad.shape[3], len(taps)))
        for tap, (taken, gives) in enumerate(taps):
            by_weight[..., tap] = np.einsum("nbri,nbro->nio", inner[:, :, taken], grad[:, :, gives])
            if other is not None:
                by_input[:, :, taken] += grad[:, :, gives] @ np.swapaxes(other[..., tap], -1, -2)
        return by_weight, (by_input * (1 - inner**2)).reshape(x.shape)


class TransposedConvolution(Convolution):
    def taken(self, role: str, q: int) -> list[int | None]:
        layer = self.kind.layer
        ahead = [q + layer.padding - tap for tap in range(layer.kernel)]
        return [None if one % layer.stride else one // layer.stride for one in ahead]


class Pooling(Swept):
    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        taps, flat = self.taps(at), self.flat(x)
        y = np.zeros((*x.shape[:2], prod(self.gives), x.shape[-1]))
        for taken, gives in taps:
            y[:, :, gives] += flat[:, :, taken] / len(taps)
        return y.reshape(*x.shape[:2], *self.gives, x.shape[-1])

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        by_input, taps = np.zeros_like(self.flat(x)), self.taps(at)
        for taken, gives in taps:
            by_input[:, :, taken] += self.flat(grad)[:, :, gives] / len(taps)
        return None, by_input.reshape(x.shape)


class NeighborhoodAttention(Attention):
    """By a loop, with the first key of a window as NATTEN's C++ says it (get_window_start)."""

    def windows(self, at: Place, beside: Place) -> list[tuple[int, Index]]:
        """The number of each query, and those of the keys in its window."""
        half = self.kind.layer.kernel // 2
        lines: list[list[list[int]]] = []
        for role, size in self.kind.layer.space.items():
            here = items(beside.part(role)).tolist()
            starts = [
                max(i - half, 0) + (size - i - half - 1 if i + half >= size else 0)
                for i in items(at.part(role)).tolist()
            ]
            lines.append([[here.index(one) for one in range(low, low + 2 * half + 1)] for low in starts])
        wide = [len(items(beside.part(role))) for role in self.kind.layer.space]
        return [
            (number, np.ravel_multi_index(np.array(list(product(*window))).T, wide))
            for number, window in enumerate(product(*lines))
        ]

    def each(self, x: Array, other: Array, at: Place, beside: Place | None) -> Any:
        """Queries, keys, values, and for each query its number, its keys and how much it attends to each."""
        assert beside is not None
        q, (k, v) = self.heads(self.flat(x)), self.heads(self.flat(other), True)
        found = []
        for number, keys in self.windows(at, beside):
            scores = np.einsum("nbhd,nbkhd->nbkh", q[:, :, number], k[:, :, keys]) * q.shape[-1] ** -0.5
            scores = np.exp(scores - scores.max(2, keepdims=True))
            found.append((number, keys, scores / scores.sum(2, keepdims=True)))
        return q, k, v, found

    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        q, _, v, each = self.each(x, other, at, beside)
        y = np.zeros_like(q)
        for number, keys, weights in each:
            y[:, :, number] = np.einsum("nbkh,nbkhd->nbhd", weights, v[:, :, keys])
        return y.reshape(x.shape)

    def finish(self, array: Array) -> Array:
        return array

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        q, k, v, each = self.each(x, other, at, beside)
        g = self.heads(self.flat(grad))
        by_q, by_k, by_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
        for number, keys, weights in each:
            by_each = np.einsum("nbhd,nbkhd->nbkh", g[:, :, number], v[:, :, keys])
            by_scores = weights * (by_each - (weights * by_each).sum(2, keepdims=True)) * q.shape[-1] ** -0.5
            by_q[:, :, number] = np.einsum("nbkh,nbkhd->nbhd", by_scores, k[:, :, keys])
            by_k[:, :, keys] += by_scores[..., None] * q[:, :, number][:, :, None]
            by_v[:, :, keys] += weights[..., None] * g[:, :, number][:, :, None]
        return self.by_other(by_k, by_v).reshape(other.shape), by_q.reshape(x.shape)


class Averages(Math):
    """Sums with the number of points beside them, as the second of two arrays."""

    def sums(self, x: Array) -> Array:
        """The sums over points, and perhaps over features that belong together."""
        raise NotImplementedError

    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        sums = self.sums(x).reshape(1, x.shape[1], *[1] * (x.ndim - 3), -1)
        return np.concatenate([sums, np.full_like(sums, prod(x.shape[2:-1]))])

    def finish(self, array: Array) -> Array:
        return (array[0] / np.maximum(array[1], 1))[None]


class Mean(Averages):
    def sums(self, x: Array) -> Array:
        return x.sum(tuple(range(2, x.ndim - 1)))

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        return None, np.broadcast_to(grad / self.kind.layer.points, x.shape)


class Moments(Averages):
    def sums(self, x: Array) -> Array:
        x = _grouped(x, self.kind.layer.inputs * 2 // self.kind.layer.outputs)
        axes = (*range(2, x.ndim - 2), x.ndim - 1)
        return np.stack([x.sum(axes), (x**2).sum(axes)], -1) / x.shape[-1]

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        groups = _grouped(x, self.kind.layer.inputs * 2 // self.kind.layer.outputs)
        mean, squares = (grad[..., number::2, None] / groups.shape[-1] / self.kind.layer.points for number in (0, 1))
        return None, (mean + 2 * groups * squares).reshape(x.shape)


class GroupNorm(Math):
    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        x, mean, root = self.parts(x, other)
        y = (x - mean) / root
        return y.reshape(*y.shape[:-2], y.shape[-2] * y.shape[-1])

    def parts(self, x: Array, other: Array) -> tuple[Array, Array, Array]:
        """The numbers by group, and of each its mean and the root of its variance."""
        mean, squares = other[..., 0::2, None], other[..., 1::2, None]
        return _grouped(x, x.shape[-1] // mean.shape[-2]), mean, np.sqrt(squares - mean**2 + 0.1)

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        groups, mean, root = self.parts(x, other)
        grad = grad.reshape(groups.shape)
        axes = (*range(2, groups.ndim - 2), groups.ndim - 1)
        by_mean = (grad * ((groups - mean) * mean / root**3 - 1 / root)).sum(axes)
        by_squares = (-grad * (groups - mean) / root**3 / 2).sum(axes)
        return np.stack([by_mean, by_squares], -1).reshape(other.shape), (grad / root).reshape(x.shape)


def _grouped(x: Array, size: int) -> Array:
    return x.reshape(*x.shape[:-1], x.shape[-1] // size, size)


class Transform(Math):
    def along(self, x: Array, back: bool) -> Array:
        """It with each line along its dim multiplied by a matrix."""
        layer = self.kind.layer
        size, axis = layer.space[layer.along], 2 + [*layer.space].index(layer.along)
        waves = [
            [np.cos(np.pi * i * (2 * j + 1) / (2 * size)) * np.sqrt((1 if i == 0 else 2) / size) for j in range(size)]
            for i in range(size)
        ]
        matrix = np.array(waves).T if back else np.array(waves)
        return np.moveaxis(np.tensordot(matrix, x, ([1], [axis])), 0, axis)

    def forward(self, x: Array, other: Array, at: Place, beside: Place | None) -> Array:
        return self.along(x, False)

    def backward(self, x: Array, grad: Array, other: Array, at: Place, beside: Place | None) -> tuple[Array, Array]:
        return None, self.along(grad, True)


MATH: dict[str, Callable[..., Math]] = {name: globals()[name.title().replace("_", "")] for name in LAYER_KINDS}


class Undivided:
    """The whole computation on one machine: activations, gradients and weights by number, each all of its tensor."""

    def __init__(
        self, shape: Shape, seed: int = 0, weights: dict[int, Array] | None = None, data: Array = None
    ) -> None:
        draw = np.random.default_rng(seed)
        self.shape = shape
        self.math = [MATH[kind.name](kind, self, number) for number, kind in enumerate(shape.kinds)]
        first = shape.activations[0]
        sizes = [dim.size for dim in first.spaces[: first.ndim]]
        self.weights: dict[int, Array] = weights or {}
        self.x: dict[int, Array] = {0: draw.normal(size=(1, *sizes)) if data is None else data}
        self.g: dict[int, Array] = {}
        self.dw: dict[int, Array] = {}
        self.kept: dict[int, Array] = {}
        for number, kind in enumerate(shape.kinds):
            if kind.weight is not None and number not in self.weights:
                sizes = [dim.size for dim in kind.weight.spaces]
                self.weights[number] = draw.normal(size=(1, *sizes)) / np.sqrt(kind.layer.inputs)
            x, other, at, beside = self.taken(number)
            self.kept[number] = self.math[number].forward(x, other, at, beside)
            self.x[number + 1] = self.math[number].finish(self.kept[number])
        self.g[shape.layers] = np.sin(self.x[shape.layers])
        for number in reversed(range(shape.layers)):
            x, other, at, beside = self.taken(number)
            besides, by_input = self.math[number].backward(x, self.g[number + 1], other, at, beside)
            of = shape.of(number)
            if shape.kinds[number].weight is not None:
                self.dw[number] = besides
            elif besides is not None:
                self.g[of[1]] = self.g.get(of[1], 0) + besides
            if by_input is not None:
                self.g[of[0]] = self.g.get(of[0], 0) + by_input

    def taken(self, number: int) -> tuple[Array, Array, Place, Place | None]:
        """What a layer takes: arrays, and the places that they have."""
        kind, of, edges = self.shape.kinds[number], self.shape.of(number), self.shape.activations
        x, at = self.x[of[0]], edges[min(of[0], len(edges) - 1)].whole  # of layers that are alike one stands for all
        if kind.takes == "activation":
            return x, self.x[of[1]], at, edges[of[1]].whole
        return x, self.weights.get(number), at, None if kind.weight is None else kind.weight.whole

    def whole(self, value: Value) -> Array:
        """All of the tensor that a value is a part of."""
        if isinstance(value, Weight | OptState):
            return self.weights[value.layer]
        if isinstance(value, Activation):
            return self.x[value.layer]
        return self.g[value.layer + 1] if isinstance(value, ActivationGrad) else self.dw[value.layer]


class _Play:
    def __init__(self, run: Trace, seed: int) -> None:
        self.run, self.shape = run, run.shape
        self.truth = Undivided(run.shape, seed)
        self.arrays: list[dict[int, Array]] = [{} for _ in run.programs]
        self.compared = 0

    def value(self, rank: int, number: int) -> Value:
        value = self.run.programs[rank].values[number]
        assert value is not None, "it has been rebuilt"
        return value

    def put(self, rank: int, number: int, array: Array) -> None:
        """Keeps the array of a value, which is what the value says if it is done."""
        value = self.value(rank, number)
        if not value.place.open and len(array) > 1:
            array = self.truth.math[value.layer - 1].finish(array)
        sizes = tuple(len(items(part)) for part in value.place.dims)
        assert array.shape[1:] == sizes, (value, array.shape, sizes)
        self.arrays[rank][number] = array
        if not value.place.open:
            true = self.truth.whole(value)[:, *box(value.place)]
            assert np.abs(array - true).max(initial=0) < CLOSE, value
            self.compared += 1

    def sum(self, values: Sequence[Value], arrays: Sequence[Array]) -> Array:
        some = [array for value, array in zip(values, arrays, strict=True) if not value.place.zero] or arrays[:1]
        total = some[0]
        for array in some[1:]:
            total = self.truth.math[values[0].layer - 1].merge(total, array) if len(array) > 1 else total + array
        return total

    def united(self, values: Sequence[Value], arrays: Sequence[Array], whole: Place) -> Array:
        made = np.zeros((len(arrays[0]), *[len(items(part)) for part in whole.dims]))
        for value, array in zip(values, arrays, strict=True):
            made[within(whole, value.place)] = array
        return made

    def do(self, rank: int, event: Any) -> None:
        op, layer = event.op, event.layer
        taken = [self.value(rank, number) for number in event.inputs]
        arrays = [self.arrays[rank][number] for number in event.inputs]
        made = [self.value(rank, number) for number in event.outputs]
        places = [value.place for value in taken]
        if op in ("load_weights", "get_activation"):
            found = [self.truth.whole(value)[:, *box(value.place)] for value in made]
        elif op == "forward":
            beside = places[1] if len(places) > 1 else None
            found = [self.truth.math[layer].forward(arrays[0], arrays[-1], places[0], beside)]
            if not made[0].place.schema.running:
                found = [found[0][:1]]
        elif op == "backward" and len(arrays) == 1:  # of its input only the place counts
            _, by_input = self.truth.math[layer].backward(arrays[0], arrays[0], None, made[0].place, None)
            found = [by_input]
        elif op in ("backward", "backward_input", "backward_weight"):
            beside = places[2] if len(places) > 2 else None
            other = arrays[2] if len(arrays) > 2 else None
            grad = self.truth.math[layer].filled(arrays[1], places[1], places[0])
            both = self.truth.math[layer].backward(arrays[0], grad, other, places[0], beside)
            found = [one for one in both if one is not None]
            found = found[:1] if op == "backward_weight" else found[-1:] if op == "backward_input" else found
        elif op == "loss":
            found = [np.sin(arrays[0])]
        elif op == "add":
            found = [self.sum(taken, arrays)]
        elif op == "combine":
            found = [self.united(taken, arrays, made[0].place)]
        elif op in ("shard", "cut"):
            found = [arrays[0][within(places[0], made[0].place)]]
        elif op == "update":
            found = [array[within(place, made[0].place)] for array, place in zip(arrays[1:], places[1:], strict=True)]
        elif op == "fake_grad":
            found = [np.zeros((1, *[len(items(part)) for part in made[0].place.dims]))]
        else:
            assert not made, op
            found = []
        for number, array in zip(event.outputs, found, strict=True):
            self.put(rank, number, array)

    def meet(self, members: Sequence[tuple[int, Any]]) -> list[list[Array]]:
        row = COLLECTIVES[members[0][1].op]
        values = [[self.value(rank, number) for number in event.inputs] for rank, event in members]
        arrays = [[self.arrays[rank][number] for number in event.inputs] for rank, event in members]
        said = row.said(members[0][1].arg)
        results = [values_in(one) for one in row.results(row.brought(values), said)]
        first, ones = [each[0] for each in values], [each[0] for each in arrays]
        if row.name == "halo":
            before, after = [[], *(each[-1:] for each in arrays[:-1])], [*(each[:1] for each in arrays[1:]), []]
            return [[*one, *other] for one, other in zip(before, after, strict=True)]
        if row.many and not row.bucket:
            return [[each[i] for each in arrays] for i in range(len(members))]
        if row.name == "broadcast":
            return [[ones[said]] for _ in members]
        if row.name == "shift":
            return [[ones[i - 1]] for i in range(len(members))]
        if row.name == "allgather":
            return [[self.united(first, ones, each[0].place)] for each in results]
        if row.name == "allreduce_mean":
            count = sum(one[1] for one in ones)
            mean = sum(one[0] / one[1] for one in ones) / len(ones)
            return [[np.stack([mean * count, count])] for _ in members]
        assert row.name in ("allreduce", "scatterreduce"), row.name
        total = self.sum(first, ones)
        return [[total[within(first[0].place, each[0].place)]] for each in results]


def play(run: Trace, seed: int = 0) -> int:
    """Plays a run. AssertionError where a value that is done is not what it says; else how many were compared."""
    state = _Play(rebuild(run).run, seed)
    on_the_way: dict[tuple[int, int], list[Array]] = {}
    events, _, steps, *_ = order(state.run)
    for kind, rank, number, others in steps:
        event = events[number]
        if kind == "do":
            for one in events[number : others[0]]:
                state.do(rank, one)
        elif kind == "meet":
            members = [(member, events[n]) for member, n in zip(event.group, others, strict=True)]
            for (member, one), arrays in zip(members, state.meet(members), strict=True):
                on_the_way[member, id(one)] = arrays
        elif kind == "pass":
            assert event.peer is not None
            on_the_way[rank, id(event)] = [state.arrays[event.peer][n] for n in events[others[0]].inputs]
        elif kind == "done" and event.op != "pass_to":
            for n, array in zip(event.outputs, on_the_way.pop((rank, id(event))), strict=True):
                state.put(rank, n, array)
    return state.compared
