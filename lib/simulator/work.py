"""Work: a communication under way, from the call that issued it to the await that brings its result."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lib.errors.exceptions import ForgottenAwait
from lib.errors.forgotten_await import put_await
from lib.errors.source_lines import Place, student_place
from lib.simulator.engine import Signal
from lib.simulator.recorder import Recorder
from lib.simulator.traffic.parcel import Parcel
from lib.trace.event import NO_BATCHES, Event, place_of
from lib.values.values import Value

if TYPE_CHECKING:
    from lib.simulator.model import Model

__all__ = ["Work"]

T = TypeVar("T")


class Work(Generic[T]):
    """A communication under way. Calling issued it; `await` waits for it and brings its result.

    Awaiting again brings the same result again. Everything else that one might do with the result fails with a
    reminder of the missing `await`.
    """

    __slots__ = ("_event", "_index", "_model", "_moves", "_place", "_result", "_signal")

    def __init__(self, model: Model, event: Event, signal: Signal, place: int | None = None) -> None:
        try:
            program = model.program
        except AttributeError:
            raise ValueError(
                f"a Work is what an operation of a Model gives; nobody else makes one; got {model!r}"
            ) from None
        self._model: Model | None = model
        self._event = event
        self._signal = signal
        self._place = place  # in the group, for a collective: its signal brings one result for each member
        self._index = len(program.events)
        self._moves = len(program.moves)
        self._result: Any = None

    def __await__(self) -> Generator[Any, None, T]:
        """Waits until it has happened: the one place that yields to whoever drives the coroutines."""
        model = self._model
        if model is not None:
            signal = self._signal
            engine = model.dist.engine
            if not engine.driving:
                yield from model.dist.driver.wait(signal, model.rank, self._event, self._index)
            elif not signal.fired:
                yield engine.park(signal)
            if self._model is not None:  # else somebody else awaited it while this one waited
                self._model = None
                value, place = signal.value, self._place
                self._result = self._finish(model.program, value if place is None else value[place])
        return self._result

    def _finish(self, program: Recorder, result: Any) -> Any:
        event = self._event
        if result is None:
            pass
        elif isinstance(result, Value):
            event.outputs = (program.new(result),)
        elif isinstance(result, Parcel):
            event.outputs = tuple(map(program.new, result.values))
            result = result.thing
        else:
            event.outputs = tuple(map(program.new, result))
        start: Any = event.start  # it has happened, so it has one
        end = start + event.length
        if len(program.events) == self._index and len(program.moves) == self._moves:
            event.blocking = True
        else:
            wait = program.record("wait", event.layer, NO_BATCHES, (), (), event.source, arg=(self._index - 1,))
            wait.length = max(0, end - program.clock)
        if end > program.clock:
            program.clock = end
        return result

    def issued(self) -> tuple[str, Place | None]:
        """The operation whose call made it, and where that stands."""
        return self._event.op, place_of(self._event)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        call, where = self.issued()
        here = student_place()
        fix = f"await it first, on a line of its own: result = await model.{call}(...)"
        if where is not None and here is not None and where.line != here.line:
            fix = f"{put_await(call, where)}\nor await it first, where it is used: result = await work"
        error = ForgottenAwait(
            "a call that was not awaited was used as a value"
            if name == "a value"
            else f"`.{name}` was asked of a call that was not awaited",
            expected=f"the result of model.{call}",
            got=f"a call of model.{call}, not awaited yet",
            fix=fix,
        )
        if self._model is not None:
            error.at(self._model.rank)
        raise error

    def _forgotten(self, *_: object) -> Any:
        return self.__getattr__("a value")

    # What one does with a result, at once refused: unpacking it, adding it, asking for its parts.
    __iter__ = __len__ = __getitem__ = __add__ = __radd__ = _forgotten

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<{self._event.op}, to be awaited>"
