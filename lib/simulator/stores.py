"""The five stores of a rank: dictionaries with the student's own keys, which record what enters and leaves.

They model a GPU's memory. A real allocator rounds sizes up and fragments; here a value takes its elements, and memory
is what the stores hold, plus what is in use outside them (see `lib.trace.lifetimes`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any, TypeVar, cast

from lib.errors.exceptions import AbsentKey, PuzzleError, RuleError
from lib.errors.source_lines import GIVEN, Place, resolve
from lib.errors.wording import is_awaitable, shown, with_article
from lib.simulator.recorder import REPLACED, Recorder
from lib.trace.event import STORES
from lib.values import facts
from lib.values.values import KINDS, Value

T = TypeVar("T", bound=Value)
_MISSING: Any = object()
# Calling setdefault takes half the time of the slot behind `d[key] = value`, but it replaces nothing.
_dict: Any = dict
_put, _take, _replace, _clear = _dict.setdefault, _dict.pop, _dict.__setitem__, _dict.clear
_frame = sys._getframe  # pyright: ignore[reportPrivateUsage]
_HERE = globals()
# The kind of value that each store is for, in the order of the stores.
_KINDS = tuple(KINDS.values())


class Store(dict[Any, T]):
    """A dictionary of values. All that enters or leaves is recorded in the rank's program."""

    __slots__ = ("_index", "_out", "_program")

    def __init__(self, program: Recorder, index: int) -> None:
        # The way in and the way out (see `Recorder`).
        self._program, self._index, self._out = program, index, ~index

    @property
    def name(self) -> str:
        """Return the name of the store: weights, opt_states, ..."""
        return STORES[self._index]

    def __setitem__(self, key: Any, value: T) -> None:
        program = self._program
        try:
            number = value.number if value.home is program else self._adopt(key, value)
        except AttributeError:
            raise self._refuse(key, value) from None
        moved = program.moved
        if key not in self:
            moved.append(number)
            moved.append(self._index)
            _put(self, key, value)
        else:
            held = self[key]
            gone = held.number if held.home is program else program.id(held)
            moved += gone, self._index + REPLACED, number
            _replace(self, key, value)
        if len(moved) > program.many_moved:
            program.count_moves()

    def _adopt(self, key: Any, value: T) -> int:
        """Return the id of a value that was not made on this rank."""
        if not isinstance(value, Value):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._refuse(key, value)
        try:
            return self._program.id(value)
        except PuzzleError as error:
            raise self._program.blame(error) from None

    def __delitem__(self, key: Any) -> None:
        value = _take(self, key, _MISSING)
        if value is _MISSING:
            raise self._absent(key, deleting=True)
        program, frame = self._program, _frame(1)
        while frame.f_globals is _HERE and frame.f_back is not None:  # clear and popitem come this way too
            frame = frame.f_back
        instruction = program.common(frame.f_lasti, frame.f_lasti)
        program.moved += program.id(value), self._out, key, frame.f_code, instruction
        if not self:
            _clear(self)

    def __missing__(self, key: Any) -> T:
        raise self._absent(key)

    def pop(self, key: Any, default: Any = _MISSING) -> Any:
        value = _take(self, key, _MISSING)
        if value is _MISSING:
            if default is _MISSING:
                raise self._absent(key)
            return default
        # What `del` does, inlined: most values of a run leave this way.
        program, frame = self._program, _frame(1)
        number = value.number if value.home is program else program.id(value)
        moved, instruction = program.moved, frame.f_lasti
        if program.shared is not None:
            instruction = program.common(instruction, instruction)
            if not self:
                _clear(self)  # the table of an empty dict is 160 bytes, and most stores of most ranks end empty
        moved += number, self._out, key, frame.f_code, instruction
        return value

    def popitem(self) -> tuple[Any, T]:
        # The last one, as a dict's own does, but through `del`, which records it.
        key = next(reversed(self), None)
        value = self[key]
        del self[key]
        return key, value

    def clear(self) -> None:
        for key in list(self):
            del self[key]

    def setdefault(self, key: Any, default: Any = None) -> T:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, other: Any = (), /, **more: T) -> None:
        pairs: Any = cast("Mapping[Any, T]", other).items() if isinstance(other, Mapping) else other
        for key, value in (*pairs, *more.items()):
            self[key] = value

    def __ior__(self, other: Any) -> Store[T]:  # type: ignore[override]
        self.update(other)
        return self

    def __reduce__(self) -> Any:
        # A copy is a plain dict: it belongs to no rank, and takes no memory there.
        return dict, (dict(self),)

    def __repr__(self) -> str:
        """Return a line for each value, as `model.status()` prints them."""
        lines = [f"{self.name}[{shown(key)}]: {value}" for key, value in self.items()]
        return "\n".join(lines) if lines else f"{self.name} is empty"

    def deleted(self) -> Iterator[tuple[Any, int, Place | None]]:
        """Yield each deleted key, the id of its value, and the line that deleted it."""
        for key, (number, code, instruction) in self._program.taken(self._out).items():
            yield key, number, resolve(code, instruction)

    def _absent(self, key: Any, deleting: bool = False) -> AbsentKey:
        name, gone, other = f"{self.name}[{shown(key)}]", self._program.taken(self._out).get(key), _similar(key, self)
        fix = f"store a value under this key first: {name} = ..."
        if gone is not None and (found := resolve(*gone[1:])) is not None:
            fix = f"it was deleted in line {found.line} ({found.text}): "
            fix += "leave one of the two out" if deleting else "delete it after its last use"
            fix = f"{found.function}(...) has used it up: call it later, or only once" if found.file in GIVEN else fix
        elif other is not None:
            fix = f"did you mean {self.name}[{shown(other)}]?"
        elif self:
            fix += "\nor use the key under which it was stored"
        wanted = f"{with_article(_KINDS[self._index].kind)} under this key"
        error = AbsentKey(f"{name} is empty", expected=wanted, held=list(self), rank=self._program.rank, fix=fix)
        if gone is not None and not deleting:
            error.fact = facts.Deleted(self._index, key, gone[0], fix)
        elif gone is None and other is None:
            error.fact = facts.Missing(self._index, key)
        return self._program.blame(error)

    def _refuse(self, key: Any, value: Any) -> PuzzleError:
        name, wanted = f"{self.name}[{shown(key)}]", with_article(_KINDS[self._index].kind)
        if is_awaitable(value):
            from lib.errors.exceptions import forgotten_await  # here and not above: only a mistake needs it

            error = forgotten_await(f"{name} was given the call itself, not its result", wanted, value)
            return self._program.blame(error)
        return self._program.blame(RuleError(facts.NotStored(name, _KINDS[self._index], value)))


def _with_own_code() -> type[Store[Any]]:
    """Return the class of a store that has its own copy of what is called for each value.

    Python remembers at each place of a function which class it met there, and reads a field of a value of that class in
    a tenth of the time. One function for all stores would meet another class with nearly every call.
    """
    functions: list[Any] = [Store.__setitem__, Store.pop]  # pyright: ignore[reportUnknownMemberType]
    own = {f.__name__: FunctionType(f.__code__.replace(), _HERE, f.__name__, f.__defaults__) for f in functions}
    return type("Store", (Store,), {"__slots__": (), **own})


STORE_CLASSES = tuple(_with_own_code() for _ in STORES)
"""The classes of the five stores, which behave alike."""


def _similar(key: Any, held: Mapping[Any, Any]) -> Any:
    """Return a key in use with the same parts in another order."""

    def parts(one: Any) -> list[str] | None:
        return sorted(map(repr, cast("tuple[Any, ...]", one))) if isinstance(one, tuple) else None

    # If its first part alone is a key, a part was left out, and none is in the wrong place.
    return next((other for other in held if parts(other) == parts(key) is not None and key[0] not in held), None)
