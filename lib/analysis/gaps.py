"""Where the gaps (bubbles) of a run are and why each is there, and the critical path that determines its end.

A gap is an interval in which a rank's compute clock does not compute. Its gaps and what it computes add up to the end
of the whole run, exactly. Every gap has a kind:

    fill           the rank has not received its first input yet
    message        it waits for a message that has not been sent yet
    collective     it waits in a collective for a member that has not come yet
    stream         it waits for an earlier communication of the same ranks to be over
    communication  it waits while its communication is under way: communication that nothing hides
    drain          it has done everything, and others still work
    never          it waits for something that never happened: only in a run that failed
    stopped        the run failed before it went on
    unknown        nothing says what it did: only in a run that was measured
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lib.analysis.dependencies import At, Causes, Span
from lib.cluster.clock import in_steps, steps
from lib.errors.wording import exact, numbered
from lib.trace.event import COLLECTIVE, COMPUTE, MESSAGES, Event
from lib.trace.trace import Trace
from lib.values.collectives import title

__all__ = ["Gap", "Path", "computing", "critical_path", "gaps", "operation"]


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch, in ticks, in which a rank computes nothing.

    `before` is the communication in which the rank spends it, None at the end of its program. `late` is the rank for
    which it waits, and `cause` the operation that made it wait: what kept the late rank, the communication itself, or
    at the end of its program the operation that ends the run.
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
        """How long it is, in ticks."""
        return self.end - self.start

    def text(self) -> str:
        """Who waits, how long, from when to when, for what, and why that was late."""
        return self.clause(f"rank {self.rank}")

    def clause(self, subject: str, many: bool = False) -> str:
        """The same of another subject: `many` ranks that each have this gap."""
        verbs = {"communication": ("spends", "each spend"), "drain": ("is done", "are each done")}
        verb = verbs.get(self.kind, ("waits", "each wait"))[many]
        early = " early" if self.kind == "drain" else ""
        return f"{subject} {verb} {self.when()}{early}{self.why()}"

    def when(self) -> str:
        """How long, and from when to when: "1.4 steps (3 to 4.4)"."""
        return f"{in_steps(self.length)} ({exact(steps(self.start))} to {exact(steps(self.end))})"

    def why(self) -> str:
        """The reason, as the end of a sentence about the rank. It begins with a space, a comma or a semicolon."""
        event = None if self.before is None else self.before.event
        after = "" if self.cause is None else f" after {operation(self.cause.event)}"
        if self.kind == "fill":
            return f" for its first input: a message from rank {self.late}, which sends it{after or ' later'}"
        if self.kind == "message":
            return f" for a message from rank {self.late}, which sends it{after or ' later'}"
        if self.kind == "collective" and event is not None:
            return f" in {operation(event)} for rank {self.late}, which comes last{after}"
        if self.kind == "stream" and event is not None:
            busy = "an earlier one" if self.cause is None else operation(self.cause.event)
            return f" before {operation(event)}, because {busy} between the same ranks is still under way"
        if self.kind == "communication" and event is not None:
            side = {"pass_to": "sending to", "receive": "receiving from"}.get(event.op)
            return f" {side} rank {event.peer}" if side else f" in {operation(event)}"
        if self.kind == "drain" and self.cause is not None:
            return f"; rank {self.cause.rank} ends last, with {operation(self.cause.event)}"
        if self.kind == "never" and event is not None:
            return f" in {operation(event)}, which never happened"
        return {"stopped": ", because the run failed", "drain": ""}.get(self.kind, " between two operations")


@dataclass(frozen=True, slots=True)
class Path:
    """The critical path: operations of which each begins exactly when the one before is over, from 0 to the end."""

    steps: tuple[At, ...]

    def parts(self) -> tuple[tuple[str, int], ...]:
        """Ticks by kind of operation: forward, backward, update, messages, and each collective by its name."""
        found: dict[str, int] = {"forward": 0, "backward": 0, "loss": 0, "update": 0, "messages": 0}
        for _, _, event in self.steps:
            name = "messages" if event.op in MESSAGES else title(event.op)
            found[name] = found.get(name, 0) + event.length
        return tuple((name, ticks) for name, ticks in found.items() if ticks)

    def ranks(self) -> tuple[int, ...]:
        """The ranks that it goes through, in order."""
        ranks = [step.rank for step in self.steps]
        return tuple(rank for i, rank in enumerate(ranks) if i == 0 or ranks[i - 1] != rank)

    def text(self) -> str:
        """Steps by kind: "16 forward, 16 backward, 2.4 messages, 1 update"."""
        return ", ".join(f"{exact(steps(ticks))} {name}" for name, ticks in self.parts())


def gaps(run: Trace) -> tuple[Gap, ...]:
    """Every gap of every rank, rank by rank in order of time. Nearly linear in the events."""
    causes = Causes(run)
    last = causes.last()
    found: list[Gap] = []
    for program, spans in zip(run.programs, causes.spans, strict=True):
        rank, events = program.rank, program.events
        first = _first_input(events)
        for span in spans:
            if span.number is None:
                found.append(Gap(rank, span.start, span.end, "unknown"))
            elif events[span.number].op not in COMPUTE:
                found.extend(_merged(_waits(causes, rank, span, first)))
        stop = spans[-1].end if spans else 0
        if stop < causes.end:
            kind = "drain" if run.error is None else "stopped"
            found.append(Gap(rank, stop, causes.end, kind, None, None if last is None else last.rank, last))
    return tuple(found)


def computing(run: Trace) -> list[int]:
    """For each rank the ticks in which it computes."""
    return [sum(e.length for e in p.events if e.op in COMPUTE and e.start is not None) for p in run.programs]


def _waits(causes: Causes, rank: int, span: Span, first: int | None) -> Iterator[Gap]:
    """The gaps in one communication, or in the wait for it, in order of time. `first` brings the rank's first input."""
    assert span.number is not None, "a span that nothing accounts for is no communication"
    here = causes.at(rank, span.number)
    if here.event.start is None:
        yield Gap(rank, span.start, span.end, "never", here)
        return
    now = span.start
    for kind, until, late, cause in _phases(causes, here, now):
        over = min(max(until, now), span.end)
        if over > now:
            if kind == "message" and here.number == first:
                kind = "fill"
            yield Gap(rank, now, over, kind, here, late, cause)
        now = over
    if span.end > now:
        yield Gap(rank, now, span.end, "communication", here, None, here)


def _first_input(events: list[Event]) -> int | None:
    """The number of the first message that a rank receives, where it computes nothing before."""
    for number, event in enumerate(events):
        if event.op == "receive":
            return number
        if event.op in COMPUTE:
            return None
    return None


Phase = tuple[str, int, int | None, At | None]
"""A kind of gap, until when it goes on, the rank that is late, and the cause."""


def _phases(causes: Causes, here: At, now: int) -> Iterator[Phase]:
    """What a communication goes through until it is under way; whatever comes after is communication."""
    event = here.event
    if event.op in COLLECTIVE:
        last = causes.last_member(here)
        yield "collective", last.event.issued, last.rank, causes.kept(last)
    elif event.op == "receive":
        sent = causes.sent(here)
        if sent is None or sent.event.end is None or sent.event.start is None:
            yield "message", event.start or 0, event.peer, None
            return
        issued, start, end = sent.event.issued, sent.event.start, sent.event.end
        if now < issued:  # then its being sent belongs to the wait for it
            yield "message", end if start == issued else issued, sent.rank, causes.kept(sent)
        yield "stream", start, sent.rank, causes.stream(sent)
        yield "communication", end, None, here
    yield "stream", event.start or 0, None, causes.stream(here)


def _merged(found: Iterator[Gap]) -> Iterator[Gap]:
    """Gaps of one kind that follow each other as one."""
    held: Gap | None = None
    for gap in found:
        if held is not None and held.kind == gap.kind == "communication":
            held = Gap(gap.rank, held.start, gap.end, gap.kind, gap.before, gap.late, gap.cause)
            continue
        if held is not None:
            yield held
        held = gap
    if held is not None:
        yield held


def critical_path(run: Trace) -> Path:
    """The chain of operations that determines the end: followed back from the one that ends last.

    Of several causes at one moment the rank's own is taken, so that the path changes ranks only where it must.
    """
    causes = Causes(run)
    here = causes.last()
    found: list[At] = []
    seen: set[tuple[int, int]] = set()
    while here is not None and here[:2] not in seen:  # a Trace from a file may say that something waits for itself
        seen.add(here[:2])
        if here.event.length:
            found.append(here)
        here = _reason(causes, here) if here.event.start else None
    return Path(tuple(reversed(found)))


def _reason(causes: Causes, here: At) -> At | None:
    """What ended just when an operation began, and so let it begin."""
    event = here.event
    if event.op in COLLECTIVE:
        last = causes.last_member(here)
        return causes.kept(last) if last.event.issued == event.start else causes.stream(here)
    if event.op in MESSAGES and event.issued != event.start:
        sent = causes.sent(here)
        return sent if sent is not None and sent.event.end == event.start else causes.stream(here)
    return causes.kept(here)


def operation(event: Event) -> str:
    """An operation in words: "backward of layer 1 (batches 0-3)", "all-gather of layer 1", "the message to rank 2"."""
    if event.op in MESSAGES:
        side = "to" if event.op == "pass_to" else "from"
        return f"the message {side} {'any rank' if event.peer is None else f'rank {event.peer}'}"
    words = title(event.op)
    if event.layer is not None and event.op != "loss":
        words += f" of layer {event.layer}"
    if event.op in ("forward", "backward"):
        words += f" ({numbered('batch', event.batches)})"
    return words
