"""The five stores of a rank: dictionaries under the student's own keys that know what enters and leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from .errors import AbsentKey, ForgottenAwait, PuzzleError, RuleError, is_awaitable
from .program import STORES, Program
from .values import Value, describe

__all__ = ["Store"]

T = TypeVar("T", bound=Value)
_MISSING: Any = object()
_set = cast("Callable[[Any, Any, Any], None]", dict.__setitem__)  # pyright: ignore[reportUnknownMemberType]
_delete = cast("Callable[[Any, Any], None]", dict.__delitem__)  # pyright: ignore[reportUnknownMemberType]


class Store(dict[Any, T]):
    """A dictionary of values. Whatever puts a value in or takes one out is told to the rank's program."""

    __slots__ = ("_index", "_program")

    def __init__(self, program: Program, index: int) -> None:
        super().__init__()
        self._program = program
        self._index = index

    @property
    def name(self) -> str:
        """What the store is called: weights, opt_states, ..."""
        return STORES[self._index]

    def __setitem__(self, key: Any, value: T) -> None:
        program = self._program
        try:
            mark = value.mark
        except AttributeError:
            raise self._refuse(key, value) from None
        number = mark[1] if mark is not None and mark[0] is program else self._adopt(key, value)
        moves, position = program.moves, len(program.events)
        if key in self:
            moves.append((position, self._index, self._id(self[key]), -1))
        moves.append((position, self._index, number, 1))
        if len(moves) > 4 * program.budget:
            raise program.too_many_moves()
        _set(self, key, value)

    def _adopt(self, key: Any, value: T) -> int:
        """The id of a value that was not made on this rank."""
        if not isinstance(value, Value):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._refuse(key, value)
        try:
            return self._program.id(value)
        except PuzzleError as error:
            raise self._program.blame(error) from None

    def _id(self, value: T) -> int:
        """The id of a value that is in the store, so that this rank knows it."""
        program, mark = self._program, value.mark
        return mark[1] if mark is not None and mark[0] is program else program.id(value)

    def __delitem__(self, key: Any) -> None:
        program = self._program
        program.moves.append((len(program.events), self._index, self._id(self[key]), -1))
        _delete(self, key)

    def __missing__(self, key: Any) -> T:
        raise self._absent(key)

    def pop(self, key: Any, default: Any = _MISSING) -> Any:
        if key not in self and default is not _MISSING:
            return default
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[Any, T]:
        key = next(reversed(self), None)  # a missing last key is refused by pop, as a KeyError
        return key, self.pop(key)

    def clear(self) -> None:
        for key in list(self):
            del self[key]

    def setdefault(self, key: Any, default: Any = None) -> T:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, other: Any = (), /, **more: T) -> None:
        pairs = (
            cast("Mapping[Any, T]", other).items()
            if isinstance(other, Mapping)
            else cast("Iterable[tuple[Any, T]]", other)
        )
        for key, value in pairs:
            self[key] = value
        for key, value in more.items():
            self[key] = value

    def __ior__(self, other: Any) -> Store[T]:  # type: ignore[override]
        self.update(other)
        return self

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def _absent(self, key: Any) -> AbsentKey:
        return AbsentKey(f"{self.name}[{key!r}] is empty", held=list(self), rank=self._program.rank)

    def _refuse(self, key: Any, value: Any) -> RuleError | ForgottenAwait:
        if is_awaitable(value):
            error: RuleError | ForgottenAwait = ForgottenAwait(
                f"{self.name}[{key!r}] was given a communication that nobody waited for",
                expected="the value that the communication brings",
                got="a Work: what a communication returns until it is awaited",
                fix="did you forget `await`?\n"
                f"incorrect:  {self.name}[{key!r}] = model.allgather(...)\n"
                f"correct:    {self.name}[{key!r}] = await model.allgather(...)",
            )
        else:
            error = RuleError(
                f"{self.name}[{key!r}] was given something that is not a value",
                expected="a weight, optimizer state, activation or gradient",
                got=describe(value),
                fix="operations that give two results need two names: weights[l], opt_states[l] = model.load_weights(l)"
                if isinstance(value, tuple)
                else "a store holds one value under each key",
            )
        return self._program.blame(error)
