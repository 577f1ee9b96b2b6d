"""What a student's call hands in: whole numbers as plain ints, and names of the world that nobody sets.

A number may come as numpy's, as a bool, or as a class of the student's own that calls itself equal to everything. Only
plain ints go further: the rules compare them, and a Trace keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any, ClassVar

from lib.errors.exceptions import PuzzleError, RuleError
from lib.errors.source_lines import student_place

__all__ = ["Given", "is_awaitable", "name_of", "plain", "written"]


def is_awaitable(thing: object) -> bool:
    """Whether a thing wants to be awaited: the usual reason why it is not the value that it should be."""
    return hasattr(type(thing), "__await__")


def plain(item: Any) -> Any:
    """A whole number of any class as a plain int; anything else as it is, for the rules to refuse."""
    if type(item) is int:
        return item
    try:
        return index(item)
    except TypeError:
        return item


def name_of(item: Any) -> Any:
    """A str of any class as a plain str; anything else as it is."""
    return str.__str__(item) if isinstance(item, str) else item


def written(item: object) -> str:
    """A thing as a message shows it: Python refuses to write very long numbers, and nobody wants to read them."""
    if type(item) is int and item.bit_length() > 100:
        return f"{'-' if item < 0 else ''}2**{item.bit_length() - 1} or more"
    return repr(item)


class Given:
    """Something with names that are given with it: everybody reads them, and only its __init__ sets them.

    `given` has what each of them is, and what to do instead of setting it.
    """

    __slots__ = ()
    given: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def _give(self, **values: object) -> None:
        """Sets names that nobody else sets: what __init__ does."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.given:
            raise self._fixed(name, "set")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.given:
            raise self._fixed(name, "deleted")
        object.__delattr__(self, name)

    def _fixed(self, name: str, done: str) -> PuzzleError:
        what, instead = self.given[name]
        error = RuleError(
            f"{type(self).__name__.lower()}.{name} cannot be {done}: it is {what}",
            expected="a name that is only read",
            fix=instead,
        )
        if (where := student_place()) is not None:
            error.where.append((None, where))
        return error
