"""Figures of a Trace: when it ends, what memory holds at every moment and why, bubbles, and what is sent.

What is alive, and how long, is said by `memory`. Memory is sampled when a timed operation starts, before its outputs
exist, as the original does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from lib.cluster.costs import units
from lib.trace.lifetimes import Lifetimes, held_at, own_lifetimes
from lib.trace.order import brought_to, meetings
from lib.trace.trace import Event, Program, Trace, kept
from lib.values.laws import total_elements
from lib.values.operations import COMPUTE, TIMED
from lib.values.values import Elements, Value


@dataclass(frozen=True)
class Sample:
    """Memory of a rank when event number `index` started, at `time` ticks: elements by kind of value."""

    index: int
    time: int
    by_kind: dict[str, Elements]

    @property
    def total(self) -> Elements:
        """Elements of all kinds."""
        return sum(self.by_kind.values(), 0)


class Alive(NamedTuple):
    """A value that was alive at some moment. `hidden` where no store held it; `born` is the event that made it."""

    value: Value
    born: Event | None
    hidden: bool


@dataclass(frozen=True)
class Peak:
    """The most memory of any rank: where, when (ticks), how much, and what was alive then."""

    rank: int
    index: int
    time: int
    elements: Elements
    alive: tuple[Alive, ...]


class Bubbles(NamedTuple):
    """Idle share of the ranks' time, by both conventions.

    `makespan`: 1 - compute / end of the run, over all ranks. `span`: 1 - compute / the longest time from a rank's
    first to its last computation (Qi et al. 2023, Zero Bubble Pipeline Parallelism, section 5).
    """

    makespan: float
    span: float


@kept
def makespan(trace: Trace) -> int:
    """Return when the last operation is over, in ticks."""
    return max((program.end for program in trace.programs), default=0)


def end(trace: Trace) -> float:
    """Return the same in time units."""
    return units(makespan(trace))


def printed(trace: Trace) -> float:
    """Return the time that the original prints: the latest start of a rank's last timed operation."""
    latest = 0
    for program in trace.programs:
        starts = [e.start for e in program.events if e.op in TIMED and e.start is not None]
        latest = max(latest, starts[-1] if starts else 0)
    return units(latest)


def samples(trace: Trace, rank: int, names: Sequence[str | None] | None = None) -> list[Sample]:
    """Return the memory curve of a rank: one sample for each timed operation that started, in program order.

    `names` say what each value of its lifetimes counts as, where that is not its kind.
    """
    curve = _curve(trace.programs[rank], trace.lifetimes()[rank], names)
    return [Sample(index, time, dict(by_kind)) for index, time, by_kind in curve]


def _curve(
    program: Program, lives: Lifetimes, names: Sequence[str | None] | None = None
) -> Iterator[tuple[int, int, dict[str, Elements]]]:
    """Yield number and time of each timed operation that started, and what is alive then: always the same dict, which
    changes from one to the next."""
    events, moves, over = program.events, program.moves, len(program.events)
    values, born, last = lives.values, lives.born, lives.last
    held, alive, by_kind = [0] * len(values), [False] * len(values), dict[str, Elements]()
    turns: dict[int, list[int]] = defaultdict(list)  # the values that may begin or cease to be alive at an event
    for value, (first, until) in enumerate(zip(born, last, strict=True)):
        turns[min(first + 1, over)].append(value)
        if until >= 0:
            turns[until + 1].append(value)
    for position, _, value, _ in moves:
        turns[position].append(value)
    at = 0
    for index, event in enumerate(events):
        while at < len(moves) and moves[at][0] <= index:
            held[moves[at][2]] += moves[at][3]
            at += 1
        for number in turns.get(index, ()):
            now = held[number] > 0 or born[number] < index <= last[number]
            if now is not alive[number] and (value := values[number]) is not None:
                alive[number] = now
                name = value.kind if names is None else names[number] or value.kind
                change = value.place.elements
                by_kind[name] = by_kind.get(name, 0) + (change if now else -change)
        if event.start is not None and event.op in TIMED:
            yield index, event.start, by_kind


def alive_at(trace: Trace, rank: int, index: int) -> tuple[Alive, ...]:
    """Everything alive on a rank when event number `index` starts, in order of birth."""
    program, lives = trace.programs[rank], trace.lifetimes()[rank]
    held = held_at(program, index)
    found: list[Alive] = []
    for number in lives.alive(index, held):
        value, maker = lives.values[number], lives.maker[number]
        assert value is not None, "what is alive is something"
        stored = number < len(held) and held[number] > 0
        found.append(Alive(value, program.events[maker] if maker >= 0 else None, not stored))
    return tuple(found)


@kept
def peak(trace: Trace) -> Peak:
    """Return the highest peak of any rank, and when it is; of equals the lowest rank and the first moment."""
    best: tuple[Elements, int, int, int] | None = None
    for program, lives in zip(trace.programs, trace.lifetimes(), strict=True):
        for index, time, by_kind in _curve(program, lives):
            total = sum(by_kind.values())
            if best is None or total > best[0]:
                best = total, program.rank, index, time
    if best is None:
        return Peak(0, 0, 0, 0, ())
    total, rank, index, time = best
    return Peak(rank, index, time, total, alive_at(trace, rank, index))


def printed_peak(trace: Trace) -> tuple[Elements, int, int]:
    """Return the memory that the original prints, with its rank and its time in ticks: the most that the stores of a
    rank hold when a timed operation starts. The original knows nothing else: nothing at rest, in flight, or in a
    variable."""
    best: tuple[Elements, int, int] | None = None
    for program in trace.programs:
        values, moves = program.values, program.moves
        stored: Elements = 0
        at = 0
        for index, event in enumerate(program.events):
            while at < len(moves) and moves[at][0] <= index:
                _, _, number, change = moves[at]
                if (value := values[number]) is not None:
                    stored += change * value.elements()  # also where another store has it: it counts twice there
                at += 1
            if event.op in TIMED and event.start is not None and (best is None or stored > best[0]):
                best = (stored, program.rank, event.start)
    return best or (0, 0, 0)


def bubbles(trace: Trace) -> Bubbles:
    """Return both bubble rates, from 0 (always computing) to 1."""
    busy, longest = 0, 0
    for program in trace.programs:
        compute = [e for e in program.events if e.op in COMPUTE and e.length and e.start is not None]
        busy += sum(e.length for e in compute)
        if compute:
            longest = max(longest, max(e.end or 0 for e in compute) - min(e.start or 0 for e in compute))
    total = makespan(trace)
    ranks = trace.ranks
    return Bubbles(1 - busy / (total * ranks) if total else 0.0, 1 - busy / (longest * ranks) if longest else 0.0)


@kept
def traffic(trace: Trace) -> list[tuple[Fraction, int]]:
    """For each rank the elements it sends, and how often it sends: once a message, and round a ring in a collective."""
    return [
        (sum((elements for elements, _ in mine.values()), Fraction(0)), sum(count for _, count in mine.values()))
        for mine in sends(trace)
    ]


def most_sent(trace: Trace) -> float:
    """Elements that the rank sends that sends most."""
    return max((float(elements) for elements, _ in traffic(trace)), default=0.0)


@kept
def sends(trace: Trace) -> list[dict[str, tuple[Fraction, int]]]:
    """Return the same by operation."""
    found: list[dict[str, tuple[Fraction, int]]] = [{} for _ in range(trace.ranks)]

    def add(rank: int, op: str, elements: Elements, count: int) -> None:
        before, already = found[rank].get(op, (Fraction(0), 0))
        found[rank][op] = before + elements, already + count

    for program in trace.programs:
        for event in program.events:
            if event.op == "pass_to" and event.start is not None:
                add(program.rank, event.op, total_elements(program.values_of(event.inputs)), 1)
    for members in meetings(trace):
        row, brought, root = brought_to(trace, members)
        for (rank, _), elements in zip(members, row.sent(brought, root), strict=True):
            add(rank, row.name, elements, row.messages(len(members)))
    return found


def hidden(program: Program) -> list[Alive]:
    """Return the values that lived outside the stores while an operation ran that did not use them.

    Buffers of a communication under way are not meant, nor weights that were handed in as final.
    """
    lives, events = own_lifetimes(program, buffers=False), program.events
    timed = [index for index, event in enumerate(events) if event.op in TIMED]
    stored: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for position, _, number, change in program.moves:
        stored[number].append((position, change))
    found: list[Alive] = []
    for number, (born, last) in enumerate(zip(lives.born, lives.last, strict=True)):
        value, maker = program.values[number], lives.maker[number]
        if value is None or not born + 1 < last < len(events):
            continue
        start, held = born + 1, 0
        for position, change in (*stored[number], (last + 1, 0)):
            end = min(position, last + 1)
            if held <= 0 and start < end:  # between these events it is in no store
                between = range(bisect_left(timed, start), bisect_left(timed, end))
                if any(number not in events[timed[at]].inputs for at in between):
                    found.append(Alive(value, events[maker] if maker >= 0 else None, True))
                    break
            start, held = max(start, end), held + change
    return found
