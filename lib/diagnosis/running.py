"""An explanation: what it may ask of a run that is still going on, and what it answers.

It asks the world of the ranks, and what each has recorded. It answers with a fix, or where the fix is the line that the
run's puzzle asks for, with the idea too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any, NamedTuple, Protocol

from lib.cluster.mesh import Mesh
from lib.errors.exceptions import Fact, PuzzleError
from lib.trace.event import Event, Move
from lib.values.values import Value

__all__ = ["Advice", "Line", "Running", "World", "likely_cause", "line"]


class Line(NamedTuple):
    """A fix that a student is to find: the message names the idea, and `fix()` shows the line."""

    idea: str
    fix: str


Advice = str | Line


class World(Protocol):
    """The world of the ranks of a run. Its engine and its driver know who waits for what, and which task steps whom."""

    failure: PuzzleError | None
    asks: frozenset[str] | None
    """What the puzzle of this run asks for (see `Puzzle.asks`); None where the run has no puzzle."""

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


def line(program: Running | None, asked: str, idea: str, fix: str) -> Advice:
    """A fix that is the answer to some puzzle: shown to a student who has solved that one, and is at another."""
    asks = None if program is None else program.world.asks
    return fix if asks is not None and asked not in asks else Line(idea, fix)


@singledispatch
def likely_cause(fact: Fact, program: Running | None) -> Advice | None:
    """Return the likely reason for a broken rule, None where nothing tells it. A fact of which anybody knows more has
    a function of its own (see `lib.diagnosis.causes`)."""
    return None
