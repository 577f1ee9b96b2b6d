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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

__all__ = ["Engine", "Signal"]


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


class Failed(Exception):
    """A coroutine raised: `name` says which, `__cause__` says what."""

    def __init__(self, name: int) -> None:
        super().__init__(name)
        self.name = name


class Engine:
    """Parks coroutines on signals and wakes them.

    `on_stuck` is asked when nobody can move. It returns what makes the error that each waiter gets, or None where it
    knows of somebody who may still move (under asyncio, a task that sleeps). `on_failed` hears of each asyncio task
    that ended with an error.
    """

    def __init__(
        self,
        on_stuck: Callable[[], Callable[[], BaseException] | None],
        on_failed: Callable[[int, BaseException], None],
    ) -> None:
        self.on_stuck = on_stuck
        self.on_failed = on_failed
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
                    if not future.done():
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
        return own or sorted(self._in_loop, key=lambda item: item[0])

    def choose_later(self, time: int, name: int, action: Callable[[], None]) -> None:
        """Has `action` done when no coroutine can run, if no earlier one is left; ties go to the lower name."""
        self._offered += 1  # of equals the one that was offered first, which for one name is always the same one
        heapq.heappush(self._choices, (time, name, self._offered, action))
        self._moves += 1

    def _choose(self) -> bool:
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
        """Runs all coroutines to their end. Raises Failed, Foreign, or whatever `on_stuck` makes of a deadlock.

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
            if self._choose():
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
            self.finished.add(task.name)
        except Exception as error:
            raise Failed(task.name) from error
        else:
            if yielded is None:  # asyncio.sleep(0): a turn for the others
                self._ready.append(task)
            elif not isinstance(yielded, Signal):
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

    def adopt_current(self, name: int) -> None:
        """Remembers the running asyncio task as the one that steps a coroutine; under our own driver there is none."""
        if name not in self.tasks and (asyncio := sys.modules.get("asyncio")) is not None:
            try:
                self.adopt(name, asyncio.current_task())
            except RuntimeError:  # no loop is running: a sandbox
                return

    def adopt(self, name: int, task: asyncio.Task[Any] | None) -> None:
        """Remembers the asyncio task that steps a coroutine, to know when it ends."""
        if task is not None and self.tasks.get(name) is not task:
            self.tasks[name] = task
            task.add_done_callback(lambda task: self._ended(name, task))

    def _ended(self, name: int, task: asyncio.Task[Any]) -> None:
        self.finished.add(name)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.on_failed(name, error)
        self._moves += 1
        self.watch()

    def watch(self) -> None:
        """Starts ticking until a full pass of the loop has moved nobody."""
        if not self._ticking and self._in_loop:
            import asyncio

            self._ticking = True
            asyncio.get_running_loop().call_soon(self._tick, self._moves)

    def _tick(self, seen: int) -> None:
        self._ticking = False
        if self._waking or self._moves != seen or self._choose():
            self.watch()
        elif self._in_loop and (make := self.on_stuck()) is not None:
            for signal in {signal: None for _, signal in self._in_loop}:
                for future in signal.waiters:
                    if not future.done():
                        self._waking += 1
                        future.set_exception(make())
