"""How many real numbers each value of a Trace has, and which ones: the sizes of the tensors.

Every value is a set of ranges over the line of all elements of its tensor, the last dim fastest: a weight, its gradient
and its optimizer state on a line of inputs x outputs elements (row after row), an activation on one of rows x features
a batch. What has only a part of a later dim, such as some columns of a weight, has a range in each row; of shards of
such columns the line is that of the columns alone. Of what goes to experts the line has each row at each expert, and a
value has the ranges of those that are there. Ends of ranges that fall between two elements are rounded down, so shard i
of n goes from i x N // n to (i + 1) x N // n: contiguous rows where n divides the rows, and never more than an element
away from N / n.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import prod

from lib.replay.errors import UnfitTrace
from lib.replay.options import ReplayOptions
from lib.trace.trace import Trace
from lib.values.dims import SPACE
from lib.values.kinds.kind import PRICED, USUAL, Layer
from lib.values.layers import Shape
from lib.values.placement import Dim, Part, Place
from lib.values.values import KINDS, Elements, OptState, Value

__all__ = ["Range", "Sizes", "length", "merged"]

Range = tuple[int, int]


class Sizes:
    """The sizes of one replay.

    `shape` has the layers as large as their tensors are: as they are described, and those that nobody described as the
    options say. `moments` numbers of optimizer state go with each weight, side by side, and so do its maximum and sum
    with each part of a softmax that is not done.
    """

    def __init__(self, shape: Shape, moments: int = 1, bytes: int = 8, simulated: Shape | None = None) -> None:
        self.shape = shape
        self.moments = moments
        self.bytes = bytes
        # Numbers of a replay for each element that the simulator counts.
        self.scales: dict[str, Fraction] = {}
        for name, kind in KINDS.items():
            real, counted = (one.schema_of(kind.tensor, 0) for one in (shape, simulated or shape))
            scale = Fraction(real.size, counted.size) if real is not None and counted is not None else Fraction(1)
            self.scales[name] = scale * (moments if kind is OptState else 1)
        self._known: dict[Place, tuple[Range, ...]] = {}

    @classmethod
    def of(cls, trace: Trace, options: ReplayOptions) -> Sizes:
        """The sizes of a replay. UnfitTrace where the options say others than the Trace."""
        shape = trace.shape
        if trace.descriptions == USUAL:
            layer = Layer(PRICED.kind, options.hidden, options.hidden, options.length)
            shape = Shape(trace.layers, trace.batches, layer, trace.padding)
        elif (options.hidden, options.length) != (PRICED.inputs, PRICED.rows):
            raise UnfitTrace("this Trace says how large its layers are: leave out hidden and length")
        return cls(shape, options.moments, options.number.bytes, trace.shape)

    @property
    def rows(self) -> int:
        """Rows of one batch."""
        return self.shape.descriptions[0].rows

    @property
    def output_points(self) -> int:
        """Rows of one batch after the last layer, or points where they are a grid."""
        return prod(dim.size for role, dim in self.shape.kinds[-1].gives if role in SPACE)

    def weight(self, layer: int) -> int:
        """Elements of the weight of a layer, 0 where it has none."""
        schema = self.shape.kinds[layer].weight
        return 0 if schema is None else schema.size

    @property
    def weights(self) -> int:
        """Elements of all weights."""
        return sum(map(self.weight, range(self.shape.layers)))

    def batch(self, number: int) -> int:
        """Elements of the line of one batch of an activation."""
        schema = self.shape.schema_of("activation", number)
        assert schema is not None, "there are activations before and after every layer"
        return prod(dim.size for dim in schema.spaces[1 : schema.ndim])

    def dims(self, value: Value) -> Sequence[Dim]:
        """The dims of a value's tensor and then its sums, as large as they are."""
        schema = self.shape.schema_of(value.tensor, value.layer)
        assert schema is not None, "a layer that has no weight has no value of one"
        return schema.spaces

    def parts(self, value: Value) -> Mapping[str, tuple[Range, ...]]:
        """Which elements of each dim a value has."""
        named = zip(value.place.named.items(), self.dims(value), strict=False)
        return {role: _ends(part, dim.size) for (role, part), dim in named}

    def ranges(self, value: Value) -> tuple[Range, ...]:
        """Where a value lies on its line, in ascending order; neighbours are one range."""
        found = self._known.get(value.place)
        if found is None:
            found, line = ((0, 1),), 1
            pairs = [*zip(value.place.dims, self.dims(value), strict=False)]
            if (route := value.place.schema.route) is not None:
                (batches, _), (experts, _), (rows, _), (part, dim) = pairs
                inner = _ends(part, dim.size)
                at = [
                    ((batch * experts.dim.size + expert) * rows.dim.size + row) * dim.size
                    for batch in sorted(batches.pieces)
                    for expert in experts.pieces
                    for row in route.rows_of(expert, batch, rows.pieces)
                ]
                pairs, found = [], merged([(first + low, first + high) for first in at for low, high in inner])
            for part, dim in reversed(pairs):
                wide = length(found)
                flat = _ends(part, dim.size * wide)
                if wide < line:
                    flat = merged([piece for low, high in flat for piece in _spread(low, high, found, wide, line)])
                found, line = flat, line * dim.size
            self._known[value.place] = found
        return found

    def uneven(self, value: Value, first: bool = False) -> tuple[Part, int] | None:
        """The first part of a dim, or a sum, that does not end between two elements, and how large that dim is. Of a
        weight the `first` may be any: its line is cut."""
        parts = zip(value.place.parts, self.dims(value), strict=True)
        for part, dim in [*parts][value.place.sharded and not first :]:
            if any(end * dim.size % part.dim.size for ends in part.ranges for end in ends):
                return part, dim.size
        return None

    def width(self, value: Value) -> Elements:
        """Numbers kept for each element of the line."""
        place = value.place
        return self.moments if isinstance(value, OptState) else 1 + place.schema.running if place.open else 1

    def numel(self, value: Value) -> int:
        """Numbers in a value's tensor."""
        return int(length(self.ranges(value)) * self.width(value))

    def simulated(self, values: Sequence[Value]) -> Elements:
        """Elements of some values together as the simulator counts them, at these sizes."""
        return sum((value.elements() * self.scales[value.kind] for value in values), Fraction(0))

    def simulated_bytes(self, by_kind: Mapping[str, Elements]) -> float:
        """The bytes that elements counted by the simulator, kind by kind, would have at these sizes."""
        return sum(float(elements * self.scales[kind]) for kind, elements in by_kind.items()) * self.bytes


def _ends(part: Part, size: int) -> tuple[Range, ...]:
    """A part of a dim as ranges of so many elements."""
    whole = part.dim.size
    return merged([(int(low * size // whole), int(high * size // whole)) for low, high in part.ranges])


def _spread(low: int, high: int, inner: tuple[Range, ...], wide: int, line: int) -> Iterator[Range]:
    """A range of a line whose rows have only these `wide` elements of `line`, as ranges of the line of all."""
    for row in range(low // wide, -(-high // wide)):
        at = row * wide
        for first, last in inner:
            start, stop = max(low, at), min(high, at + last - first)
            if start < stop:
                yield row * line + first + start - at, row * line + first + stop - at
            at += last - first


def merged(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """Ascending ranges with neighbours made one, and without empty ones."""
    found: list[Range] = []
    for start, stop in ranges:
        if start == stop:
            continue
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return tuple(found)


def length(ranges: Sequence[Range]) -> int:
    """Elements in some ranges."""
    return sum(stop - start for start, stop in ranges)
