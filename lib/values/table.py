"""A table: rows by their names, which nobody adds to or takes from."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

R = TypeVar("R")


def table(rows: Iterable[R], by: str = "name") -> Mapping[str, R]:
    """The rows by their names, in their order."""
    return MappingProxyType({getattr(row, by): row for row in rows})
