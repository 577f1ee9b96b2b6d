"""The best order at a memory.

No order beats it that has the stages of a known schedule, splits its backward if that does, and holds no more
activations.

A pass over all stages of a rank takes 1, forward, input half or weight half, and messages take no time. Times are whole
numbers of the pass over one stage. Every order is in the model, at the times at which each action starts as soon as it
can: on each rank one pass at a time, every pass after those that it needs, never more activations than the limit. One
is there from the start of its forward to the end of its backward, or of its weight half. Starts sorted are an order.

Each rank takes the microbatches of a stage and a kind in order, and nothing is lost by it: see `pipeline`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from ortools.sat.python import cp_model

from lib.analysis.bounds.optima import BestOrder
from lib.schedules.pipelines.action import Action, Order, places
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.timing import Timed, time_order
from tools.solver.search import SOLVER, NotFound, Search

__all__ = ["Orders", "best_order", "timed"]

LENGTHS: Final = {"F": 1, "B": 2, "I": 1, "W": 1}
"""How long a pass over one stage takes."""


class Orders:
    """All orders with as many activations on a rank as the limit, in passes over one stage, that end by a horizon."""

    def __init__(self, place: dict[int, int], batches: int, *, halves: bool, limit: int, horizon: int) -> None:
        self.model = cp_model.CpModel()
        self.starts: dict[Action, cp_model.IntVar] = {}
        self.place, self.batches, self.last = place, batches, len(place) - 1
        backward = ("I", "W") if halves else ("B",)
        self.backward, self.frees = backward[0], backward[-1]
        intervals: defaultdict[int, list[cp_model.IntervalVar]] = defaultdict(list)
        for stage, rank in place.items():
            for kind in ("F", *backward):
                for m in range(batches):
                    start = self.starts[Action(stage, kind, m)] = self.model.new_int_var(0, horizon, "")
                    intervals[rank].append(self.model.new_fixed_size_interval_var(start, LENGTHS[kind], ""))
        self.end = self.model.new_int_var(max(map(self.least, intervals)), horizon, "end")
        for action, start in self.starts.items():
            for before in self.needs(action):
                self.model.add(start >= self.starts[before] + LENGTHS[before.kind])
            self.model.add(self.end >= start + LENGTHS[action.kind])
        for rank, mine in intervals.items():
            self.model.add_no_overlap(mine)
            self.limit(rank, limit)

    def needs(self, action: Action) -> list[Action]:
        """Return what has to be over before a pass."""
        stage, kind, m, _ = action
        found = [action._replace(microbatch=m - 1)] if m else []
        if kind == "F":
            found += [Action(stage - 1, "F", m)] if stage else []
        elif kind == "W":
            found.append(Action(stage, "I", m))
        else:
            found.append(Action(stage, "F", m))
            found += [Action(stage + 1, kind, m)] if stage < self.last else []
        return found

    def limit(self, rank: int, most: int) -> None:
        """Demand no more activations on a rank."""
        held: list[cp_model.IntervalVar] = []
        for stage in (stage for stage, at in self.place.items() if at == rank):
            for m in range(self.batches):
                start = self.starts[Action(stage, "F", m)]
                end = self.starts[Action(stage, self.frees, m)] + LENGTHS[self.frees]
                held.append(self.model.new_interval_var(start, self.model.new_int_var(0, 10**6, ""), end, ""))
        self.model.add_cumulative(held, [1] * len(held), most)

    def least(self, rank: int) -> int:
        """Return when a rank is done at the earliest: it waits for its first forward, works without a gap, and then
        what it made last has to come back through the stages before it, unless its last pass is a weight half."""
        stages = [stage for stage, at in self.place.items() if at == rank]
        work = len(stages) * self.batches * 3
        back = min(stages) * LENGTHS["B"] if self.backward == "B" else 0
        return min(stages) * LENGTHS["F"] + work + back

    def solve(self, search: Search, hint: dict[Action, int]) -> tuple[Order, int]:
        """Return the best order that is found, and what none ends before."""
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = search.seconds
        solver.parameters.num_workers = search.workers
        solver.parameters.random_seed = search.seed
        for action, start in hint.items():
            if action in self.starts:
                self.model.add_hint(self.starts[action], start)
        self.model.minimize(self.end)
        status = solver.solve(self.model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            raise NotFound(f"{solver.status_name(status)}: no order in {search.seconds:g} seconds")
        bound = -int(-(solver.best_objective_bound - 1e-6) // 1)
        ranks = range(1 + max(self.place.values()))
        return tuple(
            tuple(
                sorted(
                    (action for action in self.starts if self.place[action.stage] == rank),
                    key=lambda action: solver.value(self.starts[action]),
                )
            )
            for rank in ranks
        ), bound


def timed(order: Order) -> Timed:
    """Return the times of an order where a pass over all stages of a rank takes 1."""
    each = Fraction(len(order), len(places(order)))
    return time_order(order, forward=each, input_half=each, weight_half=each)


def best_order(name: str, ranks: int, batches: int, search: Search, limit: float | None = None) -> BestOrder:
    """Return the best order at the memory of a schedule: each rank may hold what the rank holds that holds most; or at
    a limit that the schedule can be told. NotFound where the solver finds nothing."""
    row = SCHEDULES[name]
    order = row.order(ranks, batches, limit=limit)
    known = timed(order)
    peak = max(known.peaks) if limit is None else limit
    orders = Orders(
        places(order), batches, halves=row.halves, limit=int(peak * row.chunks), horizon=round(known.end * row.chunks)
    )
    found, bound = orders.solve(search, dict(_starts(order, known, row.chunks)))
    best = timed(found)
    assert max(best.peaks) <= peak, f"{name}: {best.peaks} where {peak:g} is the limit"
    assert best.end <= known.end, f"{name}: {best.end:g} is later than {known.end:g}"
    end_bound = bound / row.chunks
    proof = f"{SOLVER}: no order with at most {peak:g} microbatches of activations on a rank ends before {end_bound:g}"
    if end_bound < best.end:
        proof += " (the solver ran out of time: the truth lies between bound and order)"
    words = tuple(" ".join(map(str, actions)) for actions in found)
    return BestOrder(name, ranks, batches, peak, known.end, best.end, end_bound, proof, words)


def _starts(order: Order, known: Timed, chunks: int) -> Iterator[tuple[Action, int]]:
    """Return when the passes of a known order start, in passes over one stage: a place for the search to begin."""
    for actions, starts in zip(order, known.starts, strict=True):
        for action, start in zip(actions, starts, strict=True):
            for part in action.parts or (action,):
                yield part, round(start * chunks)
