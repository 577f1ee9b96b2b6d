"""The Trace: one run as plain data, and all that anything else reads. Save it, load it, print it, parse it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Protocol, cast

from .costs import Costs
from .errors import Place, resolve
from .memory import Lifetimes, lifetimes
from .mesh import Mesh
from .program import COLLECTIVE, COMMUNICATION, COMPUTE, STORES, TIMED, Event, Move, Program, Run

if TYPE_CHECKING:
    from pathlib import Path

# Files and text are read and written by modules that a run does not need: they are imported when somebody asks, so
# that `import lib` stays quick.

__all__ = ["COLLECTIVE", "COMMUNICATION", "COMPUTE", "STORES", "TIMED", "Event", "Move", "Program", "Trace", "absent"]


def absent(models: object) -> str | None:
    """Why there is no run in what simulate was to return: it is not solved, or it failed. None where there is one."""
    if not isinstance(models, list) or models:
        return None
    stub: str | None = getattr(cast("object", models), "puzzle", None)
    return "No run: simulate(...) has not come to its end" if stub is None else f"Not solved yet: {stub}"


class _World(Protocol):
    costs: Costs
    mesh: Mesh | None
    ranks: int
    sandbox: bool

    @property
    def shape(self) -> tuple[int, int]: ...


class Desk(Protocol):
    """What a Trace wants to know of a Model."""

    rank: int
    program: Program

    @property
    def dist(self) -> _World: ...


@dataclass
class Trace(Run):
    """One run: its size, its costs, and a program for each rank. `error` is the message of a run that failed."""

    _places: dict[tuple[CodeType, int], Place | None] = field(
        default_factory=dict[tuple[CodeType, int], Place | None], repr=False, compare=False
    )
    _lives: tuple[list[tuple[int, int]], list[Lifetimes]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, models: Sequence[Desk], error: str | None = None) -> Trace:
        """The Trace of a run's Models, in any order; a rank without a Model has an empty program.

        ValueError where there are none, or two of one rank, or they are not of one world.
        """
        if not models:
            raise ValueError("a Trace needs at least one Model; got none")
        # Sizes are those of the world: a Model is a student's, who may have written another class of it.
        world = models[0].dist
        programs = {model.rank: model.program for model in models}
        if len(programs) != len(models) or any(model.dist is not world for model in models):
            raise ValueError("the Models of one run have one Dist and different ranks; these do not")
        every = [programs.get(rank) or Program(rank) for rank in range(world.ranks)]
        return cls(*world.shape, every, world.costs, world.mesh, world.sandbox, error=error)

    def place(self, event: Event) -> Place | None:
        """The student's source line of an event, where it is known."""
        source = event.source
        if source is None or isinstance(source, Place):
            return source
        if source not in self._places:
            self._places[source] = resolve(*source)
        return self._places[source]

    def lifetimes(self) -> list[Lifetimes]:
        """How long the values of each rank live (see `lib.memory`): worked out once, and anew if the run went on."""
        size = [(len(program.events), len(program.moves)) for program in self.programs]
        if self._lives is None or self._lives[0] != size:
            self._lives = size, lifetimes(self)
        return self._lives[1]

    def save(self, path: str | Path) -> None:
        """Writes the Trace as JSON, all of it or nothing."""
        from . import serial

        serial.write(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Reads what `save` wrote. TraceError where the file is anything else, damaged or too large."""
        from . import serial

        return cls._from(serial.read(path))

    def text(self) -> str:
        """The schedule as text, one line a rank: see `lib.text` for how to read it. Source lines are left out."""
        from .text import to_text

        return to_text(self)

    @classmethod
    def parse(cls, source: str) -> Trace:
        """The Trace that `text` printed, with the times that its costs give. TraceError says where it is wrong."""
        from .text import from_text

        return cls._from(from_text(source))

    @classmethod
    def _from(cls, run: Run) -> Trace:
        return cls(run.layers, run.batches, run.programs, run.costs, run.mesh, run.sandbox, run.puzzle, run.error)

    def __repr__(self) -> str:
        return f"<Trace of {self.ranks} ranks, {self.layers} layers, {self.batches} batches>"
