"""The critical path of a run: the chain of operations that determines its end, and how late all others may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

from lib.analysis.dependencies import At, causes_of
from lib.analysis.event_words import operations
from lib.analysis.feeding.examples import feeds
from lib.analysis.figures import makespan
from lib.analysis.waiting.chain import Step, followed
from lib.analysis.waiting.legs import pieces
from lib.analysis.waiting.slack import slack
from lib.cluster.costs import in_units, units
from lib.errors.wording import exact, numbered
from lib.trace.event import Event
from lib.trace.trace import ModelLike, Trace, absent, trace_of
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMPUTE, MESSAGES, OPERATIONS

__all__ = ["PARTS", "Path", "Tight", "critical_path"]

PARTS = {
    "compute": "compute",
    "messages": "messages",
    "collectives": "collectives",
    "reading": "reading",
    "links": "waiting for shared links",
}
"""What a critical path is made of, in words."""


class Tight(NamedTuple):
    """How many of a rank's computations have no slack, of how many; and the least slack, in ticks, of any."""

    tight: int
    every: int
    least: int

    def text(self) -> str:
        """In words."""
        if not self.every:
            return "computes nothing"
        if not self.tight:
            return f"slack {in_units(self.least)} or more"
        return f"no slack in {self.tight} of {self.every}"


@dataclass(frozen=True)
class Path:
    """The critical path: operations of which each begins exactly when the one before is over, from 0 to the end.

    A message that waits for room is not on it: what let its sender go on is what the receiver did. `chain` has its
    steps, the last first. Notebooks show it as a picture.
    """

    run: Trace
    chain: tuple[Step, ...]

    @cached_property
    def steps(self) -> tuple[At, ...]:
        """Its operations in order: of a read the part up to the moment at which its reader turns to the next one, as
        what it copies then is on no path."""
        return tuple(step.at._replace(event=_until(step.at.event, step.end)) for step in reversed(self.chain))

    def parts(self) -> tuple[tuple[str, int], ...]:
        """Ticks by kind of operation: forward, backward, update, messages, and each collective by its name."""
        rows = [row.title for row in OPERATIONS.values() if row.name in COMPUTE]
        found: dict[str, int] = dict.fromkeys([*rows, "messages"], 0)
        for _, _, event in self.steps:
            found[operations(event)] = found.get(operations(event), 0) + event.length
        return tuple((name, ticks) for name, ticks in found.items() if ticks)

    def by_rank(self) -> list[dict[str, int]]:
        """For each rank the ticks of the path that are its own, by PARTS: of a collective those of the rank by which
        the path leaves it."""
        found = [dict.fromkeys(PARTS, 0) for _ in self.run.programs]
        for at, shared, took in pieces(causes_of(self.run), self.chain, 0, makespan(self.run)):
            found[at.rank]["links" if shared else _part(at.event)] += took
        return found

    def tight(self) -> list[Tight]:
        """For each rank how much of what it computes has no slack."""
        found: list[Tight] = []
        for program, left in zip(self.run.programs, slack(self.run), strict=True):
            pairs = zip(program.events, left, strict=True)
            own = [late for event, late in pairs if late is not None and event.op in COMPUTE and event.length]
            found.append(Tight(own.count(0), len(own), min(own, default=0)))
        return found

    def ranks(self) -> tuple[int, ...]:
        """The ranks that it goes through, in order."""
        ranks = [step.rank for step in self.steps]
        return tuple(rank for i, rank in enumerate(ranks) if i == 0 or ranks[i - 1] != rank)

    def made_of(self) -> str:
        """Steps by kind: "16 forward, 16 backward, 2.4 messages, 1 update"."""
        return ", ".join(f"{exact(units(ticks))} {name}" for name, ticks in self.parts())

    def head(self) -> str:
        """When the run is over, and what that is made of."""
        over = "ends" if self.run.error is None else "stopped"
        return f"The run {over} at {exact(units(makespan(self.run)))}. Critical path: {self.made_of() or 'nothing'}."

    def lines(self) -> list[str]:
        """What each rank has of the path, and its slack; ranks with the same are told together."""
        found: dict[str, list[int]] = {}
        for rank, (mine, late) in enumerate(zip(self.by_rank(), self.tight(), strict=True)):
            parts = ", ".join(f"{exact(units(mine[part]))} {words}" for part, words in PARTS.items() if mine[part])
            found.setdefault(f"{parts or 'nothing of it'}; {late.text()}", []).append(rank)
        return [f"{numbered('rank', ranks)}: {words}" for words, ranks in found.items()]

    def text(self) -> str:
        """All of it in words."""
        return "\n".join([self.head(), *(f"  {line}" for line in self.lines())])


def _part(event: Event) -> str:
    if event.op in COLLECTIVES:
        return "collectives"
    return "messages" if event.op in MESSAGES else "reading" if feeds(event) else "compute"


def _until(event: Event, time: int) -> Event:
    """An event up to a moment."""
    if event.end == time:
        return event
    found = event.copy()
    found.length = time - (event.start or 0)
    return found


@overload
def critical_path(models: Trace) -> Path: ...
@overload
def critical_path(models: Sequence[ModelLike]) -> Path | None: ...
def critical_path(models: Trace | Sequence[ModelLike]) -> Path | None:
    """The chain of operations that determines the end: followed back from the one that ends last.

    Takes a Trace, or the Models that simulate returned; None where there is no run, which is said. Of several causes at
    one moment the rank's own is taken, so that the path changes ranks only where it must.
    """
    if (missing := absent(models)) is not None:
        print(f"{missing}.")
        return None
    run = trace_of(models, "critical_path takes the Models that simulate returned, or a Trace")
    causes = causes_of(run)
    return Path(run, followed(causes, causes.last(), causes.end))
