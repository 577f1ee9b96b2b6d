"""Lower bounds: what no schedule of a puzzle's family can be below, and what each bound is made of.

`limits` has the arguments, `family` what kind of schedule they are about, and `optima` what a solver proved besides;
`shared_work` is about all schedules that share the work of layers, whatever they cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from lib.analysis.bounds.family import Family, excuse
from lib.analysis.bounds.limits import Limit, Part, memory, sent, solved, time
from lib.analysis.bounds.optima import AIMS, Optimum
from lib.analysis.bounds.shared_work import SharedWork
from lib.cluster.costs import UNIT, Costs
from lib.puzzles.records import PUZZLES
from lib.trace.trace import Trace

__all__ = ["Bound", "Limit", "Part", "bound_of", "has_bound", "lower_bound"]


@dataclass(frozen=True, slots=True)
class Bound:
    """The limits of a puzzle: the time of the true end, elements on the rank with the highest peak, elements sent by
    the rank that sends most. They speak of a family of schedules; `premise` says which, in a sentence for a student.

    A limit of 0 says nothing. Each holds on its own: the schedules that reach them need not be the same. `together`
    are time and memory of one that is near both, and of which we know none that is better in both.
    """

    puzzle: str
    premise: str
    time: Limit
    memory: Limit
    sent: Limit
    family: Family | SharedWork
    together: tuple[float, float] | None = None
    costs: Costs = UNIT

    def excuse(self, trace: Trace) -> str | None:
        """Why this run is not of the family, and so may be below the limits; None where it is."""
        return excuse(trace, self.family)

    @property
    def frontier(self) -> tuple[Optimum, ...]:
        """Proved optima from the fastest to the one with the least memory, where the family was solved at its costs."""
        if self.costs != UNIT or not isinstance(self.family, Family):
            return ()
        return tuple(optimum for aim in AIMS if (optimum := solved(self.family, aim)) is not None)


def has_bound(puzzle: str) -> bool:
    """Whether a lower bound is known for a puzzle."""
    return puzzle in PUZZLES and PUZZLES[puzzle].bound is not None


@cache
def lower_bound(puzzle: str) -> Bound:
    """The lower bound of a puzzle at its own size. ValueError where none is known (see has_bound)."""
    record = PUZZLES[puzzle] if has_bound(puzzle) else None
    if record is None or record.bound is None:
        known = ", ".join(name for name in PUZZLES if has_bound(name))
        raise ValueError(f"no lower bound is known for {puzzle!r}; there are those of {known}")
    premise = record.bound
    if premise.work:
        family = SharedWork.of(record)
        nothing = Limit(0.0, (), "work", False, "Of this nothing is known.")
        least = family.time(record.costs, premise.reached)
        return Bound(puzzle, family.premise, least, nothing, nothing, family, costs=record.costs)
    copies = premise.copies, premise.state_copies
    family = Family(*record.size, premise.stages, premise.sharded, premise.grouping, *copies)
    return replace(bound_of(family, record.costs, puzzle, premise.words, reached=True), together=premise.together)


def bound_of(
    family: Family, costs: Costs = UNIT, puzzle: str = "", premise: str = "", *, reached: bool = False
) -> Bound:
    """The bound of a family of any size. `reached`: a schedule that reaches each limit is known."""
    return Bound(
        puzzle,
        premise,
        time(family, costs, reached),
        memory(family, reached, costs),
        sent(family, reached),
        family,
        costs=costs,
    )
