"""What to say when nobody can move: the state of every rank, the cycle of waiting, and the likely reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .errors import DeadlockError, MismatchError, PuzzleError, RankFailed, raised_at
from .program import COMMUNICATION, Event, Program, located
from .trace import Trace
from .values import numbers

if TYPE_CHECKING:
    from .dist import Dist

__all__ = ["dist_trace", "on_failed", "on_stuck", "rank_failed"]

SHOWN = 16
"""Ranks listed one by one in a message; more are counted."""


def on_stuck(dist: Dist) -> Callable[[], PuzzleError] | None:
    """What makes the error each waiting rank gets, or None while some task may still move by itself."""
    if dist.engine.tasks and _may_still_move(dist):
        return None
    waits = _waits(dist)
    raised = {r: e for r in range(dist.ranks) if (e := _raised(dist, r)) is not None}
    failure = dist.failure

    def make() -> PuzzleError:
        if failure is not None or raised:
            rank, error = next(iter(raised.items()), (None, failure))
            found: PuzzleError = rank_failed(dist, rank, error)
        else:
            found = _disagreement(waits) or _deadlock(dist, waits)
        found.trace = dist_trace(dist, str(found))
        dist.failure = found
        return found

    return make


def rank_failed(dist: Dist, rank: int | None, error: BaseException | None) -> RankFailed:
    """The error of a run in which one rank raised: what it raised, and where that leaves the others."""
    who = "a rank" if rank is None else f"rank {rank}"
    what = "an error" if error is None else f"{type(error).__name__}: {error}"
    first = what.splitlines()[0]
    found = RankFailed(
        f"{who} raised {first}",
        got="\n            ".join(_states(dist, _waits(dist), {rank: error})),
        fix=f"mend {who} first; the others only wait for it",
    )
    if isinstance(error, PuzzleError):
        found.where = list(error.where)
    elif error is not None and (where := raised_at(error)) is not None:
        found.where.append((rank, where))
    return found


def on_failed(dist: Dist, rank: int, error: BaseException) -> None:
    """A rank's asyncio task raised: whatever shows that error shows the state of all ranks with it."""
    if dist.failure is None and not isinstance(error, PuzzleError):
        dist.failure = rank_failed(dist, rank, error)
        dist.failure.trace = dist_trace(dist, str(dist.failure))
        error.add_note(str(dist.failure))


def dist_trace(dist: Dist, error: str | None) -> Trace | None:
    """The Trace so far of all ranks that have a Model; ranks without one have an empty program."""
    if not dist.models:
        return None
    return Trace.of(list(dist.models.values()), error=error)


def _may_still_move(dist: Dist) -> bool:
    """Whether a rank that is not parked has a task that is not over: it sleeps, or awaits something of its own."""
    import asyncio

    engine = dist.engine
    parked = {rank for rank, _ in engine.parked()}
    waiting = {engine.tasks[rank] for rank in parked if rank in engine.tasks}  # one task may step several ranks
    moving = False
    for rank, model in dist.models.items():
        if rank in parked or rank in engine.finished:
            continue
        task = engine.tasks.get(rank)
        if task is None:
            task = next((t for t in asyncio.all_tasks() if _holds(t, model)), None)
            if task is not None:
                engine.adopt(rank, task)
        moving = moving or (task is not None and task not in waiting and not task.done())
    return moving


def _holds(task: Any, model: object) -> bool:
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame is not None and any(value is model for value in frame.f_locals.values())


def _raised(dist: Dist, rank: int) -> BaseException | None:
    task = dist.engine.tasks.get(rank)
    return task.exception() if task is not None and task.done() and not task.cancelled() else None


def _waits(dist: Dist) -> dict[int, Any]:
    """What each parked rank waits for, in the order of ranks."""
    return {rank: signal.subject for rank, signal in dist.engine.parked()}


def _state(dist: Dist, rank: int, waits: dict[int, Any], raised: dict[int | None, BaseException | None]) -> str:
    if (error := raised.get(rank)) is not None:
        return f"raised {type(error).__name__}"
    if rank in waits:
        return waits[rank].describe(rank)
    if rank not in dist.models:
        return f"does not exist: nobody made Model(rank={rank}, dist=dist)"
    if (error := _raised(dist, rank)) is not None:
        return f"raised {type(error).__name__}"
    if rank in dist.engine.finished:
        return "has finished"
    if not dist.engine.tasks:
        return "has come no further yet"
    program = dist.models[rank].program  # no task is known to step this rank any more
    return "has finished" if program.events or program.moves else "has not begun, or is over"


def _states(
    dist: Dist, waits: dict[int, Any], raised: dict[int | None, BaseException | None] | None = None
) -> list[str]:
    ranks = list(range(dist.ranks))
    if len(ranks) > SHOWN:  # those that wait say more than those that are through
        ranks = sorted(sorted(ranks, key=lambda r: (r not in waits, r))[:SHOWN])
    lines = [f"rank {rank} {_state(dist, rank, waits, raised or {})}" for rank in ranks]
    if dist.ranks > SHOWN:
        lines.append(f"and {dist.ranks - SHOWN} more ranks")
    return lines


def _disagreement(waits: dict[int, Any]) -> MismatchError | None:
    """A collective whose members do not agree explains more than the deadlock that follows from it."""
    for subject in waits.values():
        if hasattr(subject, "disagreement") and (error := subject.disagreement()) is not None:
            return error
    return None


def _cycle(waits: dict[int, Any]) -> list[int]:
    """Ranks that wait for each other in a ring, starting from the lowest; empty where the wait ends elsewhere."""
    for first in waits:
        path, rank = [first], first
        while True:
            after = [r for r in waits[rank].awaits(rank) if r in waits]
            if not after:
                break
            rank = after[0]
            if rank in path:
                return path[path.index(rank) :]
            path.append(rank)
    return []


def _deadlock(dist: Dist, waits: dict[int, Any]) -> DeadlockError:
    cycle = _cycle(waits)
    if cycle:
        ring = " -> ".join(str(rank) for rank in [*cycle, cycle[0]])
        what = f"deadlock: these ranks wait for each other: {ring}"
    else:
        what = "deadlock: nobody can go on"
    error = DeadlockError(
        what,
        expected="somebody to do what the waiting ranks wait for",
        got="\n            ".join(_states(dist, waits)),
        fix=_advice(dist, waits, cycle),
    )
    for rank in list(waits)[:SHOWN]:
        located(error, rank, _last(dist.models[rank].program).source)
    return error


def _last(program: Program) -> Event:
    """The communication that a parked rank is in: the first that has not happened, else its last one."""
    communication = [e for e in program.events if e.op in COMMUNICATION]
    return next((e for e in communication if e.start is None), communication[-1])


def _advice(dist: Dist, waits: dict[int, Any], cycle: list[int]) -> str:
    awaited = sorted({r for rank, subject in waits.items() for r in subject.awaits(rank)})
    absent = [r for r in awaited if r not in dist.models]
    over = [r for r in awaited if r not in waits and r in dist.models]
    if absent:
        return f"start all {dist.ranks} ranks: {numbers(absent)} missing; Dist({dist.ranks}) needs as many Models"
    collective = any(hasattr(subject, "disagreement") for subject in waits.values())
    if over and collective:
        return (
            f"ranks {numbers(over)} never called it: every rank of a group must call every collective of the group.\n"
            "Is the call inside an `if`, or in a loop that runs less often on some ranks?"
        )
    if over:
        return f"ranks {numbers(over)} ended without the matching pass_to or receive"
    if cycle and not collective:
        return "let one of them send before it receives: somebody has to go first"
    return "follow the cycle: one of these calls has to come earlier, or is missing on one rank"
