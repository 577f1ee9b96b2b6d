"""Figures of a Trace: when it ends, what memory holds at every moment and why, bubbles, and what is sent.

A value is alive on its rank from its birth until it has left the stores *and* been used for the last time; one handed
in as final weight is alive to the end. Memory is sampled when a timed operation starts, before its outputs exist, as
the original does: where everything is kept in the stores, the figures are the original's.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from .clock import steps
from .collectives import COLLECTIVES
from .trace import COLLECTIVE, COMMUNICATION, COMPUTE, TIMED, Event, Program, Trace
from .values import Elements, Value

__all__ = ["Alive", "Bubbles", "Peak", "Sample", "alive_at", "bubbles", "end", "peak", "printed", "samples", "traffic"]


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


def end(trace: Trace) -> float:
    """When the last operation is over, in steps."""
    return steps(max((e.end or 0 for _, e in trace.events()), default=0))


def printed(trace: Trace) -> float:
    """The time that the original prints: the latest start of a rank's last timed operation, in steps."""
    latest = 0
    for program in trace.programs:
        starts = [e.start for e in program.events if e.op in TIMED and e.start is not None]
        latest = max(latest, starts[-1] if starts else 0)
    return steps(latest)


def lifetimes(program: Program, *, buffers: bool = True) -> tuple[list[int], list[int], list[int]]:
    """For each value: the event it is born at, its last use, and the event that made it (-1: none).

    It is alive when event k starts if born < k <= last use, or if a store holds it then. A communication that is
    waited for later needs its input, and owns the memory of its output, until the wait: these are its `buffers`.
    """
    count, over = len(program.values), len(program.events)
    born, last, maker = [-1] * count, [-1] * count, [-1] * count
    under_way: dict[int, Event] = {}
    for index, event in enumerate(program.events):
        for value in event.inputs:
            last[value] = max(last[value], index)
        if event.op == "wait":
            issued = event.arg[0]
            work = program.events[issued]
            under_way.pop(issued, None)
            early = buffers and work.op in COLLECTIVE and not COLLECTIVES[work.op].in_place
            for value in work.outputs:
                maker[value], born[value] = issued, issued if early else index
                last[value] = index
            if buffers:
                for value in work.inputs:
                    last[value] = max(last[value], index)
        elif event.blocking or event.op not in COMMUNICATION:
            for value in event.outputs:
                born[value] = maker[value] = index
        elif buffers:
            under_way[index] = event
        if event.op == "set_final_weight":
            for value in event.inputs:
                last[value] = over
    for event in under_way.values():  # nobody waited, so nobody knows when its input may go
        for value in event.inputs:
            last[value] = over
    return born, last, maker


def samples(program: Program) -> list[Sample]:
    """The memory curve of a rank: one sample for each timed operation that started, in program order."""
    found: list[Sample] = []
    values, events, moves = program.values, program.events, program.moves
    born, last, _ = lifetimes(program)
    held = [0] * len(values)
    by_kind: dict[str, Elements] = {}
    alive = [False] * len(values)
    births: list[list[int]] = [[] for _ in range(len(events) + 1)]
    deaths: list[list[int]] = [[] for _ in range(len(events) + 2)]
    for value in range(len(values)):
        births[min(born[value] + 1, len(events))].append(value)
        if last[value] >= 0:
            deaths[last[value] + 1].append(value)
    at = 0
    for index, event in enumerate(events):
        touched = births[index] + deaths[index]
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
                by_kind[value.kind] = by_kind.get(value.kind, 0) + change
        if event.op in TIMED and event.start is not None:
            found.append(Sample(index, event.start, dict(by_kind)))
    return found


def held_at(program: Program, index: int) -> list[int]:
    """In how many stores each value is when event number `index` starts."""
    held = [0] * len(program.values)
    for position, _, number, change in program.moves:
        if position <= index:
            held[number] += change
    return held


def alive_at(program: Program, index: int) -> tuple[Alive, ...]:
    """Everything alive on a rank when event number `index` starts, in order of birth."""
    born, last, maker = lifetimes(program)
    held = held_at(program, index)
    found: list[Alive] = []
    for number, value in enumerate(program.values):
        if value is not None and (held[number] > 0 or born[number] < index <= last[number]):
            made = program.events[maker[number]] if maker[number] >= 0 else None
            found.append(Alive(value, made, held[number] <= 0))
    return tuple(found)


def peak(trace: Trace) -> Peak:
    """The fullest moment of the fullest rank; of equals the lowest rank and the first moment."""
    best: tuple[Elements, int, Sample] | None = None
    for program in trace.programs:
        for sample in samples(program):
            total = sample.total
            if best is None or total > best[0]:
                best = (total, program.rank, sample)
    if best is None:
        return Peak(0, 0, 0, 0, ())
    total, rank, sample = best
    return Peak(rank, sample.index, sample.time, total, alive_at(trace.programs[rank], sample.index))


def bubbles(trace: Trace) -> Bubbles:
    """Both bubble rates, from 0 (always computing) to 1."""
    busy, longest = 0, 0
    for program in trace.programs:
        compute = [e for e in program.events if e.op in COMPUTE and e.length and e.start is not None]
        busy += sum(e.length for e in compute)
        if compute:
            longest = max(longest, max(e.end or 0 for e in compute) - min(e.start or 0 for e in compute))
    total = max((e.end or 0 for _, e in trace.events()), default=0)
    ranks = trace.ranks
    return Bubbles(1 - busy / (total * ranks) if total else 0.0, 1 - busy / (longest * ranks) if longest else 0.0)


def traffic(trace: Trace) -> list[tuple[Fraction, int]]:
    """For each rank the elements it sends and the messages it sends (rings, as in collectives)."""
    found: list[tuple[Fraction, int]] = []
    for program in trace.programs:
        sent, messages = Fraction(0), 0
        for event in program.events:
            if event.start is None:
                continue
            if event.op == "pass_to":
                sent += _size(program, event.inputs)
                messages += 1
            elif event.op in COLLECTIVE:
                row, members = COLLECTIVES[event.op], len(event.group)
                whole = _size(program, event.inputs)
                sent += row.sent(whole * members if row.law == "gather" else whole, members)
                messages += row.messages(members)
        found.append((sent, messages))
    return found


def _size(program: Program, ids: tuple[int, ...]) -> Elements:
    return sum((value.elements() for number in ids if (value := program.values[number]) is not None), 0)


def hidden(program: Program) -> list[Alive]:
    """The values that lived outside the stores while an operation ran that did not use them.

    Buffers of a communication under way are not meant, nor weights that were handed in as final.
    """
    born, last, maker = lifetimes(program, buffers=False)
    over = len(program.events)
    later = sorted((v for v in range(len(born)) if born[v] + 1 < last[v] < over), key=lambda v: born[v], reverse=True)
    held = [0] * len(born)
    current: set[int] = set()
    found: set[int] = set()
    at = 0
    for index, event in enumerate(program.events):
        while at < len(program.moves) and program.moves[at][0] <= index:
            held[program.moves[at][2]] += program.moves[at][3]
            at += 1
        while later and born[later[-1]] < index:
            current.add(later.pop())
        current = {v for v in current if last[v] >= index}
        if event.op in TIMED:
            found |= {v for v in current if held[v] <= 0 and v not in event.inputs}
            current -= found
    return [
        Alive(value, program.events[maker[v]] if maker[v] >= 0 else None, True)
        for v in sorted(found)
        if (value := program.values[v]) is not None
    ]
