"""A table of rows by name, and the sets of names that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

__all__ = ["Table"]


class Row(Protocol):
    """Whatever has a name."""

    @property
    def name(self) -> str: ...


R = TypeVar("R", bound=Row)


class Table(dict[str, R], Generic[R]):
    """Rows by name. Whoever needs the names of some rows asks for a set of them, which a row that is added later, or
    taken out, enters and leaves: nobody has a copy that could be older than the table.

    Rows come and go as items: `table[name] = row` and `del table[name]`.
    """

    def __init__(self, rows: Iterable[R]) -> None:
        super().__init__({row.name: row for row in rows})
        self._followers: list[tuple[set[str], Callable[[R], bool]]] = []

    def names(self, holds: Callable[[R], bool], into: set[str] | None = None) -> set[str]:
        """The names of the rows of which something holds, now and later. `into` adds them to those of another table."""
        found: set[str] = set() if into is None else into
        self._followers.append((found, holds))
        found.update(name for name, row in self.items() if holds(row))
        return found

    def __setitem__(self, name: str, row: R) -> None:
        super().__setitem__(name, row)
        for names, holds in self._followers:
            names.discard(name)
            if holds(row):
                names.add(name)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        for names, _ in self._followers:
            names.discard(name)
