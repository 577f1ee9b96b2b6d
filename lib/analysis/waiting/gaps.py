"""Where the gaps (bubbles) of a run are, and why each is there.

A gap is an interval in which a rank does not compute. A rank's gaps and computations add up exactly to the length of
the whole run. Every gap has a kind; KINDS has them, with their words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lib.analysis.dependencies import At, Causes, Span, causes_of
from lib.cluster.costs import in_units, units
from lib.errors.wording import exact, numbered
from lib.files import table
from lib.trace.event import operation, operations
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMPUTE, READS


class Kind(NamedTuple):
    """A kind of gap and its words: a row of words.toml, which says what they are filled in with."""

    why: str
    reason: str
    verb: Sequence[str] = ("waits", "each wait")
    by_call: bool = False
    by_cause: bool = False


WORDS: Final[dict[str, dict[str, Any]]] = table("lib.analysis.waiting", "words")
KINDS: Final = {name: Kind(**row) for name, row in WORDS["gaps"].items()}


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch, in ticks, in which a rank computes nothing.

    `before` is the communication in which the rank spends it, None at the end of its program. `late` is the rank that
    it waits for, and `cause` the operation that made it wait: what kept the late rank busy, the communication itself,
    or, at the end of its program, the operation that ends the run.
    """

    rank: int
    start: int
    end: int
    kind: str
    before: At | None = None
    late: int | None = None
    cause: At | None = None

    @property
    def length(self) -> int:
        """Return how long it is, in ticks."""
        return self.end - self.start

    def text(self, ranks: str = "") -> str:
        """Say which rank waits, how long, from when to when, for what, and why that was late; for several `ranks`, say
        it of each."""
        when = f"{in_units(self.length)} ({exact(units(self.start))} to {exact(units(self.end))})"
        return f"{ranks or f'rank {self.rank}'} {KINDS[self.kind].verb[bool(ranks)]} {when}{self.why()}"

    def why(self) -> str:
        """Give the reason, as the end of a sentence about the rank. It begins with a space, a comma or a semicolon."""
        call, side = "communication", "in communication"
        if self.before is not None:
            event, call = self.before.event, operation(self.before.event)
            to = {"pass_to": "sending to", "receive": "receiving from"}.get(event.op)
            side = f"{to} rank {event.peer}" if to else f"in {call}"
        cause = None if self.cause is None else operation(self.cause.event)
        return KINDS[self.kind].why.format(
            call=call,
            side=side,
            late=self.late,
            cause=cause or "an earlier one",
            after=f" after {cause}" if cause else "",
            later=f" after {cause}" if cause else " later",
            last="" if self.cause is None else f"; rank {self.cause.rank} ends last, with {cause}",
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Gaps of one kind and with one reason, the longest first. `ticks` is their total length."""

    gaps: tuple[Gap, ...]

    @property
    def kind(self) -> str:
        """The kind of its gaps."""
        return self.gaps[0].kind

    @property
    def ticks(self) -> int:
        """The total length of its gaps."""
        return sum(gap.length for gap in self.gaps)

    def text(self) -> str:
        """Say how much, how often, on which ranks, and why; if the gaps differ, with the longest as an example."""
        first, ranks = self.gaps[0], numbered("rank", {gap.rank for gap in self.gaps})
        if len(self.gaps) == 1:
            return first.text()
        if len({(gap.start, gap.end, gap.why()) for gap in self.gaps}) == 1:
            return f"{in_units(self.ticks)}: {first.text(ranks)}"
        least, most = exact(units(self.gaps[-1].length)), exact(units(first.length))
        each = most if least == most else f"{least} to {most}"
        head = f"{in_units(self.ticks)}, {len(self.gaps)} times on {ranks}: {self.reason()}, {each} each"
        return head if first.kind == "communication" else f"{head}. For example, {first.text()}"

    def reason(self) -> str:
        """Say what its gaps have in common."""
        first = self.gaps[0]
        call = None if first.before is None else first.before.event
        after = "" if first.cause is None else f" after {operations(first.cause.event)}"
        calls = [gap.before.event for gap in self.gaps if gap.before is not None]
        layers = {one.layer for one in calls if one.op in COLLECTIVES and one.layer is not None}
        return KINDS[self.kind].reason.format(
            call="communication" if call is None else operations(call),
            layers=f" of {numbered('layer', layers)}" if layers else "",
            after=after,
            later=after or " later",
        )


def grouped(found: Iterable[Gap]) -> tuple[Group, ...]:
    """Group gaps by kind and reason, the groups with the longest total first."""
    alike: dict[tuple[str, str, str], list[Gap]] = {}
    for gap in found:
        kind = KINDS[gap.kind]
        call = operations(gap.before.event) if kind.by_call and gap.before is not None else ""
        cause = operations(gap.cause.event) if kind.by_cause and gap.cause is not None else ""
        alike.setdefault((gap.kind, call, cause), []).append(gap)
    groups = [Group(tuple(sorted(gaps, key=lambda gap: -gap.length))) for gaps in alike.values()]
    return tuple(sorted(groups, key=lambda group: -group.ticks))


def gaps(run: Trace) -> tuple[Gap, ...]:
    """Find every gap of every rank, rank by rank in order of time. Nearly linear in the events."""
    causes, found = causes_of(run), list[Gap]()
    last = causes.last()
    for program, spans in zip(run.programs, causes.spans, strict=True):
        rank, events = program.rank, program.events
        # The message that brings the rank's first input is received before it computes anything.
        first = next((number for number, e in enumerate(events) if e.op == "receive" or e.op in COMPUTE), None)
        for span in spans:
            now, before = span.start, None
            if span.number is None:
                found.append(Gap(rank, now, span.end, "unknown"))
            elif events[span.number].op not in COMPUTE:
                here = causes.at(rank, span.number)
                for kind, until, late, cause in _phases(causes, here, span):
                    over = min(max(until, now), span.end)
                    if over > now:
                        begin = found.pop().start if kind == before == "communication" else now
                        told = "fill" if kind == "message" and span.number == first else kind
                        found.append(Gap(rank, begin, over, told, here, late, cause))
                        now, before = over, kind
        stop = spans[-1].end if spans else 0
        if stop < causes.end:
            kind = "drain" if run.error is None else "stopped"
            found.append(Gap(rank, stop, causes.end, kind, None, None if last is None else last.rank, last))
    return tuple(found)


def _phases(causes: Causes, here: At, span: Span) -> Iterator[tuple[str, int, int | None, At | None]]:
    """Yield the phases of a communication in which a rank spends a span: the kind of gap, its end, the rank that is
    late, and the cause."""
    event, sent = here.event, causes.sent(here) if here.event.op == "receive" else None
    if event.start is None:
        yield "never", span.end, None, None
    elif event.op in COLLECTIVES:
        last = causes.last_member(here)
        yield "collective", last.event.issued, last.rank, causes.kept(last)
    elif sent is not None and sent.event.end is not None and sent.event.start is not None:
        issued, start, end = sent.event.issued, sent.event.start, sent.event.end
        if span.start < issued:  # then sending it is part of the wait for it
            yield "message", end if start == issued else issued, sent.rank, causes.kept(sent)
        yield "stream", start, sent.rank, causes.stream(sent)
        yield "communication", end, None, here
    elif event.op == "receive":
        yield "message", event.start, event.peer, None
    elif event.op in READS:
        before = causes.stream(here)
        yield "reader", event.start, here.rank if before is None else before.rank, before
    yield "stream", event.start or 0, None, causes.stream(here)
    until = causes.by_itself(here)
    room, other = (None, None) if until is None else (causes.room(here), causes.beside(here))
    yield "communication", span.end if until is None or room is other is None else until, None, here
    if room is not None:
        yield "room", span.end, room.rank, causes.kept(room)
    yield "shared", span.end, None, other
