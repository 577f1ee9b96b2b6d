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

SHOWN = 5
"""Lines of one sort that a remark shows; of more the first ones."""

Where = list[tuple[int | None, Place]]


class Forgotten(NamedTuple):
    """Things that were forgotten in a run without being wrong: values outside the stores and values in the store of
    another kind, each with its rank; messages that nobody received, and communication that nobody awaited."""

    hidden: list[tuple[int, figures.Alive]]
    misplaced: list[tuple[int, int, int]]
    unreceived: list[tuple[int, Event]]
    unawaited: list[tuple[int, Event]]

    @classmethod
    def of(cls, run: Trace) -> Forgotten:
        """All of it. A run that failed has forgotten nothing: it did not come so far."""
        hidden = [(program.rank, alive) for program in run.programs for alive in figures.hidden(program)]
        if run.error is not None:
            return cls(hidden, [], [], [])
        misplaced: list[tuple[int, int, int]] = []
        for program in run.programs:
            stored = {(number, store) for _, store, number, change in program.moves if change > 0}
            wrong = [one for one in stored if _is_misplaced(program.values[one[0]], one[1])]
            misplaced += [(program.rank, number, store) for number, store in sorted(wrong)]
        passed = [(message.source, message.sent) for message in messages(run) if message.received is None]
        left = [(program.rank, number) for program in run.programs for number in never_awaited(program)]
        lost, unawaited = ([(rank, run.programs[rank].events[n]) for rank, n in some] for some in (passed, left))
        return cls(hidden, misplaced, lost, unawaited)

    def remarks(self, run: Trace, judged: bool) -> Iterator[str]:
        """Return what a verdict says of it: no faults, but no good.

        `judged`: there are several goals, of which only the first counts for a run that has hidden values.
        """
        if self.hidden:
            kinds = Counter(alive.value.kind for _, alive in self.hidden)
            yield remark(
                "values kept outside the five stores take memory too"
                + (", and only the first goal counts for such a run" if judged else ""),
                got=", ".join(counted(kinds[kind], kind) for kind in kinds),
                where=places([(rank, alive.born) for rank, alive in self.hidden]),
                fix="keep them in a store, where you see them and can delete them",
            )
        if self.misplaced:
            makers = [(rank, maker_of(run.programs[rank], number)) for rank, number, _ in self.misplaced]
            rank, number, store = self.misplaced[0]
            (value,) = run.programs[rank].values_of([number])
            what = f"rank {rank} keeps {with_article(value.kind)} in the store {STORES[store]}"
            fix = f"it works, and counts the same; but {STORE[type(value)]} is where you will look for it"
            yield remark(what + more(makers, "value"), where=places(makers), fix=fix)
        if self.unreceived:
            rank, event = self.unreceived[0]
            what = f"rank {event.peer} never received what rank {rank} passed to it" + more(self.unreceived, "message")
            fix = f"receive it on rank {event.peer}: await model.receive({rank}), or do not pass it"
            yield remark(what, where=places(self.unreceived), fix=fix)
        if self.unawaited:
            rank, event = self.unawaited[0]
            yield remark(
                f"rank {rank} did not await its {event.op}" + more(self.unawaited, "call"),
                got="a communication that never ends: what it sends stays in memory to the end of the run",
                where=places(self.unawaited),
                fix=f"put `await` in front of it: await model.{event.op}(...)",
            )


def _is_misplaced(value: Value | None, store: int) -> bool:
    return value is not None and STORE[type(value)] != STORES[store]


def fed(trace: Trace) -> Iterator[str]:
    """Return how much was read and copied, where there is a reader that does it."""
    if trace.error is None and any(event.op in READS for _, event in trace.events()):
        from lib.analysis.feeding import words

        yield f"{words(trace)}."


def more(found: Sequence[object], noun: str) -> str:
    """ ", and 2 more values like it"; nothing where there is one."""
    return "" if len(found) == 1 else f", and {len(found) - 1} more {plural(noun, len(found) - 1)} like it"


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
