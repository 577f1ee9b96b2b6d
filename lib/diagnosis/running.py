"""What an explanation may ask of a run that is still going on: the world of the ranks, and what each has recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from lib.cluster.mesh import Mesh
from lib.errors.exceptions import PuzzleError
from lib.trace.event import Event, Move
from lib.values.values import Value

__all__ = ["Running", "World"]


class World(Protocol):
    """What all ranks of one run share. Its engine and its driver know who waits for what, and which task steps whom."""

    failure: PuzzleError | None

    @property
    def ranks(self) -> int: ...
    @property
    def mesh(self) -> Mesh | None: ...
    @property
    def engine(self) -> Any: ...
    @property
    def driver(self) -> Any: ...
    @property
    def models(self) -> Mapping[int, Any]: ...

    def so_far(self, error: str) -> Any:
        """The Trace up to now."""
        ...

    def unread(self) -> list[tuple[int, int, Event]]:
        """The messages that nobody has received: who passed them to whom, and the event."""
        ...


class Running(Protocol):
    """The program of a rank while it runs."""

    @property
    def rank(self) -> int: ...
    @property
    def events(self) -> Sequence[Event]: ...
    @property
    def values(self) -> Sequence[Value | None]: ...
    @property
    def moves(self) -> Sequence[Move]: ...
    @property
    def world(self) -> World: ...
