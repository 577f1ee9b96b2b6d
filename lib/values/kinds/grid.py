"""Layers of a grid: convolutions and pooling, means and norms over all points, and a transform along one dim.

A row of a convolution's output needs some rows of the input around its own place: a stencil. Rows stand for any dim of
a grid, and all is worked out from the ends of runs. Sizes are those of torch's layers (Conv2d, ConvTranspose2d). A part
of the input gives the rows whose stencils lie in it, so with rows of its neighbours, a halo, a rank gives all of its
own. Backwards every row that was taken has a gradient, those of the halo too, which is a sum over the rows that needed
it: the inner rows of a part have all of theirs and are done, and those at an edge are open until a neighbour's part is
added. Other dims of a grid work in the same way.

Means and moments of a part of the grid are a partial sum with their number of points: two parts make a weighted mean,
which is the mean of both means if they have equally many points. An incomplete one is not a mean of the grid, so a
group norm waits for the rest.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any

from lib.errors.exceptions import RuleError
from lib.values import facts
from lib.values.dims import AVERAGED, OUTPUTS, SPACE, Pieces, Relation, Run, RunSet
from lib.values.kinds.kind import GRID, LayerKind, Sum, part
from lib.values.kinds.linear import Linear
from lib.values.placement import Dim, Part, Place

if TYPE_CHECKING:
    from lib.values.values import Value

MOST_TAPS = 4096
"""The most places of a kernel: each takes time for every part of another form."""


@dataclass(frozen=True)
class Stencil(Relation):
    """A stencil: each row of the output takes `kernel` of `rows` rows; those outside are zeros. As a relation it gives
    the rows of the output that need a row of the input."""

    rows: int
    kernel: int

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Return how many rows the output has."""

    @abstractmethod
    def needs(self, row: int) -> range:
        """Return the rows that a row of the output takes, those outside too."""

    def centre(self, row: int) -> int:
        """Return the middle row of those that a row of the output takes: the rank that has it computes that row."""
        needs = self.needs(row)
        return min(max(needs[(len(needs) - 1) // 2], 0), self.rows - 1)

    @abstractmethod
    def _users(self, low: int, high: int) -> Iterable[Run]:
        """Yield the rows of the output that need any row from `low` to before `high`, as runs that may be empty."""

    def needed(self, items: RunSet) -> RunSet:
        """Return the rows of the output that need any of these."""
        found = [RunSet.span(*run) for ends in items.runs for run in self._users(*ends)]
        return RunSet.union(found) & RunSet.span(0, self.outputs)

    def given(self, rows: Pieces) -> RunSet:
        """Return the rows of the output that need only these rows."""
        # All except those that need a row that is not here. Outside the grid are zeros, which are never missing.
        return self.needed(RunSet.of(rows).rest(self.rows)).rest(self.outputs)


@dataclass(frozen=True)
class Sweep(Stencil):
    """That of a convolution: row q takes the rows from q * stride - padding on, `dilation` apart."""

    stride: int = 1
    dilation: int = 1
    padding: int = 0

    @property
    def outputs(self) -> int:
        return (self.rows + 2 * self.padding - self.dilation * (self.kernel - 1) - 1) // self.stride + 1

    def needs(self, row: int) -> range:
        first = row * self.stride - self.padding
        return range(first, first + self.dilation * self.kernel, self.dilation)

    def _users(self, low: int, high: int) -> Iterable[Run]:
        # One tap at a time: with a dilation the users of a run are several runs, with gaps between them.
        for tap in range(self.kernel):
            ahead = self.padding - self.dilation * tap
            # Row q takes row q * stride - ahead with this tap. Divided exactly, and rounded up at both ends.
            yield -(-(low + ahead) // self.stride), -(-(high + ahead) // self.stride)


@dataclass(frozen=True)
class TransposedSweep(Stencil):
    """That of a transposed convolution: `kernel` rows from r * stride - padding on take row r."""

    stride: int = 1
    padding: int = 0

    @property
    def outputs(self) -> int:
        return (self.rows - 1) * self.stride - 2 * self.padding + self.kernel

    def needs(self, row: int) -> range:
        last = row + self.padding
        return range(-((self.kernel - 1 - last) // self.stride), last // self.stride + 1)

    def centre(self, row: int) -> int:
        """Return the row whose own place, `stride` times as far down, is the nearest."""
        nearest = (2 * (row + self.padding) - self.kernel + 1 + self.stride) // (2 * self.stride)
        return min(max(nearest, 0), self.rows - 1)

    def _users(self, low: int, high: int) -> Iterable[Run]:
        yield low * self.stride - self.padding, (high - 1) * self.stride - self.padding + self.kernel


@dataclass(frozen=True)
class Window(Stencil):
    """That of neighbourhood attention: `kernel` rows around each one, and at an edge the first or the last ones."""

    @property
    def outputs(self) -> int:
        return self.rows

    def needs(self, row: int) -> range:
        # NATTEN's windows are moved inwards at an edge, and never cut off: all points have equally many neighbours.
        first = min(max(row - self.kernel // 2, 0), self.rows - self.kernel)
        return range(first, first + self.kernel)

    def centre(self, row: int) -> int:
        """Return the row itself, which at an edge is not in the middle of its window."""
        return row

    def _users(self, low: int, high: int) -> Iterable[Run]:
        half, last = self.kernel // 2, self.rows - self.kernel
        first, after = low - self.kernel + 1, high - 1  # of the windows, from where on to where they begin
        yield (first + half if first > 0 else 0, after + half + 1 if after < last else self.rows)


def uses_of(stencils: Mapping[str, Stencil], dim: Callable[[str, int], Dim]) -> tuple[Sum, ...]:
    """Return the rows, and other dims, of the output over which the gradient of an input is a sum."""
    return tuple([Sum(dim(OUTPUTS[role], one.outputs), one, role) for role, one in stencils.items()])


class Swept(LayerKind):
    """A layer whose outputs each take the inputs around their own place in the grid, by the stencils of the grid's
    dims."""

    stencils: Mapping[str, Stencil]

    def stencil(self, rows: int) -> Stencil:
        """Return the stencil along a dim with this number of rows."""
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
        sizes = {role: one.outputs for role, one in self.stencils.items()}
        for role, outputs in sizes.items():
            if outputs < 1:
                raise ValueError(
                    f"a kernel of {layer.kernel} {role}, {layer.dilation} apart, is wider than {layer.space[role]} "
                    f"{role} with a padding of {layer.padding}"
                )
        self.gives |= {role: self.dim(role, size) for role, size in sizes.items()}
        self.owes = ((*self.owes[0], *uses_of(self.stencils, self.dim)), *self.owes[1:])
        # A multiplication for each point of the output and each element of the weight.
        self.work = prod(sizes.values()) * layer.weight

    def given(self, op: str, inp: Value, grad: Value | None = None) -> dict[str, Part]:
        """Return the part of each dim of the grid that follows from what is here. Rows that only others' outputs need
        have a gradient, but nothing is worked out."""
        found: dict[str, Part] = {}
        for role, stencil in self.stencils.items():
            here = part(inp, role).pieces
            given = stencil.given(here)
            if here and not given and (grad is None or part(grad, role).pieces):
                raise RuleError(facts.NoRows(op, inp, stencil, role))
            found[role] = self.gives[role].piece(stencil.outputs, given)
        return found

    def sums_of(self, op: str, inp: Value, grad: Value) -> dict[str, Part]:
        for role, given in self.given(op, inp, grad).items():
            if not given.covers(given.dim.like(part(grad, role))):
                raise RuleError(facts.OtherRows(op, inp, grad, self.stencils[role], role))
        return {OUTPUTS[role]: part(grad, role) for role in self.stencils}

    def share_of_points(self, places: Sequence[Place]) -> Fraction:
        """Return the fraction of the output that is worked on: all that follows from an input, or that whose gradient
        is here."""
        gradient = next((place.named for place in places if place.schema is self.output_gradient), None)
        inp, found = places[0].named, Fraction(1)
        for role, one in self.stencils.items():
            pieces = gradient[role].pieces if gradient else one.given(inp[role].pieces)
            found *= Fraction(len(pieces), one.outputs)
        return found


class Convolution(Swept, Linear):
    """Each row of the output is the sum of the rows around it, each times the weight for its place in the stencil."""

    name, options, optional = "convolution", ("kernel",), ("stride", "dilation", "padding", *GRID)
    free = *SPACE, "features"

    def describe(self) -> None:
        super().describe()
        self.weight_dims = (*self.weight_dims, self.dim("taps", self.layer.kernel ** len(self.stencils)))

    def fit(self, op: str, inp: Value, other: Any) -> None:
        if other is not None and not part(other, "taps").whole:
            raise RuleError(facts.Incomplete(other))


class TransposedConvolution(Convolution):
    """Each row of the input, times a weight for each place of the stencil, is added to the rows that lie there: a
    convolution the other way round, which makes a grid larger."""

    name, optional = "transposed_convolution", ("stride", "padding", *GRID)

    def describe(self) -> None:
        super().describe()
        # Here each point of the input is multiplied with all of the weight.
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

    name, takes, square, free, options, optional = "pooling", "", True, SPACE, ("kernel",), ("stride", *GRID)

    def describe(self) -> None:
        super().describe()
        self.work //= self.layer.inputs


class _Averages(LayerKind):
    """A layer that gives or takes numbers for a whole grid, an activation of one point. `groups` is the number of
    groups of features that belong together."""

    groups: int

    @property
    def points(self) -> tuple[Sum, ...]:
        """Return the points of the grid, over which such a number is a sum."""
        return tuple([Sum(self.dim(AVERAGED[role], n)) for role, n in self.layer.space.items()])

    def averaged(self, inp: Value) -> dict[str, Part]:
        """Return the points of a value, as those that are averaged."""
        return {AVERAGED[role]: part(inp, role) for role in self.layer.space}

    def of_the_grid(self, op: str, value: Value) -> None:
        """Check that a value has its one point."""
        for role in self.layer.space:
            self.unbroken(op, value, role, 1)


class Moments(_Averages):
    """The mean, and the mean of the squares, of all points of a grid, for each group of features side by side.

    `running` is the count of points that accompanies these numbers in a part of the sum.
    """

    name, takes, free = "moments", "", SPACE

    def describe(self) -> None:
        self.gives |= {role: self.dim(role, 1) for role in self.layer.space}
        self.opens = self.points
        self.describe_groups()

    def describe_groups(self) -> None:
        """Set the groups of features that belong together."""
        # The two numbers of each group come with their count of points: half a number for each.
        self.groups, self.running = self.layer.outputs // 2, Fraction(1, 2)
        if self.layer.outputs % 2 or self.layer.inputs % self.groups:
            raise ValueError(
                "moments gives two numbers for each group: outputs is twice the number of groups, which share the "
                f"{self.layer.inputs} features equally; got outputs={self.layer.outputs}"
            )

    def fit(self, op: str, inp: Value, other: Any) -> None:
        self.unbroken(op, inp, "features", self.groups, "group")

    def output_of(self, inp: Value, other: Any) -> Place:
        parts = {role: part(inp, role) for role in ("batch", "features")}
        # A part of the grid gives a mean over its own points: a partial sum, until all are in it.
        return self.output.at({**parts, **self.averaged(inp)})

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Any) -> tuple[Place | None, Place]:
        self.of_the_grid(op, grad)
        return None, self.back(0, inp.place.named)


class Mean(Moments):
    """The mean of all points of a grid, feature by feature."""

    name, square = "mean", True

    def describe_groups(self) -> None:
        # One count of points for all features of a row.
        self.groups, self.running = 1, Fraction(1, self.layer.inputs)


class GroupNorm(_Averages):
    """Each point less the mean of its group, by the root of its variance, by moments of the same input."""

    name, takes, square = "group_norm", "activation", True

    def describe(self) -> None:
        others = {role: dim.size for role, dim in self.other.items()}
        self.groups = others["features"] // 2
        one_point = all(others[role] == 1 for role in self.layer.space)
        if others["features"] % 2 or self.layer.inputs % self.groups or not one_point:
            raise ValueError(
                "group_norm takes an activation and its moments: of=(1, 2), where layer 1 is of the kind moments"
            )
        # Every point takes the moments, so their gradient is a sum over all points, of which a part has only its own.
        self.owes = ((), self.points)

    def fit(self, op: str, inp: Value, other: Any) -> None:
        self.alike(op, inp, other, "batch", "features")
        self.unbroken(op, inp, "features", self.groups, "group")
        self.of_the_grid(op, other)

    def gradients_of(self, op: str, inp: Value, grad: Value, other: Any) -> tuple[Place | None, Place]:
        return self.back(1, {**other.place.named, **self.averaged(inp)}), self.back(0, inp.place.named)


class Transform(LayerKind):
    """The cosine transform of each line of a grid along one of its dims, in which each row needs all others, as in
    spectral layers: a product with a matrix."""

    name, takes, keeps, square, options, optional = "transform", "", False, True, ("along",), GRID

    def describe(self) -> None:
        layer = self.layer
        if layer.along not in layer.space:
            raise ValueError(
                f"a transform is along a dim of its grid: {', '.join(layer.space)}; got along={layer.along!r}"
            )
        self.work *= layer.space[layer.along]

    def fit(self, op: str, inp: Value, other: Any) -> None:
        # Every row of the output needs every row of the line, so the whole line has to be there: transpose first.
        self.unbroken(op, inp, self.layer.along, 1)
