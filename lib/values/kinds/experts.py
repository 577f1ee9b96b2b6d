"""A layer of experts, in three: tokens go to their experts, each expert works on its own, and tokens come back.

The rows of a dispatched activation lie along one dim more, the experts, and of each expert there are those that go to
it (see `routes`): how many these are is what it costs, how much memory it takes and how much travels. To combine the
results of some experts gives a part of a sum. Backwards it is the same: a token that was at two experts has a gradient
from both. A weight has all experts, and a rank may have some of them, whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, cast

from lib.values.kinds.kind import LayerKind, Sum, fraction
from lib.values.kinds.linear import Linear
from lib.values.kinds.routes import Route
from lib.values.placement import Dim, Place

if TYPE_CHECKING:
    from lib.values.values import Value

__all__ = ["Combine", "Dispatch", "Experts"]


class _Moved(LayerKind):
    """A layer that only moves tokens, and takes no time."""

    takes = ""
    keeps = False

    def describe(self) -> None:
        if self.layer.outputs != self.layer.inputs:
            raise ValueError(f"{self.name} gives as many features as it takes")
        self.work = 0

    def output_of(self, inp: Value, other: Value | None) -> Place:
        return self.output.at(inp.place.named)


class Dispatch(_Moved):
    """Each token once for each of its experts."""

    name = "dispatch"
    options, optional = ("experts", "route"), ("capacity", "groups")

    def describe(self) -> None:
        super().describe()
        layer, ((_, batch), *_) = self.layer, self.dims
        route = Route(layer.route, layer.experts, layer.rows, batch.size, layer.capacity, layer.groups or (layer.rows,))
        experts = Dim("experts", layer.experts, route)
        self.gives = (self.dims[0], ("experts", experts), *self.dims[1:])
        self.owes = ((Sum("experts", experts),),)

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place]:
        return None, self.back(0, grad.place.named)


class Combine(_Moved):
    """Each token again, as the sum of what its experts made of it, weighted by its gates."""

    name, routed = "combine", True

    def describe(self) -> None:
        super().describe()
        self.gives = tuple([(role, dim) for role, dim in self.dims if role != "experts"])
        self.opens = (Sum("experts", dict(self.dims)["experts"]),)

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place]:
        if inp is not grad:  # of the gradient alone comes that of all experts
            self.alike(op, inp, grad, *grad.place.named)
        return None, self.back(0, inp.place.named)


class Experts(Linear):
    """A linear layer for each expert, on the tokens that go to it."""

    name, routed = "experts", True
    options = ("experts",)

    def describe(self) -> None:
        super().describe()
        number = self.layer.experts
        here = dict(self.dims)["experts"]
        if here.size != number:
            raise ValueError(f"these are {number} experts, and tokens are dispatched to {here.size}")
        self.weight_dims = (("experts", self.dim("experts", number)), *self.weight_dims)
        self.each = self.layer.inputs * self.layer.outputs
        (_, batch), rows = self.dims[0], dict(self.dims)["rows"]
        self.route = cast(Route, here.route)
        whole = self.route.count(batch.whole.pieces, rows.whole.pieces, here.whole.pieces)
        self.work = Fraction(whole, batch.size) * self.each

    def output_of(self, inp: Value, other: Value | None) -> Place:
        self.alike("forward", inp, cast("Value", other), "experts")
        return super().output_of(inp, other)

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place]:
        if other is not None:
            self.alike(op, inp, other, "experts")
        return super().gradients_of(op, inp, grad, other)

    def share(self, places: Sequence[Place]) -> Fraction:
        """As many tokens as go to the experts that are here, of the average of a batch."""
        inp, weight = places[0], places[-1]
        there = Fraction(inp.elements) / (fraction(inp.dims[-1]) * self.layer.inputs * max(len(inp.batches), 1))
        columns = weight.part("out") or weight.dims[-1]
        rows = weight.part("in") or inp.dims[-1]
        return there * self.each / self.work * fraction(rows) * fraction(columns)
