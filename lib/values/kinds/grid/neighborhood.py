"""Neighbourhood attention: of each point of a grid to the window around it, as NATTEN has it.

At an edge the window does not shrink, it stays inside (Hassani et al. 2023, https://arxiv.org/abs/2204.07143). A point
is worked on where its whole window is, so queries need no halo; keys and values do, and the gradients of these go home.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from lib.errors.exceptions import RuleError
from lib.values import facts
from lib.values.dims import OUTPUTS, RunSet
from lib.values.kinds.attention import Attention
from lib.values.kinds.grid.stencils import Uses, Window
from lib.values.kinds.kind import GRID, Sum, fraction, fraction_of_grid, part
from lib.values.placement import Place

if TYPE_CHECKING:
    from lib.values.values import Value

__all__ = ["NeighborhoodAttention"]


class NeighborhoodAttention(Attention):
    """Attention of each point to `kernel` rows around it, and as many columns where there are columns."""

    name, options, optional = "neighborhood_attention", ("heads", "kernel"), ("kv_heads", *GRID)
    softmax: ClassVar[bool] = False

    def describe_sums(self) -> None:
        kernel, space = self.layer.kernel, self.layer.space
        if kernel % 2 == 0:
            raise ValueError(f"a window has a middle, so its kernel is odd; got {kernel}")
        for role, size in space.items():
            if size < kernel:
                raise ValueError(f"a window of {kernel} {role} is wider than the {size} that there are")
        self.windows = {role: Window(size, kernel) for role, size in space.items()}
        self.owes = (
            (),
            tuple(
                [
                    Sum(OUTPUTS[role], self.dim(OUTPUTS[role], one.rows), Uses(one), role)
                    for role, one in self.windows.items()
                ]
            ),
        )
        self.work = 2 * self.layer.points * kernel ** len(space) * self.layer.inputs

    def output_of(self, inp: Value, other: Value | None) -> Place:
        self.fit("forward", inp, other)
        return self.output.at(inp.place.named)

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place]:
        self.alike(op, inp, grad, *inp.place.named)
        self.fit(op, inp, other)
        assert other is not None, "attention takes keys"
        queries = {OUTPUTS[role]: part(inp, role) for role in self.windows}
        return self.back(1, {**other.place.named, **queries}), self.back(0, inp.place.named)

    def fit(self, op: str, inp: Value, other: Value | None) -> None:
        super().fit(op, inp, other)
        assert other is not None, "attention takes keys"
        for role, window in self.windows.items():
            if not RunSet.of(part(inp, role).pieces) <= window.given(part(other, role).pieces):
                raise RuleError(facts.NoWindow(op, inp, other, window, role))

    def share(self, places: Sequence[Place]) -> Fraction:
        return fraction_of_grid(places[0]) * fraction(places[0].part("features"))
