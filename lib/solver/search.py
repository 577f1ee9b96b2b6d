"""The questions that are put to CP-SAT: which end is the least, which peak, and the schedules that have them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from math import ceil
from typing import NamedTuple

from ortools.sat.python import cp_model

from .. import figures
from ..check import check
from ..errors import DeadlockError
from ..families import Family
from ..limits import alive
from ..optima import Aim, Op, Optimum, Size, schedule
from ..simulate import simulate
from ..trace import Trace
from ..values import BATCH_ELEMENTS
from .pipeline import COMPUTE, MESSAGE, TENTH, UPDATE, Pipeline

__all__ = ["NotFound", "Search", "between", "fastest", "floor", "leanest"]

Starts = dict[tuple[int, Op], int]
SOLVER = f"CP-SAT of OR-tools {version('ortools')}"


class NotFound(RuntimeError):
    """No schedule was found within the time limit."""


class Search(NamedTuple):
    """How to search: seconds for each question, workers of the solver, and its seed."""

    seconds: float = 10.0
    workers: int = 2
    seed: int = 1


class Answer(NamedTuple):
    """The best schedule found, when its operations start, its value, and the proved bound on that value."""

    starts: Starts
    value: int
    bound: int

    @property
    def proved(self) -> bool:
        """Whether nothing better exists."""
        return self.value == self.bound

    @property
    def latest(self) -> int:
        """When its last update ends."""
        return max(start + UPDATE for (_, op), start in self.starts.items() if op.what == "U")


def fastest(size: Size, search: Search) -> Optimum:
    """The least end, and then the least peak of all schedules that end then."""
    quick = _least_end(Pipeline(size, _in_turn(size)), search)
    low = _least_peak(Pipeline(size, quick.value), search, quick.starts)
    words = f"no schedule ends before {quick.bound / TENTH:g}{_and_peak(low, quick.value)}"
    try:
        return _optimum(size, "fastest", low.starts, quick.bound, low.bound, words)
    except DeadlockError:
        real = _least_end(Pipeline(size, _in_turn(size), room=True), search, least=quick.bound)
    if real.value > quick.value:
        low = _least_peak(Pipeline(size, real.value), search, real.starts)
        words = f"no schedule ends before {quick.bound / TENTH:g}{_and_peak(low, real.value)}"
    found = _least_peak(Pipeline(size, real.value, room=True), search, real.starts, least=low.bound)
    return _optimum(size, "fastest", found.starts, quick.bound, low.bound, words)


def leanest(size: Size, search: Search, *, helped: bool = True) -> Optimum:
    """The least peak, and then the least end of all schedules with that peak.

    `helped`: the solver is told what `Pipeline.lean` shows. Without, it has to find out for itself, and takes longer.
    """
    low = _least_peak(Pipeline(size, _in_turn(size)), search, _one_after_another(size))
    pipeline = Pipeline(size, low.latest)
    pipeline.limit_memory(low.value)
    helped = helped and low.value == floor(size) and size.batches > 1 and size.each <= 2
    if helped:
        pipeline.lean()
    quick = _least_end(pipeline, search, low.starts)
    words = f"no schedule has a peak below {low.bound * BATCH_ELEMENTS:,}"
    words += f", and none with the peak {low.value * BATCH_ELEMENTS:,} ends before {quick.bound / TENTH:g}"
    words += "" if quick.proved else " (the solver ran out of time: the truth lies between bound and witness)"
    return _optimum(size, "leanest", quick.starts, quick.bound, low.bound, words)


def between(size: Size, search: Search, quick: Optimum, slow: Optimum) -> Iterator[Optimum]:
    """The schedules between the fastest and the leanest that nothing beats in both: less and less peak, later ends."""
    peak = quick.peak // BATCH_ELEMENTS - 1
    while peak > slow.peak_bound // BATCH_ELEMENTS:
        pipeline = Pipeline(size, round(slow.end * TENTH))
        pipeline.limit_memory(peak)
        late = _least_end(pipeline, search)
        low = _least_peak(Pipeline(size, late.value), search, late.starts)
        if low.value * BATCH_ELEMENTS <= slow.peak:
            return
        words = f"no schedule with a peak of at most {peak * BATCH_ELEMENTS:,} ends before {late.bound / TENTH:g}"
        words += _and_peak(low, late.value)
        yield _optimum(size, "between", low.starts, late.bound, low.bound, words)
        peak = low.value - 1


def floor(size: Size) -> int:
    """What no schedule's peak can be below, by the argument of `lib.limits.alive`, in activations of one batch."""
    family = Family(size.stages, size.layers, size.batches, size.stages, grouping="one")
    return ceil(sum(part.amount for part in alive(family)) / BATCH_ELEMENTS)


# -- asking ---------------------------------------------------------------------------------------------------------


def _least_end(pipeline: Pipeline, search: Search, hint: Starts | None = None, least: int = 0) -> Answer:
    pipeline.model.add(pipeline.end >= least)
    pipeline.model.minimize(pipeline.end)
    return _ask(pipeline, search, hint)


def _least_peak(pipeline: Pipeline, search: Search, hint: Starts, least: int = 0) -> Answer:
    pipeline.model.minimize(pipeline.limit_memory_to_a_variable(max(least, floor(pipeline.size))))
    return _ask(pipeline, search, hint)


def _ask(pipeline: Pipeline, search: Search, hint: Starts | None = None) -> Answer:
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = search.seconds
    solver.parameters.num_workers = search.workers
    solver.parameters.random_seed = search.seed
    for key, start in (hint or {}).items():
        pipeline.model.add_hint(pipeline.spans[key].start, start)
    status = solver.solve(pipeline.model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise NotFound(f"{solver.status_name(status)}: nothing for {pipeline.size} in {search.seconds:g} seconds")
    starts = {key: solver.value(span.start) for key, span in pipeline.spans.items()}
    # The bound is a float, a little off where a proof is by search: values are whole numbers, so round it up.
    return Answer(starts, round(solver.objective_value), -int(-(solver.best_objective_bound - 1e-6) // 1))


def _in_turn(size: Size) -> int:
    """When all is over if each batch waits until the one before is through, and every rank's updates are waited for."""
    trip = 2 * size.layers * COMPUTE + (size.stages - 1) * 4 * MESSAGE
    return size.batches * trip + size.layers * UPDATE


def _one_after_another(size: Size) -> Starts:
    """A schedule in which each batch waits until the one before is through: a place for the search to start."""
    found: Starts = {}
    now = 0
    for batch in range(size.batches):
        for what, forth in (("F", True), ("B", False)):
            for layer in range(size.layers) if forth else reversed(range(size.layers)):
                rank, edge = layer // size.each, (layer + forth) % size.each == 0
                found[rank, Op(what, layer, batch)] = now
                now += COMPUTE
                target = rank + (1 if forth else -1)
                if edge and 0 <= target < size.stages:
                    if not size.overlap:
                        found[rank, Op("sa" if forth else "sg", -1, batch)] = now
                        found[target, Op("ra" if forth else "rg", -1, batch)] = now + MESSAGE
                    now += 2 * MESSAGE
    for layer in range(size.layers):
        found[layer // size.each, Op("U", layer, -1)] = now + layer % size.each * UPDATE
    return found


def _and_peak(low: Answer, end: int) -> str:
    claim = f", and none that ends by {end / TENTH:g} has a peak below {low.bound * BATCH_ELEMENTS:,}"
    return claim + ("" if low.proved else " (the solver ran out of time: the truth lies between bound and witness)")


# -- what was found -------------------------------------------------------------------------------------------------


def _optimum(size: Size, aim: Aim, starts: Starts, end_bound: int, peak_bound: int, words: str) -> Optimum:
    """The schedule as orders, with the figures that the simulator gives it. AssertionError where it is not correct."""
    orders = tuple(_order(size, rank, starts) for rank in range(size.stages))
    draft = Optimum(size, aim, 0.0, end_bound / TENTH, 0, peak_bound * BATCH_ELEMENTS, f"{SOLVER}: {words}", orders)
    models = simulate(schedule(draft), layers=size.layers, batches=size.batches, ranks=size.stages)
    trace = Trace.of(models)
    verdict = check(trace)
    assert verdict.correct, f"the schedule found is not correct: {verdict.faults}"
    end, peak = figures.end(trace), figures.peak(trace).elements
    latest = Answer(starts, 0, 0).latest / TENTH
    assert end <= latest, f"the simulator needs {end}, the model said {latest}"
    return Optimum(size, aim, end, end_bound / TENTH, int(peak), peak_bound * BATCH_ELEMENTS, draft.proof, orders)


def _order(size: Size, rank: int, starts: Starts) -> tuple[Op, ...]:
    """The operations of a rank in order of time. With overlap the messages are put in: sent at once, awaited late."""
    mine = sorted(((start, op) for (r, op), start in starts.items() if r == rank), key=lambda item: item[0])
    if not size.overlap:
        return tuple(op for _, op in mine)
    first, last = rank * size.each, (rank + 1) * size.each - 1
    found: list[Op] = []
    under_way: list[tuple[int, Op]] = []
    for start, op in mine:
        _await(under_way, start, found)
        if op.what == "F" and op.layer == first and rank > 0:
            found.append(Op("ra", -1, op.batch))
        if op.what == "B" and op.layer == last and rank < size.stages - 1:
            found.append(Op("rg", -1, op.batch))
        found.append(op)
        forth, back = op.what == "F" and op.layer == last, op.what == "B" and op.layer == first
        if (forth and rank < size.stages - 1) or (back and rank > 0):
            letter, over = "a" if forth else "g", start + COMPUTE
            _await(under_way, over, found)
            found.append(Op(f"s{letter}", -1, op.batch))
            under_way.append((over + MESSAGE, Op(f"w{letter}", -1, op.batch)))
    return (*found, *(op for _, op in under_way))


def _await(under_way: list[tuple[int, Op]], now: int, found: list[Op]) -> None:
    """Awaits the sends that are over."""
    while under_way and under_way[0][0] <= now:
        found.append(under_way.pop(0)[1])
