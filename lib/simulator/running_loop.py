"""Coroutines as tasks of an asyncio loop that is not ours, such as a notebook's.

There the engine learns that nothing moves from a tick that sees a full pass of the loop without a move. Our own loop
(see `event_loop`) knows it directly.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from lib import diagnosis
from lib.simulator.engine import TURNS, Patience, Signal
from lib.trace.trace import count_as_old, look_for_garbage

if TYPE_CHECKING:
    from lib.simulator.dist import Dist
    from lib.simulator.messages import Call

COLLECT_AFTER: Final = 1_000_000
"""New objects after which the garbage collector runs while there are tasks: they make many objects, and no garbage.
With Python's own 700 a large world takes twice as long, and with 100,000 a twentieth longer."""
AT_ONCE: Final = 100
"""Signals whose waiters go on one after the other before other tasks, timers and connections have their turn."""
# The tasks of all worlds that step a rank, until they end, or their loop is gone.
_running: WeakSet[asyncio.Task[Any]] = WeakSet()
# The collector's own thresholds, while they are raised.
_usual: list[int] = []


class RunningLoop:
    """A running asyncio loop in which the coroutines of a world are tasks among others."""

    def __init__(self, dist: Dist) -> None:
        self.dist = dist
        self.engine = engine = dist.engine
        engine.wake = self.wake
        self.tasks: dict[int, asyncio.Task[Any]] = {}
        # How many callbacks of the loop that let tasks go on are not done.
        self.waking = 0
        # What is to go on next in the callback that is running, and how many more times it may do so.
        self._next: Iterator[Any] | None = None
        self._left = 0
        self._patience = Patience(engine.progress)
        self._spinners: list[tuple[int, asyncio.Task[Any]]] = []
        self._ticking = False
        # Whether `loop` is the one that steps the tasks: Python would ask the operating system first, each time.
        self._in_loop = False
        # A future that has a result. (Of a `cached_property` Python would look up all other attributes more slowly.)
        self._over: asyncio.Future[None] | None = None

    def wait(self, signal: Signal, name: int, call: Call, index: int) -> asyncio.Future[None] | None:
        """Return what coroutine `name` yields until a signal fires; None if it has fired."""
        if signal.fired:
            return None
        engine = self.engine
        if name not in self.tasks:
            self.adopt_current(name)
        if not self._in_loop:
            self.loop, self._in_loop = asyncio.get_running_loop(), True
        future: asyncio.Future[None] = asyncio.Future(loop=self.loop)
        future._asyncio_future_blocking = True  # to be yielded, as its `__await__` does
        signal.waiters.append(future)
        engine.waiting[future] = name, signal
        engine.moves += 1
        if not (self._ticking or self.waking):
            self.watch()
        return future

    def wake(self, waits: Sequence[asyncio.Future[None]]) -> None:
        """Let all waiters of one signal go on, in order; there is at least one."""
        # Tasks in Python, such as nest_asyncio's, may step others meanwhile: then each has to be in the loop by itself.
        if asyncio.Task.__module__ != "_asyncio":
            for wait in waits:
                if not wait.done():
                    wait.set_result(None)
            return
        self.waking += 1
        # The loop would call them next: it need not ask the operating system first.
        if self._left and self._next is None and not getattr(self.loop, "_ready", True):
            self._next = iter(waits)
        else:
            self.loop.call_soon(self._go_on, iter(waits))

    def _go_on(self, waits: Iterator[Any]) -> None:
        """Call what waits for these futures, all in one callback of the loop. With a result for each, asyncio would
        make a callback for each, and waiting would take half as long again. One that was cancelled has none left."""
        if self._over is None:
            self._over = self.loop.create_future()
            self._over.set_result(None)
        following: Iterator[Any] | None = waits
        self._left = AT_ONCE
        while following is not None:
            try:
                for wait in following:
                    for callback, context in wait._callbacks or ():
                        context.run(callback, self._over)
            except BaseException:  # an interrupt in one of them: the others go on all the same
                self._go_on(following)
                raise
            self.waking -= 1
            self._left -= 1
            following, self._next = self._next, None
        self._left = 0
        self.watch()

    def adopt_current(self, name: int) -> bool:
        """Note that the running task steps a coroutine; return False outside a loop, as in a sandbox."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return False
        if task is not None:
            self.adopt(name, task)
        return task is not None

    def adopt(self, name: int, task: asyncio.Task[Any]) -> None:
        """Note which task steps a coroutine, to know when it ends."""
        if self.tasks.get(name) is not task:
            if not _running:
                look_for_garbage()
                if not _usual:  # else earlier tasks went with their loop before they ended
                    _usual[:] = gc.get_threshold()
                gc.set_threshold(max(COLLECT_AFTER, _usual[0]), *_usual[1:])
            self.tasks[name] = task
            _running.add(task)
            task.add_done_callback(lambda task: self._ended(name, task))
            self.watch()

    def _ended(self, name: int, task: asyncio.Task[Any]) -> None:
        _running.discard(task)
        self._in_loop = False  # another may step the next task
        if not _running and _usual:
            count_as_old()
            gc.set_threshold(*_usual)
            _usual.clear()
        self.engine.over(name)
        if not task.cancelled() and (error := task.exception()) is not None:
            diagnosis.on_failed(self.dist, name, error)
        self.watch()

    def watch(self, _: object = None) -> None:
        """Start ticking until nothing moves in a full pass of the loop; if tasks are being woken, after they ran."""
        if not (self._ticking or self.waking) and (self.engine.waiting or self.tasks):
            self._ticking = True
            try:
                # After all that is ready now: when the tick comes up, each of them has had a turn.
                asyncio.get_running_loop().call_soon(self._tick, self.engine.moves)
            except RuntimeError:  # the loop is over
                self._ticking = False

    def _tick(self, seen: int) -> None:
        self._ticking = False
        engine = self.engine
        if engine.moves == seen and not self.waking:
            self._spinners = [item for item in self._spinners if is_ready(item[1])]
            if self._spinners:
                self._spin()
                return
        self._spinners = []
        # Something moved, or will in the next pass: the next tick looks again.
        if self.waking or engine.moves != seen or engine.choose():
            self.watch()
        elif engine.waiting and (make := engine.on_stuck()) is not None:
            for future in engine.waiting:  # in the order of the waits
                if not future.done():
                    future.set_exception(make())
        else:
            self._look_around()

    # -- tasks that take turns without end -----------------------------------------------------------------------

    def _look_around(self) -> None:
        """Nothing moved, but something may: look for tasks that spin, and watch again when a waiting one wakes."""
        parked = {self.tasks.get(name) for name, _ in self.engine.waiting.values()}
        running = [item for item in self.tasks.items() if not item[1].done() and item[1] not in parked]
        self._spinners = [item for item in running if is_ready(item[1])]
        waiters = [waiter for _, task in running if (waiter := getattr(task, "_fut_waiter", None)) is not None]
        for waiter in waiters:  # a task that sleeps may move when it wakes
            waiter.add_done_callback(self.watch)
        if self._spinners and not waiters:
            self._spin()

    def _spin(self) -> None:
        count = len(self._spinners)
        if self._patience.exhausted(self.engine.moves, count, count) and not self.engine.choose():
            # The lowest rank gets the error, as everywhere.
            for name, task in sorted(self._spinners, key=lambda item: item[0]):
                if (error := diagnosis.on_spinning(self.dist, name, task, TURNS)) is not None:
                    _end(task, error)
                    return
            return  # they are not ours, and no rank waits
        self.watch()


def is_ready(task: asyncio.Task[Any]) -> bool:
    """Tell whether a task is about to run: it waits for nothing, as after sleep(0)."""
    return not task.done() and getattr(task, "_fut_waiter", task) is None


def _end(task: asyncio.Task[Any], error: BaseException) -> None:
    """End a task that never waits with an error, as if its coroutine had raised it.

    From outside, a task can only be cancelled, which would hide the reason. So its next turn is removed from the loop's
    queue, if that is accessible, and the error set as for a plain future.
    """
    for handle in getattr(task.get_loop(), "_ready", ()):
        if getattr(getattr(handle, "_callback", None), "__self__", None) is task:
            handle.cancel()
            break
    else:
        task.cancel(str(error))
        return
    future: Any = next(cls for cls in type(task).__mro__ if cls.__name__ == "Future")
    future.set_exception(task, error)
    coroutine: Any = task.get_coro()
    coroutine.close()


@contextmanager
def alone() -> Generator[None]:
    """Hide the running loop, such as a notebook's: what runs inside sees only ours."""
    outer = asyncio._get_running_loop()
    # From Python 3.14 on the running task is known by thread, not by loop: it has to be hidden too.
    swap: Callable[[Any, Any], Any] | None = getattr(asyncio.tasks, "_swap_current_task", None) if outer else None
    task = None if swap is None else swap(outer, None)
    asyncio._set_running_loop(None)
    # Without a running loop, gather takes the one that is set for the thread, or makes one: hide that too.
    events: Any = asyncio.events
    policy = getattr(events, "_get_event_loop_policy", events.get_event_loop_policy)()
    local = getattr(policy, "_local", None)
    known = {name: getattr(local, name) for name in ("_loop", "_set_called") if hasattr(local, name)}
    for name in known:
        setattr(local, name, name == "_set_called" or None)
    try:
        yield
    finally:
        for name, value in known.items():
            setattr(local, name, value)
        asyncio._set_running_loop(outer)
        if swap is not None:
            swap(outer, task)
