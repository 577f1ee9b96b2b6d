"""Lower bounds: what no schedule of a puzzle's family can be below, and what each bound is made of.

`limits` has the arguments, `families` what kind of schedule they are about, and `optima` what a solver proved besides.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from lib.analysis.bounds.family import Family, excuse
from lib.analysis.bounds.limits import Limit, Part, memory, sent, time
from lib.cluster.costs import UNIT, Costs
from lib.puzzles.records import PUZZLES
from lib.trace.trace import Trace

__all__ = ["Bound", "Limit", "Part", "bound_of", "has_bound", "lower_bound"]


@dataclass(frozen=True, slots=True)
class Bound:
    """The limits of a puzzle: steps to the true end, elements on the fullest rank, elements that the rank that sends
    most must send. They speak of a family of schedules; `premise` says which, in a sentence for a student.

    Each limit holds on its own: the schedules that reach them need not be the same.
    """

    puzzle: str
    premise: str
    time: Limit
    memory: Limit
    sent: Limit
    family: Family

    def excuse(self, trace: Trace) -> str | None:
        """Why this run is not of the family, and so may be below the limits; None where it is."""
        return excuse(trace, self.family)


PREMISES = {
    "basic": "All batches go through the layers together. Weights and optimizer states stay from the first forward to "
    "their update, and nothing is computed twice.",
    "grad_accum": "Weights and optimizer states stay from the first forward to their update, and nothing is computed "
    "twice.",
    "ddp": "Every rank takes its own batch through all layers, holds all weights and optimizer states until it updates "
    "them, and does all updates itself.",
    "wsdp": "Every rank takes its own batch through all layers. It holds its shards of weights and optimizer states "
    "until it updates them, and starts with no more than these.",
    "pipeline": "Every rank has the layers of its stage until it updates them, takes all batches through them "
    "together, and passes activations and gradients on to its neighbours.",
    "gpipe": "Every rank has the layers of its stage until it updates them, takes each batch through them on its own, "
    "and passes activations and gradients on to its neighbours.",
    "pipeline_fsdp": "Every rank takes its own batch through the layers of its stage. It holds its shards of them "
    "until it updates them, and starts with no more; activations and gradients are passed along the pipeline.",
}
PREMISES["fsdp"] = PREMISES["wsdp"]


def has_bound(puzzle: str) -> bool:
    """Whether a lower bound is known for a puzzle."""
    return puzzle in PREMISES and puzzle in PUZZLES


@cache
def lower_bound(puzzle: str) -> Bound:
    """The lower bound of a puzzle at its own size. ValueError where none is known (see has_bound)."""
    if not has_bound(puzzle):
        known = ", ".join(name for name in PUZZLES if has_bound(name))
        raise ValueError(f"no lower bound is known for {puzzle!r}; there are those of {known}")
    record = PUZZLES[puzzle]
    stages = 1
    if puzzle in ("pipeline", "gpipe"):
        stages = record.ranks
    elif record.mesh is not None:
        stages = record.mesh.axes["stage"]
    family = Family(
        record.ranks,
        record.layers,
        record.batches,
        stages,
        sharded=puzzle in ("wsdp", "fsdp", "pipeline_fsdp"),
        grouping={"basic": "all", "pipeline": "all", "gpipe": "one"}.get(puzzle, "any"),
    )
    return bound_of(family, record.costs, puzzle, reached=True)


def bound_of(family: Family, costs: Costs = UNIT, puzzle: str = "", *, reached: bool = False) -> Bound:
    """The bound of a family of any size, at unit costs. `reached`: a schedule that reaches each limit is known."""
    return Bound(
        puzzle,
        PREMISES.get(puzzle, ""),
        time(family, costs, reached),
        memory(family, reached),
        sent(family, reached),
        family,
    )
