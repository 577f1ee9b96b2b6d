"""Figures of a Trace: when it ends, what memory holds at every moment and why, bubbles, and what is sent.

What is alive, and how long, is said by `memory`. Memory is sampled when a timed operation starts, before its outputs
exist, as the original does.
"""

from __future__ import annotations

from collections.abc import Sequence
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

__all__ = [
    "Alive",
    "Bubbles",
    "Peak",
    "Sample",
    "alive_at",
    "bubbles",
    "end",
    "makespan",
    "most_sent",
    "peak",
    "printed",
    "printed_peak",
    "samples",
    "sends",
    "traffic",
]


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
    return _curve(trace.programs[rank], trace.lifetimes()[rank], names)


def _curve(program: Program, lives: Lifetimes, names: Sequence[str | None] | None = None) -> list[Sample]:
    found: list[Sample] = []
    events, moves = program.events, program.moves
    values, born, last = lives.values, lives.born, lives.last
    held = [0] * len(values)
    by_kind: dict[str, Elements] = {}
    alive = [False] * len(values)
    turns: list[list[int] | None] = [None] * (len(events) + 2)
    for value, (first, until) in enumerate(zip(born, last, strict=True)):
        for index in (min(first + 1, len(events)), until + 1) if until >= 0 else (min(first + 1, len(events)),):
            if (turn := turns[index]) is None:
                turns[index] = [value]
            else:
                turn.append(value)
    at = 0
    for index, event in enumerate(events):
        touched = turns[index] or []
        while at < len(moves) and moves[at][0] <= index:
            held[moves[at][2]] += moves[at][3]
            touched.append(moves[at][2])
            at += 1
        for number in touched:
            value = values[number]
            if value is None:
                continue
            now = held[number] > 0 or born[number] < index <= last[number]
            if now != alive[number]:
                alive[number] = now
                change = value.elements() if now else -value.elements()
                name = value.kind if names is None else names[number] or value.kind
                by_kind[name] = by_kind.get(name, 0) + change
        if event.op in TIMED and event.start is not None:
            found.append(Sample(index, event.start, dict(by_kind)))
    return found


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
    best: tuple[Elements, int, Sample] | None = None
    for program, lives in zip(trace.programs, trace.lifetimes(), strict=True):
        for sample in _curve(program, lives):
            total = sample.total
            if best is None or total > best[0]:
                best = (total, program.rank, sample)
    if best is None:
        return Peak(0, 0, 0, 0, ())
    total, rank, sample = best
    return Peak(rank, sample.index, sample.time, total, alive_at(trace, rank, sample.index))


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
    return [_total(mine) for mine in sends(trace)]


def _total(mine: dict[str, tuple[Fraction, int]]) -> tuple[Fraction, int]:
    return sum((elements for elements, _ in mine.values()), Fraction(0)), sum(count for _, count in mine.values())


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
    lives = own_lifetimes(program, buffers=False)
    born, last, maker = lives.born, lives.last, lives.maker
    over = len(program.events)
    some = [v for v in range(len(born)) if born[v] + 1 < last[v] < over]
    later = sorted(some, key=lambda v: born[v], reverse=True)
    sooner = sorted(some, key=lambda v: last[v], reverse=True)
    held = [0] * len(born)
    alive: set[int] = set()
    outside: set[int] = set()  # those of them that no store holds; of each event only what changes is looked at
    found: set[int] = set()
    at = 0
    for index, event in enumerate(program.events):
        changed: list[int] = []
        while at < len(program.moves) and program.moves[at][0] <= index:
            held[program.moves[at][2]] += program.moves[at][3]
            changed.append(program.moves[at][2])
            at += 1
        while later and born[later[-1]] < index:
            changed.append(later[-1])
            alive.add(later.pop())
        while sooner and last[sooner[-1]] < index:
            changed.append(sooner[-1])
            alive.discard(sooner.pop())
        for v in changed:
            (outside.add if v in alive and held[v] <= 0 else outside.discard)(v)
        if event.op in TIMED:
            new = outside.difference(event.inputs)
            found |= new
            alive -= new
            outside -= new
    return [
        Alive(value, program.events[maker[v]] if maker[v] >= 0 else None, True)
        for v in sorted(found)
        if (value := program.values[v]) is not None
    ]
