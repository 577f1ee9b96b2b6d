"""Attention: of the rows of one activation (the queries) to the rows of another (keys and values), head by head.

Attention to some of the keys is a partial sum over the keys: the sum of the values by the exponentials of their scores,
with the running maximum and sum of these, as in ring attention. A row that has seen all keys up to its own is done by
itself. Backwards a query owes the keys that are not here, and a key the queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from lib.values.dims import Relation, RunSet
from lib.values.kinds.kind import LayerKind, Sum, fraction, part
from lib.values.placement import Place

if TYPE_CHECKING:
    from lib.values.values import Value

__all__ = ["Attention"]


class Causal(Relation):
    """The keys that a row needs: all up to its own."""

    def __init__(self) -> None:
        super().__init__(lambda row: range(row + 1))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Causal)

    def __hash__(self) -> int:
        return hash(Causal)

    def union(self, items: RunSet) -> RunSet:
        return RunSet.span(0, items.runs[-1][1] if items else 0)

    def pairs(self, items: RunSet, others: RunSet) -> int:
        """Return how many keys the rows need of those, one by one, from the ends of runs."""
        return sum(
            _up_to(after - key, end - key) - _up_to(first - key, end - key)
            for first, after in items.runs
            for key, end in others.runs
        )


def _up_to(rows: int, keys: int) -> int:
    """Return how many of so many keys that many rows need together, if the first row needs one of them and each
    other one more."""
    inside = min(max(rows, 0), keys)
    return inside * (inside + 1) // 2 + max(rows - keys, 0) * keys


class Seen(Relation):
    """The rows that need a key: its own, and all after it."""

    def __init__(self, rows: int) -> None:
        super().__init__(lambda key: range(key, rows))
        self.rows = rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seen) and self.rows == other.rows

    def __hash__(self) -> int:
        return hash((Seen, self.rows))

    def union(self, items: RunSet) -> RunSet:
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
        if (given := dict(self.other)["features"].size) != width:
            raise ValueError(f"attention takes keys and values of {width} features, and is given {given}")
        if self.dims[:-1] != self.other[:-1]:
            raise ValueError("attention takes as many keys and values as queries")
        self.describe_sums()

    def describe_sums(self) -> None:
        """Says what the output, and the gradients, are sums over."""
        rows = self.layer.rows
        self.causal = Causal()
        self.opens = (Sum("keys", self.dim("keys", rows), self.causal, "rows"),)
        self.running = Fraction(2 * self.layer.heads, self.layer.inputs)
        self.owes = (self.opens, (Sum("queries", self.dim("queries", rows), Seen(rows), "rows"),))
        self.work = rows * (rows + 1) * self.layer.inputs  # two products of each pair

    def output_of(self, inp: Value, other: Value | None) -> Place:
        self.fit("forward", inp, other)
        return self.output.at({**inp.place.named, "keys": part(other, "rows")})

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place]:
        self.alike(op, inp, grad, "batch", "rows", "features")
        self.fit(op, inp, other)
        assert other is not None, "attention takes keys"
        by_keys = self.back(1, {**other.place.named, "queries": part(inp, "rows")})
        return by_keys, self.back(0, {**inp.place.named, "keys": part(other, "rows")})

    def fit(self, op: str, inp: Value, other: Value | None) -> None:
        """Check that queries and keys are of the same batches, and of whole heads."""
        assert other is not None, "attention takes keys"
        self.alike(op, inp, other, "batch", "features")
        # Whole heads of the one are whole heads of the other, as both are cut alike.
        self.unbroken(op, other, "features", self.layer.kv_heads or self.layer.heads)

    def share(self, places: Sequence[Place]) -> Fraction:
        queries, keys = (place.named["rows"] for place in (places[0], places[-1]))
        pairs = Fraction(self.causal.pairs(RunSet.of(queries.pieces), RunSet.of(keys.pieces)))
        return pairs * 2 / (self.layer.rows * (self.layer.rows + 1)) * fraction(places[0].part("features"))
