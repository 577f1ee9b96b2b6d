"""Rows of data: the ranks of a mesh that work on the same examples, as a run has them.

Nobody says which axes of a mesh cut the data; the run does. Along an axis of which all ranks of each line got the same
examples the data is not cut: those ranks are one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lib.analysis.feeding.examples import got
from lib.errors.wording import these
from lib.trace.trace import Trace

__all__ = ["Rows", "rows_of"]

SHOWN = 8
"""Rows that are named one by one."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of data of a run. `axes` are those along which they are counted, none where there is no mesh; `ranks`
    and `examples` are those of each row, of a row whose ranks got different ones all of them."""

    axes: tuple[str, ...]
    ranks: tuple[tuple[int, ...], ...]
    examples: tuple[frozenset[int], ...]

    def holding(self, batch: int) -> list[int]:
        """The rows that hold an example."""
        return [row for row, held in enumerate(self.examples) if batch in held]

    def named(self, rows: Sequence[int]) -> str:
        """Rows in a sentence: "rows 1 and 3", or by their only rank each: "ranks 1 and 3"."""
        if all(len(self.ranks[row]) == 1 for row in rows):
            return these("rank", [self.ranks[row][0] for row in rows])
        return these("row", rows)

    def shared(self, batches: frozenset[int]) -> str | None:
        """Who holds the same example, of some: "rows 1 and 3 hold the same example (batch 5)"."""
        for batch in sorted(batches):
            rows = self.holding(batch)
            if len(rows) > 1:
                both = batches.intersection(*[self.examples[row] for row in rows])
                what = "example" if len(both) == 1 else "examples"
                return f"{self.named(rows)} hold the same {what} ({these('batch', both)})"
        return None

    def words(self) -> str:
        """What each row holds: "row 0: batches 0-3; row 1: batches 4, 5"."""
        held = [f"{self.named([row])}: {these('batch', self.examples[row])}" for row in range(len(self.ranks))[:SHOWN]]
        return "; ".join(held) + ("; ..." if len(self.ranks) > SHOWN else "")

    def unread(self, batches: frozenset[int]) -> frozenset[int]:
        """Those of some examples that nobody got."""
        return batches - frozenset[int]().union(*self.examples)


def rows_of(trace: Trace) -> Rows:
    """The rows of data of a run, as far as it went. Ranks that got none, such as later stages, are in no row."""
    held = got(trace)
    mesh = trace.mesh
    if mesh is None:
        fed = [rank for rank in range(trace.ranks) if held[rank]]
        return Rows((), tuple((rank,) for rank in fed), tuple(held[rank] for rank in fed))
    axes: list[str] = []
    for axis in mesh.axes:
        lines = {mesh.group(rank, axis) for rank in range(trace.ranks)}
        if any(len({held[rank] for rank in line if held[rank]}) > 1 for line in lines):
            axes.append(axis)
    found = [row for row in mesh.rows(*axes) if any(held[rank] for rank in row)]
    return Rows(tuple(axes), tuple(found), tuple(frozenset[int]().union(*[held[r] for r in row]) for row in found))
