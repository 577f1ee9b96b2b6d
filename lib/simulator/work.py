"""Work: a communication under way, from the call that issued it to the await that brings its result."""

from __future__ import annotations

import gc
from collections import OrderedDict, defaultdict, deque
from collections.abc import Generator
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from lib.errors.exceptions import ForgottenAwait, RuleError
from lib.errors.forgotten_await import put_await
from lib.errors.source_lines import Place, student_place
from lib.simulator.engine import Signal
from lib.simulator.recorder import Recorder
from lib.trace.event import NO_BATCHES, Event, place_of
from lib.values.laws import renew
from lib.values.rules import need
from lib.values.values import Value, clean, definite, describe

if TYPE_CHECKING:
    from lib.simulator.model import Model

__all__ = ["Work", "copy_message"]

T = TypeVar("T")


class Work(Generic[T]):
    """A communication under way. Calling issued it; `await` waits for it and brings its result.

    Awaiting again brings the same result again. Everything else that one might do with the result fails with a
    reminder of the missing `await`.
    """

    __slots__ = ("_event", "_index", "_model", "_moves", "_place", "_result", "_signal")

    def __init__(self, model: Model, event: Event, signal: Signal, place: int | None = None) -> None:
        program = model.program
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
        if isinstance(result, Value):
            event.outputs = (program.new(result),)
        elif isinstance(result, Parcel):
            event.outputs = tuple(map(program.new, result.values))
            result = result.thing
        elif result is not None:
            event.outputs = tuple(map(program.new, result))
        end = cast(int, event.start) + event.length  # it has happened, so it has a start
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


class Parcel(NamedTuple):
    """A message that is more than one value: what arrives, and the values in it, in their order."""

    thing: Any
    values: list[Value]


def copy_message(item: Any) -> tuple[Parcel, list[Value]]:
    """What arrives when an object is sent, and which values are sent with it.

    Values arrive anew, in lists, tuples (those with names too), dicts and their like, which are copied; what is there
    twice is sent once. Anything else arrives as it is, and RuleError says so where it has a value in it: on the other
    side that would still be the sender's.
    """
    sent: list[Value] = []
    parcel = Parcel(None, [])
    copies: dict[int, Any] = {}

    def copied(part: Any) -> Any:
        if id(part) not in copies:
            copies[id(part)] = anew(part)
        return copies[id(part)]

    def anew(part: Any) -> Any:
        kind = cast("type[Any]", type(part))
        if isinstance(part, Value):
            sent.append(part)
            parcel.values.append(clean(part) if part.mark is None else renew(part))
            return parcel.values[-1]
        # Only Python's own classes are asked for what is in them: one made from them may answer anything.
        if kind in (list, deque):
            copies[id(part)] = items = deque[Any](maxlen=part.maxlen) if kind is deque else list[Any]()
            items.extend([copied(inner) for inner in part])
            return items
        if kind in (dict, OrderedDict, defaultdict):
            pairs = defaultdict[Any, Any](part.default_factory) if kind is defaultdict else cast("Any", kind)()
            copies[id(part)] = pairs
            pairs.update([(copied(key), copied(inner)) for key, inner in part.items()])
            return pairs
        if kind is tuple or _is_named_tuple(kind):
            return _tuple.__new__(kind, [copied(inner) for inner in _tuple.__iter__(part)])
        held = _held(part)
        if held is not None:
            name = kind.__name__
            value = need(Value, held, "value given to pass_to", "pass_to")
            raise RuleError(
                f"pass_to was given a {name} with a value in it, which would not arrive",
                expected="values travel in lists, tuples and dicts",
                got=f"a {name} that holds {definite(describe(value))}",
                fix="send the value itself, or a list, a tuple or a dict of what is to arrive",
            )
        return part

    try:
        return parcel._replace(thing=copied(item)), sent
    except RecursionError:
        raise RuleError(
            "pass_to was given something that is nested too deeply",
            expected="a value, or lists, tuples and dicts of values",
            fix="send its parts, each in a message of its own",
        ) from None


_tuple: Any = tuple
CODE = (type, ModuleType, FunctionType, CodeType, FrameType)
"""What leads to all that there is, and has no values of its own."""
MOST_LOOKED_AT = 10**5


def _is_named_tuple(kind: Any) -> bool:
    """Whether a class is a NamedTuple, with nothing beside its items."""
    return issubclass(kind, _tuple) and hasattr(kind, "_fields") and not kind.__dictoffset__


def _held(thing: object) -> object:
    """A value in an object of any other class, or in what that holds, or one that was not awaited; None where there is
    none. None of its methods are called."""
    seen, queue = {id(thing)}, [thing] if gc.is_tracked(thing) else []
    for part in queue:
        if isinstance(part, Value | Work):
            return cast("object", part)
        if len(queue) < MOST_LOOKED_AT and not isinstance(part, CODE):
            new = {id(inner): inner for inner in gc.get_referents(part) if gc.is_tracked(inner)}
            queue.extend(inner for number, inner in new.items() if number not in seen)
            seen |= new.keys()
    return None
