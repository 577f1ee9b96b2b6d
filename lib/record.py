"""record: a class of named fields that never change, like `dataclass(frozen=True)` at a fifth of its price.

The classes that a run imports are records: `dataclasses` loads `inspect`, and compiles six methods for each class,
which was half the time of `from lib import Model`. Here a class gets its own `__init__` and shares the rest. Everything
else sees a record as a dataclass: `fields`, `asdict` and `replace` take it, and a dataclass may be derived from it.

Also tables of records: rows by their names, never added to or removed; some tables read their rows on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar, cast, dataclass_transform

R = TypeVar("R")
_set = object.__setattr__


@dataclass_transform(frozen_default=True)
def record(*, frozen: bool = True, eq: bool = True, slots: bool = True) -> Callable[[type[R]], type[R]]:
    """Make a class into a record: its annotations are the fields, in their order, with defaults as in a dataclass.

    Without `eq` each object equals only itself. A class with its own `__init__` keeps it, and sets its fields with
    `object.__setattr__`; other classes run `__post_init__` last, where there is one.

    >>> @record()
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0), replace(Point(1), y=2)
    (Point(x=1, y=0), True, Point(x=1, y=2))
    """

    def make(cls: Any) -> Any:
        own = {name: said for name, said in cls.__annotations__.items() if "ClassVar" not in str(said)}
        names = tuple(dict.fromkeys((*getattr(cls, "__match_args__", ()), *own)))
        usual = {name: getattr(cls, name) for name in names if hasattr(cls, name)}
        new: dict[str, Any] = {"__match_args__": names, "__replace__": replace}
        if "__init__" not in vars(cls):
            new["__init__"] = _Init(cls, names, usual, frozen)
        if frozen:
            new |= {"__setattr__": _refuse, "__delattr__": _refuse}
        if eq:
            fields: Any = attrgetter(*names)

            def equal(self: Any, other: object) -> bool:
                return fields(self) == fields(other) if type(other) is type(self) else NotImplemented

            def hashed(self: Any) -> int:
                return hash(fields(self))

            new |= {"__eq__": equal, "__hash__": hashed if frozen else None}
            new["__repr__"] = cls.__repr__ if "__repr__" in vars(cls) else _repr
        if slots:  # needs a new class: in this one the defaults have the names of the slots
            new |= {"__slots__": tuple(own), "__getstate__": _state, "__setstate__": _restore}
            without = {"__dict__", "__weakref__", *own}
            held = cast("dict[str, Any]", vars(cls))
            rest: dict[str, Any] = {name: item for name, item in held.items() if name not in without}
            cls = type(cls)(cls.__name__, cls.__bases__, rest | new)
        else:
            for name, item in new.items():
                setattr(cls, name, item)
        for name in ("__dataclass_fields__", "__dataclass_params__"):
            setattr(cls, name, _Dataclass(cls, name, usual, frozen))
        return cls

    return make


def replace(thing: R, /, **changes: Any) -> R:
    """Return the same record with other values in some fields, as `dataclasses.replace` does."""
    known: Any = thing
    return type(thing)(**{name: getattr(known, name) for name in known.__match_args__} | changes)


class _Init:
    """The `__init__` of a class until its first use, when it is compiled: half of the imported classes are never
    made."""

    def __init__(self, *said: Any) -> None:
        self.said = said

    def __get__(self, thing: object, owner: type) -> Any:
        cls: Any = next(base for base in owner.__mro__ if vars(base).get("__init__") is self)
        cls.__init__ = _init(*self.said)
        return cls.__init__.__get__(thing, owner)


def _init(cls: Any, names: tuple[str, ...], usual: dict[str, Any], frozen: bool) -> Any:
    """Return the `__init__` of a class, written out and compiled: a run makes a million Events."""
    said = ", ".join([f"{name}=usual[{name!r}]" if name in usual else name for name in names])
    lines = [f"_set(self, {name!r}, {name})" if frozen else f"self.{name} = {name}" for name in names]
    lines += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    space: dict[str, Any] = {"usual": usual, "_set": _set}
    exec(f"def __init__(self, {said}):\n " + "\n ".join(lines), space)  # `compile` would make all classes of ast first
    init = space["__init__"]
    init.__code__ = init.__code__.replace(co_filename=__file__)  # our code, not a student's
    init.__qualname__ = f"{cls.__qualname__}.__init__"  # for the error about a missing argument
    return init


def _refuse(self: object, name: str, *value: object) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _repr(self: Any) -> str:
    said = [f"{name}={getattr(self, name)!r}" for name in self.__match_args__]
    return f"{type(self).__qualname__}({', '.join(said)})"


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__slots__]


def _restore(self: Any, state: list[Any]) -> None:
    for name, item in zip(self.__slots__, state, strict=True):
        _set(self, name, item)


class _Dataclass:
    """An attribute that `dataclasses` looks for in its classes, made by that module on first use."""

    def __init__(self, cls: Any, name: str, usual: dict[str, Any], frozen: bool) -> None:
        self.cls, self.name, self.usual, self.frozen = cls, name, usual, frozen

    def __get__(self, thing: object, owner: object) -> Any:
        from dataclasses import make_dataclass
        from inspect import get_annotations

        cls, usual = self.cls, self.usual
        types = {name: said for base in cls.__mro__[::-1] for name, said in get_annotations(base).items()}
        fields = [(name, types[name], *([usual[name]] if name in usual else ())) for name in cls.__match_args__]
        twin: Any = make_dataclass(cls.__name__, fields, frozen=self.frozen)
        cls.__dataclass_fields__, cls.__dataclass_params__ = twin.__dataclass_fields__, twin.__dataclass_params__
        return getattr(cls, self.name)


# -- tables -------------------------------------------------------------------------------------------------------


def table(rows: Iterable[R], by: str = "name") -> Mapping[str, R]:
    """Return the rows by their names, in their order."""
    return MappingProxyType({getattr(row, by): row for row in rows})


class Lazy(Mapping[str, R]):
    """A table that `read` loads when a row is first asked for, so that importing it costs nothing. An unknown name
    raises ValueError with the words of `missing`, which is given the name and all rows."""

    def __init__(self, read: Callable[[], Mapping[str, R]], missing: Callable[[Any, Mapping[str, R]], str]) -> None:
        self._read, self._missing = read, missing

    def __getitem__(self, key: str) -> R:
        rows = self._read()
        if not isinstance(key, str) or key not in rows:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(self._missing(key, rows))
        return rows[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __contains__(self, key: object) -> bool:
        return key in self._read()
