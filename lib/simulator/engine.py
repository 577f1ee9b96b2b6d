"""Simulated time without a clock on the wall: coroutines that wait for Signals, and nothing about machine learning.

The life of a wait: a coroutine awaits a Signal; if the signal has fired, it goes on at once; if not, it is parked on
it. Firing a signal makes its waiters ready. Ready coroutines run as far ahead as they can, in any order: what they do
to each other goes through signals only, so the order changes nothing. When none is ready, *choices* are made, the
earliest first: a choice is an action whose outcome depends on what all coroutines did before that moment. When no
choice is left either and a coroutine still waits, that is a deadlock: `parked()` says which waits for what.

As in SimPy there is one kind of thing to wait for, and a second trigger is an error; unlike there, a run that is
blocked does not just return. There are no resources, timeouts or interrupts: ranks need none, and without them no order
of steps can change what happens.

`run` steps the coroutines; for an asyncio loop that does, each as a task, see `running_loop`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

TURNS = 25_000
"""Turns that all tasks together may take while nothing moves and nothing is recorded."""
TURNS_EACH = 1000
"""Further turns for each task that takes turns."""


class Signal:
    """Something that happens once. `subject` is what to report when it never does: itself, or what it was made for.

    Its waiters are coroutines that the engine steps, or whatever `Engine.wake` takes.
    """

    __slots__ = ("_made_for", "fired", "value", "waiters")

    def __init__(self, made_for: Any = None) -> None:
        self._made_for = made_for
        self.fired = False
        self.value: Any = None
        self.waiters: list[Any] = []

    @property
    def subject(self) -> Any:
        """Return what to report. A signal never refers to itself: a run collects no garbage."""
        return self if self._made_for is None else self._made_for


class _Task:
    """A coroutine under our own driver, and the signal that it was last parked on."""

    __slots__ = ("coroutine", "name", "signal")

    def __init__(self, name: int, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.name, self.coroutine = name, coroutine
        self.signal: Signal | None = None


class Foreign(Exception):
    """A coroutine awaited something that is not a Signal, under our own driver."""


class Patience:
    """Counts turns in which nothing moved: the only sign of `while not ready: await asyncio.sleep(0)`.

    A turn may do work without a signal. So when the turns have run out, `progress` gives a number that such work
    changes, and only if it is the same twice in a row is patience exhausted. No clock: the same run always ends at the
    same turn.
    """

    def __init__(self, progress: Callable[[], int]) -> None:
        self._progress = progress
        self.moves = -1
        self._turns = 0
        self._seen: int | None = None

    def exhausted(self, moves: int, tasks: int, turns: int = 1) -> bool:
        """Count turns of one of several tasks; return whether patience has run out. A move renews it."""
        if moves != self.moves:
            self.moves, self._turns, self._seen = moves, 0, None
            return False
        self._turns += turns
        if self._turns <= TURNS + TURNS_EACH * tasks:
            return False
        self._turns = 0
        # Asked rarely, as it goes through all ranks.
        before, self._seen = self._seen, self._progress()
        return before == self._seen


class _OfOne(Exception):
    """Something that happened to one coroutine: `name` says which."""

    def __init__(self, name: int) -> None:
        super().__init__(name)
        self.name = name


class Failed(_OfOne):
    """A coroutine raised: `__cause__` says what."""


class Spinning(_OfOne):
    """A coroutine takes turn after turn, and nothing moves."""


class Halted(BaseException):
    """Stops a coroutine: raised inside it, where no `except Exception` takes it for an error."""


class Engine:
    """Parks coroutines on signals and wakes them.

    `on_stuck` is called when no coroutine can move. It returns a function that makes the error of each waiter, or None
    if something may still move (under asyncio, a task that sleeps). `progress` returns a number that changes with
    whatever coroutines do beside signals.
    """

    def __init__(
        self, on_stuck: Callable[[], Callable[[], BaseException] | None], progress: Callable[[], int] = lambda: 0
    ) -> None:
        self.on_stuck = on_stuck
        self.progress = progress
        # Wakes the waiters of a signal, where another loop steps them.
        self.wake: Callable[[list[Any]], None] | None = None
        # Which coroutine waits for which signal, by what it has yielded, where another loop steps them.
        self.waiting: dict[Any, tuple[int, Signal]] = {}
        # Coroutines that wait for something other than a Signal, as far as known.
        self.elsewhere: list[tuple[int, Signal]] = []
        # Which coroutine runs, where another loop steps them.
        self.who: Callable[[], int | None] | None = None
        self.finished: set[int] = set()
        # Whether the coroutines are stepped here.
        self.driving = False
        # Counts what happens: while it stands still, nothing moves.
        self.moves = 0
        # The last moment at which a choice is made, if there is one.
        self.until: int | None = None
        self._patience = Patience(progress)
        self._own: list[_Task] = []
        self._ready: deque[_Task] = deque()
        self._current: _Task | None = None
        self._choices: list[tuple[int, int, int, Callable[[], None]]] = []
        self._offered = 0

    # -- signals ------------------------------------------------------------------------------------------------

    def fire(self, signal: Signal, value: Any = None) -> None:
        """Let a signal happen. A second time is an error of ours."""
        # A second value would come too late for coroutines that went on with the first.
        assert not signal.fired, "a signal fires once"
        signal.fired = True
        signal.value = value
        self.moves += 1
        waiters = signal.waiters
        if waiters:
            signal.waiters = []
            if self.wake is None:
                self._ready.extend(waiters)
            else:
                self.wake(waiters)

    def parked(self) -> list[tuple[int, Signal]]:
        """Return which coroutine waits for which signal, by name."""
        own = [(task.name, task.signal) for task in self._own if task.signal is not None and not task.signal.fired]
        # By name, as a message lists them; only one of the two is ever in use.
        return own or sorted([*dict.fromkeys(self.waiting.values()), *self.elsewhere], key=lambda item: item[0])

    def running(self) -> int | None:
        """Return the name of the coroutine that runs now, where it is known."""
        if self._current is not None:
            return self._current.name
        return None if self.who is None else self.who()

    def over(self, name: int) -> None:
        """Note that a coroutine, and all tasks that it made, have ended."""
        self.finished.add(name)
        self.moves += 1

    def choose_later(self, time: int, name: int, action: Callable[[], None]) -> None:
        """Schedule an action for when no coroutine can run and no earlier one is left; ties go to the lower name."""
        self._offered += 1  # the last tie-breaker: of one name, the order of offers is the same in every run
        heapq.heappush(self._choices, (time, name, self._offered, action))
        self.moves += 1

    def choose(self) -> bool:
        """Make the earliest choice; return whether there was one."""
        # What comes after a failure does not count, so nothing is chosen there.
        if not self._choices or (self.until is not None and self._choices[0][0] > self.until):
            return False
        heapq.heappop(self._choices)[3]()
        return True

    # -- our own driver -----------------------------------------------------------------------------------------

    def run(
        self, coroutines: Sequence[Coroutine[Any, Any, Any]], order: Callable[[list[int]], Sequence[int]] | None = None
    ) -> None:
        """Run all coroutines to their end. Raises Failed, Foreign, Spinning, or what `on_stuck` makes of a deadlock.

        `order` may permute the coroutines that are ready (their names): tests use it to show that it changes nothing.
        """
        self._own = [_Task(name, coroutine) for name, coroutine in enumerate(coroutines)]
        # First in, first out: none starves, and every run is the same. Any order would do: see `order`.
        self._ready.extend(self._own)
        self.driving = True
        self.go_on(order)
        if self.parked():
            make = self.on_stuck()
            assert make is not None, "under our own driver a coroutine is ready, parked or finished"
            raise make()
        self._own = []  # frees the last signal of each, and all that members brought to it

    def go_on(self, order: Callable[[list[int]], Sequence[int]] | None = None) -> None:
        """Step coroutines until none can move. After a Failed it may be called again, for those that still can."""
        ready, step = self._ready, self._step
        # Choices only when none can run: until then a coroutine may still do something earlier.
        while ready or self.choose():
            if order is not None and len(ready) > 1:
                by_name = {task.name: task for task in ready}
                ready.clear()
                ready.extend([by_name[name] for name in order(sorted(by_name))])
            if ready:
                step(ready.popleft())

    def _step(self, task: _Task) -> None:
        self._current = task
        try:
            yielded = task.coroutine.send(None)
        except (StopIteration, Halted):
            self.over(task.name)
        # Any error at all: KeyboardInterrupt and SystemExit too are reported with a rank and a line.
        except BaseException as error:
            raise Failed(task.name) from error
        else:
            if yielded is None:  # asyncio.sleep(0): a turn for the others
                self._ready.append(task)
                if self._patience.exhausted(self.moves, len(self._ready)) and not self.choose():
                    raise Spinning(min(task.name for task in self._ready))
            elif isinstance(yielded, Signal):
                task.signal = yielded
                yielded.waiters.append(task)
                self.moves += 1
            else:
                raise Foreign(task.name, yielded)
        finally:
            self._current = None
