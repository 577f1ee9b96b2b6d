"""Convolutions along the rows of a grid, in parts whose inputs overlap at their edges.

A row of the output needs some rows of the input around its own place: a stencil. A part of the input gives the rows
whose stencils lie in it, so that with rows of its neighbours, a halo, a rank gives all of its own. Backwards every row
that was taken has a gradient, those of the halo too, which is a sum over the rows that it was needed for: the inner
rows of a part have all of theirs and are done, and those at an edge are open until what a neighbour has is added.

All of it is worked out from the ends of runs, whatever the number of rows.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lib.errors.exceptions import RuleError
from lib.values import facts
from lib.values.dims import Pieces, Relation, RunSet
from lib.values.kinds.kind import Sum, fits, part
from lib.values.kinds.linear import Linear, same
from lib.values.placement import Dim, Part, Place

if TYPE_CHECKING:
    from lib.values.values import Value

__all__ = ["Convolution", "Stencil"]

MOST_TAPS = 4096
"""Rows of a kernel: each is looked at whenever a part of another form is given."""


class Stencil(NamedTuple):
    """Which of `rows` rows each row of the output takes: from row * stride - padding on, `kernel` of them, `dilation`
    apart. Those before the first row and after the last one are zeros."""

    rows: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    padding: int = 0

    @property
    def outputs(self) -> int:
        """How many rows the output has."""
        return (self.rows + 2 * self.padding - self.dilation * (self.kernel - 1) - 1) // self.stride + 1

    def needs(self, row: int) -> range:
        """The rows that a row of the output takes; of those that are outside, zeros."""
        first = row * self.stride - self.padding
        return range(first, first + self.dilation * self.kernel, self.dilation)

    def _meeting(self, tap: int, low: int, high: int) -> tuple[int, int]:
        """The rows of the output for which one place of the stencil lies on the rows from `low` to before `high`."""
        ahead = self.padding - self.dilation * tap
        first, after = (-(-(end + ahead) // self.stride) for end in (low, high))
        return max(first, 0), min(after, self.outputs)

    def users(self, rows: Pieces) -> RunSet:
        """The rows of the output that need any of these."""
        return RunSet.union(
            RunSet.span(*self._meeting(tap, *run)) for run in RunSet.of(rows).runs for tap in range(self.kernel)
        )

    def given(self, rows: Pieces) -> RunSet:
        """The rows of the output for which these rows will do."""
        found, far = RunSet.span(0, self.outputs), self.rows + self.padding + self.dilation * self.kernel
        ends = [(-far, 0), *RunSet.of(rows).runs, (self.rows, far)]  # zeros are there for everybody
        for tap in range(self.kernel):
            found &= RunSet.union(RunSet.span(*self._meeting(tap, *run)) for run in ends)
        return found


class Uses(Relation):
    """Which rows of the output a row of the input is needed for."""

    def __init__(self, stencil: Stencil) -> None:
        super().__init__(lambda row: stencil.users(RunSet.span(row, row + 1)))
        self.stencil = stencil

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Uses) and self.stencil == other.stencil

    def __hash__(self) -> int:
        return hash(self.stencil)

    def union(self, items: RunSet) -> RunSet:
        return self.stencil.users(items)


class Convolution(Linear):
    """Each row of the output is the sum of the rows around it, each times the weight for its place in the stencil."""

    name, options, optional = "convolution", ("kernel",), ("stride", "dilation", "padding")

    def describe(self) -> None:
        super().describe()
        layer = self.layer
        self.stencil = Stencil(layer.rows, layer.kernel, layer.stride, layer.dilation, layer.padding)
        if layer.kernel > MOST_TAPS:
            raise ValueError(f"a kernel has at most {MOST_TAPS:,} rows; got {layer.kernel:,}")
        if self.stencil.outputs < 1:
            raise ValueError(
                f"a kernel of {layer.kernel} rows, {layer.dilation} apart, is wider than {layer.rows} rows with a "
                f"padding of {layer.padding}"
            )
        if layer.padding > layer.dilation * (layer.kernel - 1):
            raise ValueError(f"a padding of {layer.padding} is so wide that rows at the edge are of zeros alone")
        rows = self.dim("rows", self.stencil.outputs)
        self.gives = tuple([(role, rows if role == "rows" else dim) for role, dim in self.gives])
        uses = Sum("outputs", self.dim("outputs", rows.size), Uses(self.stencil), "rows")
        self.owes = ((*self.owes[0], uses),)
        self.weight_dims = (*self.weight_dims, ("taps", self.dim("taps", layer.kernel)))
        self.work = rows.size * layer.kernel * layer.inputs * layer.outputs

    def output_of(self, inp: Value, other: Value | None) -> Place:
        _has_all_taps(other)
        fits("input of forward", inp, other, "in")
        parts = {**same(inp), "rows": self._given("forward", inp)}
        return self.output.at({**parts, "features": part(other, "out"), "terms": part(other, "in")})

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Value | None) -> tuple[Place | None, Place]:
        assert self.weight_gradient is not None, "a convolution has a weight"
        if not part(grad, "rows").alike(self._given(op, inp)):
            raise RuleError(facts.OtherRows(op, inp, grad, self.stencil))
        ends = {"in": inp.place.dims[-1], "out": grad.place.dims[-1]}
        by_weight = self.weight_gradient.at({"batch": part(inp, "batch"), "rows": part(grad, "rows"), **ends})
        if other is None:  # the weight half alone
            return by_weight, inp.place
        _has_all_taps(other)
        fits(f"input of {op}", inp, other, "in")
        fits(f"gradient given to {op}", grad, other, "out")
        sums = {"terms": part(other, "out"), "outputs": part(grad, "rows")}
        return by_weight, self.back(0, {**same(inp), "features": part(other, "in"), **sums})

    def _given(self, op: str, inp: Value) -> Part:
        """The rows of the output that follow of those that are here."""
        rows: Dim = dict(self.gives)["rows"]
        here = part(inp, "rows").pieces
        given = self.stencil.given(here)
        if here and not given:
            raise RuleError(facts.NoRows(op, inp, self.stencil))
        return rows.piece(rows.size, given)

    def rows_of_work(self, inp: Place) -> Fraction:
        return Fraction(len(self.stencil.given(inp.named["rows"].pieces)), self.stencil.outputs)


def _has_all_taps(weight: Value | None) -> None:
    """Whether a weight is there for every place of the stencil."""
    if not part(weight, "taps").whole:
        raise RuleError(facts.Incomplete(cast(Any, weight)))
