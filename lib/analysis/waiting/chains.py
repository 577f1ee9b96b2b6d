"""The chain of operations that led to a moment: each of them began exactly when the one before was over.

It is followed back from an operation, or from the end of a gap. Among causes at one moment the rank's own is preferred,
so that a chain changes ranks only where it must; the others are noted beside it.

In words a chain is told in legs: operations of a rank in a row, or a message with both of its ends, make one leg.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from lib.analysis.dependencies import At, Causes, slowed
from lib.analysis.waiting.gaps import WORDS, Gap
from lib.cluster.costs import units
from lib.errors.wording import exact, numbered, these
from lib.trace.event import operation, operations
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMPUTE, LOCAL, MESSAGES, READS
from lib.values.values import Value, definite, describe


class Step(NamedTuple):
    """A step of a chain: an operation from `start` to `end`, in ticks, the moment at which the next step began.

    `how` says why the next step waited for it: "own" (their rank did one after the other), "sent" (it sent what the
    next one receives), "member" (its rank came last to a collective), "stream" (the same ranks communicate one after
    the other), "reader" (their process reads one after the other) or "room" (what its rank began then made room for a
    message). `also` are others that were over at the same moment, so that the next step waited for them just as long.
    """

    at: At
    start: int
    end: int
    how: str
    also: tuple[At, ...] = ()


def causes_before(causes: Causes, here: At) -> list[tuple[str, At]]:
    """List everything that ended just when an operation began, and so let it begin, each with its `how` (see Step); the
    one to follow comes first."""
    event, found = here.event, list[tuple[str, At]]()
    start, before = event.start, causes.stream(here)
    if event.op in COLLECTIVES:
        last = causes.last_member(here)
        for one in (last, *(one for one in causes.members(here) if one[:2] != last[:2])):
            if one.event.issued == start:
                found += [("own" if one.rank == here.rank else "member", kept) for kept in causes.kept_by(one)]
    elif event.issued == start:
        found += [("own", kept) for kept in causes.kept_by(here)]
    if event.op in READS:
        return found if event.issued == start or before is None else [("reader", before)]
    if event.op in MESSAGES and (sent := causes.sent(here)) is not None and sent.event.end == start:
        found.append(("sent", sent))
    if before is not None and before.event.end == start:
        found.append(("stream", before))
    return found


def followed(causes: Causes, here: At | None, end: int, until: int = 0, how: str = "own") -> tuple[Step, ...]:
    """Follow the chain that led to `end`, when an operation was over or had got this far: the last step first.

    It goes back to a computation at or before the moment `until`.
    """
    found: list[Step] = []
    seen: set[tuple[int, int]] = set()
    also: tuple[At, ...] = ()
    while here is not None and here[:2] not in seen:  # in a Trace from a file, something may wait for itself
        seen.add(here[:2])
        if (room := causes.room(here)) is not None and here.event.end == end:
            here, how = room, "room"  # its beginning let the message go
        elif (start := here.event.start or 0) < end:
            found.append(Step(here, start, end, how, also))
            if not start or (start <= until and here.event.op in COMPUTE):
                break
            end, how, also = start, "own", ()
        if not (before := causes_before(causes, here)):
            break
        also += tuple(at for _, at in before[1:])
        how, here = before[0][0] if how == "own" else how, before[0][1]
    return tuple(found)


def led_to(causes: Causes, gap: Gap) -> tuple[Step, ...]:
    """Follow the chain that led to the end of a gap, back to what was computed when it began; the last step first.

    Empty if what led there is unknown: in a run that failed, or was measured.
    """
    here, how = gap.before, "own"
    if gap.kind == "drain":
        here = gap.cause
    elif here is None or gap.kind in ("never", "unknown", "stopped"):
        return ()
    elif gap.kind in ("collective", "stream", "reader"):
        here, how = gap.cause, "member" if gap.kind == "collective" else gap.kind
    elif (sent := causes.sent(here)) is not None and gap.end <= (here.event.start or 0):
        late = gap.kind != "communication" and gap.end <= sent.event.issued
        here, how = (causes.kept(sent) if late else sent), "sent"
    return followed(causes, here, gap.end, gap.start, how)


HOW: Final[dict[str, str]] = WORDS["legs"]
"""Why the later step waited, in words with placeholders for the earlier one."""


@dataclass(frozen=True, slots=True)
class Leg:
    """Steps of a chain that are told together, the last first: operations of one kind that a rank did in a row, or a
    message as it is sent and received. `how` is the row of HOW that leads to the next leg in time."""

    steps: tuple[Step, ...]
    how: str

    @property
    def start(self) -> int:
        """Return when it begins, in ticks."""
        return self.steps[-1].start

    @property
    def end(self) -> int:
        """Return when it is over, or what comes next begins."""
        return self.steps[0].end

    @property
    def rank(self) -> int:
        """The rank that does it; for a message, the sender."""
        return self.steps[-1].at.rank

    def what(self, run: Trace) -> str:
        """Say what is done: "forward of layers 2, 3 (batch 0)"."""
        rank, _, event = at = self.steps[-1].at
        if event.op in MESSAGES:
            ends = (rank, event.peer) if event.op == "pass_to" else (event.peer, rank)
            content = carried(run, at)
            return f"the message from rank {ends[0]} to rank {ends[1]}{f' with {content}' if content else ''}"
        words = operation(*(step.at.event for step in self.steps))
        return f"{words} over {these('rank', event.group)}" if event.op in COLLECTIVES else words

    def place(self, run: Trace) -> str:
        """Say what is done, and where: "forward of layer 2 (batch 0) on rank 1"."""
        own = self.steps[0].at.event.op in LOCAL | READS
        return f"{self.what(run)} on rank {self.rank}" if own else self.what(run)

    def text(self, run: Trace, file: str = "") -> str:
        """Say how it led to what came next, when it was, where the student wrote it, and what else was as late. Lines
        in `file` are named without it."""
        said = HOW[self.how].format(what=self.what(run), place=self.place(run), rank=self.rank)
        where = written_at(run, [step.at for step in reversed(self.steps)], file)
        said += f": {exact(units(self.start))} to {exact(units(self.end))}{f' ({where})' if where else ''}"
        if self.steps[0].at.event.op not in COMPUTE and (why := slowed(run, *self.steps[0].at[:2])):
            said += f"; {why}"
        also = [at for step in self.steps for at in step.also]
        ranks = {at.rank for at in also if at.rank != self.rank}
        own = dict.fromkeys(operation(at.event) for at in also if at.rank == self.rank)
        others = ", ".join([*([numbered("rank", ranks)] if ranks else []), *own])
        return f"{said}; just as late: {others}" if others else said


def legs(run: Trace, steps: Sequence[Step], late: At | None = None) -> list[Leg]:
    """Divide a chain into legs, the last first. `late` is the operation that could begin only after the chain."""
    found: list[list[Step]] = []
    for step in steps:
        ops = (found[-1][-1].at.event.op if found else "", step.at.event.op)
        same = ops[0] == ops[1] and found[-1][-1].at.rank == step.at.rank and not step.also
        if ops == ("receive", "pass_to") if step.how == "sent" else same and step.how == "own" and ops[0] in COMPUTE:
            found[-1].append(step)
        else:
            found.append([step])
    lates = [late, *(leg[-1].at for leg in found)]
    return [Leg(tuple(leg), _how(run, leg[0], after)) for leg, after in zip(found, lates, strict=False)]


def _how(run: Trace, step: Step, late: At | None) -> str:
    """Return the row of HOW that leads from a step to what came next."""
    if late is None:
        return "last"
    if step.at[:2] == late[:2]:
        return "self"
    if step.how != "own":
        return "needs" if step.how == "sent" and step.at.event.op == "pass_to" else step.how
    if _uses(run, late, step.at):
        return "needs"
    return {"receive": "asked", "pass_to": "sent"}.get(late.event.op, "order")


def _uses(run: Trace, late: At, early: At) -> bool:
    """Tell whether an operation uses what an earlier one of its rank made, as it is, or after adding, joining or
    cutting."""
    events, makers = run.programs[late.rank].events, run.lifetimes()[late.rank].maker
    waiting, seen = [late.number], set[int]()
    while waiting:
        for number in (makers[value] for value in events[waiting.pop()].inputs):
            if number == early.number:
                return True
            if number not in seen and number > early.number and not events[number].length:
                seen.add(number)
                waiting.append(number)
    return False


def carried(run: Trace, at: At) -> str:
    """Say what a message carries: "the gradient of activation 4, batch 0", or how many values if more than three; "" if
    it carries no value."""
    event, program = at.event, run.programs[at.rank]
    values: list[Value] = program.values_of(event.inputs if event.op == "pass_to" else event.outputs)
    return f"{len(values)} values" if len(values) > 3 else ", ".join(map(definite, map(describe, values)))


def written_at(run: Trace, done: Sequence[At], file: str = "") -> str:
    """Name the student's lines of some operations: "line 12", "lines 12, 15"; with their files, except for lines in
    `file`."""
    found: dict[str, set[int]] = defaultdict(set)
    for place in [run.place(at.event) for at in done]:
        if place is not None:
            found[place.file].add(place.line)
    return "; ".join(
        numbered("line", numbers) if name == file else f"{name}, {numbered('line', numbers)}"
        for name, numbers in found.items()
    )


def pieces(causes: Causes, steps: Sequence[Step], start: int, end: int) -> Iterator[tuple[At, bool, int]]:
    """Yield how many ticks each operation of a chain has from `start` to `end`; separately (True), those by which
    sharing its links makes a communication longer."""
    for step in steps:
        alone = causes.by_itself(step.at)
        until = step.end if alone is None else min(alone, step.end)
        for shared, begin, over in ((False, step.start, until), (True, until, step.end)):
            if (took := min(over, end) - max(begin, start)) > 0:
                yield step.at, shared, took


def amounts(causes: Causes, steps: Sequence[Step], start: int, end: int) -> str:
    """Say what a chain is made of, the largest part first: "4 of forward (ranks 2, 3), 0.2 of messages"."""
    found, ranks = Counter[str](), defaultdict[str, set[int]](set)
    for at, shared, took in pieces(causes, steps, start, end):
        kind = "waiting for shared links" if shared else operations(at.event)
        found[kind] += took
        if at.event.op in COMPUTE:
            ranks[kind].add(at.rank)
    return ", ".join(
        f"{exact(units(ticks))} of {kind}" + (f" ({numbered('rank', ranks[kind])})" if kind in ranks else "")
        for kind, ticks in sorted(found.items(), key=lambda part: -part[1])
    )
