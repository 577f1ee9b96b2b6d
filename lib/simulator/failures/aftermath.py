"""A run that failed goes on to the moment of the failure: what all others had done by then, and nothing later.

Ranks run ahead of each other, so when one fails, some have not begun and others are far beyond. The rest of them are
run up to that moment of simulated time, and the Trace of a failure ends there. Should another rank fail before, its
failure is the one that counts: the earliest in simulated time, of equal times that of the lowest rank, in whatever
order ranks are stepped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from lib.errors.exceptions import BudgetError, NotSolved, PuzzleError
from lib.simulator.engine import Failed, Halted
from lib.simulator.recorder import Recorder
from lib.trace.event import Event, Source
from lib.values.values import Value

__all__ = ["Failure", "failure_of", "go_on", "is_final"]


class Failure(NamedTuple):
    """When a rank failed, which, and what it raised."""

    time: int
    rank: int
    error: Failed


def failure_of(failed: Failed, models: Mapping[int, Any]) -> Failure:
    """The failure of a rank. Members that disagree fail together, when the last of them comes, whoever that is."""
    cause = failed.__cause__
    time, rank = models[failed.name].program.clock, failed.name
    if isinstance(cause, PuzzleError) and cause.time is not None:
        time, rank = cause.time, min(getattr(cause, "ranks", None) or (rank,))
    return Failure(time, rank, failed)


def is_final(failed: Failed) -> bool:
    """Whether nobody wants to know what the others did: the puzzle still has its stub, or a loop does not end."""
    return isinstance(failed.__cause__, NotSolved | BudgetError)


def go_on(failure: Failure, models: Mapping[int, Any]) -> None:
    """Lets all ranks record only what lies before a failure, or at its moment."""
    for rank, model in models.items():
        program: Any = model.program
        program.__class__ = _Bounded  # a test in every operation of every run would cost more than this
        program.world.until = failure.time, failure.rank
        if rank == failure.error.name:
            program.budget = 0


class _Bounded(Recorder):
    """A record in a run that has failed. What would lie behind the moment of the failure ends its rank instead."""

    __slots__ = ()

    def _halt(self) -> None:
        if not self.budget or self.clock > cast(Any, self.world).until[0]:
            raise Halted

    def record(
        self,
        op: str,
        layer: int | None,
        batches: frozenset[int],
        inputs: tuple[int, ...],
        made: tuple[Value, ...],
        source: Source,
        length: int = 0,
        arg: tuple[int, ...] = (),
    ) -> Event:
        """Appends an operation, where it begins in time."""
        if op != "wait":  # to wait is what it had begun before
            self._halt()
        return super().record(op, layer, batches, inputs, made, source, length, arg)

    def append(self, event: Event) -> None:
        """Appends a communication, where it begins in time."""
        self._halt()
        super().append(event)

    def blame(self, error: Any) -> Any:
        """Says where it happened; looking for the reason pays only for a failure that will count."""
        if (self.clock, self.rank) > cast(Any, self.world).until:
            return error
        return super().blame(error)
