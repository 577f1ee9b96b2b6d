"""Stencils: which rows of a grid a row of the output needs, and which rows of the output need one.

Rows stand for any dim of a grid here. All of it is worked out from the ends of runs, whatever the number of rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from lib.values.dims import Pieces, Relation, Run, RunSet


@dataclass(frozen=True)
class Stencil(ABC):
    """A stencil: each row of the output takes `kernel` of `rows` rows; of those that lie outside, zeros."""

    rows: int
    kernel: int

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Return how many rows the output has."""

    @abstractmethod
    def needs(self, row: int) -> range:
        """The rows that a row of the output takes, those outside too."""

    def centre(self, row: int) -> int:
        """The row in the middle of those that a row of the output takes: who has that works it out."""
        needs = self.needs(row)
        return min(max(needs[(len(needs) - 1) // 2], 0), self.rows - 1)

    @abstractmethod
    def _users(self, low: int, high: int) -> Iterable[Run]:
        """The rows of the output that need any row from `low` to before `high`, as runs that may be empty."""

    def users(self, rows: Pieces) -> RunSet:
        """The rows of the output that need any of these."""
        found = [RunSet.span(*run) for ends in RunSet.of(rows).runs for run in self._users(*ends)]
        return RunSet.union(found) & RunSet.span(0, self.outputs)

    def given(self, rows: Pieces) -> RunSet:
        """The rows of the output for which these rows will do."""
        return self.users(RunSet.of(rows).rest(self.rows)).rest(self.outputs)


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
        for tap in range(self.kernel):
            ahead = self.padding - self.dilation * tap
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
        """The row whose own place, `stride` times as far down, is the nearest."""
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
        first = min(max(row - self.kernel // 2, 0), self.rows - self.kernel)
        return range(first, first + self.kernel)

    def centre(self, row: int) -> int:
        """The row itself, which at an edge is not in the middle of its window."""
        return row

    def _users(self, low: int, high: int) -> Iterable[Run]:
        half, last = self.kernel // 2, self.rows - self.kernel
        first, after = low - self.kernel + 1, high - 1  # of the windows, from where on to where they begin
        yield (first + half if first > 0 else 0, after + half + 1 if after < last else self.rows)


class Uses(Relation):
    """The rows of the output that a row of the input is needed for."""

    def __init__(self, stencil: Stencil) -> None:
        super().__init__(lambda row: stencil.users(RunSet.span(row, row + 1)), stencil)
        self.stencil = stencil

    def union(self, items: RunSet) -> RunSet:
        return self.stencil.users(items)
