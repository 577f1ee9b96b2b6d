"""What was forgotten in a run without being wrong, and how a verdict remarks on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lib.analysis import figures
from lib.errors.exceptions import PuzzleError
from lib.errors.source_lines import Place
from lib.errors.wording import counted, plural, with_article
from lib.trace.event import STORE, STORES, Event, Program, place_of
from lib.trace.lifetimes import never_awaited
from lib.trace.order import messages
from lib.trace.trace import Trace
from lib.values.operations import READS
from lib.values.values import Value

__all__ = ["Forgotten", "Where", "fed", "kinds_of", "maker_of", "more", "places", "remark"]

SHOWN = 5
"""Lines of one sort that a remark shows; of more the first ones."""

Where = list[tuple[int | None, Place]]


class Forgotten(NamedTuple):
    """Things that were forgotten in a run without being wrong: values outside the stores and values in the store of
    another kind, each with its rank; messages that nobody received, and communication that nobody awaited."""

    hidden: list[tuple[int, figures.Alive]]
    misplaced: list[tuple[int, int, Value, int]]
    unreceived: list[tuple[int, Event]]
    unawaited: list[tuple[int, Event]]

    @classmethod
    def of(cls, run: Trace) -> Forgotten:
        """All of it. A run that failed has forgotten nothing: it did not come so far."""
        hidden = [(program.rank, alive) for program in run.programs for alive in figures.hidden(program)]
        if run.error is not None:
            return cls(hidden, [], [], [])
        misplaced = [
            (program.rank, store, value, number)
            for program in run.programs
            for number, store in sorted({(number, store) for _, store, number, change in program.moves if change > 0})
            if (value := program.values[number]) is not None and STORE[type(value)] != STORES[store]
        ]
        lost = [
            (one.source, run.programs[one.source].events[one.sent]) for one in messages(run) if one.received is None
        ]
        left = [(program.rank, program.events[number]) for program in run.programs for number in never_awaited(program)]
        return cls(hidden, misplaced, lost, left)

    def remarks(self, run: Trace, judged: bool) -> Iterator[str]:
        """Return what a verdict says of it: no faults, but no good.

        `judged`: there are several goals, of which only the first counts for a run that has hidden values.
        """
        if self.hidden:
            yield remark(
                "values kept outside the five stores take memory too"
                + (", and only the first goal counts for such a run" if judged else ""),
                got=kinds_of([alive.value for _, alive in self.hidden]),
                where=places([(rank, alive.born) for rank, alive in self.hidden]),
                fix="keep them in a store, where you see them and can delete them",
            )
        if self.misplaced:
            rank, store, value, _ = self.misplaced[0]
            yield remark(
                f"rank {rank} keeps {with_article(value.kind)} in the store {STORES[store]}"
                + more(self.misplaced, "value"),
                where=places([(rank, maker_of(run.programs[rank], number)) for rank, _, _, number in self.misplaced]),
                fix=f"it works, and counts the same; but {STORE[type(value)]} is where you will look for it",
            )
        if self.unreceived:
            rank, event = self.unreceived[0]
            yield remark(
                f"rank {event.peer} never received what rank {rank} passed to it" + more(self.unreceived, "message"),
                where=places(self.unreceived),
                fix=f"receive it on rank {event.peer}: await model.receive({rank}), or do not pass it",
            )
        if self.unawaited:
            rank, event = self.unawaited[0]
            yield remark(
                f"rank {rank} did not await its {event.op}" + more(self.unawaited, "call"),
                got="a communication that never ends: what it sends stays in memory to the end of the run",
                where=places(self.unawaited),
                fix=f"put `await` in front of it: await model.{event.op}(...)",
            )


def fed(trace: Trace) -> Iterator[str]:
    """Return how much was read and copied, where there is a reader that does it."""
    if trace.error is None and any(event.op in READS for _, event in trace.events()):
        from lib.analysis.feeding import words

        yield f"{words(trace)}."


def more(found: Sequence[object], noun: str) -> str:
    """ ", and 2 more values like it"; nothing where there is one."""
    return "" if len(found) == 1 else f", and {len(found) - 1} more {plural(noun, len(found) - 1)} like it"


def kinds_of(values: Sequence[Value]) -> str:
    """ "2 weights, 1 activation"."""
    kinds = Counter(value.kind for value in values)
    return ", ".join(counted(kinds[kind], kind) for kind in kinds)


def maker_of(program: Program, number: int) -> Event | None:
    """The event that made a value."""
    return next((event for event in program.events if number in event.outputs), None)


def places(events: Sequence[tuple[int, Event | None]]) -> Where:
    """The lines of events with their ranks: a few different ones."""
    lines: dict[object, Place | None] = {}  # of ten thousand events most are of one line
    for _, event in events:
        if event is not None and event.source not in lines:
            lines[event.source] = place_of(event)
    found = [(rank, place) for rank, event in events if event is not None and (place := lines[event.source])]
    few = list(dict.fromkeys(place for _, place in found))[:SHOWN]
    return list(dict.fromkeys((rank, place) for rank, place in found if place in few))


def remark(what: str, *, fix: str, got: str | None = None, where: Sequence[tuple[int | None, Place]] = ()) -> str:
    return str(PuzzleError(what, got=got, fix=fix, where=where))
