"""The questions that are put to CP-SAT: which end is the least, which peak, and the schedules that have them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from math import ceil
from typing import NamedTuple

from ortools.sat.python import cp_model

from lib.analysis import figures
from lib.analysis.bounds.family import Family
from lib.analysis.bounds.limits import alive
from lib.analysis.bounds.optima import ACTIVATION, Aim, Optimum, Size
from lib.checker.verdict import check
from lib.errors.exceptions import DeadlockError
from lib.schedules.pipelines.action import KINDS, Action, parse
from lib.schedules.pipelines.program import program_of
from lib.simulator.simulator import simulate
from lib.trace.trace import Trace
from tools.solver.pipeline import COMPUTE, MESSAGE, TENTH, UPDATE, Pipeline, message

__all__ = ["NotFound", "Search", "between", "fastest", "floor", "leanest"]

Starts = dict[Action, int]
SOLVER = f"CP-SAT of OR-tools {version('ortools')}"


class NotFound(RuntimeError):
    """No schedule was found within the time limit."""


class Search(NamedTuple):
    """How to search: seconds for each question, workers of the solver, and its seed."""

    seconds: float = 60.0
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
        return max(start + UPDATE for action, start in self.starts.items() if action.kind == "UPDATE")


def fastest(size: Size, search: Search) -> Optimum:
    """Return the least end, and then the least peak of all schedules that end then."""
    quick = _least_end(size, _in_turn(size), search)
    low = _least_peak(size, quick.value, search, quick.starts)
    words = f"no schedule ends before {quick.bound / TENTH:g}{_and_peak(low, quick.value)}"
    try:
        return _witness(size, "fastest", low.starts, low.value, quick.bound, low.bound, words, search)
    except DeadlockError:
        real = _ask_end(Pipeline(size, _in_turn(size), room=True), search, least=quick.bound)
    if real.value > quick.value:
        low = _least_peak(size, real.value, search, real.starts)
        words = f"no schedule ends before {quick.bound / TENTH:g}{_and_peak(low, real.value)}"
    found = _ask_peak(Pipeline(size, real.value, room=True), search, real.starts, least=low.bound)
    return _optimum(size, "fastest", found.starts, quick.bound, low.bound, words)


def leanest(size: Size, search: Search, *, helped: bool = True) -> Optimum:
    """Return the least peak, and then the least end of all schedules with that peak.

    `helped`: the solver is told what `Pipeline.lean` shows. Without, it has to find out for itself, and takes longer.
    """
    low = _least_peak(size, _in_turn(size), search, _one_after_another(size))
    helped = helped and low.value == floor(size) and size.batches > 1 and size.each <= 2
    quick = _least_end(size, low.latest, search, low.starts, peak=low.value, lean=helped)
    words = f"no schedule has a peak below {low.bound * ACTIVATION:,}"
    words += f", and none with the peak {low.value * ACTIVATION:,} ends before {quick.bound / TENTH:g}"
    words += "" if quick.proved else " (the solver ran out of time: the truth lies between bound and witness)"
    return _witness(size, "leanest", quick.starts, low.value, quick.bound, low.bound, words, search)


def between(size: Size, search: Search, quick: Optimum, slow: Optimum) -> Iterator[Optimum]:
    """Return the schedules between the fastest and the leanest that nothing beats in both: less and less peak, later
    ends."""
    peak = quick.peak // ACTIVATION - 1
    while peak > slow.peak_bound // ACTIVATION:
        late = _least_end(size, round(slow.end * TENTH), search, peak=peak)
        low = _least_peak(size, late.value, search, late.starts)
        if low.value * ACTIVATION <= slow.peak:
            return
        words = f"no schedule with a peak of at most {peak * ACTIVATION:,} ends before {late.bound / TENTH:g}"
        words += _and_peak(low, late.value)
        yield _witness(size, "between", low.starts, low.value, late.bound, low.bound, words, search)
        peak = low.value - 1


def floor(size: Size) -> int:
    """Return what no schedule's peak can be below, in activations of one batch (`lib.analysis.bounds.limits.alive`)."""
    family = Family(size.stages, size.layers, size.batches, size.stages, grouping="one")
    return ceil(alive(family).total / ACTIVATION)


# -- asking ---------------------------------------------------------------------------------------------------------


def _least_end(
    size: Size, horizon: int, search: Search, hint: Starts | None = None, *, peak: int | None = None, lean: bool = False
) -> Answer:
    """Return the least end of schedules with a peak of at most `peak`, by the loose model first: its bound holds in the
    full one, too, where then only a schedule that is as good has to be found."""
    below = 0
    for loose in (True, False):
        pipeline = Pipeline(size, horizon, loose=loose)
        if peak is not None:
            pipeline.limit_memory(peak)
        if lean:
            pipeline.lean()
        answer = _ask_end(pipeline, search, hint, below)
        below, hint = max(below, answer.bound), answer.starts
    return answer._replace(bound=below)


def _least_peak(size: Size, horizon: int, search: Search, hint: Starts) -> Answer:
    """Return the least peak of schedules that end by `horizon`, by the loose model first."""
    below = floor(size)
    for loose in (True, False):
        answer = _ask_peak(Pipeline(size, horizon, loose=loose), search, hint, below)
        below, hint = max(below, answer.bound), answer.starts
    return answer._replace(bound=below)


def _ask_end(pipeline: Pipeline, search: Search, hint: Starts | None = None, least: int = 0) -> Answer:
    pipeline.model.add(pipeline.end >= least)
    pipeline.model.minimize(pipeline.end)
    return _ask(pipeline, search, hint)


def _ask_peak(pipeline: Pipeline, search: Search, hint: Starts, least: int) -> Answer:
    pipeline.model.minimize(pipeline.limit_memory_to_a_variable(least))
    return _ask(pipeline, search, hint)


def _ask(pipeline: Pipeline, search: Search, hint: Starts | None = None) -> Answer:
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = search.seconds
    solver.parameters.num_workers = search.workers
    solver.parameters.random_seed = search.seed
    for key, start in (hint or {}).items():
        if key in pipeline.spans:  # what is in flight has no times in a loose model
            pipeline.model.add_hint(pipeline.spans[key].start, start)
    status = solver.solve(pipeline.model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise NotFound(f"{solver.status_name(status)}: nothing for {pipeline.size} in {search.seconds:g} seconds")
    starts = {key: solver.value(span.start) for key, span in pipeline.spans.items()}
    # The bound is a float, a little off where a proof is by search: values are whole numbers, so round it up.
    return Answer(starts, round(solver.objective_value), -int(-(solver.best_objective_bound - 1e-6) // 1))


def _in_turn(size: Size) -> int:
    """Return when all is over if each batch waits until the one before is through, and every rank's updates are waited
    for."""
    trip = 2 * size.layers * COMPUTE + (size.stages - 1) * 4 * MESSAGE
    return size.batches * trip + size.layers * UPDATE


def _one_after_another(size: Size) -> Starts:
    """Return a schedule in which each batch waits until the one before is through: a place for the search to start."""
    found: Starts = {}
    now = 0
    for batch in range(size.batches):
        for what, forth in (("F", True), ("B", False)):
            for layer in range(size.layers) if forth else reversed(range(size.layers)):
                rank, edge = layer // size.each, (layer + forth) % size.each == 0
                found[Action(layer, what, batch)] = now
                now += COMPUTE
                target = rank + (1 if forth else -1)
                if edge and 0 <= target < size.stages:
                    found[message(size, f"SEND_{what}", rank, batch)] = now
                    found[message(size, f"RECV_{what}", target, batch)] = now + MESSAGE
                    now += 2 * MESSAGE
    for layer in range(size.layers):
        found[Action(layer, "UPDATE")] = now + layer % size.each * UPDATE
    return found


def _and_peak(low: Answer, end: int) -> str:
    claim = f", and none that ends by {end / TENTH:g} has a peak below {low.bound * ACTIVATION:,}"
    return claim + ("" if low.proved else " (the solver ran out of time: the truth lies between bound and witness)")


# -- what was found -------------------------------------------------------------------------------------------------


def _witness(
    size: Size, aim: Aim, starts: Starts, peak: int, end_bound: int, peak_bound: int, words: str, search: Search
) -> Optimum:
    """Return the schedule that was found, or where it has more memory when it is run, one like it in which none waits
    where nothing is gained: a rank cannot wait just so."""
    found = _optimum(size, aim, starts, end_bound, peak_bound, words)
    if found.peak <= peak * ACTIVATION:
        return found
    pipeline = Pipeline(size, Answer(starts, 0, 0).latest)
    pipeline.limit_memory(peak)
    total = cp_model.LinearExpr.sum  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    pipeline.model.minimize(total([span.start for span in pipeline.spans.values()]))
    try:
        early = _ask(pipeline, search, starts)
    except NotFound:
        return found
    return min(found, _optimum(size, aim, early.starts, end_bound, peak_bound, words), key=lambda one: one.peak)


def _optimum(size: Size, aim: Aim, starts: Starts, end_bound: int, peak_bound: int, words: str) -> Optimum:
    """Return the schedule as orders, with the figures that the simulator gives it. AssertionError where it is not
    correct."""
    orders = tuple(" ".join(map(str, _order(size, rank, starts))) for rank in range(size.stages))
    draft = Optimum(size, aim, 0.0, end_bound / TENTH, 0, peak_bound * ACTIVATION, f"{SOLVER}: {words}", orders)
    models = simulate(program_of((*map(parse, orders),)), layers=size.layers, batches=size.batches, ranks=size.stages)
    trace = Trace.of(models)
    verdict = check(trace)
    assert verdict.correct, f"the schedule found is not correct: {verdict.faults}"
    end, peak = figures.end(trace), figures.peak(trace).elements
    latest = Answer(starts, 0, 0).latest / TENTH
    assert end <= latest, f"the simulator needs {end}, the model said {latest}"
    return Optimum(size, aim, end, end_bound / TENTH, int(peak), peak_bound * ACTIVATION, draft.proof, orders)


def _order(size: Size, rank: int, starts: Starts) -> tuple[Action, ...]:
    """Return the actions of a rank in order of time; with overlap also when it awaits its messages.

    A receive is awaited when it is needed, and a send where it costs nothing: when it is over, and its receive issued.
    Where a call comes after the end of what is before it, it waits for what has come until then.
    """
    mine = sorted(((start, action) for action, start in starts.items() if _rank(size, action) == rank), key=_call_first)
    if not size.overlap:
        return tuple(action for _, action in mine)
    sends, receives = sorted(_sends_over(size, rank, starts)), sorted(_arrivals(size, rank, starts))
    found: list[Action] = []
    clock = 0
    for start, action in mine:
        while sends and sends[0][0] <= start:
            found.append(sends.pop(0)[1])
        needed = action._replace(kind=f"WAIT_RECV_{action.kind}")
        for arrival in list(receives):
            if arrival[1] == needed or clock < arrival[0] <= start:
                found.append(arrival[1])
                receives.remove(arrival)
        found.append(action)
        clock = start + (COMPUTE if action.kind in ("F", "B") else UPDATE if action.kind == "UPDATE" else 0)
    return (*found, *(action for _, action in sends))


def _rank(size: Size, action: Action) -> int:
    return action.stage // size.each


def _call_first(timed: tuple[int, Action]) -> tuple[int, int]:
    """Calls, which take no time, come before the operation that begins when they are made: sends, then receives."""
    start, action = timed
    return start, {"SEND": 0, "RECV": 1}.get(action.kind[:4], 2)


def _other_end(size: Size, action: Action) -> Action:
    """Return the receive of a send, or the send of a receive."""
    way, what = action.kind.split("_")
    kind = f"{'RECV' if way == 'SEND' else 'SEND'}_{what}"
    return message(size, kind, _rank(size, action) + KINDS[action.kind].towards, action.microbatch)


def _sends_over(size: Size, rank: int, starts: Starts) -> Iterator[tuple[int, Action]]:
    """Return when the sends of a rank may be awaited, and the await."""
    for action, start in starts.items():
        if _rank(size, action) == rank and action.kind.startswith("SEND"):
            issued = starts[_other_end(size, action)]
            yield max(start + MESSAGE, issued), action._replace(kind=f"WAIT_{action.kind}")


def _arrivals(size: Size, rank: int, starts: Starts) -> Iterator[tuple[int, Action]]:
    """Return when the messages to a rank are there, and the await."""
    for action, issued in starts.items():
        if _rank(size, action) == rank and action.kind.startswith("RECV"):
            over = starts[_other_end(size, action)] + MESSAGE
            yield max(over, issued) + MESSAGE, action._replace(kind=f"WAIT_{action.kind}")
