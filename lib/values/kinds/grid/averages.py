"""Numbers for a whole grid, and what is done with them: means, moments, and a norm by groups of features.

Of a part of the grid they are a partial sum with the number of points beside it: two parts are a weighted mean, and a
mean of means is one where both have as many. What is not complete says nothing of the grid, so a norm waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from lib.values.dims import AVERAGED, SPACE
from lib.values.kinds.kind import LayerKind, Sum, fraction, fraction_of_grid, part
from lib.values.placement import Part, Place

if TYPE_CHECKING:
    from lib.values.values import Value

__all__ = ["GroupNorm", "Mean", "Moments"]


class _Averages(LayerKind):
    """A layer that works on each point of a grid by itself, or on all of them. `groups` are those of features that
    belong together."""

    groups: int

    def describe(self) -> None:
        self.work = self.layer.points * self.layer.inputs
        self.points = tuple([Sum(AVERAGED[role], self.dim(AVERAGED[role], n)) for role, n in self.layer.space.items()])

    def averaged(self, inp: Value) -> dict[str, Part]:
        """The points that a value has, as what is averaged."""
        return {AVERAGED[role]: part(inp, role) for role in self.layer.space}

    def of_the_grid(self, op: str, value: Value) -> None:
        """Tell whether a value has the one point that it is of."""
        for role in self.layer.space:
            self.unbroken(op, value, role, 1)

    def share(self, places: Sequence[Place]) -> Fraction:
        return fraction_of_grid(places[0]) * fraction(places[0].part("features"))


class _OfTheGrid(_Averages):
    """Numbers for a whole grid, as an activation of one point; `running` stands beside them in a part of the sum."""

    name, takes = "", ""

    def describe(self) -> None:
        super().describe()
        self.gives = tuple([(role, self.dim(role, 1) if role in SPACE else dim) for role, dim in self.gives])
        self.opens = self.points

    def output_of(self, inp: Value, other: Value | None) -> Place:
        self.unbroken("forward", inp, "features", self.groups, "group")
        parts = {role: part(inp, role) for role in ("batch", "features")}
        return self.output.at({**parts, **self.averaged(inp)})

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place]:
        self.alike(op, inp, grad, "batch", "features")
        self.of_the_grid(op, grad)
        return None, self.back(0, inp.place.named)


class Mean(_OfTheGrid):
    """The mean of all points of a grid, feature by feature."""

    name = "mean"

    def describe(self) -> None:
        super().describe()
        if self.layer.outputs != self.layer.inputs:
            raise ValueError("mean gives as many features as it takes")
        self.groups, self.running = 1, Fraction(1, self.layer.inputs)


class Moments(_OfTheGrid):
    """The mean, and the mean of the squares, of all points of a grid, for each group of features side by side."""

    name = "moments"

    def describe(self) -> None:
        super().describe()
        self.groups, self.running = self.layer.outputs // 2, Fraction(1, 2)
        if self.layer.outputs % 2 or self.layer.inputs % self.groups:
            raise ValueError(
                "moments gives two numbers for each group: outputs is twice the number of groups, which share the "
                f"{self.layer.inputs} features equally; got outputs={self.layer.outputs}"
            )


class GroupNorm(_Averages):
    """Each point less the mean of its group, by the root of its variance: both follow of moments of the same input."""

    name, takes = "group_norm", "activation"

    def describe(self) -> None:
        super().describe()
        others = {role: dim.size for role, dim in self.other}
        self.groups = others["features"] // 2
        if self.layer.outputs != self.layer.inputs:
            raise ValueError("group_norm gives as many features as it takes")
        if (
            others["features"] % 2
            or self.layer.inputs % self.groups
            or any(others[role] != 1 for role in self.layer.space)
        ):
            raise ValueError(
                "group_norm takes an activation and its moments: of=(1, 2), where layer 1 is of the kind moments"
            )
        self.owes = ((), self.points)

    def output_of(self, inp: Value, other: Value | None) -> Place:
        self._fit("forward", inp, other)
        return self.output.at(inp.place.named)

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place]:
        self.alike(op, inp, grad, *inp.place.named)
        self._fit(op, inp, other)
        assert other is not None, "group_norm takes moments"
        return self.back(1, {**other.place.named, **self.averaged(inp)}), self.back(0, inp.place.named)

    def _fit(self, op: str, inp: Value, other: Value | None) -> None:
        assert other is not None, "group_norm takes moments"
        self.alike(op, inp, other, "batch", "features")
        self.unbroken(op, inp, "features", self.groups, "group")
        self.of_the_grid(op, other)
