"""How many real numbers each value of a Trace has, and which ones: the sizes of the tensors.

Every value is a set of ranges over a line of elements: a weight, its gradient and its optimizer state lie on a line of
hidden x hidden elements (row after row), an activation on a line of length x hidden a batch. What has some columns of a
weight, or some features, has a range in each row; of shards of such columns the line is that of the columns alone.
Ends of ranges that fall between two elements are rounded down, so shard i of n goes from i x N // n to
(i + 1) x N // n: contiguous rows where n divides the rows, and never more than an element away from N / n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from lib.values.kinds.kind import PRICED
from lib.values.values import Activation, ActivationGrad, Elements, OptState, Value

__all__ = ["Range", "Sizes", "cut_range", "length", "merged"]

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one replay. `moments` numbers of optimizer state go with each weight, side by side."""

    hidden: int
    length: int
    moments: int = 1
    bytes: int = 8

    @property
    def weight(self) -> int:
        """Elements of one weight."""
        return self.hidden * self.hidden

    @property
    def batch(self) -> int:
        """Elements of one batch of activations."""
        return self.length * self.hidden

    def ranges(self, value: Value) -> tuple[Range, ...]:
        """Where a value lies on its line, in ascending order; neighbours are one range."""
        blocks, sides = self._blocks(value), self.sides(value)
        if sides == ((0, self.hidden),):
            return blocks
        wide = length(sides)
        return merged([piece for low, high in blocks for piece in self._rows(low, high, sides, wide)])

    def _blocks(self, value: Value) -> tuple[Range, ...]:
        """Where it lies on the line of what has the same columns or features, row after row."""
        place, part = value.place, value.place.first
        dim = part.dim.size
        line = (self.weight if place.sharded else dim * self.batch) // self.hidden * self.columns(value)
        return merged([(int(low * line // dim), int(high * line // dim)) for low, high in part.ranges])

    def sides(self, value: Value) -> tuple[Range, ...]:
        """Which numbers of a row it has: those of its columns, or of its features."""
        part = value.place.dims[-1]
        dim = part.dim.size
        return merged([(int(low * self.hidden // dim), int(high * self.hidden // dim)) for low, high in part.ranges])

    def _rows(self, low: int, high: int, sides: tuple[Range, ...], wide: int) -> Iterator[Range]:
        """A range of the line of some columns as ranges of the line of all."""
        for row in range(low // wide, -(-high // wide)):
            at = row * wide
            for first, last in sides:
                start, stop = max(low, at), min(high, at + last - first)
                if start < stop:
                    yield row * self.hidden + first + start - at, row * self.hidden + first + stop - at
                at += last - first

    def columns(self, value: Value) -> int:
        """Numbers in a row of its matrix."""
        return length(self.sides(value))

    def divides(self, value: Value) -> bool:
        """Whether its columns or features, and the rows of which it is a sum, are whole numbers of them."""
        return all(self.hidden % total == 0 for _, _, total in value.place.rest)

    def width(self, value: Value) -> int:
        """Numbers kept for each element of the line."""
        return self.moments if isinstance(value, OptState) else 1

    def numel(self, value: Value) -> int:
        """Numbers in a value's tensor."""
        return length(self._blocks(value)) * self.width(value)

    def simulated(self, values: Sequence[Value]) -> Elements:
        """Numbers of some values as the simulator counts them, with fractions of an element."""
        return sum((value.elements() * self._scale(value.kind) for value in values), Fraction(0))

    def simulated_bytes(self, by_kind: dict[str, Elements]) -> float:
        """The bytes that elements counted by the simulator, kind by kind, would have at these sizes."""
        return sum(float(elements * self._scale(kind)) for kind, elements in by_kind.items()) * self.bytes

    def _scale(self, kind: str) -> Fraction:
        """Numbers of a replay for each element that the simulator counts."""
        if kind in (Activation.kind, ActivationGrad.kind):
            return Fraction(self.batch, PRICED.batch)
        return Fraction(self.weight, PRICED.weight) * (self.moments if kind == OptState.kind else 1)


def cut_range(elements: int, shard: int, total: int) -> Range:
    """Shard `shard` of `total` of a line of elements."""
    return shard * elements // total, (shard + 1) * elements // total


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
