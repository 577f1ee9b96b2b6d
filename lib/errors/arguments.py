"""What a student's call hands in: whole numbers as plain ints, and names of the world that nobody sets.

A number may come as numpy's, as a bool, or as a class of the student's own that calls itself equal to everything. Only
plain ints go further: the rules compare them, and a Trace keeps them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any, ClassVar, cast

from lib.errors.exceptions import PuzzleError, RuleError


def is_awaitable(thing: object) -> bool:
    """Tell whether a thing wants to be awaited: the usual reason why it is not the value that it should be."""
    return hasattr(type(thing), "__await__")


def plain(item: Any) -> Any:
    """Return a whole number of any class as a plain int; anything else as it is, for the rules to refuse."""
    if type(item) is int:
        return item
    try:
        return index(item)
    except TypeError:
        return item


def name_of(item: Any) -> Any:
    """Return a str of any class as a plain str; anything else as it is."""
    return str.__str__(item) if isinstance(item, str) else item


def written(item: object) -> str:
    """Return a thing as a message shows it: Python refuses to write very long numbers."""
    if type(item) is int and item.bit_length() > 100:
        return f"{'-' if item < 0 else ''}2**{item.bit_length() - 1} or more"
    return repr(item)


class Given:
    """Something with names that are given with it: everybody reads them, and only its __init__ sets them.

    `given` has what each of them is, and what to do instead of setting it. The first is set last: then it is made.
    """

    __slots__ = ()
    given: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def __setattr__(self, name: str, value: object) -> None:
        made = name in self.given and hasattr(self, next(iter(self.given)))
        # `model.weights |= {...}` changes the store, and then sets it to itself.
        if made and not (isinstance(value, dict) and getattr(self, name, None) is value):
            raise self._fixed(name, "set")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.given:
            raise self._fixed(name, "deleted")
        object.__delattr__(self, name)

    def _fixed(self, name: str, done: str) -> PuzzleError:
        what, instead = self.given[name]
        said = f"{type(self).__name__.lower()}.{name} cannot be {done}: it is {what}"
        return RuleError(said, expected="a name that is only read", fix=instead).here()


def described(thing: object, describe: Callable[[object], str]) -> str:
    """Describe in few words what stands where a value belongs. `describe` has words for what is in a list."""
    if isinstance(thing, int | float) and not isinstance(thing, bool):
        return f"the number {written(thing)}"
    if isinstance(thing, tuple | list):
        items, name = cast("Sequence[object]", thing), "tuple" if isinstance(thing, tuple) else "list"
        inside = "; ".join(describe(item) for item in items[:3]) + ("; ..." if len(items) > 3 else "")
        return f"a {name} of {len(items)}" + (f": {inside}" if items else "")
    if isinstance(thing, dict):
        name = getattr(cast("object", thing), "name", None)
        return "a whole dict" if name is None else f"the whole store {name}"
    if callable(thing) and (called := getattr(thing, "__name__", None)) is not None:
        return f"{called} itself, which is not called"
    if hasattr(type(thing), "__await__"):
        return f"what {getattr(thing, '__name__', 'a call')} returned, which is not awaited"
    text = re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(thing))  # no two runs have the same addresses
    return text if thing is None else f"{type(thing).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
