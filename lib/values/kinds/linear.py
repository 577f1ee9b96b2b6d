"""Layers that multiply by a weight.

They do in Megatron's words what each part of the weight does: a shard of its columns gives a shard of the features, a
shard of its rows a partial sum. Backwards it is the other way round. Whoever borrowed something owes its gradient: that
of the input is partial over the columns that are not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from lib.values.kinds.kind import LayerKind, Sum, fits, fraction, fraction_of_grid, part
from lib.values.placement import Part, Place, Schema

if TYPE_CHECKING:
    from lib.values.values import Value

__all__ = ["Linear"]


class Linear(LayerKind):
    """y = x W: rows of features."""

    name = "linear"

    def describe(self) -> None:
        inputs, outputs = self.layer.inputs, self.layer.outputs
        self.opens = (Sum("terms", self.dim("terms", inputs)),)
        self.owes = ((Sum("terms", self.dim("terms", outputs)),),)
        self.weight_dims = (("in", self.dim("in", inputs)), ("out", self.dim("out", outputs)))
        self.work = self.layer.points * inputs * outputs

    def output_of(self, inp: Value, other: Value | None) -> Place:
        if uncut(inp, other, self.output):
            return inp.place
        fits("input of forward", inp, other, "in")
        return self.output.at({**same(inp), "features": part(other, "out"), "terms": part(other, "in")})

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place]:
        assert self.weight_gradient is not None, "a linear layer has a weight"
        parts = same(inp)
        if inp.place is grad.place and uncut(grad, other, self.gradients[0]):
            return self.weight_gradient.at(parts), grad.place
        self.alike(op, inp, grad, *parts)
        by_weight = self.weight_gradient.at({**parts, "in": inp.place.dims[-1], "out": grad.place.dims[-1]})
        if other is None:  # the weight half alone
            return by_weight, inp.place
        fits(f"input of {op}", inp, other, "in")
        fits(f"gradient given to {op}", grad, other, "out")
        return by_weight, self.back(0, {**parts, "features": part(other, "in"), "terms": part(other, "out")})

    def share(self, places: Sequence[Place]) -> Fraction:
        weight = places[-1]
        columns = weight.part("out") or weight.dims[-1]  # without the weight those of the gradient
        rows = weight.part("in") or places[0].dims[-1]
        return self.share_of_points(places) * fraction(rows) * fraction(columns)

    def share_of_points(self, places: Sequence[Place]) -> Fraction:
        """Return which part of the grid there is to work on."""
        return fraction_of_grid(places[0])


def uncut(value: Value, weight: Value | None, gives: Schema) -> bool:
    """Tell whether all of a weight meets all features, and gives as many: what comes of it has the value's own
    place."""
    return weight is not None and weight.place.complete and value.place.plain and value.place.schema is gives


def same(value: Value) -> dict[str, Part]:
    """The parts of a value that such a layer leaves as they are: of all dims but the features."""
    return dict(zip(value.place.schema.roles, value.place.dims[:-1], strict=False))
