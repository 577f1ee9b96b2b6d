"""The timeline of a Trace as plain data: each box with its rank and lane, its times, and its words.

Lane 0 of a rank is its compute lane: computation, blocking communication and waiting, one after the other.
Communication that is issued now and awaited later runs beside it, on lanes 1 and up, so that overlap can be seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from lib.analysis.dependencies import slowed
from lib.analysis.figures import makespan
from lib.cluster.costs import units
from lib.errors.wording import exact, numbered
from lib.puzzles.puzzle import Size
from lib.trace.event import Event, event_words, layers_of, ranges, spoken
from lib.trace.order import awaited_at_once, collectives, messages
from lib.trace.trace import Program, Trace, kept
from lib.values.collectives import COLLECTIVES
from lib.values.laws import gather
from lib.values.operations import COMMUNICATION, COMPUTE, OPERATIONS, READS

LANES: Final = 4  # most communication lanes of a rank; any further ones share the last


class Box(NamedTuple):
    """An event, or part of one, in ticks. `number` is its place in the program of its rank.

    `look` is the operation, "collective" for any collective, "wait" where a rank idles because it awaits something,
    "pending" where it did so until the run failed, "failed" on the rank whose mistake ended the run (a moment, after
    its last event, which is `number`), and "other" for operations that this version does not know.
    """

    rank: int
    number: int
    look: str
    start: int
    end: int
    lane: int = 0


class Message(NamedTuple):
    """A message that arrived: when its send ended on one rank, and when its receive began on the other."""

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
    """Return the timeline of a Trace: of all ranks, of its first `ranks`, or of those listed.

    A failed run extends past its last event, for what never happened: far enough to name it.
    """
    drawn = range(trace.ranks)[:ranks] if isinstance(ranks, int | None) else ranks
    end = makespan(trace)
    pending = [e.issued for p in trace.programs for e in p.events if e.start is None and e.op in COMMUNICATION]
    pending += [program.events[-1].issued for program in trace.programs if _without_room(trace, program)]
    culprit = failed_rank(trace)
    if pending or culprit is not None:
        last = max([end, *pending])
        end = last + max(last * 2 // 5 if pending else last // 6, 10**9 // 2)
    found, lanes = list[Box](), list[int]()
    for program in (trace.programs[rank] for rank in drawn):
        mine = list(_rank(trace, program, end, program.rank == culprit))
        if program.rank == culprit and program.events:
            mine.append(Box(program.rank, len(program.events) - 1, "failed", _clock(program), _clock(program)))
        found.extend(mine)
        lanes.append(1 + max([box.lane for box in mine], default=0))
    return Timeline(found, _messages(trace, drawn), lanes, end, drawn)


def failed_rank(trace: Trace) -> int | None:
    """Return the rank whose mistake ended a run: its message begins with it. None where several ranks disagree."""
    found = re.match(r"rank (\d+)(?: \([^)\n]*\))?: ", trace.error or "")
    return int(found[1]) if found is not None and int(found[1]) < trace.ranks else None


def _clock(program: Program) -> int:
    """Return the time that a rank had reached on its own."""
    own = [e.end if e.blocking or e.op not in COMMUNICATION else e.issued for e in program.events]
    return max((time for time in own if time is not None), default=0)


def _rank(trace: Trace, program: Program, edge: int, failed: bool) -> Iterator[Box]:
    free: list[int] = []
    for index, event in enumerate(program.events):
        if event.op not in COMMUNICATION:
            if event.start is not None and (event.op in COMPUTE or event.length > 0):
                yield Box(program.rank, index, _look(event.op), event.start, event.start + event.length)
            continue
        at_once = event.blocking or (not failed and awaited_at_once(trace, program, index))
        lane = 0 if at_once else _lane(free, event, edge)
        if event.start is None:
            yield Box(program.rank, index, "pending", event.issued, edge, lane)
            continue
        if lane == 0 and event.issued < event.start:
            yield Box(program.rank, index, "wait", event.issued, event.start)
        yield Box(program.rank, index, _look(event.op), event.start, event.start + event.length, lane)
    if _without_room(trace, program):
        sent = program.events[-1]
        yield Box(program.rank, len(program.events) - 1, "pending", sent.end or sent.issued, edge)


def _without_room(trace: Trace, program: Program) -> bool:
    """Check if a rank ended with a message for which there was no room until the run failed."""
    if trace.error is None or not program.events or program.events[-1].op != "pass_to":
        return False
    last = program.events[-1].peer
    left = [one.sent for one in messages(trace) if (one.source, one.target, one.received) == (program.rank, last, None)]
    return len(left) > 1


def padded(trace: Trace, event: Event) -> int:
    """Count the padding among the batches of an event, where it has batches."""
    if not trace.padding or event.op not in OPERATIONS or not OPERATIONS[event.op].has_batches:
        return 0
    return sum(batch >= trace.batches for batch in event.batches)


@cache
def _look(op: str) -> str:
    if op in COLLECTIVES:
        return "collective"
    return OPERATIONS[op].colour if op in OPERATIONS else "other"


def gathers(op: str) -> bool:
    """Check if a collective joins parts, rather than adding them."""
    return op in COLLECTIVES and COLLECTIVES[op].law is gather


def _lane(free: list[int], event: Event, edge: int) -> int:
    """The first communication lane that is free when an event begins; `free` says when each lane is."""
    start, end = (event.issued, edge) if event.start is None else (event.start, event.start + event.length)
    lane = next((number for number, until in enumerate(free) if until <= start), min(len(free), LANES - 1))
    free[lane : lane + 1] = [max([end, *free[lane : lane + 1]])]
    return lane + 1


def _messages(trace: Trace, drawn: Sequence[int]) -> list[Message]:
    """Return the received messages of the drawn ranks, to any rank."""
    found, shown = list[Message](), frozenset(drawn)
    for source, number, target, taken in messages(trace):
        sent = trace.programs[source].events[number].end if source in shown else None
        received = None if taken is None else trace.programs[target].events[taken].start
        if sent is not None and received is not None:
            found.append(Message(source, sent, target, received))
    return sorted(found)


class Fold(NamedTuple):
    """Ranks in one row, in ascending order: the first is drawn, and stands for all.

    `own` has, by number, the events whose batches differ from rank to rank, with a name for these: "own", or "own 0"
    and "own 1" where a rank has several, one after the other.
    """

    ranks: tuple[int, ...]
    own: Mapping[int, str] = MappingProxyType({})

    @property
    def rank(self) -> int:
        """The rank that is drawn."""
        return self.ranks[0]


def size(trace: Trace) -> str:
    """Return the size of a run: "4 ranks, 4 layers, 8 batches"."""
    return Size.of(trace).words()


def labels(
    box: Box, event: Event, own: Mapping[int, str] = MappingProxyType({}), waits: Waiting | None = None
) -> tuple[list[str], str]:
    """Return the labels of a box, best first and shorter ones after it, and a smaller second line.

    `own` names the batches of some events, by number (see `Fold`), and `waits` says what the box of a waiting rank
    is about.
    """
    layer = "" if event.layer is None else f"L{ranges(layers_of(event))}"
    if box.look == "pending":
        said = [f"waits: {spoken(event.op)}", "waits", "…"]
        if waits is None:
            return said, layer
        # On a lane of communication the rank itself did not wait.
        return [waits.what, spoken(event.op), "…"] if box.lane else [f"waits for {waits.what}", *said], waits.who
    if box.look == "failed":
        return ["failed here", "failed", "X"], ""
    if box.look == "wait":
        return [], ""
    if event.op in COLLECTIVES:
        return [COLLECTIVES[event.op].title, COLLECTIVES[event.op].word], layer
    row = OPERATIONS.get(event.op)
    if row is None or row.labels or not row.has_batches:
        return [*row.labels] if row is not None and row.labels else [event.op], layer
    if row.loads:
        layer = "read" if row.kind == "read" else "copy"
    if box.number in own:
        # A number alone would name a batch. If each rank has just one batch, there is nothing to tell apart.
        batch = own[box.number].replace("own ", "#") if own[box.number] != "own" else ""
        return [text for text in dict.fromkeys((row.letter + batch, batch)) if text], layer
    shortened = ranges(event.batches)
    every = " ".join(map(str, sorted(event.batches))) if len(event.batches) <= 32 else shortened
    lettered = [row.letter + every] if row.letter else []
    return [*lettered, every, shortened.replace(", ", ","), shortened.split(",")[0] + "…"], layer


class Waiting(NamedTuple):
    """The object of a rank's wait when a run stopped, and what is known of others: "rank 1 is missing"."""

    what: str
    who: str


@kept
def _calls(trace: Trace) -> dict[tuple[int, int], list[tuple[int, int]]]:
    return {call: joined.calls for joined in collectives(trace) for call in joined.calls}


def waiting(trace: Trace, rank: int, number: int) -> Waiting:
    """Say what a rank waits for in one of its events."""
    event = trace.programs[rank].events[number]
    if event.op == "pass_to":
        return Waiting(f"room to send to {_peer(trace, rank, event.peer)}", "the message before is not received")
    if event.op in READS:
        return Waiting("the reader of its process", numbered("batch", event.batches))
    if event.op not in COLLECTIVES:
        return Waiting(f"a message from {_peer(trace, rank, event.peer)}", "")
    what = f"{spoken(event.op)} of layer {event.layer}"
    if missing := _missing(trace, rank, number):
        return Waiting(what, f"{numbered('rank', missing)} {'is' if len(missing) == 1 else 'are'} missing")
    every = [trace.programs[joined].events[place] for joined, place in _calls(trace)[rank, number]]
    if len({(one.op, one.layer, one.group) for one in every}) > 1:
        return Waiting(what, "the calls differ")
    return Waiting(what, f"with {numbered('rank', event.group)}")


def _missing(trace: Trace, rank: int, number: int) -> set[int]:
    event = trace.programs[rank].events[number]
    return set(event.group).difference(joined for joined, _ in _calls(trace)[rank, number])


def waited_for(trace: Trace, rank: int, number: int) -> int | None:
    """Return the rank that another one waits for in one of its events, if there is just one: a peer, or one missing."""
    event = trace.programs[rank].events[number]
    if event.op not in COLLECTIVES:
        return event.peer
    missing = _missing(trace, rank, number)
    return missing.pop() if len(missing) == 1 else None


def _peer(trace: Trace, rank: int, peer: int | None) -> str:
    """Name a rank as another one does: "stage 2" where only that axis of the mesh differs, else by number."""
    if peer is None:
        return "any rank"
    if trace.mesh is None or max(rank, peer) >= len(trace.mesh):
        return f"rank {peer}"
    here, there = trace.mesh.coordinates(rank), trace.mesh.coordinates(peer)
    axes = [axis for axis in there if here[axis] != there[axis]]
    return f"{axes[0]} {there[axes[0]]}" if len(axes) == 1 else trace.mesh.named(peer)


def title(trace: Trace, box: Box, fold: Fold, brief: bool = False) -> str:
    """Return the title of a box, which stands for all ranks of a fold. `brief` leaves out the text of the
    source line, for crowded pictures."""
    rank, number, look, begun, ended, _ = box
    event, start = trace.programs[rank].events[number], _moment(begun)
    when = f"{start} to {_moment(ended)}"
    if look in ("pending", "failed"):
        when = f"from {start}, never over" if look == "pending" else f"at {start}"
    place, where = trace.place(event), ""
    if len(fold.ranks) > 1:
        where = f"so {'does' if len(fold.ranks) == 2 else 'do'} {numbered('rank', fold.ranks[1:])}"
        where += ", on batches of their own" if number in fold.own else ""
        where += "" if place is None else ", " if brief else "\n"
    if place is not None:
        where += f"line {place.line}" if brief else f"{place.file}, line {place.line}: {place.text[:90]}"
    where = (", " if brief else "\n") + where if where else ""
    return f"{_what(trace, box, event)}\nrank {rank}, {when}{where}"


@lru_cache(maxsize=4096)
def _moment(time: int) -> str:
    """Write a time: one box begins where others end."""
    return exact(units(time))


def _what(trace: Trace, box: Box, event: Event) -> str:
    if box.look == "failed":
        return f"failed here, after {event_words(event, trace.ranks)}: {(trace.error or '').partition(chr(10))[0]}"
    if box.look == "pending":
        head = "waited when the run stopped" if failed_rank(trace) is not None else "waits for ever"
        who = waiting(trace, box.rank, box.number).who
        return f"{head}: {event_words(event, trace.ranks)}" + (f"; {who}" if who else "")
    number = event.arg[0] if box.look == "wait" and event.op == "wait" and event.arg else box.number
    meant = trace.programs[box.rank].events[number]
    words = ("waits for " if box.look == "wait" else "") + event_words(meant, trace.ranks)
    if box.look != "wait" and (padding := padded(trace, event)):
        words += ", all padding" if padding == len(event.batches) else f", {padding} of them padding"
    why = slowed(trace, box.rank, number)
    return f"{words}; {why}" if why else words
