"""Layers that work on each row by itself, without a product of matrices: norms, and a residual connection."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from lib.values.kinds.kind import LayerKind, fits, fraction, fraction_of_grid
from lib.values.kinds.linear import same
from lib.values.placement import Place

if TYPE_CHECKING:
    from lib.values.values import Value

__all__ = ["Add", "LayerNorm", "Norm"]


class _Pointwise(LayerKind):
    """A layer that gives as many features as it takes, and costs as much as they are many."""

    def describe(self) -> None:
        if self.layer.outputs != self.layer.inputs:
            raise ValueError(f"{self.name} gives as many features as it takes")
        self.work = self.layer.points * self.layer.inputs

    def share(self, places: Sequence[Place]) -> Fraction:
        return fraction_of_grid(places[0]) * fraction(places[0].part("features"))


class Norm(_Pointwise):
    """Each row divided by the root of the mean of its squares, times a gain for each feature."""

    name = "norm"

    def describe(self) -> None:
        super().describe()
        self.weight_dims = (("in", self.dim("in", self.layer.inputs)),)

    def output_of(self, inp: Value, other: Value | None) -> Place:
        self.unbroken("forward", inp, "features", 1)
        fits("input of forward", inp, other, "in")
        return self.output.at(inp.place.named)

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place]:
        self.alike(op, inp, grad, *inp.place.named)
        self.unbroken(op, inp, "features", 1)
        if other is not None:
            fits(f"input of {op}", inp, other, "in")
        assert self.weight_gradient is not None, "a norm has a gain"
        return self.weight_gradient.at(same(inp)), self.back(0, inp.place.named)


class LayerNorm(Norm):
    """Each row less its mean, divided by the root of its variance, times a gain for each feature."""

    name = "layer_norm"


class Add(_Pointwise):
    """A residual connection: its input and an earlier activation, added."""

    name, takes = "add", "activation"

    def describe(self) -> None:
        super().describe()
        if self.dims != self.other:
            raise ValueError("add takes two activations of one size")

    def output_of(self, inp: Value, other: Value | None) -> Place:
        assert other is not None, "add takes two activations"
        self.alike("forward", inp, other, *inp.place.named)
        return self.output.at(inp.place.named)

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place]:
        return self.back(1, grad.place.named), self.back(0, grad.place.named)
