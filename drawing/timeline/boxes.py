"""The timeline of a Trace as plain data: which box, on which lane of which rank, from when to when. No colours yet.

Lane 0 of a rank is its compute lane: what it computes, communicates and waits for, one after the other. Communication
that was issued and awaited later runs beside it, on lanes 1 and up, so that overlap can be seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from lib.analysis.figures import makespan
from lib.trace.order import awaited_at_once, messages
from lib.trace.trace import Event, Program, Trace
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMMUNICATION, COMPUTE, OPERATIONS

__all__ = ["Box", "Message", "Timeline", "boxes", "failed_rank", "padded"]

LANES: Final = 4
"""Communication lanes of a rank at most; what runs beside even more shares the last."""


class Box(NamedTuple):
    """An event, or part of one, in ticks. `number` is its place in the program of its rank.

    `look` is the operation, "collective" for all of those, "wait" where a rank does nothing because it awaits
    something, "pending" where it did so until the run failed, "failed" on the rank whose mistake ended the run (a
    moment, after its last event, which is `number`), and "other" for what this version does not know.
    """

    rank: int
    number: int
    look: str
    start: int
    end: int
    lane: int = 0


class Message(NamedTuple):
    """A message that arrived: when its sending was over on one rank, and when receiving began on the other."""

    source: int
    sent: int
    target: int
    received: int


@dataclass(frozen=True)
class Timeline:
    """All boxes of a Trace, rank by rank. `end` is the right edge in ticks, `lanes` counts the lanes of each rank, in
    the order of `ranks`."""

    boxes: list[Box]
    messages: list[Message]
    lanes: list[int]
    end: int
    ranks: Sequence[int]

    @cached_property
    def lane_of(self) -> dict[tuple[int, int], int]:
        """The lane of each event that is not on the first one, by its rank and number."""
        return {(box.rank, box.number): box.lane for box in self.boxes if box.lane}


def boxes(trace: Trace, ranks: int | Sequence[int] | None = None) -> Timeline:
    """The timeline of a Trace, of its first so many ranks, or of some ranks.

    A run that failed goes on past its last event, for what never happened: far enough to say what that is.
    """
    drawn = range(trace.ranks)[:ranks] if isinstance(ranks, int | None) else ranks
    end = makespan(trace)
    pending = [event.issued for _, event in trace.events() if event.op in COMMUNICATION and event.start is None]
    pending += [program.events[-1].issued for program in trace.programs if _without_room(trace, program)]
    culprit = failed_rank(trace)
    if pending or culprit is not None:
        last = max([end, *pending])
        end = last + max(last * 2 // 5 if pending else last // 6, 10**9 // 2)
    found: list[Box] = []
    lanes: list[int] = []
    for program in (trace.programs[rank] for rank in drawn):
        mine = list(_rank(trace, program, end, program.rank == culprit))
        if program.rank == culprit and program.events:
            mine.append(Box(program.rank, len(program.events) - 1, "failed", _clock(program), _clock(program)))
        found.extend(mine)
        lanes.append(1 + max((box.lane for box in mine), default=0))
    return Timeline(found, _messages(trace, drawn), lanes, end, drawn)


def failed_rank(trace: Trace) -> int | None:
    """The rank whose mistake ended a run: its message begins with it. Where several disagree there is none."""
    found = re.match(r"rank (\d+)(?: \([^)\n]*\))?: ", trace.error or "")
    return int(found[1]) if found is not None and int(found[1]) < trace.ranks else None


def _clock(program: Program) -> int:
    """How far a rank had come by itself."""
    own = [e.end if e.blocking or e.op not in COMMUNICATION else e.issued for e in program.events]
    return max((time for time in own if time is not None), default=0)


def _rank(trace: Trace, program: Program, edge: int, failed: bool) -> Iterator[Box]:
    """The boxes of one rank, in program order. One that `failed` had gone on after its last call."""
    free: list[int] = []
    for index, event in enumerate(program.events):
        if event.op not in COMMUNICATION:
            if event.start is not None and (event.op in COMPUTE or event.length > 0):
                yield Box(program.rank, index, _look(event), event.start, event.start + event.length)
            continue
        at_once = event.blocking if failed else awaited_at_once(trace, program, index)
        lane = 0 if at_once else _lane(free, event, edge)
        if event.start is None:
            yield Box(program.rank, index, "pending", event.issued, edge, lane)
            continue
        if lane == 0 and event.issued < event.start:
            yield Box(program.rank, index, "wait", event.issued, event.start)
        yield Box(program.rank, index, _look(event), event.start, event.start + event.length, lane)
    if _without_room(trace, program):
        sent = program.events[-1]
        yield Box(program.rank, len(program.events) - 1, "pending", sent.end or sent.issued, edge)


def _without_room(trace: Trace, program: Program) -> bool:
    """Whether the last thing that a rank did was to send a message without room for it, until the run failed."""
    if trace.error is None or not program.events or program.events[-1].op != "pass_to":
        return False
    last = program.events[-1].peer
    left = [one.sent for one in messages(trace) if (one.source, one.target, one.received) == (program.rank, last, None)]
    return len(left) > 1


def padded(trace: Trace, event: Event) -> int:
    """How many of the batches that an event is about are padding, where they belong to what it is."""
    if not trace.padding or event.op not in OPERATIONS or not OPERATIONS[event.op].has_batches:
        return 0
    return sum(batch >= trace.batches for batch in event.batches)


def _look(event: Event) -> str:
    if event.op in COLLECTIVES:
        return "collective"
    return OPERATIONS[event.op].colour if event.op in OPERATIONS else "other"


def _lane(free: list[int], event: Event, edge: int) -> int:
    """The first communication lane that is free when an event begins; `free` says when each lane is."""
    start, end = (event.issued, edge) if event.start is None else (event.start, event.start + event.length)
    for number, until in enumerate(free):
        if until <= start:
            free[number] = end
            return number + 1
    if len(free) < LANES:
        free.append(end)
    else:
        free[-1] = max(free[-1], end)
    return len(free)


def _messages(trace: Trace, drawn: Sequence[int]) -> list[Message]:
    """What was sent by the ranks drawn, to whomever, and received."""
    found: list[Message] = []
    shown = frozenset(drawn)
    for passage in messages(trace):
        if passage.received is None or passage.source not in shown:
            continue
        sent = trace.programs[passage.source].events[passage.sent].end
        received = trace.programs[passage.target].events[passage.received].start
        if sent is not None and received is not None:
            found.append(Message(passage.source, sent, passage.target, received))
    return sorted(found)
