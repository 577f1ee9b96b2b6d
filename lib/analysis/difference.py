"""Two schedules compared: their figures and what these are made of, and where the two first differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from lib.analysis.figures import GATHERED, bubbles, end, makespan, most_sent, peak, samples, sends
from lib.analysis.memory import guests
from lib.analysis.waiting.critical_path import Path, critical_path, time_kind
from lib.cluster.costs import units
from lib.errors.wording import amount, counted, exact
from lib.puzzles.puzzle import Size
from lib.trace.event import Event, Program, event_words
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.operations import MESSAGES, TIMED

SIZES = 6
"""The most runs of different sizes that are listed one by one; the rest are counted."""


class Difference(NamedTuple):
    """The first difference of two schedules: the rank, the time, and for both sides the event's number, the event
    (None: no more), and how many ranks there are."""

    rank: int
    time: int
    numbers: tuple[int | None, int | None]
    events: tuple[Event | None, Event | None]
    ranks: tuple[int, int]

    def head(self, first: str, second: str) -> str:
        """Say on which rank, and from when, they differ."""
        return f"{first} and {second} first differ on rank {self.rank}, from {exact(units(self.time))}"

    def side(self, name: str, side: int) -> str:
        """Return what the first (side 0) or the second (side 1) does there."""
        event, other, size = self.events[side], self.events[1 - side], self.ranks[side]
        if event is None:
            return f"{name} does nothing more"
        words = event_words(event, size)
        when = "never begun" if event.start is None else f"at {exact(units(event.start))}"
        if other is not None and (words, event.start) == (event_words(other, size), other.start):
            when += f", for {exact(units(event.length))}"  # the same operation with other sizes
        return f"{name} has {words} ({when})"


def ending(trace: Trace) -> str:
    """Return when a run is over: "end 5.6"; or, if it failed, "stopped at 3"."""
    return f"{'end' if trace.error is None else 'stopped at'} {exact(end(trace))}"


def highest_peak(trace: Trace) -> str:
    """Return the peak in words: "peak 2,490,368 on rank 0"."""
    top = peak(trace)
    return f"peak {amount(top.elements)} on rank {top.rank}"


def figures_of(trace: Trace) -> str:
    """Return the figures by which schedules are compared, in words."""
    sent = most_sent(trace)
    idle = f"bubble {bubbles(trace).makespan:.1%}"
    return " · ".join([ending(trace), highest_peak(trace), idle, f"sent per rank {amount(sent)} elements"])


def difference(one: Trace, other: Trace) -> Difference | None:
    """Return the first difference in simulated time, on ties that on the lowest rank; None if there is none."""
    found: list[Difference] = []
    sizes = one.ranks, other.ranks
    for rank, (mine, theirs) in enumerate(zip_longest(one.programs, other.programs)):
        for a, b in zip_longest(_timed(mine), _timed(theirs)):
            if a is None or b is None or _key(a[1], sizes) != _key(b[1], sizes):
                sides = [event for _, event in (side for side in (a, b) if side is not None)]
                time = min(event.issued if event.start is None else event.start for event in sides)
                numbers, events = (a and a[0], b and b[0]), (a and a[1], b and b[1])
                found.append(Difference(rank, time, numbers, events, sizes))
                break
    return min(found, key=lambda gap: (gap.time, gap.rank), default=None)


def alike(trace: Trace) -> Hashable:
    """Return a key that is equal for runs that do the same at the same times and hold as much: one picture fits all of
    them."""
    sizes = trace.ranks, trace.ranks
    return (
        trace.error is None,
        tuple(tuple(_key(event, sizes) for _, event in _timed(program)) for program in trace.programs),
        tuple(tuple((one.time, one.total) for one in samples(trace, rank)) for rank in range(trace.ranks)),
    )


def said(gap: Difference | None, first: str, second: str) -> str:
    """Say where two schedules with these names first differ, or that they do not."""
    if gap is None:
        return f"{first} and {second} do the same"
    return f"{gap.head(first, second)}: {gap.side(first, 0)}; {gap.side(second, 1)}"


def apart(one: float, other: float) -> str:
    """Return how much more or less the second amount is than the first: "the same", "25% less"."""
    if one == other:
        return "the same"
    if not one:
        return f"{amount(other)} more"
    percent = 100 * abs(other - one) / one
    return f"{percent:.{0 if percent >= 10 else 1}f}% {'less' if other < one else 'more'}"


def unequal(runs: Sequence[tuple[str, Trace]]) -> str | None:
    """Say that runs have different sizes, and which; None if their sizes are equal."""
    if len({Size.of(trace) for _, trace in runs}) < 2:
        return None
    every = [f"{name} has {Size.of(trace).words()}" for name, trace in runs]
    if len(every) > SIZES:
        every[SIZES - 1 :] = [f"and so on for {len(every) - SIZES + 1} more"]
    return f"Different sizes, so none is the better one: {'; '.join(every)}."


def lesson(runs: Sequence[tuple[str, Trace]]) -> str | None:
    """Return what two complete runs of the same size have in common and how they differ, in a sentence or two; else
    None."""
    if len(runs) != 2 or unequal(runs) is not None or any(trace.error is not None for _, trace in runs):
        return None
    (first, one), (second, other) = runs
    figures = [(end(run), float(peak(run).elements), most_sent(run)) for run in (one, other)]
    pairs = [*zip(*figures, strict=True)]
    alike = ("take the same time", "have the same peak", "send the same")
    unlike = ("takes {} time", "holds {} at its peak", "sends {}")
    same = [words for words, (a, b) in zip(alike, pairs, strict=True) if a == b]
    told = [words.format(apart(a, b)) for words, (a, b) in zip(unlike, pairs, strict=True) if a != b]
    parts = [f"{first} and {second} {_and(same)}."] if same else []
    if told:
        # Which collectives replace which, if it is that simple.
        before, after = counts(one).collectives, counts(other).collectives
        gained = {op: after.get(op, 0) - before.get(op, 0) for op in before | after}
        more = [counted(count, COLLECTIVES[op].title) for op, count in gained.items() if count > 0]
        less = [counted(-count, COLLECTIVES[op].title) for op, count in gained.items() if count < 0]
        instead = f": {_and(more)} in place of {_and(less)}" if more and less else ""
        parts.append(f"{second} {_and(told)}{instead}.")
    return " ".join(parts)


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _timed(program: Program | None) -> Iterator[tuple[int, Event]]:
    """Yield operations of kinds that take time, with their numbers, however long they took."""
    if program is not None:
        for number, event in enumerate(program.events):
            if event.op in TIMED and event.op != "loss":  # only a measured loss takes time
                yield number, event


def _key(event: Event, sizes: tuple[int, int]) -> tuple[object, ...]:
    group = event.group if sizes[0] == sizes[1] else ()
    return event.op, event.layer, event.batches, event.start, event.length, group, event.peer


TIMES = ("compute", "collectives", "messages", "reading", "waiting")
"""What a run's time can be spent on."""


class Share(NamedTuple):
    """A part of a figure: one of TIMES, a kind of value, or an operation that sends; and how much it is."""

    what: str
    amount: float


class Counts(NamedTuple):
    """The most calls of each collective on any rank, and the most messages that any rank passes on."""

    collectives: dict[str, int]
    messages: int


def time_shares(trace: Trace, path: Path | None = None) -> tuple[Share, ...]:
    """Return what determines when a run ends: its critical path, by what is done there, and the time not on it."""
    whole = makespan(trace)
    found: dict[str, int] = dict.fromkeys(TIMES, 0)
    for _, _, event in (critical_path(trace) if path is None else path).steps:
        found[time_kind(event)] += event.length
    found["waiting"] = max(0, whole - sum(found.values()))
    return tuple(Share(what, units(ticks)) for what, ticks in found.items() if ticks)


def memory_shares(trace: Trace, guests_apart: bool = True) -> tuple[Share, ...]:
    """Return what is alive at the peak, by kind of value, with temporarily gathered weights apart on request."""
    found: dict[str, float] = defaultdict(float)
    mine = trace.programs[peak(trace).rank :][:1] if guests_apart else ()
    visiting = {id(program.values[number]) for program in mine for number in guests(program)}
    for alive in peak(trace).alive:
        found[GATHERED if id(alive.value) in visiting else alive.value.kind] += float(alive.value.elements())
    return tuple(Share(kind, elements) for kind, elements in found.items())


def sent_shares(trace: Trace) -> tuple[Share, ...]:
    """Return what the rank that sends most sends, by operation: collectives in the order of their table, then
    messages."""
    if not trace.programs:
        return ()
    most = max(sends(trace), key=lambda mine: sum(elements for elements, _ in mine.values()))
    return tuple(Share(op, float(most[op][0])) for op in (*COLLECTIVES, *MESSAGES) if op in most and most[op][0])


def counts(trace: Trace) -> Counts:
    """Return the most calls of each collective, and the most messages, on any rank."""
    most = Counter[str]()
    for program in trace.programs:
        most |= Counter(event.op for event in program.events if event.start is not None)  # the larger count of each op
    return Counts({op: most[op] for op in COLLECTIVES if most[op]}, most["pass_to"])
