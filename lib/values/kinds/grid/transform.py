"""A transform along one dim of a grid, as in spectral layers: each of its rows needs all of them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from lib.values.kinds.kind import GRID, LayerKind, fraction, fraction_of_grid
from lib.values.placement import Place

if TYPE_CHECKING:
    from lib.values.values import Value

__all__ = ["Transform"]


class Transform(LayerKind):
    """The cosine transform of each line of a grid along one of its dims, worked out as a product with a matrix."""

    name, takes, keeps, options, optional = "transform", "", False, ("along",), GRID

    def describe(self) -> None:
        layer = self.layer
        if layer.along not in layer.space:
            raise ValueError(
                f"a transform is along a dim of its grid: {', '.join(layer.space)}; got along={layer.along!r}"
            )
        if layer.outputs != layer.inputs:
            raise ValueError("transform gives as many features as it takes")
        self.work = layer.points * layer.space[layer.along] * layer.inputs

    def output_of(self, inp: Value, other: Value | None) -> Place:
        self.unbroken("forward", inp, self.layer.along, 1)
        return self.output.at(inp.place.named)

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place]:
        self.alike(op, inp, grad, *inp.place.named)
        self.unbroken(op, grad, self.layer.along, 1)
        return None, self.back(0, grad.place.named)

    def share(self, places: Sequence[Place]) -> Fraction:
        return fraction_of_grid(places[0]) * fraction(places[0].part("features"))
