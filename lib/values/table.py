"""Tables: rows by their names, which nobody adds to or takes from; of some the rows are read when first asked for."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

R = TypeVar("R")


def table(rows: Iterable[R], by: str = "name") -> Mapping[str, R]:
    """Return the rows by their names, in their order."""
    return MappingProxyType({getattr(row, by): row for row in rows})


class Lazy(Mapping[str, R]):
    """A table that `read` gives when something asks for a row, so that importing it costs nothing. A name that it has
    not is a ValueError, and `missing` says so, given the name and all rows."""

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
