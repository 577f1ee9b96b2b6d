"""The critical path of a run: the chain of operations that determines its end."""

from __future__ import annotations

from dataclasses import dataclass

from lib.analysis.dependencies import At, Causes, causes_of
from lib.analysis.event_words import operations
from lib.cluster.clock import units
from lib.errors.wording import exact
from lib.trace.event import Event
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMPUTE, MESSAGES, OPERATIONS, READS

__all__ = ["Path", "critical_path"]


@dataclass(frozen=True, slots=True)
class Path:
    """The critical path: operations of which each begins exactly when the one before is over, from 0 to the end.

    A message that waits for room is not on it: what let its sender go on is what the receiver did.
    """

    steps: tuple[At, ...]

    def parts(self) -> tuple[tuple[str, int], ...]:
        """Ticks by kind of operation: forward, backward, update, messages, and each collective by its name."""
        rows = [row.title for row in OPERATIONS.values() if row.name in COMPUTE]
        found: dict[str, int] = dict.fromkeys([*rows, "messages"], 0)
        for _, _, event in self.steps:
            found[operations(event)] = found.get(operations(event), 0) + event.length
        return tuple((name, ticks) for name, ticks in found.items() if ticks)

    def ranks(self) -> tuple[int, ...]:
        """The ranks that it goes through, in order."""
        ranks = [step.rank for step in self.steps]
        return tuple(rank for i, rank in enumerate(ranks) if i == 0 or ranks[i - 1] != rank)

    def text(self) -> str:
        """Steps by kind: "16 forward, 16 backward, 2.4 messages, 1 update"."""
        return ", ".join(f"{exact(units(ticks))} {name}" for name, ticks in self.parts())


def critical_path(run: Trace) -> Path:
    """The chain of operations that determines the end: followed back from the one that ends last.

    Of several causes at one moment the rank's own is taken, so that the path changes ranks only where it must.
    """
    causes = causes_of(run)
    here = causes.last()
    found: list[At] = []
    seen: set[tuple[int, int]] = set()
    while here is not None and here[:2] not in seen:  # a Trace from a file may say that something waits for itself
        seen.add(here[:2])
        if (room := causes.room(here)) is not None:
            here = _reason(causes, room)
            continue
        if here.event.length:
            found.append(here)
        here = _reason(causes, here) if here.event.start else None
    return Path(tuple(reversed(found)))


def _until(event: Event, time: int) -> Event:
    """A read up to the moment at which its reader turns to the next one: what it copies then is on no path."""
    found = event.copy()
    found.length = min(event.length, time - (event.start or 0))
    return found


def _reason(causes: Causes, here: At) -> At | None:
    """What ended just when an operation began, and so let it begin."""
    event = here.event
    if event.op in READS and event.issued != event.start:
        before = causes.stream(here)
        return None if before is None else At(before.rank, before.number, _until(before.event, event.start or 0))
    if event.op in COLLECTIVES:
        last = causes.last_member(here)
        return causes.kept(last) if last.event.issued == event.start else causes.stream(here)
    if event.op in MESSAGES and event.issued != event.start:
        sent = causes.sent(here)
        return sent if sent is not None and sent.event.end == event.start else causes.stream(here)
    return causes.kept(here)
