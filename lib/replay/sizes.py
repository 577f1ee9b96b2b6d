"""How many real numbers each value of a Trace has, and which ones: the sizes of the tensors.

Every value is a set of ranges over the line of all elements of its tensor, the last dim fastest: a weight, its gradient
and its optimizer state on a line of inputs x outputs elements, an activation on one of rows x features a batch. What
has only a part of a later dim, such as some columns, has a range in each row; of shards of such columns the line is
that of the columns alone. Of what goes to experts the line has each row at each expert. Ends of ranges that fall
between two elements are rounded down, so shard i of n goes from i x N // n to (i + 1) x N // n.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from math import inf, prod
from typing import TYPE_CHECKING

from lib.analysis.figures import samples
from lib.replay import UnfitTrace
from lib.replay.options import ReplayOptions
from lib.trace.trace import Trace
from lib.values.dims import SPACE, RunSet, joined
from lib.values.kinds.kind import PRICED, USUAL, Layer
from lib.values.layers import Shape
from lib.values.operations import OPERATIONS
from lib.values.placement import Dim, Part, Place
from lib.values.values import KINDS, Elements, OptState, Value

if TYPE_CHECKING:
    from lib.replay.plan import Plan

Range = tuple[int, int]


def length(ranges: Sequence[Range]) -> int:
    """Return how many elements are in some ranges."""
    return sum(stop - start for start, stop in ranges)


def within(have: Sequence[Range], want: Sequence[Range]) -> list[Range]:
    """Return where in a tensor of the ranges `have` the wanted ones lie, which are there."""
    before, found = [*accumulate((stop - start for start, stop in have), initial=0)], list[Range]()
    for start, stop in want:
        at = bisect_right(have, (start, inf)) - 1
        while start < stop:
            low, high = have[at]
            end = min(stop, high)
            found.append((before[at] + start - low, before[at] + end - low))
            start, at = end, at + 1
    return found


def common(left: Sequence[Range], right: Sequence[Range]) -> list[Range]:
    """Return what is in both."""
    return [*(RunSet(*left) & RunSet(*right)).runs]


def in_order(ranges: Sequence[Sequence[Range]]) -> bool:
    """Tell whether tensors of these ranges, one after the other, are in the order of the line already."""
    return all(one <= other for one, other in pairwise(start for each in ranges for start, _ in each))


def _ends(part: Part, size: int) -> tuple[Range, ...]:
    """Return a part of a dim as ranges of so many elements."""
    return joined([(int(low * size // part.dim.size), int(high * size // part.dim.size)) for low, high in part.ranges])


def _spread(low: int, high: int, inner: tuple[Range, ...], wide: int, line: int) -> Iterator[Range]:
    """Give a range of a line whose rows have only these `wide` elements of `line`, as ranges of the line of all."""
    for row in range(low // wide, -(-high // wide)):
        at = row * wide
        for first, last in inner:
            start, stop = max(low, at), min(high, at + last - first)
            if start < stop:
                yield row * line + first + start - at, row * line + first + stop - at
            at += last - first


class Sizes:
    """The sizes of one replay.

    `shape` has the layers as large as their tensors are: as they are described, and those without a description as the
    options say. `moments` numbers of optimizer state go with each weight, side by side, and so do its maximum and sum
    with each part of a softmax that is not done. `scales` are the numbers of a replay for each element that the
    simulator counts, by kind of value.
    """

    def __init__(self, shape: Shape, moments: int = 1, bytes: int = 8, simulated: Shape | None = None) -> None:
        self.shape, self.moments, self.bytes = shape, moments, bytes
        self.scales: dict[str, Fraction] = {}
        for name, kind in KINDS.items():
            real, counted = (one.schema_of(kind.tensor, 0) for one in (shape, simulated or shape))
            scale = Fraction(real.size, counted.size) if real is not None and counted is not None else Fraction(1)
            self.scales[name] = scale * (moments if kind is OptState else 1)
        self._known: dict[Place, tuple[Range, ...]] = {}
        self._parts: dict[Place, Mapping[str, tuple[Range, ...]]] = {}

    @classmethod
    def of(cls, trace: Trace, options: ReplayOptions) -> Sizes:
        """Return the sizes of a replay. UnfitTrace where the options say others than the Trace."""
        shape = trace.shape
        if trace.descriptions == USUAL:
            layer = Layer(PRICED.kind, options.hidden, options.hidden, options.length)
            shape = Shape(trace.layers, trace.batches, layer, trace.padding)
        elif (options.hidden, options.length) != (PRICED.inputs, PRICED.rows):
            raise UnfitTrace("this Trace says how large its layers are: leave out hidden and length")
        return cls(shape, options.moments, options.number.bytes, trace.shape)

    @property
    def output_points(self) -> int:
        """Rows of one batch after the last layer, or points where they are a grid."""
        return prod(dim.size for role, dim in self.shape.kinds[-1].gives.items() if role in SPACE)

    def weight(self, layer: int) -> int:
        """Return the elements of the weight of a layer, 0 where it has none."""
        schema = self.shape.kinds[layer].weight
        return 0 if schema is None else schema.size

    def batch(self, number: int) -> int:
        """Return the elements of the line of one batch of an activation."""
        schema = self.shape.schema_of("activation", number)
        assert schema is not None, "there are activations before and after every layer"
        return prod(dim.size for dim in schema.spaces[1 : schema.ndim])

    def dims(self, value: Value) -> Sequence[Dim]:
        """Return the dims of a value's tensor and then its sums, as large as they are."""
        schema = self.shape.schema_of(value.tensor, value.layer)
        assert schema is not None, "a layer that has no weight has no value of one"
        return schema.spaces

    def parts(self, value: Value) -> Mapping[str, tuple[Range, ...]]:
        """Return which elements of each dim a value has."""
        if (known := self._parts.get(value.place)) is None:
            named = zip(value.place.named.items(), self.dims(value), strict=False)
            self._parts[value.place] = known = {role: _ends(part, dim.size) for (role, part), dim in named}
        return known

    def ranges(self, value: Value) -> tuple[Range, ...]:
        """Return the ranges of a value on its line, in ascending order; neighbours are one range."""
        if (known := self._known.get(value.place)) is not None:
            return known
        found, line = ((0, 1),), 1
        pairs = [*zip(value.place.dims, self.dims(value), strict=False)]
        if (route := value.place.schema.route) is not None:
            (batches, _), (experts, _), (rows, _), (part, dim) = pairs
            at = [
                ((batch * experts.dim.size + expert) * rows.dim.size + row) * dim.size
                for batch in sorted(batches.pieces)
                for expert in experts.pieces
                for row in route.rows_of(expert, batch, rows.pieces)
            ]
            inner = _ends(part, dim.size)
            pairs, found = [], joined([(first + low, first + high) for first in at for low, high in inner])
        for part, dim in reversed(pairs):
            wide = length(found)
            flat = _ends(part, dim.size * wide)
            if wide < line:
                flat = joined([piece for low, high in flat for piece in _spread(low, high, found, wide, line)])
            found, line = flat, line * dim.size
        self._known[value.place] = found
        return found

    def uneven(self, value: Value, first: bool = False) -> tuple[Part, int] | None:
        """Return the first part of a dim, or a sum, that does not end between two elements, and how large that dim is.
        Of a weight the `first` may be any: its line is cut."""
        parts = zip(value.place.parts, self.dims(value), strict=True)
        for part, dim in [*parts][value.place.sharded and not first :]:
            if any(end * dim.size % part.dim.size for ends in part.ranges for end in ends):
                return part, dim.size
        return None

    def width(self, value: Value) -> Elements:
        """Return the numbers that are kept for each element of the line."""
        place = value.place
        return self.moments if isinstance(value, OptState) else 1 + place.schema.running if place.open else 1

    def numel(self, value: Value) -> int:
        """Return the numbers in a value's tensor."""
        return int(length(self.ranges(value)) * self.width(value))

    def simulated(self, values: Sequence[Value]) -> Elements:
        """Return the elements of some values together as the simulator counts them, at these sizes."""
        return sum((value.elements() * self.scales[value.kind] for value in values), Fraction(0))


IN_FORM = frozenset(name for name, row in OPERATIONS.items() if row.by_kind)
"""The operations that take tensors in the form of their dims, where others take the numbers of a line."""


def simulated_curve(plan: Plan, rank: int) -> dict[int, float]:
    """Return by event the bytes that the simulator says are alive when it starts, at the sizes of the replay."""
    scales, number = plan.sizes.scales, plan.sizes.bytes
    return {
        sample.index: sum(float(elements * scales[kind]) for kind, elements in sample.by_kind.items()) * number
        for sample in samples(plan.trace, rank)
    }
