"""How many real numbers each value of a Trace has, and which ones: the sizes of the tensors.

Every value is a set of ranges over a line of elements, along its first dim: a weight, its gradient and its optimizer
state lie on a line of hidden x hidden elements (row after row), an activation on a line of length x hidden a batch.
Ends of ranges that fall between two elements are rounded down, so shard i of n goes from i x N // n to
(i + 1) x N // n: contiguous rows where n divides the rows, and never more than an element away from N / n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from lib.values.layers import LINEAR
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
        place, part = value.place, value.place.first
        assert all(other.whole for other in place.dims[1:]), f"{value} is split along more than its first dim"
        axis = part.axis.size
        line = self.weight if place.sharded else axis * self.batch
        return merged([(int(low * line // axis), int(high * line // axis)) for low, high in part.ranges])

    def width(self, value: Value) -> int:
        """Numbers kept for each element of the line."""
        return self.moments if isinstance(value, OptState) else 1

    def numel(self, value: Value) -> int:
        """Numbers in a value's tensor."""
        return length(self.ranges(value)) * self.width(value)

    def simulated(self, values: Sequence[Value]) -> Elements:
        """Numbers of some values as the simulator counts them, with fractions of an element."""
        return sum((value.elements() * self._scale(value.kind) for value in values), Fraction(0))

    def simulated_bytes(self, by_kind: dict[str, Elements]) -> float:
        """The bytes that elements counted by the simulator, kind by kind, would have at these sizes."""
        return sum(float(elements * self._scale(kind)) for kind, elements in by_kind.items()) * self.bytes

    def _scale(self, kind: str) -> Fraction:
        """Numbers of a replay for each element that the simulator counts."""
        if kind in (Activation.kind, ActivationGrad.kind):
            return Fraction(self.batch, LINEAR.batch)
        return Fraction(self.weight, LINEAR.weight) * (self.moments if kind == OptState.kind else 1)


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
