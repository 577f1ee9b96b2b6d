"""Proved optima of small pipelines: how they are stored, each with the orders that reach it.

The puzzles' pipelines are small enough to be solved exactly. `tools.solver` did so when this was written, with
CP-SAT of OR-tools, and stored what it found in optima.json: 4 stages of 2 layers and 4 batches, both ways of awaiting.
Nothing here needs that package. Every optimum comes with a witness: for each rank its actions in order, in the words of
`lib.schedules.pipelines.action`, where each layer is a stage; `witness` in `generators` beside it makes a function of
them. So that
an optimum is *reached* can be seen by running it; that nothing is below it is what the solver proved; where it ran out
of time, the record says so.

The family: rank s has the s-th of equally long runs of layers, with their weights and optimizer states. It takes each
batch on its own forward and backward through them, once; messages carry one activation or its gradient from a rank to
its neighbour. Costs are the classic unit costs, and memory is what `lib.trace.lifetimes` says, messages in flight
included. Without `overlap` every message is awaited where it is sent and received; with it a rank may compute while its
messages travel, and may issue a receive long before it needs what comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, NamedTuple

from lib.values.kinds.kind import PRICED

__all__ = ["AIMS", "Aim", "Optimum", "Size", "from_record", "stored", "to_record"]

Aim = Literal["fastest", "between", "leanest"]
AIMS: tuple[Aim, ...] = ("fastest", "between", "leanest")
"""fastest: the least end, then the least peak at it. leanest: the least peak, then the least end at it. between:
what lies between the two, and is beaten by nothing in both."""

ACTIVATION: Final = PRICED.batch
"""Elements of the activation of one batch, of the layers that optima are stored for."""


class Size(NamedTuple):
    """A pipeline: `layers` on `stages` ranks, `batches` on their own; `overlap`: messages may be awaited later."""

    stages: int
    layers: int
    batches: int
    overlap: bool

    @property
    def each(self) -> int:
        """Layers of a stage."""
        return self.layers // self.stages


@dataclass(frozen=True, slots=True)
class Optimum:
    """A schedule that is best in some sense, and what is proved of it.

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

    @property
    def optimal(self) -> bool:
        """Whether both figures are proved to be the least."""
        return self.end == self.end_bound and self.peak == self.peak_bound

    @property
    def status(self) -> str:
        """ "optimal", or what is open, in words."""
        if self.optimal:
            return "optimal"
        gaps: list[str] = []
        if self.end > self.end_bound:
            gaps.append(f"end {self.end:g}, bound {self.end_bound:g}")
        if self.peak > self.peak_bound:
            gaps.append(f"peak {self.peak:,}, bound {self.peak_bound:,}")
        return f"feasible: {'; '.join(gaps)}"


def stored(size: Size, aim: Aim) -> Optimum | None:
    """The stored optimum of a size, or None. Of those between it is the fastest."""
    return next((optimum for optimum in _stored() if optimum.size == size and optimum.aim == aim), None)


@cache
def _stored() -> tuple[Optimum, ...]:
    """All that are stored, the fastest first. The file is read when first asked for."""
    import json
    from importlib.resources import files

    records = json.loads((files("lib.analysis.bounds") / "optima.json").read_text("utf-8"))["optima"]
    return tuple(sorted(map(from_record, records), key=lambda optimum: optimum.end))


def from_record(record: dict[str, Any]) -> Optimum:
    """An Optimum from its form in optima.json: peaks there are in activations of one batch."""
    size = Size(record["stages"], record["layers"], record["batches"], record["overlap"])
    return Optimum(
        size,
        record["aim"],
        record["end"],
        record["end_bound"],
        record["peak"] * ACTIVATION,
        record["peak_bound"] * ACTIVATION,
        record["proof"],
        tuple(record["orders"]),
    )


def to_record(optimum: Optimum) -> dict[str, Any]:
    """The form of an Optimum in optima.json."""
    return {
        **optimum.size._asdict(),
        "aim": optimum.aim,
        "end": optimum.end,
        "end_bound": optimum.end_bound,
        "peak": optimum.peak // ACTIVATION,
        "peak_bound": optimum.peak_bound // ACTIVATION,
        "proof": optimum.proof,
        "orders": list(optimum.orders),
    }
