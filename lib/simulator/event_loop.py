"""An asyncio event loop in which no time passes: simulate runs a function there that uses tasks, locks or timers.

`asyncio.gather`, `TaskGroup`, `wait_for`, `Event`, `Queue` and the like are Python's own, and so is the loop's ready
queue. Only the clock is ours: it stands still while any task can run, and then jumps to the next timer. So a `sleep`
costs nothing, nothing depends on the machine, and no socket or thread is needed (in a browser there is none).

Since nothing comes from outside, the loop knows what asyncio elsewhere cannot: that no task can run and no timer is
left. That is a deadlock, of ranks that wait for each other or for an Event that is never set.
"""

from __future__ import annotations

import asyncio
import asyncio.base_events
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from math import isfinite, ulp
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from lib import diagnosis
from lib.errors.exceptions import PuzzleError
from lib.errors.source_lines import Place, is_students
from lib.simulator.engine import TURNS, Failed, Halted, Patience, Signal
from lib.simulator.failures import Failure, bound, is_final, moment_of
from lib.simulator.running_loop import alone, is_ready
from lib.trace.event import LENGTH, START

if TYPE_CHECKING:
    from lib.simulator.dist import Dist
    from lib.simulator.messages import Call

RANK: ContextVar[int] = ContextVar("rank")
"""The rank that a task belongs to; tasks that it makes inherit it."""
MOST_LEAPS = 20
"""Times that the clock jumps to the next timer for tasks that poll instead of waiting."""
TIMER = 10
"""Turns that a leap of the clock counts as, since it costs about as much."""
_THINGS = {
    "Event.wait": "an asyncio.Event that nobody sets",
    "Queue.get": "an asyncio.Queue into which nobody puts anything",
    "Queue.put": "room in an asyncio.Queue from which nobody takes anything",
    "Lock.acquire": "an asyncio.Lock that nobody releases",
    "Semaphore.acquire": "an asyncio.Semaphore that nobody releases",
    "Condition.wait": "an asyncio.Condition that nobody notifies",
    **dict.fromkeys(("Barrier.wait", "Barrier._wait", "Barrier._block"), "an asyncio.Barrier at which not all arrive"),
}


class Stop(NamedTuple):
    """Why a run ended early: what a rank raised, or, if `rank` is None, why nothing can move."""

    rank: int | None
    error: BaseException


class Elsewhere(NamedTuple):
    """A rank's wait for something that is not ours, with what an explanation of a deadlock asks for (see `dist`)."""

    thing: str
    where: Place | None
    kind: str = "elsewhere"

    def awaits(self, rank: int) -> list[int]:
        """Return no ranks: it is not known which would do it."""
        return []


class OwnLoop(asyncio.base_events.BaseEventLoop):
    """Our own loop: BaseEventLoop's queue and timers, on a clock of its own. A wait that is over goes on only when no
    task can run. The loop is its own selector, as there is nothing else to select from."""

    def __init__(self, dist: Dist) -> None:
        super().__init__()
        self.models = dist.models
        self.engine = engine = dist.engine
        engine.wake = self._over
        # None to watch: this loop knows when a task ends. And those that run the function of a rank.
        self.tasks: dict[int, asyncio.Task[Any]] = {}
        self.runs: dict[int, asyncio.Task[Any]] = {}
        # The waits of each rank whose signal has fired: when it did, the order of the calls, and what goes on.
        self.due: dict[int, list[tuple[int, int, asyncio.Future[None]]]] = {}
        self.now = 0.0
        # BaseEventLoop asks its selector before every pass: our hook for when no task is ready.
        self._selector = self
        self.set_exception_handler(lambda _, context: self.went_wrong(context))
        # The tasks of each rank that have not ended.
        self.under_way: dict[int, dict[asyncio.Task[Any], None]] = {}
        self.failed: list[tuple[int | None, Any]] = []
        # Why the run ended early, if it did.
        self.stopped: Stop | None = None
        self.first: Failure | None = None
        self._patience = Patience(engine.progress)
        self._leaps = 0

    # -- waiting for signals --------------------------------------------------------------------------------------

    def wait(self, signal: Signal, name: int, call: Call, index: int) -> asyncio.Future[None]:
        """Return what coroutine `name` has to yield, even for a signal that has fired: other tasks of it come first.

        With several tasks, what one does next depends on which went on before. That must not depend on the order of
        ranks, so a wait goes on only when no task can run: all signals that fire without it are known then.
        """
        engine = self.engine
        # Its own future for each wait: several tasks of a rank may wait for one signal, and go on one at a time.
        future = self.create_future()
        future._asyncio_future_blocking = True  # to be yielded, as its `__await__` does
        if signal.fired:
            self._over([(name, call, index, future)])
        else:
            signal.waiters.append((name, call, index, future))
        engine.waiting[future] = name, signal
        engine.moves += 1
        return future

    def _over(self, waits: Iterable[tuple[int, Call, int, asyncio.Future[None]]]) -> None:
        for name, call, index, future in waits:
            self.due.setdefault(name, []).append(((call[START] or 0) + call[LENGTH], index, future))

    def wake(self) -> bool:
        """Let one task of each coroutine go on, the one whose wait is over first; return whether there was one."""
        woken = False
        # By rank, and in a rank by time; never by which was woken first, which is an accident of our own order.
        for name in sorted(self.due):
            waiting = sorted((turn for turn in self.due[name] if not turn[2].done()), key=itemgetter(0, 1))
            if waiting:
                # One for each rank: what it does next may decide what the others of that rank do.
                waiting[0][2].set_result(None)
                woken = True
            self.due[name] = waiting[1:]
        self.due = {name: waiting for name, waiting in self.due.items() if waiting}
        return woken

    def adopt_current(self, name: int) -> bool:
        """Do nothing: the loop knows its tasks."""
        return True

    # -- what BaseEventLoop asks of a loop ----------------------------------------------------------------------

    def time(self) -> float:
        """Return seconds on the loop's own clock, which no operation of the model moves on."""
        return self.now

    def _process_events(self, *_: object) -> None:
        """Do nothing: no events come from outside, and nothing there wakes this loop."""

    _write_to_self = _process_events

    def select(self, timeout: float | None) -> list[Any]:
        """Choose what happens before a pass. `timeout` is 0 if a task is ready, None if none will be."""
        try:
            if timeout == 0:
                self._turn(max(1, len(cast(Any, self)._ready)))
            # First waits that are over, then choices, both in simulated time; timers last, which are not in it.
            elif self.wake() or self.engine.choose():
                return []
            elif timeout is not None and isfinite(self._next()):
                self._turn(1, TIMER)
                self._advance()
            elif self.stopped is not None:
                self.stop()
            elif self.under_way:
                self._stop(None, self._deadlock())
        # Such as that of an endless loop (`_turn`): it ends the run as any other reason does.
        except Exception as error:
            self._stop(None, error)
        return []

    def _next(self) -> float:
        timers: Any = self
        return timers._scheduled[0].when()

    def _advance(self) -> None:
        """Set the clock to the next timer; adding the time until then might just miss it."""
        self.now = max(self.now, self._next())
        # A timer is due when it is less than this ahead; at a late hour floats are further apart than that.
        self._clock_resolution = max(self._clock_resolution, 2 * ulp(self.now))

    def _turn(self, ready: int, weight: int = 1) -> None:
        """Count a pass of the loop. Too many in which nothing moves mean that a student's loop does not end."""
        engine, timer = self.engine, weight == TIMER
        if not self._patience.exhausted(engine.moves, ready, ready * weight) or not self.under_way:
            return
        if self.wake() or engine.choose():
            return
        if not timer and cast(Any, self)._scheduled and self._leaps < MOST_LEAPS:
            self._leaps += 1  # one task polls for what another does after a sleep
            self._advance()
            return
        every = [(rank, task) for rank, tasks in sorted(self.under_way.items()) for task in tasks]
        # Name the one that polls, and not one that waits for it.
        asking = [item for item in every if (_within(item[1])[-1:] == ["sleep"] if timer else is_ready(item[1]))]
        rank, task = (asking or every)[0]
        raise diagnosis.asleep(rank, diagnosis.waiting_at(task.get_coro()), TURNS)

    # -- tasks --------------------------------------------------------------------------------------------------

    def create_task(self, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
        """Return a new task, of the rank whose task makes it."""
        task = super().create_task(coro, **kwargs)
        rank = RANK.get(-1)
        self.under_way.setdefault(rank, {})[task] = None
        task.add_done_callback(lambda task: self._ended(rank, task))
        return task

    def _ended(self, rank: int, task: asyncio.Task[Any]) -> None:
        mine = self.under_way[rank]
        del mine[task]
        if task is self.runs.get(rank):
            if task.cancelled():
                self._stop(rank, asyncio.CancelledError("this rank was cancelled"))
            elif (error := task.exception()) is not None and not isinstance(error, Halted):
                self._fail(rank, error)
        # Whether its error is ever asked for shows when the run is over.
        if not task.cancelled() and cast(Any, task)._exception is not None:
            self.failed.append((rank, task))
        if not mine:
            del self.under_way[rank]
            self.engine.over(rank)
            if not self.under_way:
                self.stop()

    def unheard(self) -> Stop | None:
        """Return the first task that failed and was never awaited."""
        for rank, task in self.failed:
            # asyncio's own flag that the error was never asked for: it would print it when the task is collected.
            if task._log_traceback:
                return Stop(rank, task.exception())
        return None

    def went_wrong(self, context: dict[str, Any]) -> None:
        """Keep what asyncio would only print: the error of a callback. Tasks keep their own."""
        error = context.get("exception")
        if isinstance(error, Exception) and (handle := context.get("handle")) is not None:
            where = getattr(handle, "_context", None)
            self._stop(None if where is None else where.get(RANK), error)

    def _stop(self, rank: int | None, error: BaseException) -> None:
        if self.stopped is None:
            self.stopped = Stop(rank, error)
        self.stop()

    def _fail(self, rank: int, error: BaseException) -> None:
        """End a rank that failed, and let the others go on to that moment (see `failures`)."""
        failed = Failed(rank)
        failed.__cause__ = leaf(error)
        if is_final(failed):
            self._stop(rank, error)
            return
        found = moment_of(failed, self.models)
        # The earliest in simulated time counts, not the one that our loop met first.
        if self.first is None or found[:2] < self.first[:2]:
            self.first, self.stopped = found, Stop(rank, error)
            bound(found, self.models)
            self.engine.until = found.time

    def _deadlock(self) -> BaseException:
        if (unheard := self.unheard()) is not None:  # it explains why the others wait
            self._stop(*unheard)
        engine = self.engine
        parked = {rank for rank, _ in engine.parked()}
        engine.elsewhere = [
            (rank, Signal(_elsewhere(tasks))) for rank, tasks in sorted(self.under_way.items()) if rank not in parked
        ]
        make = engine.on_stuck()
        assert make is not None, "here nobody can move by himself"
        return make()

    # -- the end ------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """End silently all that has not ended: only the first mistake counts."""
        for task in [task for tasks in list(self.under_way.values()) for task in tasks]:
            cast(Any, task)._log_destroy_pending = False
            with suppress(Exception, Halted):
                cast("Coroutine[Any, Any, Any]", task.get_coro()).close()
        for _, task in self.failed:
            _close_unstarted(task.exception())  # asked for here, so asyncio does not print it
        self.under_way.clear()
        self.close()

    # -- what cannot be simulated -------------------------------------------------------------------------------

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:
        """Refuse: a thread has no simulated time."""
        _refuse(
            "a thread (to_thread, run_in_executor)", "call the function itself: what is not of the model takes no time"
        )

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        """Do what call_soon does: asyncio calls this for unfinished generators. There are no threads."""
        return self.call_soon(callback, *args, context=context)

    def _outside(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(
            "the world outside (sockets, files, other processes, signals)",
            "read what you need before simulate, and hand it to the function",
        )

    create_connection = create_datagram_endpoint = create_server = create_unix_connection = _outside  # type: ignore[assignment]
    create_unix_server = connect_accepted_socket = sendfile = start_tls = _outside  # type: ignore[assignment]
    connect_read_pipe = connect_write_pipe = subprocess_exec = subprocess_shell = _outside  # type: ignore[assignment]
    getaddrinfo = getnameinfo = add_reader = remove_reader = add_writer = remove_writer = _outside  # type: ignore[assignment]
    sock_recv = sock_recv_into = sock_recvfrom = sock_sendall = sock_sendto = sock_connect = _outside  # type: ignore[assignment]
    sock_accept = sock_sendfile = add_signal_handler = remove_signal_handler = _outside  # type: ignore[assignment]


def _refuse(thing: str, fix: str) -> NoReturn:
    error = diagnosis.not_here(thing, fix)
    rank = RANK.get(-1)
    raise error if rank < 0 else error.at(rank)


def _within(task: asyncio.Task[Any]) -> list[str]:
    """Return the names of the functions in which a task waits, the innermost last."""
    coroutine, names = cast(Any, task.get_coro()), list[str]()
    while (code := getattr(coroutine, "cr_code", None)) is not None:
        names.append(code.co_qualname)
        coroutine = coroutine.cr_await
    return names


def _elsewhere(tasks: dict[asyncio.Task[Any], None]) -> Elsewhere:
    """Return what a rank waits for that is not an operation of the model."""
    waiting = [task for task in tasks if not isinstance(cast(Any, task)._fut_waiter, asyncio.Task)] or [*tasks]
    known = [(task, [_THINGS[name] for name in _within(task) if name in _THINGS]) for task in waiting]
    task, things = next((one for one in known if one[1]), known[0])
    thing = things[-1] if things else "something of asyncio that never happens"
    return Elsewhere(thing, diagnosis.waiting_at(task.get_coro()))


def run(
    dist: Dist,
    coroutines: Sequence[Coroutine[Any, Any, Any]],
    order: Callable[[list[int]], Sequence[int]] | None = None,
) -> None:
    """Run all coroutines to their end, as tasks of our own loop instead of the engine. Raises Failed if one raised (the
    others have gone on to that moment), and the error of a deadlock if nothing can move.

    `order` may permute the order in which ranks begin.
    """
    engine = dist.engine
    with alone():
        loop = dist.driver = OwnLoop(dist)
        engine.who = lambda: RANK.get(None)
        hooks = sys.get_asyncgen_hooks()
        try:
            names = list(range(len(coroutines)))
            for rank in names if order is None else order(names):
                # A task copies the context in which it is made, so all tasks of a rank inherit its number.
                token = RANK.set(rank)
                try:
                    loop.runs[rank] = loop.create_task(coroutines[rank])
                finally:
                    RANK.reset(token)
            if loop.under_way:
                loop.run_forever()
            stopped = loop.stopped or loop.unheard()
        finally:
            loop.leave()
            sys.set_asyncgen_hooks(*hooks)
            engine.who = None
    if stopped is not None:
        cause = leaf(stopped.error)
        if stopped.rank is None:
            raise cause from None
        raise Failed(stopped.rank) from cause


def _close_unstarted(error: BaseException | None) -> None:
    """Close the coroutines that asyncio refused to run, so that Python does not complain of them too."""
    trace = None if error is None else error.__traceback__
    while trace is not None:
        if not is_students(trace.tb_frame.f_code):
            for thing in trace.tb_frame.f_locals.values():
                if inspect.iscoroutine(thing) and inspect.getcoroutinestate(thing) == inspect.CORO_CREATED:
                    thing.close()
        trace = trace.tb_next


def leaf(error: BaseException) -> BaseException:
    """Return the error that matters in a group: the first of ours, else the first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    every = [leaf(one) for one in cast("tuple[BaseException, ...]", cast(Any, error).exceptions)]
    return next((one for one in every if isinstance(one, PuzzleError)), every[0])
