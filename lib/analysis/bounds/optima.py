"""The best schedules of pipelines small enough to be solved exactly, and the best orders at a known schedule's memory.

`tools.solver` proved them with OR-tools' CP-SAT and stored them in optima.json and best_orders.json; nothing here needs
that package. Each comes with a witness: every rank's actions in order, in the words of
`lib.schedules.pipelines.action`. Running the witness shows that its end can be *reached*; that nothing is better is the
solver's proof. If it ran out of time, the record says so. docs/bounds.md says which schedules compete.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, Literal, NamedTuple

from lib.files import packaged
from lib.values.kinds.kind import PRICED

Aim = Literal["fastest", "between", "leanest"]
AIMS: tuple[Aim, ...] = ("fastest", "between", "leanest")
"""fastest: the least end, then the least peak at it. leanest: the least peak, then the least end at it. between:
those between the two that nothing beats in both."""

ACTIVATION: Final = PRICED.batch
"""Elements of one batch's activation, in the layers that optima are stored for."""


def _records(name: str) -> dict[str, list[dict[str, Any]]]:
    """Read the records of a file beside this one, on first use."""
    import json

    return json.loads(packaged("lib.analysis.bounds", f"{name}.json"))


class Size(NamedTuple):
    """A pipeline: `layers` on `stages` ranks, `batches` one by one; `overlap`: messages may be awaited later."""

    stages: int
    layers: int
    batches: int
    overlap: bool

    @property
    def each(self) -> int:
        """Layers of a stage."""
        return self.layers // self.stages


class Optimum(NamedTuple):
    """A schedule that is best in some sense, and what is proved about it.

    `end` in time units and `peak` in elements are what the witness reaches. No schedule of the family whose peak is at
    most `peak` ends before `end_bound`, and none that ends at `end` or before has a peak below `peak_bound`. For the
    fastest, `end_bound` holds whatever the peak; for the leanest, `peak_bound` holds whatever the end. `orders` are the
    actions of each rank.
    """

    size: Size
    aim: Aim
    end: float
    end_bound: float
    peak: int
    peak_bound: int
    proof: str
    orders: tuple[str, ...]

    @classmethod
    def of(cls, record: dict[str, Any]) -> Optimum:
        """Build one from its record in optima.json, where peaks are in activations of one batch."""
        fields = dict(record)
        size = Size(*(fields.pop(name) for name in Size._fields))
        peaks = {name: fields.pop(name) * ACTIVATION for name in ("peak", "peak_bound")}
        return cls(size, orders=tuple(fields.pop("orders")), **peaks, **fields)


@cache
def stored(size: Size, aim: Aim) -> Optimum | None:
    """Return the stored optimum of a size, or None; for "between", the fastest one."""
    optima = map(Optimum.of, _records("optima")["optima"])
    found = [optimum for optimum in optima if (optimum.size, optimum.aim) == (size, aim)]
    return min(found, key=lambda optimum: optimum.end, default=None)


class BestOrder(NamedTuple):
    """The best known order with a schedule's stages and memory, its backward split or not as there.

    `schedule` is the name of the schedule, which ends at `known`. `orders`, the words of each rank, end at `end`. No
    order whose ranks hold at most `peak` microbatches of activations ends before `bound`.
    """

    schedule: str
    ranks: int
    batches: int
    peak: float
    known: float
    end: float
    bound: float
    proof: str
    orders: Sequence[str]


@cache
def best_orders() -> tuple[BestOrder, ...]:
    """Return all stored orders."""
    return tuple(BestOrder(**record) for record in _records("best_orders")["orders"])
