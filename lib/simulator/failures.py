"""A run that fails: what went wrong, in words for students, and what all other ranks had done by then.

Ranks run ahead of each other, so when one fails, some have not begun and others are far ahead. The others are run up to
that moment of simulated time, where the Trace of a failure ends. If another rank fails before, that failure counts: the
earliest in simulated time, and of equal ones that of the lowest rank, in whatever order ranks are stepped. This module
is loaded only when something fails.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lib import diagnosis
from lib.errors import fixes
from lib.errors.exceptions import BudgetError, NotSolved, PuzzleError
from lib.record import replace
from lib.simulator.engine import TURNS, Failed, Foreign, Spinning
from lib.trace.event import Event, Program
from lib.trace.trace import Trace
from lib.values.operations import COMMUNICATION, READS, TIMED

if TYPE_CHECKING:
    from lib.simulator.dist import Dist


def what_failed(dist: Dist, coroutines: Sequence[Coroutine[Any, Any, Any]], error: BaseException) -> PuzzleError | None:
    """Return the student's mistake that an error stands for; None if the run needs an asyncio event loop.

    An error that no student's function can have caused is raised again.
    """
    if isinstance(error, Failed):
        first = _first_of_all(dist, error) if dist.engine.driving else error
        return None if first is None else _told(dist, first.name, first.__cause__)
    if isinstance(error, Spinning):
        return diagnosis.asleep(error.name, diagnosis.waiting_at(coroutines[error.name]), TURNS)
    if isinstance(error, Foreign):
        rank, thing = error.args
        return None if _is_future(thing) else diagnosis.not_ours(rank, thing, diagnosis.waiting_at(coroutines[rank]))
    if isinstance(error, PuzzleError):
        return error
    if isinstance(error, KeyboardInterrupt):
        raise diagnosis.interrupted(None, error) from None
    if isinstance(error, SystemExit | GeneratorExit):  # asyncio lets go of everything when a task raises one of them
        return _told(dist, None, error)
    raise error


def _told(dist: Dist, rank: int | None, cause: BaseException | None) -> PuzzleError:
    if isinstance(cause, KeyboardInterrupt):
        raise diagnosis.interrupted(rank, cause) from None
    done = (event.op for model in dist.models.values() for event in model.program.events)
    # The stub was left at the end of a function that does something: a line too many, not an unsolved puzzle.
    if isinstance(cause, NotSolved) and not TIMED.isdisjoint(done) and not cause.untouched():
        cause.left_over()
    if isinstance(cause, PuzzleError):
        return cause
    failure = diagnosis.rank_failed(dist, rank, cause)
    failure.__cause__ = cause
    return failure


def blamed(dist: Dist, failure: PuzzleError) -> PuzzleError:
    """Return the failure of a run, with its rank's name and the Trace added."""
    fixes.keep(failure)
    dist.failure = failure
    if dist.mesh is not None and failure.rank is not None:
        failure.named = dist.mesh.named(failure.rank)
    failure.trace = dist.so_far(str(failure))
    return failure


def _is_future(thing: Any) -> bool:
    return hasattr(thing, "_asyncio_future_blocking")


def _asked_for_a_loop(error: BaseException | None) -> bool:
    """Tell whether an error comes from asyncio, most of which needs a running loop."""
    folder = os.path.join(os.path.dirname(os.__file__), "asyncio", "")
    trace = None if error is None else error.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith(folder):
        trace = trace.tb_next
    return trace is not None or (type(error) is RuntimeError and error.args == ("no running event loop",))


# -- the moment of the failure ------------------------------------------------------------------------------------


class Failure(NamedTuple):
    """The failure of a rank: when, which, and what it raised."""

    time: int
    rank: int
    error: Failed


def moment_of(failed: Failed, models: Mapping[int, Any]) -> Failure:
    """Return the failure of a rank. Members that disagree fail together, when the last of them joins."""
    cause = failed.__cause__
    time, rank = models[failed.name].program.clock, failed.name
    if isinstance(cause, PuzzleError) and cause.time is not None:
        # The lower of the two that disagree: which joined last depends on the order of steps.
        time, rank = cause.time, min(getattr(cause, "ranks", None) or (rank,))
    return Failure(time, rank, failed)


def is_final(failed: Failed) -> bool:
    """Tell whether the other ranks do not matter: the puzzle still has its stub, or a loop does not end."""
    return isinstance(failed.__cause__, NotSolved | BudgetError)


def bound(failure: Failure, models: Mapping[int, Any]) -> None:
    """Let all ranks begin nothing after the moment of a failure, and the one that failed nothing at all."""
    for rank, model in models.items():
        model.dist.until = failure.time, failure.rank
        # Equal times are allowed: a lower rank may fail at the same moment, and counts.
        model.program.until, model.program.free = -1 if rank == failure.error.name else failure.time, 0


def _first_of_all(dist: Dist, failed: Failed) -> Failed | None:
    """Run the other ranks up to the moment of the earliest failure, and return that; None if one of them needs an event
    loop."""
    first: Failure | None = None
    # Each round ends another rank or everything: an earlier failure replaces the first.
    while not _asked_for_a_loop(failed.__cause__):
        if isinstance(failed.__cause__, KeyboardInterrupt) or (first is None and is_final(failed)):
            return failed
        found = moment_of(failed, dist.models)
        if first is None or found[:2] < first[:2]:
            first = found
            bound(first, dist.models)
            dist.engine.until = first.time
        try:
            dist.engine.go_on()
        except Failed as other:
            failed = other
        except Foreign as foreign:
            return None if _is_future(foreign.args[1]) else first.error
        except Spinning:  # the earlier mistake counts
            return first.error
        else:
            return first.error
    return None


def cut(trace: Trace, until: int) -> Trace:
    """Return the Trace up to a moment: all that was called by then, whether or not it had begun."""
    return replace(trace, programs=[_cut(program, until) for program in trace.programs])


def _cut(program: Program, until: int) -> Program:
    events: list[Event] = []
    pending: set[int] = set()
    clock, blocked = 0, False
    for number, event in enumerate(program.events):
        # Nothing after a wait for something that has not begun can have happened by then.
        if event.issued > until or (event.op == "wait" and event.arg[0] in pending):
            break
        if event.op in COMMUNICATION and (event.start is None or event.start > until):
            pending.add(number)
            blocked = event.blocking
            event = _not_over(event, begun=False)
        elif event.blocking or event.op not in COMMUNICATION:
            clock = max(clock, event.end or 0)
        events.append(event)
    waited = {event.arg[0] for event in events if event.op == "wait"}
    for number, event in enumerate(events):  # a communication that is awaited later has no results yet
        if event.op in COMMUNICATION and event.outputs and not event.blocking and number not in waited:
            events[number] = _not_over(event, begun=True)
    count = len(events)
    last = count - 1 if blocked or clock > until else count  # nothing after an operation under way
    moves = [move for move in program.moves if move[0] <= last]
    ids = [value for event in events for value in (*event.inputs, *event.outputs)]
    ids += [value for _, _, value, _ in moves]
    return Program(program.rank, events, program.values[: max(ids, default=-1) + 1], moves)


def _not_over(event: Event, *, begun: bool) -> Event:
    """Return a communication as it was before its await, or before it had begun."""
    event = event.copy()
    event.outputs, event.blocking = (), False
    if not begun:
        event.start, event.length = None, 0
        event.arg = () if event.op in READS else event.arg
    if event.op == "receive":
        event.layer, event.batches = None, frozenset()
    return event
