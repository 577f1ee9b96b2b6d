"""Deadlocks, and other ends of a run: the state of every rank, the cycle of waiting, and the likely reason."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Any

from lib.diagnosis.collectives import stage_axis
from lib.diagnosis.provenance import layers_of, line_of, maker
from lib.diagnosis.python_errors import asleep, failed, waiting_at
from lib.diagnosis.running import Advice, Line, World, line
from lib.diagnosis.waiting import States, Waits, wants
from lib.errors import fixes
from lib.errors.exceptions import DeadlockError, MismatchError, PuzzleError, RankFailed
from lib.errors.wording import listed, these
from lib.trace.event import Event, place_of
from lib.values.operations import BY_INPUT, COMPUTE
from lib.values.values import Activation, ActivationGrad

__all__ = ["on_failed", "on_spinning", "on_stuck", "rank_failed"]

MOST_IN_RING = 16
"""Ranks of a ring that a message names."""


def on_stuck(dist: World) -> Callable[[], PuzzleError] | None:
    """Return what makes the error that each waiting rank gets; None while some task may still move by itself."""
    if dist.driver.tasks and _may_still_move(dist):
        return None
    waits = Waits(dist)
    raised = next(((r, e) for r in range(dist.ranks) if (e := _raised(dist, r)) is not None), None)
    failure = dist.failure
    made: list[PuzzleError] = []

    def make() -> PuzzleError:
        if made:  # each task has an error of its own, with its own traceback; what it says is made once
            return copy(made[0])
        if failure is not None or raised is not None:
            rank, error = raised or (None, failure)
            found: PuzzleError = rank_failed(dist, rank, error)
        else:
            found = _disagreement(waits) or _deadlock(dist, waits)
        found.trace = dist.so_far(str(found))
        dist.failure = found
        fixes.keep(found)
        made.append(found)
        return found

    return make


def rank_failed(dist: World, rank: int | None, error: BaseException | None) -> RankFailed:
    """The error of a run in which one rank raised: for itself, and for those who wait for it."""
    if error is None or not isinstance(error, PuzzleError):
        found = failed(rank, error or RuntimeError("a rank stopped"))
        found.named = None if dist.mesh is None or rank is None else dist.mesh.named(rank)
        return found
    who = "another rank" if error.rank is None else error.named or f"rank {error.rank}"
    what = f"{who} failed, so no rank can go on: {error.what}"
    found = RankFailed(what, fix=error.fix, where=error.where, idea=error.idea)
    found.expected, found.got = error.expected, error.got
    return found


def on_failed(dist: World, rank: int, error: BaseException) -> None:
    """A rank's asyncio task raised: whatever shows that error shows with it what it means."""
    if isinstance(error, PuzzleError) or (dist.failure is not None and dist.failure.rank != rank):
        return
    if dist.failure is None:
        dist.failure = rank_failed(dist, rank, error)
        dist.failure.trace = dist.so_far(str(dist.failure))
    error.add_note(str(dist.failure))
    with suppress(AttributeError):  # an error with slots has no room for it
        error.trace = dist.failure.trace  # type: ignore[attr-defined]  # for notebooks to draw


def on_spinning(dist: World, rank: int, task: Any, turns: int) -> PuzzleError | None:
    """Return the error that ends an asyncio task which takes turns without end; None for one that is not the rank's
    alone, such as the task in which a notebook runs its cells."""
    model = dist.models.get(rank)
    frame = getattr(task.get_coro(), "cr_frame", None)
    if model is None or frame is None or not any(value is model for value in frame.f_locals.values()):
        return None
    error = asleep(rank, waiting_at(task.get_coro()), turns)
    error.trace = dist.so_far(str(error))
    return error


def _may_still_move(dist: World) -> bool:
    """Tell whether a rank that is not parked has a task that is not over: it sleeps, or awaits something of its own."""
    engine, tasks = dist.engine, dist.driver.tasks
    parked = {rank for rank, _ in engine.parked()}
    waiting = {tasks[rank] for rank in parked if rank in tasks}  # one task may step several ranks
    holders: dict[int, Any] | None = None
    moving = False
    for rank, model in dist.models.items():
        if rank in parked or rank in engine.finished:
            continue
        task = tasks.get(rank)
        if task is None:
            if holders is None:
                holders = _holders()
            task = holders.get(id(model))
            if task is not None:
                dist.driver.adopt(rank, task)
        moving = moving or (task is not None and task not in waiting and not task.done())
    return moving


def _holders() -> dict[int, Any]:
    """The tasks of the loop, by the id of each thing that their functions have under a name."""
    import asyncio

    found: dict[int, Any] = {}
    for task in asyncio.all_tasks():
        frame = getattr(task.get_coro(), "cr_frame", None)
        if frame is not None:
            found.update((id(value), task) for value in frame.f_locals.values())
    return found


def _raised(dist: World, rank: int) -> BaseException | None:
    task = dist.driver.tasks.get(rank)
    return task.exception() if task is not None and task.done() and not task.cancelled() else None


def _disagreement(waits: Waits) -> MismatchError | None:
    """A collective whose members do not agree explains more than the deadlock that follows from it."""
    for subject in {id(subject): subject for subject in waits.values()}.values():
        if hasattr(subject, "disagreement") and (error := subject.disagreement()) is not None:
            return error
    return None


def _cycle(waits: Waits) -> list[int]:
    """Ranks that wait for each other in a ring, starting from the lowest; empty where the wait ends elsewhere."""
    seen: set[int] = set()
    for first in waits:
        path: dict[int, int] = {}
        rank: int | None = first
        while rank is not None and rank not in seen:
            if rank in path:
                return list(path)[path[rank] :]
            path[rank] = len(path)
            rank = waits.following(rank)
        seen.update(path)  # from here the wait ends elsewhere
    return []


def _deadlock(dist: World, waits: Waits) -> DeadlockError:
    cycle = _cycle(waits)
    if cycle:
        ring = [str(rank) for rank in [*cycle, cycle[0]]]
        if len(ring) > MOST_IN_RING:
            ring[MOST_IN_RING // 2 : -2] = ["..."]
        what = f"deadlock: these ranks wait for each other: {' -> '.join(ring)}"
    else:
        what = "deadlock: no rank can go on"
    first = cycle[0] if cycle else next((rank for rank in waits if waits.awaits_over(rank)), next(iter(waits)))
    states = States(dist, waits)
    advice = _advice(dist, waits, cycle)
    idea, fix = advice if isinstance(advice, Line) else (None, advice)
    error = DeadlockError(what, expected=wants(waits[first], first), got="\n".join(states.lines()), fix=fix, idea=idea)
    for rank in states.shown:
        if (found := states.place(rank)) is not None:
            error.where.append((rank, found))
    return error


def _advice(dist: World, waits: Waits, cycle: list[int]) -> Advice:
    absent = [r for r in sorted(waits.over) if r not in dist.models]
    if absent:
        return f"start all {dist.ranks} ranks: {these('rank', absent)} missing; Dist({dist.ranks}) needs as many Models"
    return (
        _outside(dist, waits)
        or _astray(dist, waits)
        or _elsewhere(waits)
        or _left_alone(waits)
        or _kept_back(dist, waits, cycle)
        or _nobody_begins(dist, waits, cycle)
        or _ring(waits, cycle)
    )


def _outside(dist: World, waits: Waits) -> Advice | None:
    """In a mesh with stages: somebody waits for a rank that is not in its pipeline, or for one at the other end."""
    mesh = dist.mesh
    axis = stage_axis(mesh)
    if mesh is None or axis is None:
        return None
    for rank, subject in waits.items():
        peer = {"receive": "source", "pass": "peer"}.get(subject.kind, "")
        peer = getattr(subject.event if peer == "peer" else subject, peer, None)
        if peer is None:
            continue
        here, there = mesh.coordinates(rank), mesh.coordinates(peer)
        stage = here[axis]
        ops = {event.op for event in dist.models[rank].program.events}
        back = "forward" not in ops if subject.kind == "receive" else subject.kind == "pass" and bool(ops & BY_INPUT)
        end = 0 if back else mesh.axes[axis] - 1
        together = here | {axis: 0} == there | {axis: 0}
        if together and (stage != end or abs(there[axis] - stage) == 1):
            continue
        if stage == end:
            word, instead = ("before", "it takes data with get_activation") if back else ("after", "it calls loss")
            if back and subject.kind == "pass":
                instead = "it passes no gradient on"
            return f"rank {rank} is at {axis} {stage}: there is no {axis} {word} it; {instead}"
        group = listed(mesh.group(rank, axis))[1:-1]
        idea = f"rank {rank} waits for rank {peer}, which is not in its pipeline (ranks {group}):\n"
        return line(
            dist.models[rank].program,
            "group",
            idea + f"name the {axis} {'before' if back else 'after'} it by its rank in that group",
            idea + f'write model.group("{axis}")[{axis} {"-" if back else "+"} 1]',
        )
    return None


def _astray(dist: World, waits: Waits) -> str | None:
    """A message that went to another rank than the one that waits for it."""
    full = {rank for rank, subject in waits.items() if subject.kind == "pass"}
    receivers = {subject.source: rank for rank, subject in waits.items() if subject.kind == "receive"}
    unread = dist.unread()
    pairs = {(source, target) for source, target, _ in unread}
    for source, target, event in unread:
        wanted = receivers.get(source)
        if full & {source, target} or wanted in (None, target) or _is_for(dist, target, dist.models[source], event):
            continue  # it is on its way to whom it is meant for, only too slowly
        if (source, wanted) not in pairs:
            found = place_of(event)
            line = "" if found is None else f" in line {found.line}"
            return (
                f"rank {source} passed a message to rank {target}{line}, which has not received it,\n"
                f"and rank {wanted} waits for one from rank {source}: pass_to and receive must name each other's rank"
            )
    return None


def _layers(dist: World, rank: int) -> set[int]:
    """The layers of which a rank has weights."""
    return layers_of(dist.models[rank].program) if rank in dist.models else set()


def _is_for(dist: World, target: int, sender: Any, event: Event) -> bool:
    """Tell whether a message is for a layer of a rank: the next one of an activation, the one before of a gradient."""
    values = [sender.program.values[number] for number in event.inputs]
    return any(
        isinstance(value, Activation | ActivationGrad) and value.layer in _layers(dist, target) for value in values
    )


def _kept_back(dist: World, waits: Waits, cycle: list[int]) -> str | None:
    """Somebody has what another rank waits for, and has not passed it."""
    for rank in cycle:
        source = waits[rank].source if waits[rank].kind == "receive" else None
        if source is None or source not in waits:
            continue
        program, theirs, own = dist.models[source].program, _layers(dist, rank), _layers(dist, source)
        passed = {number for event in program.events if event.op == "pass_to" for number in event.inputs}
        for number, value in enumerate(program.values):
            if (
                not isinstance(value, Activation | ActivationGrad)
                or number in passed
                or value.layer not in theirs - own
            ):
                continue
            made = maker(value)
            if made is None or made.op not in COMPUTE:
                continue
            return (
                f"on rank {source} {made.op}{line_of(made)} made what rank {rank} waits for ({value}):\n"
                f"pass it there, before rank {source} waits itself"
            )
    return None


def _elsewhere(waits: Waits) -> str | None:
    """Somebody waits for something of asyncio, which is over only when another rank ends it."""
    rank = next((rank for rank, subject in waits.items() if subject.kind == "elsewhere"), None)
    if rank is None:
        return None
    return (
        f"rank {rank} waits for {waits[rank].thing}: let another task do so before it waits itself.\n"
        "On real machines ranks share no memory, and wait for each other with pass_to and receive only"
    )


def _left_alone(waits: Waits) -> str | None:
    """Somebody waits for ranks that have finished."""
    rank = next((rank for rank in waits if waits.awaits_over(rank)), None)
    if rank is None:
        return None
    subject = waits[rank]
    gone = these("rank", waits.over.intersection(waits.awaits(rank)))
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


def _nobody_begins(dist: World, waits: Waits, cycle: list[int]) -> str | None:
    """Ranks that all wait for a message, and none of which has taken data: somebody has to be the first."""
    if not cycle or {waits[rank].kind for rank in cycle} != {"receive"}:
        return None
    ops = {event.op for rank in cycle for event in dist.models[rank].program.events}
    if "load_weights" not in ops or "get_activation" in ops:
        return None
    return (
        f"nobody begins: the first stage, such as rank {cycle[0]}, has no stage before it,\n"
        "and takes its batches with get_activation instead"
    )


def _ring(waits: Waits, cycle: list[int]) -> str:
    """Ranks that wait for each other."""
    kinds = {waits[rank].kind for rank in cycle}
    if cycle and kinds == {"receive"}:
        return f"each of them receives before it passes: let one of them, such as rank {cycle[0]}, pass first"
    if cycle and kinds == {"pass"}:
        return "one message at a time fits between two ranks: receive it before passing the next"
    return "follow the cycle: one of these calls has to come earlier, or is missing on one rank"
