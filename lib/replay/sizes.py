"""The sizes of the tensors: how many real numbers each value of a Trace has, and which ones.

Every value is a set of elements on the line of its tensor, the last dim fastest: a weight, its gradient and its
optimizer state on a line of inputs x outputs elements, an activation on one of rows x features a batch. A value with
only part of a later dim, such as some columns, has a run in each row; shards of such columns lie on a line of those
columns alone. The line of values at experts has each row at each expert. Ends of parts that fall within an element
are rounded down, so shard i of n goes from i x N // n to (i + 1) x N // n.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from math import inf, prod

from lib.replay import UnfitTrace
from lib.replay.options import ReplayOptions
from lib.trace.trace import Trace
from lib.values.dims import SPACE, Run, RunSet, joined
from lib.values.kinds.kind import PRICED, USUAL, Layer
from lib.values.layers import Shape
from lib.values.placement import Dim, Part, Place
from lib.values.values import KINDS, Elements, OptState, Value


def within(have: RunSet, want: RunSet) -> list[Run]:
    """Return where the elements `want`, all of them among `have`, lie in a tensor of `have`."""
    before = [*accumulate((after - first for first, after in have.runs), initial=0)]
    found: list[Run] = []
    for first, after in want.runs:  # no two runs of `have` touch, so each wanted run lies in one of them
        at = bisect_right(have.runs, (first, inf)) - 1
        start = before[at] + first - have.runs[at][0]
        found.append((start, start + after - first))
    return found


def in_order(sets: Sequence[RunSet]) -> bool:
    """Tell whether tensors of these elements, concatenated, are already in the order of the line."""
    return all(one <= other for one, other in pairwise(first for each in sets for first, _ in each.runs))


def _elements(part: Part, size: int) -> RunSet:
    """Return the elements of a part of a dim that has `size` of them."""
    ends = [(int(low * size // part.dim.size), int(high * size // part.dim.size)) for low, high in part.ranges]
    return RunSet(*joined(ends))


def _spread(outer: RunSet, inner: RunSet, line: int) -> RunSet:
    """Map elements of a line whose rows have only `inner` of `line` elements to the line of whole rows."""
    wide, found = len(inner), list[Run]()
    for low, high in outer.runs:
        for row in range(low // wide, -(-high // wide)):
            begin, end = max(low - row * wide, 0), min(high - row * wide, wide)
            some = inner if end - begin == wide else inner.nth(begin, end)
            found += [(row * line + first, row * line + after) for first, after in some.runs]
    return RunSet(*joined(found))


class Sizes:
    """The sizes of one replay.

    `shape` has the layers at the sizes of their real tensors: as described, or else as the options say. Each weight
    has `moments` numbers of optimizer state, side by side; each part of an unfinished softmax has a maximum and a sum.
    `scales` are the real numbers for each element that the simulator counts, by kind of value.
    """

    def __init__(self, shape: Shape, moments: int = 1, bytes: int = 8, simulated: Shape | None = None) -> None:
        self.shape, self.moments, self.bytes = shape, moments, bytes
        self.scales: dict[str, Fraction] = {}
        for name, kind in KINDS.items():
            real, counted = (one.schema_of(kind.tensor, 0) for one in (shape, simulated or shape))
            scale = Fraction(real.size, counted.size) if real is not None and counted is not None else Fraction(1)
            self.scales[name] = scale * (moments if kind is OptState else 1)
        self._known: dict[Place, RunSet] = {}
        self._parts: dict[Place, Mapping[str, RunSet]] = {}

    @classmethod
    def of(cls, trace: Trace, options: ReplayOptions) -> Sizes:
        """Return the sizes of a replay. UnfitTrace where the options set sizes that the Trace already has."""
        shape = trace.shape
        if trace.descriptions == USUAL:
            layer = Layer(PRICED.kind, options.hidden, options.hidden, options.length)
            shape = Shape(trace.layers, trace.batches, layer, trace.padding)
        elif (options.hidden, options.length) != (PRICED.inputs, PRICED.rows):
            raise UnfitTrace("this Trace says how large its layers are: leave out hidden and length")
        return cls(shape, options.moments, options.number.bytes, trace.shape)

    @property
    def output_points(self) -> int:
        """Rows, or points of a grid, of one batch after the last layer."""
        return prod(dim.size for role, dim in self.shape.kinds[-1].gives.items() if role in SPACE)

    @property
    def weighted(self) -> list[int]:
        """The layers that have a weight."""
        return [layer for layer in range(self.shape.layers) if self.weight(layer)]

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
        """Return the dims of a value's tensor, then its sums, at their real sizes."""
        schema = self.shape.schema_of(value.tensor, value.layer)
        assert schema is not None, "a layer that has no weight has no value of one"
        return schema.spaces

    def parts(self, value: Value) -> Mapping[str, RunSet]:
        """Return which elements of each dim a value has."""
        if (known := self._parts.get(value.place)) is None:
            named = zip(value.place.named.items(), self.dims(value), strict=False)
            self._parts[value.place] = known = {role: _elements(part, dim.size) for (role, part), dim in named}
        return known

    def elements(self, value: Value) -> RunSet:
        """Return the elements of a value on its line."""
        if (known := self._known.get(value.place)) is not None:
            return known
        found, line = RunSet.span(0, 1), 1
        pairs = [*zip(value.place.dims, self.dims(value), strict=False)]
        if (route := value.place.schema.route) is not None:
            (batches, _), (experts, _), (rows, _), (part, dim) = pairs
            at = [
                ((batch * experts.dim.size + expert) * rows.dim.size + row) * dim.size
                for batch in sorted(batches.pieces)
                for expert in experts.pieces
                for row in route.rows_of(expert, batch, rows.pieces)
            ]
            inner = _elements(part, dim.size).runs
            pairs, found = [], RunSet(*joined([(first + low, first + high) for first in at for low, high in inner]))
        for part, dim in reversed(pairs):
            flat = _elements(part, dim.size * len(found))
            found, line = flat if len(found) == line else _spread(flat, found, line), line * dim.size
        self._known[value.place] = found
        return found

    def uneven(self, value: Value, first: bool = False) -> tuple[Part, int] | None:
        """Return the first part of a dim, or a sum, that ends within an element, and the size of that dim. The first
        dim of a weight counts only with `first`: otherwise its line may be cut anywhere."""
        parts = zip(value.place.parts, self.dims(value), strict=True)
        for part, dim in [*parts][value.place.sharded and not first :]:
            if any(end * dim.size % part.dim.size for ends in part.ranges for end in ends):
                return part, dim.size
        return None

    def width(self, value: Value) -> Elements:
        """Return how many numbers are kept for each element of the line."""
        place = value.place
        return self.moments if isinstance(value, OptState) else 1 + place.schema.running if place.open else 1

    def numel(self, value: Value) -> int:
        """Return how many numbers a value's tensor has."""
        return int(len(self.elements(value)) * self.width(value))

    def simulated(self, values: Sequence[Value]) -> Elements:
        """Return the total elements of some values, as the simulator counts them, at these sizes."""
        return sum((value.elements() * self.scales[value.kind] for value in values), Fraction(0))
