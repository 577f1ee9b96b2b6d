"""Simulated time without a clock on the wall: coroutines that wait for Signals, and nothing about machine learning.

The life of a wait: a coroutine awaits a Signal; if the signal has fired, it goes on at once; if not, it is parked on
it. Firing a signal makes its waiters ready. Ready coroutines run as far ahead as they can, in any order: what they do
to each other goes through signals only, so the order changes nothing. When none is ready, *choices* are made, the
earliest first: a choice is an action whose outcome depends on what everybody else did before that moment. When there
is no choice left either and somebody still waits, that is a deadlock: `parked()` says who waits for what.

Two drivers step the coroutines: `run` (ours), and a running asyncio loop, in which each coroutine is a task. There the
engine learns that nobody moves from a tick that sees a full pass of the loop go by without a move.
"""

from __future__ import annotations

import heapq
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio

__all__ = ["Engine", "Patience", "Signal", "is_ready"]

TURNS = 25_000
"""Turns that tasks may take, in all, while nobody moves and nothing is recorded."""
TURNS_EACH = 1000
"""As many more for each task that takes turns."""


class Signal:
    """Something that happens once. `subject` is whatever its maker wants to be told when it never does."""

    __slots__ = ("fired", "subject", "value", "waiters")

    def __init__(self, subject: Any = None) -> None:
        self.subject = subject
        self.fired = False
        self.value: Any = None
        self.waiters: list[Any] = []

    @classmethod
    def happened(cls, value: Any = None) -> Signal:
        """A signal that has fired already."""
        signal = cls()
        signal.fired = True
        signal.value = value
        return signal


class _Task:
    """A coroutine under our own driver, and the signal that it was last parked on."""

    __slots__ = ("coroutine", "name", "signal")

    def __init__(self, name: int, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.name = name
        self.coroutine = coroutine
        self.signal: Signal | None = None


class Foreign(Exception):
    """A coroutine awaited something that is not a Signal, under our own driver."""


class _Timed(Protocol):
    @property
    def end(self) -> int | None: ...


class _Waiter:
    """A task of a loop of ours that awaits a signal, and the event that tells when the wait is over."""

    __slots__ = ("event", "future", "index", "name")

    def __init__(self, name: int, event: _Timed, index: int, future: asyncio.Future[None]) -> None:
        self.name = name
        self.event = event
        self.index = index
        self.future = future

    def order(self) -> tuple[int, int]:
        """Its place among the waiters of one coroutine: who is over first goes on first."""
        return self.event.end or 0, self.index


class Spinning(Exception):
    """A coroutine takes turn after turn, and nobody moves: `name` says which."""

    def __init__(self, name: int) -> None:
        super().__init__(name)
        self.name = name


class Patience:
    """Counts turns in which nobody moved: of `while not ready: await asyncio.sleep(0)` there is no other sign.

    A turn may do work that no signal tells of. So when it has run out, `progress` is asked for a number that changes
    with it, and only where that stands still from one time to the next is it over. No clock: the same run always ends
    at the same turn.
    """

    def __init__(self, progress: Callable[[], int]) -> None:
        self._progress = progress
        self._moves = -1
        self._turns = 0
        self._seen: int | None = None

    def exhausted(self, moves: int, tasks: int, turns: int = 1) -> bool:
        """Notes turns of one of so many tasks, at a time when there have been so many moves."""
        if moves != self._moves:
            self._moves, self._turns, self._seen = moves, 0, None
            return False
        self._turns += turns
        if self._turns <= TURNS + TURNS_EACH * tasks:
            return False
        self._turns = 0
        before, self._seen = self._seen, self._progress()
        return before == self._seen


class Failed(Exception):
    """A coroutine raised: `name` says which, `__cause__` says what."""

    def __init__(self, name: int) -> None:
        super().__init__(name)
        self.name = name


class Engine:
    """Parks coroutines on signals and wakes them.

    `on_stuck` is asked when nobody can move. It returns what makes the error that each waiter gets, or None where it
    knows of somebody who may still move (under asyncio, a task that sleeps). `on_failed` hears of each asyncio task
    that ended with an error. `on_spinning` makes the error of a task that takes turns without end, or None for a task
    that is not ours to end; `progress` is a number that changes with whatever coroutines do beside signals.
    """

    def __init__(
        self,
        on_stuck: Callable[[], Callable[[], BaseException] | None],
        on_failed: Callable[[int, BaseException], None],
        on_spinning: Callable[[int, Any], BaseException | None] = lambda name, task: None,
        progress: Callable[[], int] = lambda: 0,
    ) -> None:
        self.on_stuck = on_stuck
        self.on_failed = on_failed
        self.on_spinning = on_spinning
        self.progress = progress
        self._patience = Patience(progress)
        self._spinners: list[tuple[int, asyncio.Task[Any]]] = []
        self.hosted = False
        """Whether the coroutines are tasks of a loop of ours, which knows by itself when nobody can move."""
        self._due: dict[int, list[_Waiter]] = {}
        self.who: Callable[[], int | None] | None = None
        """Which coroutine runs, where that is not one of our own driver's."""
        self.elsewhere: list[tuple[int, Signal]] = []
        """Who waits for something that is not a Signal of ours, where that is known."""
        self._own: list[_Task] = []
        self._in_loop: dict[tuple[int, Signal], None] = {}
        self.finished: set[int] = set()
        self._ready: deque[_Task] = deque()
        self._current: _Task | None = None
        self.driving = False
        """Whether our own driver steps the coroutines."""
        self._choices: list[tuple[int, int, int, Callable[[], None]]] = []
        self._offered = 0
        self._moves = 0
        self._waking = 0
        self._ticking = False
        self.tasks: dict[int, asyncio.Task[Any]] = {}

    # -- signals ------------------------------------------------------------------------------------------------

    def fire(self, signal: Signal, value: Any = None) -> None:
        """Lets a signal happen. A second time is an error of ours."""
        assert not signal.fired, "a signal fires once"
        signal.fired = True
        signal.value = value
        self._moves += 1
        waiters = signal.waiters
        if waiters:
            if isinstance(waiters[0], _Task):
                self._ready.extend(waiters)
            else:
                for future in waiters:
                    if isinstance(future, _Waiter):
                        self._due.setdefault(future.name, []).append(future)
                    elif not future.done():
                        self._waking += 1
                        future.set_result(None)
            signal.waiters = []

    def park(self, signal: Signal) -> Signal:
        """Parks the running coroutine on a signal, under our own driver. What it returns is to be yielded."""
        task = self._current
        assert task is not None, "a coroutine parks while it runs"
        task.signal = signal
        signal.waiters.append(task)
        return signal

    def parked(self) -> list[tuple[int, Signal]]:
        """Who waits for which signal, by name."""
        own = [(task.name, task.signal) for task in self._own if task.signal is not None and not task.signal.fired]
        return own or sorted([*self._in_loop, *self.elsewhere], key=lambda item: item[0])

    def running(self) -> int | None:
        """The coroutine that runs now, by name, where that is known."""
        if self._current is not None:
            return self._current.name
        return None if self.who is None else self.who()

    @property
    def moves(self) -> int:
        """How often something has happened: while it stands still, so do all who wait."""
        return self._moves

    def over(self, name: int) -> None:
        """Notes that a coroutine, and all tasks that it made, have ended."""
        self.finished.add(name)
        self._moves += 1

    def choose_later(self, time: int, name: int, action: Callable[[], None]) -> None:
        """Has `action` done when no coroutine can run, if no earlier one is left; ties go to the lower name."""
        self._offered += 1  # of equals the one that was offered first, which for one name is always the same one
        heapq.heappush(self._choices, (time, name, self._offered, action))
        self._moves += 1

    def choose(self) -> bool:
        """Makes the earliest choice; whether there was one."""
        if not self._choices:
            return False
        heapq.heappop(self._choices)[3]()
        return True

    # -- our own driver -----------------------------------------------------------------------------------------

    def run(
        self,
        coroutines: Sequence[Coroutine[Any, Any, Any]],
        order: Callable[[list[int]], Sequence[int]] | None = None,
    ) -> None:
        """Runs all coroutines to their end. Raises Failed, Foreign, Spinning, or what `on_stuck` makes of a deadlock.

        `order` may permute the coroutines that are ready (their names): tests use it to show that it changes nothing.
        """
        self._own = [_Task(name, coroutine) for name, coroutine in enumerate(coroutines)]
        self._ready = deque(self._own)
        self.driving = True
        while True:
            while self._ready:
                if order is not None and len(self._ready) > 1:
                    by_name = {task.name: task for task in self._ready}
                    self._ready = deque(by_name[name] for name in order(sorted(by_name)))
                self._step(self._ready.popleft())
            if self.choose():
                continue
            if not self.parked():
                return
            make = self.on_stuck()
            assert make is not None, "under our own driver a coroutine is ready, parked or finished"
            raise make()

    def _step(self, task: _Task) -> None:
        self._current = task
        try:
            yielded = task.coroutine.send(None)
        except StopIteration:
            self.over(task.name)
        except Exception as error:
            raise Failed(task.name) from error
        else:
            if yielded is None:  # asyncio.sleep(0): a turn for the others
                self._ready.append(task)
                if self._patience.exhausted(self._moves, len(self._ready)) and not self.choose():
                    raise Spinning(min(task.name for task in self._ready))
            elif isinstance(yielded, Signal):
                self._moves += 1
            else:
                raise Foreign(task.name, yielded)
        finally:
            self._current = None

    # -- a running asyncio loop ---------------------------------------------------------------------------------

    def wait_in_loop(self, signal: Signal, name: int) -> Generator[Any, None, None]:
        """Waits for a signal as coroutine `name`, in a task of a running asyncio loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        self.adopt_current(name)
        future: asyncio.Future[None] = loop.create_future()
        signal.waiters.append(future)
        here = (name, signal)
        self._in_loop[here] = None
        self._moves += 1
        self.watch()
        try:
            yield from future
        finally:
            self._in_loop.pop(here, None)
            if future.done() and not future.cancelled():
                self._waking -= 1
            self._moves += 1

    def wait_hosted(self, signal: Signal, name: int, event: _Timed, index: int) -> Generator[Any, None, None]:
        """Waits for a signal in a loop of ours, even where it has fired: other tasks of the coroutine come first.

        With several tasks, what one of them does next depends on who went on before. That must not depend on the
        order of the ranks, so nobody goes on before nobody can: then all signals are known that fire without it.
        """
        import asyncio

        waiter = _Waiter(name, event, index, asyncio.get_running_loop().create_future())
        if signal.fired:
            self._due.setdefault(name, []).append(waiter)
        else:
            signal.waiters.append(waiter)
        here = (name, signal)
        self._in_loop[here] = None
        self._moves += 1
        try:
            yield from waiter.future
        finally:
            self._in_loop.pop(here, None)
            self._moves += 1

    def wake(self) -> bool:
        """Lets one task of each coroutine go on, the one whose wait is over first; whether there was one."""
        woken = False
        for name in sorted(self._due):
            waiting = sorted((one for one in self._due[name] if not one.future.done()), key=_Waiter.order)
            if waiting:
                waiting[0].future.set_result(None)
                woken = True
            self._due[name] = waiting[1:]
        self._due = {name: waiting for name, waiting in self._due.items() if waiting}
        return woken

    def adopt_current(self, name: int) -> None:
        """Remembers the running asyncio task as the one that steps a coroutine; under our own driver there is none."""
        if name not in self.tasks and not self.hosted and (asyncio := sys.modules.get("asyncio")) is not None:
            try:
                self.adopt(name, asyncio.current_task())
            except RuntimeError:  # no loop is running: a sandbox
                return

    def adopt(self, name: int, task: asyncio.Task[Any] | None) -> None:
        """Remembers the asyncio task that steps a coroutine, to know when it ends."""
        if task is not None and self.tasks.get(name) is not task:
            self.tasks[name] = task
            task.add_done_callback(lambda task: self._ended(name, task))
            self.watch()

    def _ended(self, name: int, task: asyncio.Task[Any]) -> None:
        self.finished.add(name)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.on_failed(name, error)
        self._moves += 1
        self.watch()

    def watch(self) -> None:
        """Starts ticking until a full pass of the loop has moved nobody."""
        if not self._ticking and not self.hosted and (self._in_loop or self.tasks):
            import asyncio

            self._ticking = True
            try:
                asyncio.get_running_loop().call_soon(self._tick, self._moves)
            except RuntimeError:  # the loop is over
                self._ticking = False

    def _tick(self, seen: int) -> None:
        self._ticking = False
        if self._moves == seen and self._still_spinning():
            self._spin()
            return
        self._spinners = []
        if self._waking or self._moves != seen or self.choose():
            self.watch()
        elif self._in_loop and (make := self.on_stuck()) is not None:
            for signal in {signal: None for _, signal in self._in_loop}:
                for future in signal.waiters:
                    if not future.done():
                        self._waking += 1
                        future.set_exception(make())
        else:
            self._look_around()

    # -- tasks that take turns without end -----------------------------------------------------------------------

    def _look_around(self) -> None:
        """Nobody moved, but somebody may: looks for tasks that run without getting on, and wakes with those that
        wait for something of their own."""
        parked = {self.tasks.get(name) for name, _ in self._in_loop}
        running = [item for item in self.tasks.items() if not item[1].done() and item[1] not in parked]
        self._spinners = [item for item in running if is_ready(item[1])]
        waiters = [getattr(task, "_fut_waiter", None) for _, task in running]
        if any(waiter is not None for waiter in waiters):  # who sleeps may move when he wakes, and may take his time
            for waiter in waiters:
                if waiter is not None:
                    waiter.add_done_callback(self._again)
        elif self._spinners:
            self._spin()

    def _again(self, _: object) -> None:
        self.watch()

    def _still_spinning(self) -> bool:
        self._spinners = [item for item in self._spinners if is_ready(item[1])]
        return bool(self._spinners) and not self._waking

    def _spin(self) -> None:
        count = len(self._spinners)
        if self._patience.exhausted(self._moves, count, count) and not self.choose():
            for name, task in sorted(self._spinners, key=lambda item: item[0]):
                if (error := self.on_spinning(name, task)) is not None:
                    _end(task, error)
                    return
            return  # they are not ours, and nobody waits for us to look again
        self.watch()


def is_ready(task: asyncio.Task[Any]) -> bool:
    """Whether a task is about to run: it waits for nothing, as after sleep(0)."""
    return not task.done() and getattr(task, "_fut_waiter", task) is None


def _end(task: asyncio.Task[Any], error: BaseException) -> None:
    """Ends a task that never waits with an error, as if its coroutine had raised it.

    A task takes no error from outside but its cancellation, whose reason nobody would see. So its next turn is taken
    from the queue of the loop, where the loop has one that can be seen, and the error set as for a plain future.
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
