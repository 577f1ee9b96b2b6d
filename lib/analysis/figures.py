"""Figures of a Trace: when it ends, what memory holds at every moment and why, bubbles, and what is sent.

What holds each value, and when, is in `memory`. Memory is sampled when a timed operation starts, before its outputs
exist, as in the original.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple, cast

from lib.cluster.costs import units
from lib.trace.lifetimes import by_twin, held_at, stays_of, twins, uses_of
from lib.trace.order import brought_to, meetings, operations_of
from lib.trace.trace import Event, Trace, kept
from lib.values.laws import total_elements
from lib.values.operations import COMPUTE, TIMED
from lib.values.values import Elements, Value

GATHERED = "gathered weight"  # the name for guests: weights that come in a communication and go again


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
    """A value that was alive at some moment. `hidden` if no store held it; `born` is the event that made it."""

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
    """The idle share of the ranks' time, by both conventions.

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


def busiest(trace: Trace) -> float:
    """Return how long the busiest rank computes, updates included: for the rest of the run it waits."""
    return units(max(computing(trace), default=0))


def computing(trace: Trace) -> list[int]:
    """Add up for each rank the ticks in which it computes."""
    return [sum(e.length for e in p.events if e.op in COMPUTE and e.start is not None) for p in trace.programs]


def printed(trace: Trace) -> float:
    """Return the time that the original prints: the latest start of a rank's last timed operation."""
    starts = ((e.start for e in reversed(p.events) if e.op in TIMED and e.start is not None) for p in trace.programs)
    return units(max((next(mine, 0) for mine in starts), default=0))


def samples(trace: Trace, rank: int) -> list[Sample]:
    """Return the memory curve of a rank: one sample for each timed operation that started, in program order."""
    levels = amounts(trace, rank)
    return [
        Sample(index, event.start, {name: level[index] for name, first, level in levels if first <= index})
        for index, event in enumerate(trace.programs[rank].events)
        if event.start is not None and event.op in TIMED
    ]


def amounts(trace: Trace, rank: int, visiting: Set[int] = frozenset()) -> list[tuple[str, int, list[Elements]]]:
    """Return a rank's kinds of value, guests apart, by when each is first alive; and how much of it at each event."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, value in enumerate(trace.lifetimes()[rank].values):
        if value is not None:
            numbers[GATHERED if number in visiting else value.kind].append(number)
    return sorted(((kind, *_level(trace, rank, own)) for kind, own in numbers.items()), key=itemgetter(1))


def _level(trace: Trace, rank: int, numbers: Iterable[int]) -> tuple[int, list[Elements]]:
    """Return at which event the first of some values is alive, and how many of their elements are at each event.

    It sums up what comes and goes, so a value costs one step per stretch of its life, however long that is.
    """
    lives, stays, over = trace.lifetimes()[rank], stays_of(trace)[rank], len(trace.programs[rank].events)
    values, born, last = lives.values, lives.born, lives.last
    change: list[Elements] = [0] * (over + 2)
    earliest = over + 1
    for number in numbers:
        if (value := values[number]) is None:
            continue
        size, begin, end = value.place.elements, born[number] + 1, last[number] + 1
        for first, until in stays.get(number, ()):
            if begin < end and first <= end and begin <= until:  # overlaps with its life: one stretch with that
                begin, end = (first if first < begin else begin), (until if until > end else end)
            else:
                change[first] += size
                change[until if until <= over else over + 1] -= size
                earliest = first if first < earliest else earliest
        if begin < end:
            change[begin] += size
            change[end if end <= over else over + 1] -= size
            earliest = begin if begin < earliest else earliest
    return earliest, [*accumulate(change)]


def alive_at(trace: Trace, rank: int, index: int) -> tuple[Alive, ...]:
    """Return everything alive on a rank when event number `index` starts, in order of birth."""
    held = held_at(stays_of(trace)[rank], index)
    alive = trace.lifetimes()[rank].alive(index, held)
    return tuple([_alive(trace, rank, number, number not in held) for number in alive])


def _alive(trace: Trace, rank: int, number: int, hidden: bool) -> Alive:
    lives = trace.lifetimes()[rank]
    value, maker = lives.values[number], lives.maker[number]
    assert value is not None, "what is alive is something"
    return Alive(value, trace.programs[rank].events[maker] if maker >= 0 else None, hidden)


@kept
def _timed(trace: Trace) -> list[list[int]]:
    return by_twin(trace, lambda rank: [n for n, op in enumerate(operations_of(trace)[rank]) if op in TIMED])


@kept
def peaks(trace: Trace) -> list[tuple[Elements, int, int] | None]:
    """Return each rank's highest peak: how much, at which event, when; on ties the first. None without timed events."""
    found, known = list[tuple[Elements, int, int] | None](), dict[int, tuple[object, list[Elements]]]()
    for program, lives, twin, timed in zip(trace.programs, trace.lifetimes(), twins(trace), _timed(trace), strict=True):
        # Twins whose values are equally large and live equally long have the same memory at each event. Only the last
        # one is compared: to hash all of it takes as long as comparing it.
        alike = [0 if value is None else value.place.elements for value in lives.values], lives.born, lives.last
        if twin not in known or known[twin][0] != alike:
            known[twin] = alike, _level(trace, program.rank, range(len(lives.values)))[1]
        totals, events = known[twin][1], program.events
        if trace.error is not None:  # it may have ended before some of them began
            timed = [n for n in timed if events[n].start is not None]
        index = max(timed, key=totals.__getitem__, default=None)  # the first on ties
        found.append(None if index is None else (totals[index], index, cast(int, events[index].start)))
    return found


def highest(trace: Trace) -> tuple[Elements, int, int, int]:
    """Return the highest peak of any rank: how much, at which event, when, and the rank; on ties the lowest."""
    every = [(*best, rank) for rank, best in enumerate(peaks(trace)) if best is not None]
    return max(every, key=itemgetter(0), default=(0, 0, 0, 0))


@kept
def peak(trace: Trace) -> Peak:
    """Return the highest peak of any rank, with all that was alive then; on ties the lowest rank's."""
    total, index, time, rank = highest(trace)
    return Peak(rank, index, time, total, alive_at(trace, rank, index) if total else ())


def printed_peak(trace: Trace) -> tuple[Elements, int, int]:
    """Return the memory that the original prints, with its rank and its time in ticks: the most that a rank's stores
    hold when a timed operation starts. The original counts nothing else: nothing at rest, in flight, or in a
    variable."""
    best: tuple[Elements, int, int] | None = None
    for program in trace.programs:
        values, moves, at = program.values, program.moves, 0
        stored: Elements = 0
        for index, event in enumerate(program.events):
            while at < len(moves) and moves[at][0] <= index:
                _, _, number, change = moves[at]
                if (value := values[number]) is not None:
                    stored += change * value.elements()  # even if another store has it: there it counts twice
                at += 1
            if event.op in TIMED and event.start is not None and (best is None or stored > best[0]):
                best = (stored, program.rank, event.start)
    return best or (0, 0, 0)


def bubbles(trace: Trace) -> Bubbles:
    """Return both bubble rates, from 0 (always computing) to 1."""
    busy, longest = sum(computing(trace)), 0
    for program in trace.programs:
        compute = [e for e in program.events if e.op in COMPUTE and e.length and e.start is not None]
        if compute:
            longest = max(longest, max(e.end or 0 for e in compute) - min(e.start or 0 for e in compute))
    return Bubbles(*(1 - busy / (time * trace.ranks) if time else 0.0 for time in (makespan(trace), longest)))


@kept
def traffic(trace: Trace) -> list[tuple[Fraction, int]]:
    """Return the elements that each rank sends, and how often: once per message, and round a ring in a collective."""
    return [
        (sum((elements for elements, _ in mine.values()), Fraction(0)), sum(count for _, count in mine.values()))
        for mine in sends(trace)
    ]


def most_sent(trace: Trace) -> float:
    """Return the most elements that any rank sends."""
    return max((float(elements) for elements, _ in traffic(trace)), default=0.0)


@kept
def sends(trace: Trace) -> list[dict[str, tuple[Fraction, int]]]:
    """Return the same as `traffic`, by operation."""
    found: list[dict[str, tuple[Fraction, int]]] = [{} for _ in range(trace.ranks)]
    each: list[tuple[int, str, Elements, int]] = [
        (program.rank, event.op, total_elements(program.values_of(event.inputs)), 1)
        for program in trace.programs
        for event in program.events
        if event.op == "pass_to" and event.start is not None
    ]
    for members in meetings(trace):
        row, brought, root = brought_to(trace, members)
        sent = zip(members, row.sent(brought, root), strict=True)
        each += ((rank, row.name, elements, row.messages(len(members))) for (rank, _), elements in sent)
    for rank, op, elements, count in each:
        before, already = found[rank].get(op, (Fraction(0), 0))
        found[rank][op] = before + elements, already + count
    return found


def hidden(trace: Trace) -> list[tuple[int, Alive]]:
    """Return values that were outside the stores while an operation ran that did not use them, with their ranks.

    Buffers of a communication in flight do not count, nor do weights that were handed in as final.
    """
    outside = by_twin(trace, lambda rank: _outside(trace, rank))
    return [(rank, _alive(trace, rank, number, True)) for rank, mine in enumerate(outside) for number in mine]


def _outside(trace: Trace, rank: int) -> list[int]:
    """Return the values of a rank that are hidden."""
    program, lives, stays = trace.programs[rank], uses_of(trace)[rank], stays_of(trace)[rank]
    events, timed, found, over = program.events, _timed(trace)[rank], list[int](), len(program.events)
    for number, (value, born, last) in enumerate(zip(lives.values, lives.born, lives.last, strict=True)):
        if value is None or not born + 1 < last < over:
            continue
        mine, outside = stays.get(number, ()), born + 1
        if mine and mine[0][0] <= outside and last <= mine[0][1]:
            continue  # most values: stored at once, and dropped just before their last use or later
        for begin, end in (*mine, (last + 1, last + 1)):  # between stays it is in no store
            between = range(bisect_left(timed, outside), bisect_left(timed, min(begin, last)))  # the last one uses it
            if between and any(number not in events[timed[at]].inputs for at in between):
                found.append(number)
                break
            outside = max(outside, end)
    return found
