"""Convolutions over a grid, in parts whose inputs overlap at their edges; and pooling, which has no weight.

A row of the output needs some rows of the input around its own place: a stencil. A part of the input gives the rows
whose stencils lie in it, so that with rows of its neighbours, a halo, a rank gives all of its own. Backwards every row
that was taken has a gradient, those of the halo too, which is a sum over the rows that it was needed for: the inner
rows of a part have all of theirs and are done, and those at an edge are open until what a neighbour has is added.
Along each other dim of a grid it is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any, cast

from lib.errors.exceptions import RuleError
from lib.values import facts
from lib.values.dims import OUTPUTS
from lib.values.kinds.grid.stencils import Stencil, Sweep, TransposedSweep, Uses
from lib.values.kinds.kind import GRID, LayerKind, Sum, fits, fraction, part
from lib.values.kinds.linear import Linear, same
from lib.values.placement import Part, Place

if TYPE_CHECKING:
    from lib.values.values import Value

__all__ = ["Convolution", "Pooling", "Swept", "TransposedConvolution"]

MOST_TAPS = 4096
"""Places of a kernel: each is looked at whenever a part of another form is given."""


class Swept(LayerKind):
    """A layer each of whose outputs takes what lies around its own place in the grid, as the stencils of the grid's
    dims say."""

    stencils: Mapping[str, Stencil]

    def stencil(self, rows: int) -> Stencil:
        """The stencil along a dim of so many rows."""
        layer = self.layer
        if layer.padding > layer.dilation * (layer.kernel - 1):
            raise ValueError(f"a padding of {layer.padding} is so wide that rows at the edge are of zeros alone")
        return Sweep(rows, layer.kernel, layer.stride, layer.dilation, layer.padding)

    def describe(self) -> None:
        super().describe()
        layer, taps = self.layer, self.layer.kernel ** len(self.layer.space)
        if taps > MOST_TAPS:
            raise ValueError(f"a kernel has at most {MOST_TAPS:,} places; got {taps:,}")
        self.stencils = {role: self.stencil(size) for role, size in layer.space.items()}
        for role, one in self.stencils.items():
            if one.outputs < 1:
                raise ValueError(
                    f"a kernel of {layer.kernel} {role}, {layer.dilation} apart, is wider than {one.rows} {role} with "
                    f"a padding of {layer.padding}"
                )
        sizes = {role: self.dim(role, one.outputs) for role, one in self.stencils.items()}
        self.gives = tuple([(role, sizes.get(role, dim)) for role, dim in self.gives])
        uses = [
            Sum(OUTPUTS[role], self.dim(OUTPUTS[role], one.outputs), Uses(one), role)
            for role, one in self.stencils.items()
        ]
        self.owes = ((*self.owes[0], *uses), *self.owes[1:])
        self.work = prod(one.outputs for one in self.stencils.values()) * layer.weight

    def given(self, op: str, inp: Value, grad: Value | None = None) -> dict[str, Part]:
        """Of each dim of the grid what follows of what is here. Of rows whose outputs are others' alone there is a
        gradient, but nothing is worked out."""
        found: dict[str, Part] = {}
        for role, stencil in self.stencils.items():
            here = part(inp, role).pieces
            given = stencil.given(here)
            if here and not given and (grad is None or part(grad, role).pieces):
                raise RuleError(facts.NoRows(op, inp, stencil, role))
            dim = dict(self.gives)[role]
            found[role] = dim.piece(dim.size, given)
        return found

    def fits_outputs(self, op: str, inp: Value, grad: Value) -> dict[str, Part]:
        """The parts of a gradient over which that of the input is a sum, if they follow of the input."""
        for role, given in self.given(op, inp, grad).items():
            if not given.covers(given.dim.like(part(grad, role))):
                raise RuleError(facts.OtherRows(op, inp, grad, self.stencils[role], role))
        return {OUTPUTS[role]: part(grad, role) for role in self.stencils}

    def share_of_outputs(self, places: Sequence[Place]) -> Fraction:
        """Return which part of the output is worked on: all that follows of an input, or that of which a gradient is
        here."""
        found = Fraction(1)
        for role, one in self.stencils.items():
            of = next((place.part(role) for place in places if place.schema is self.output_gradient), None)
            pieces = one.given(cast(Part, places[0].part(role)).pieces) if of is None else of.pieces
            found *= Fraction(len(pieces), one.outputs)
        return found


class Convolution(Swept, Linear):
    """Each row of the output is the sum of the rows around it, each times the weight for its place in the stencil."""

    name, options, optional = "convolution", ("kernel",), ("stride", "dilation", "padding", *GRID)

    def describe(self) -> None:
        super().describe()
        self.weight_dims = (*self.weight_dims, ("taps", self.dim("taps", self.layer.kernel ** len(self.stencils))))

    def output_of(self, inp: Value, other: Value | None) -> Place:
        _has_all_taps(other)
        fits("input of forward", inp, other, "in")
        parts = {**same(inp), **self.given("forward", inp)}
        return self.output.at({**parts, "features": part(other, "out"), "terms": part(other, "in")})

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place]:
        assert self.weight_gradient is not None, "a convolution has a weight"
        sums = self.fits_outputs(op, inp, grad)
        ends = {"in": inp.place.dims[-1], "out": grad.place.dims[-1]}
        by_weight = self.weight_gradient.at({**same(grad), **ends})
        if other is None:  # the weight half alone
            return by_weight, inp.place
        _has_all_taps(other)
        fits(f"input of {op}", inp, other, "in")
        fits(f"gradient given to {op}", grad, other, "out")
        parts = {**same(inp), "features": part(other, "in"), "terms": part(other, "out")}
        return by_weight, self.back(0, {**parts, **sums})

    def share_of_points(self, places: Sequence[Place]) -> Fraction:
        return self.share_of_outputs(places)


class TransposedConvolution(Convolution):
    """Each row of the input, times a weight for each place of the stencil, is added to the rows that lie there: a
    convolution the other way round, which makes a grid larger."""

    name, optional = "transposed_convolution", ("stride", "padding", *GRID)

    def describe(self) -> None:
        super().describe()
        self.work = self.layer.points * self.layer.weight

    def stencil(self, rows: int) -> Stencil:
        layer = self.layer
        if layer.kernel < layer.stride:
            raise ValueError(
                f"a kernel of {layer.kernel} with a stride of {layer.stride} leaves rows that nothing gives"
            )
        if layer.padding >= layer.kernel:
            raise ValueError(f"a padding of {layer.padding} cuts off all that a row at the edge gives")
        return TransposedSweep(rows, layer.kernel, layer.stride, layer.padding)


class Pooling(Swept):
    """Each row of the output is the mean of the rows around it, feature by feature."""

    name, takes, options, optional = "pooling", "", ("kernel",), ("stride", *GRID)

    def describe(self) -> None:
        super().describe()
        if self.layer.outputs != self.layer.inputs:
            raise ValueError("pooling gives as many features as it takes")
        self.work //= self.layer.inputs

    def output_of(self, inp: Value, other: Value | None) -> Place:
        return self.output.at({**inp.place.named, **self.given("forward", inp)})

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place]:
        self.alike(op, inp, grad, "features")
        return None, self.back(0, {**inp.place.named, **self.fits_outputs(op, inp, grad)})

    def share(self, places: Sequence[Place]) -> Fraction:
        return self.share_of_outputs(places) * fraction(places[0].part("features"))


def _has_all_taps(weight: Value | None) -> None:
    """Tell whether a weight is there for every place of the stencil."""
    if not part(weight, "taps").whole:
        raise RuleError(facts.Incomplete(cast(Any, weight)))
