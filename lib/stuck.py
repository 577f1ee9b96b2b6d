"""What to say when nobody can move: the state of every rank, the cycle of waiting, and the likely reason."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .errors import DeadlockError, MismatchError, PuzzleError, RankFailed, these
from .program import COMMUNICATION, Event, Program, located, place_of

if TYPE_CHECKING:
    from .dist import Dist

__all__ = ["on_failed", "on_stuck", "rank_failed"]

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
        found.trace = dist.so_far(str(found))
        dist.failure = found
        return found

    return make


def rank_failed(dist: Dist, rank: int | None, error: BaseException | None) -> RankFailed:
    """The error of a run in which one rank raised: for itself, and for those who wait for it."""
    from .slips import failed  # here and not above: only a mistake needs it

    if error is None or not isinstance(error, PuzzleError):
        return failed(rank, error or RuntimeError("a rank stopped"))
    who = "another rank" if error.rank is None else f"rank {error.rank}"
    found = RankFailed(f"{who} failed, and nobody can go on: {error.what}", fix=error.fix, where=error.where)
    found.expected, found.got = error.expected, error.got
    return found


def on_failed(dist: Dist, rank: int, error: BaseException) -> None:
    """A rank's asyncio task raised: whatever shows that error shows with it what it means."""
    if isinstance(error, PuzzleError) or (dist.failure is not None and dist.failure.rank != rank):
        return
    if dist.failure is None:
        dist.failure = rank_failed(dist, rank, error)
        dist.failure.trace = dist.so_far(str(dist.failure))
    error.add_note(str(dist.failure))
    with suppress(AttributeError):  # an error with slots has no room for it
        error.trace = dist.failure.trace  # type: ignore[attr-defined]  # for notebooks to draw


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


def _state(dist: Dist, rank: int, waits: dict[int, Any]) -> str:
    if rank in waits:
        found = place_of(_last(dist.models[rank].program))
        return waits[rank].describe(rank) + ("" if found is None else f" (line {found.line})")
    if rank not in dist.models:
        return f"does not exist: nobody made Model(rank={rank}, dist=dist)"
    if rank in dist.engine.finished:
        return "has finished"
    program = dist.models[rank].program  # no task is known to step this rank any more
    return "has finished" if program.events or program.moves else "has not begun, or is over"


def _states(dist: Dist, waits: dict[int, Any]) -> list[str]:
    ranks = list(range(dist.ranks))
    if len(ranks) > SHOWN:  # those that wait say more than those that are through
        ranks = sorted(sorted(ranks, key=lambda r: (r not in waits, r))[:SHOWN])
    lines = [f"rank {rank} {_state(dist, rank, waits)}" for rank in ranks]
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
    over = {r for rank, subject in waits.items() for r in subject.awaits(rank) if r not in waits}
    stuck = cycle or [rank for rank, subject in waits.items() if over & set(subject.awaits(rank))]
    error = DeadlockError(
        what,
        expected=waits[stuck[0]].wants(stuck[0]),
        got="\n".join(_states(dist, waits)),
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
        return f"start all {dist.ranks} ranks: {these('rank', absent)} missing; Dist({dist.ranks}) needs as many Models"
    from .partners import outside  # here and not above: only a mistake needs it

    return outside(dist, waits) or _astray(dist, waits) or _left_alone(waits, over) or _ring(waits, cycle)


def _astray(dist: Dist, waits: dict[int, Any]) -> str | None:
    """A message that went to another rank than the one that waits for it."""
    full = {rank for rank, subject in waits.items() if subject.kind == "pass"}
    receivers = {subject.source: rank for rank, subject in waits.items() if subject.kind == "receive"}
    unread = dist.unread()
    for source, target, event in unread:
        wanted = receivers.get(source)
        if full & {source, target} or wanted in (None, target):
            continue  # it is on its way to whom it is meant for, only too slowly
        if not any(s == source and t == wanted for s, t, _ in unread):
            found = place_of(event)
            line = "" if found is None else f" in line {found.line}"
            return (
                f"rank {source} passed a message to rank {target}{line}, where nobody has received it,\n"
                f"and rank {wanted} waits for one from rank {source}: pass_to and receive must name each other's rank"
            )
    return None


def _left_alone(waits: dict[int, Any], over: list[int]) -> str | None:
    """Somebody waits for ranks that have finished."""
    if not over:
        return None
    rank, subject = next((r, subject) for r, subject in waits.items() if set(subject.awaits(r)) & set(over))
    gone = these("rank", set(subject.awaits(rank)) & set(over))
    if subject.kind == "collective":
        return (
            f"{gone} never called it: every rank of a group must call every collective of the group.\n"
            f"Is the call inside an `if`, or in a loop that runs less often on {gone}?"
        )
    if subject.kind == "pass":
        return f"{gone} has finished: receive there what rank {rank} passes, or do not pass it"
    if subject.source is None:
        return f"all others have finished: rank {rank} receives more messages than are passed to it"
    return (
        f"rank {subject.source} has finished without model.pass_to({rank}, ...): pass it there,\n"
        f"or do not wait for it on rank {rank}"
    )


def _ring(waits: dict[int, Any], cycle: list[int]) -> str:
    """Ranks that wait for each other."""
    kinds = {waits[rank].kind for rank in cycle}
    if cycle and kinds == {"receive"}:
        return f"each of them receives before it passes: let one of them, such as rank {cycle[0]}, pass first"
    if cycle and kinds == {"pass"}:
        return "there is room for one message on the way: receive the one before it has to be passed on"
    return "follow the cycle: one of these calls has to come earlier, or is missing on one rank"
