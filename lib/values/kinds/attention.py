"""Attention: of the points of one activation (the queries) to those of another (keys and values), head by head.

Causal attention to some of the keys is a partial sum over the keys: the sum of the values by the exponentials of their
scores, with the running maximum and sum of these, as in ring attention. A row that has seen all keys up to its own is
done. Backwards, gradients of queries are sums over keys, and those of keys over queries.

Neighbourhood attention is that of each point of a grid to the window around it, as in NATTEN. At an edge the window
does not shrink, but stays inside (Hassani et al. 2023, https://arxiv.org/abs/2204.07143). A point is computed where its
whole window is, so queries need no halo; keys and values do, and their gradients are sent back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from lib.errors.exceptions import RuleError
from lib.values import facts
from lib.values.dims import OUTPUTS, Relation, RunSet
from lib.values.kinds.grid import Window, uses_of
from lib.values.kinds.kind import GRID, LayerKind, Sum, fraction, part
from lib.values.placement import Place

if TYPE_CHECKING:
    from lib.values.values import Value


@dataclass(frozen=True)
class Causal(Relation):
    """The keys that a row needs: all up to its own."""

    def needed(self, items: RunSet) -> RunSet:
        # The last row needs all keys that the others need.
        return RunSet.span(0, items.runs[-1][1] if items else 0)

    def pairs(self, items: RunSet, others: RunSet) -> int:
        """Return how many of the keys each row needs, added up, from the ends of runs."""
        return sum(
            _up_to(after - key, end - key) - _up_to(first - key, end - key)
            for first, after in items.runs
            for key, end in others.runs
        )


def _up_to(rows: int, keys: int) -> int:
    """Return how many of `keys` keys `rows` rows need, added up, if the first row needs one of them and each other one
    more."""
    inside = min(max(rows, 0), keys)
    return inside * (inside + 1) // 2 + max(rows - keys, 0) * keys


@dataclass(frozen=True)
class Seen(Relation):
    """The rows that need a key: its own, and all after it."""

    rows: int

    def needed(self, items: RunSet) -> RunSet:
        return RunSet.span(items.runs[0][0] if items else self.rows, self.rows)


class Attention(LayerKind):
    """Causal attention with `heads` heads. With `kv_heads` each key and value serves several of them, and the other
    activation has the keys and values of a head side by side; without, the same numbers are keys and values."""

    name, takes, options, optional = "attention", "activation", ("heads",), ("kv_heads",)
    softmax: ClassVar[bool] = True

    def describe(self) -> None:
        layer = self.layer
        if layer.inputs % layer.heads:
            raise ValueError(f"{layer.heads} heads cannot share {layer.inputs} features equally")
        if layer.outputs != layer.inputs:
            raise ValueError(
                f"attention gives as many features as it takes, {layer.inputs}; got outputs={layer.outputs}"
            )
        if layer.kv_heads and layer.heads % layer.kv_heads:
            raise ValueError(f"{layer.heads} heads of queries cannot share {layer.kv_heads} of keys equally: kv_heads")
        width = layer.inputs // layer.heads * 2 * layer.kv_heads or layer.inputs
        if (given := self.other["features"].size) != width:
            raise ValueError(f"attention takes keys and values of {width} features, and is given {given}")
        if {**self.dims, "features": None} != {**self.other, "features": None}:
            raise ValueError("attention takes as many keys and values as queries")
        self.describe_sums()

    def describe_sums(self) -> None:
        """Set the sums over which the output and the gradients may be partial."""
        rows = self.layer.rows
        self.causal = Causal()
        self.opens = (Sum(self.dim("keys", rows), self.causal, "rows"),)
        # For each row and head the largest score and the sum of exponentials: an online softmax (Dao et al. 2022).
        self.running = Fraction(2 * self.layer.heads, self.layer.inputs)
        self.owes = (self.opens, (Sum(self.dim("queries", rows), Seen(rows), "rows"),))
        # rows (rows + 1) / 2 pairs that are not masked, each multiplied with the key and with the value.
        self.work *= rows + 1

    def output_of(self, inp: Value, other: Any) -> Place:
        return self.output.at({**inp.place.named, "keys": part(other, "rows")})

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Any) -> tuple[Place | None, Place]:
        by_keys = self.back(1, {**other.place.named, "queries": part(inp, "rows")})
        return by_keys, self.back(0, {**inp.place.named, "keys": part(other, "rows")})

    def fit(self, op: str, inp: Value, other: Value) -> None:
        self.alike(op, inp, other, "batch", "features")
        # Whole heads of one are whole heads of the other, as both are cut alike.
        self.unbroken(op, other, "features", self.layer.kv_heads or self.layer.heads)

    def share(self, places: Sequence[Place]) -> Fraction:
        queries, keys = (RunSet.of(place.named["rows"].pieces) for place in (places[0], places[-1]))
        pairs = Fraction(2 * self.causal.pairs(queries, keys), self.layer.rows * (self.layer.rows + 1))
        return pairs * fraction(places[0].part("features"))


class NeighborhoodAttention(Attention):
    """Attention of each point to `kernel` rows around it, and as many columns where there are columns."""

    name, options, optional = "neighborhood_attention", ("heads", "kernel"), ("kv_heads", *GRID)
    softmax: ClassVar[bool] = False
    # All windows have the same size, and each point its own sum.
    share, output_of = LayerKind.share, LayerKind.output_of

    def describe_sums(self) -> None:
        kernel, space = self.layer.kernel, self.layer.space
        if kernel % 2 == 0:
            raise ValueError(f"a window has a middle, so its kernel is odd; got {kernel}")
        for role, size in space.items():
            if size < kernel:
                raise ValueError(f"a window of {kernel} {role} is wider than the {size} that there are")
        self.windows = {role: Window(size, kernel) for role, size in space.items()}
        self.owes = ((), uses_of(self.windows, self.dim))
        self.work *= 2 * kernel ** len(space)

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Any) -> tuple[Place | None, Place]:
        queries = {OUTPUTS[role]: part(inp, role) for role in self.windows}
        return self.back(1, {**other.place.named, **queries}), self.back(0, inp.place.named)

    def fit(self, op: str, inp: Value, other: Value) -> None:
        super().fit(op, inp, other)
        for role, window in self.windows.items():
            if not RunSet.of(part(inp, role).pieces) <= window.given(part(other, role).pieces):
                raise RuleError(facts.NoWindow(op, inp, other, window, role))
