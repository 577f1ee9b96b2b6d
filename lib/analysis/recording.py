"""A recording: when each rank did what, as far as its source knows. It says less than a Trace, which has every value.

A recording comes from a profiler, or from a Trace or an order of ours. It can tell how long it takes, in which order
its ranks pass microbatches through stages, and where it differs from another recording.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, zip_longest
from statistics import median
from typing import Final, NamedTuple

from lib.errors.wording import exact, numbered
from lib.values.dims import joined
from lib.values.operations import COMMUNICATION, OPERATIONS

COMPUTE: Final = "compute"
"""The stream of a rank's own work, one operation after the other."""
PER_UNIT: Final = 1_000_000
"""Nanoseconds for one time unit of a simulated run: a millisecond, as in files for Perfetto."""
_PAIR: Final = re.compile(r"\(([^;()]+);([^;()]+)\)\w+")


class Span(NamedTuple):
    """Something that a rank did from `start` to `end`, in nanoseconds from the beginning of the recording.

    `op` is the operation's name in our tables, "wait" for none, "" if unknown; `name` is what the source calls it.
    `word` is its word in an order, such as 3F1, if it has one; `stage` (or layer) and `label` are what to colour it by
    and to write on it. `stream` is COMPUTE, or where communication went.
    """

    rank: int
    start: int
    end: int
    op: str
    name: str
    word: str = ""
    stage: int | None = None
    label: str = ""
    stream: str = COMPUTE
    place: str = ""


class Message(NamedTuple):
    """A message: when its content was ready on one rank, and when it was used on the other."""

    source: int
    sent: int
    target: int
    received: int


class Held(NamedTuple):
    """A rank that does not reach the end of its order: from when on, where it is stuck and why, in words. If it waits
    for a pass of another rank, `on` is that rank."""

    rank: int
    since: int
    words: str
    on: int | None = None


class Departure(NamedTuple):
    """The first place where a rank departs from another recording: position, and both words (None: nothing more)."""

    rank: int
    position: int
    expected: str | None
    found: str | None

    def words(self, first: str, second: str) -> str:
        """Say it in a sentence, with the names of both."""
        one, other = self.expected or "nothing more", self.found or "nothing more"
        return f"rank {self.rank}, position {self.position}: {first} has {one}, {second} has {other}"


@dataclass(frozen=True)
class Recording:
    """One recording: its spans by rank and time. `unit` is a time unit in nanoseconds, if it has one.

    `notes` are sentences about its origin: which clocks, which step, what was left out. `held` are the ranks that
    stopped before their end, if that is the point.
    """

    name: str
    spans: tuple[Span, ...]
    ranks: int
    unit: float | None = None
    messages: tuple[Message, ...] = ()
    notes: tuple[str, ...] = ()
    held: tuple[Held, ...] = ()

    @cached_property
    def end(self) -> int:
        """Return when the last span is over."""
        return max((span.end for span in self.spans), default=0)

    @cached_property
    def by_rank(self) -> tuple[tuple[Span, ...], ...]:
        """The spans of each rank."""
        found: defaultdict[int, list[Span]] = defaultdict(list)
        for span in self.spans:
            found[span.rank].append(span)
        return tuple(tuple(found[rank]) for rank in range(self.ranks))

    @property
    def has_order(self) -> bool:
        """Tell whether the recording says which microbatch passes which stage."""
        return any(span.word for span in self.spans)

    def passes(self, rank: int) -> list[str]:
        """Return the words of what a rank computes, in order; pairs are taken apart."""
        words = (_PAIR.sub(r"\1;\2", span.word) for span in self.by_rank[rank] if span.op not in COMMUNICATION)
        return [part for word in words for part in word.split(";") if part]

    @property
    def forward(self) -> float | None:
        """The median time of a forward; None if the recording has none."""
        return self.median_of("forward")

    def median_of(self, op: str) -> float | None:
        """Return the median time of an operation; None if there is none, or it took no time."""
        lengths = [span.end - span.start for span in self.spans if span.op == op]
        return median(lengths) or None if lengths else None

    @cached_property
    def busy(self) -> tuple[int, ...]:
        """Return how long each rank computes. Unknown operations count as own work, since they kept the device busy;
        overlapping ones, such as a range within another, count once."""
        own = {"", *OPERATIONS} - COMMUNICATION - {"wait"}
        every = (
            joined((span.start, span.end) for span in spans if span.stream == COMPUTE and span.op in own)
            for spans in self.by_rank
        )
        return tuple(sum(end - start for start, end in times) for times in every)

    @property
    def bubble(self) -> float:
        """The share of all ranks' time, up to the end, in which they do not compute (the makespan convention)."""
        return 1 - sum(self.busy) / (self.end * self.ranks) if self.end and self.ranks else 0.0


def departures(expected: Recording, found: Recording) -> list[Departure]:
    """Return where each rank first departs from the order of another recording; nothing if all ranks follow it."""
    every: list[Departure] = []
    for rank in range(max(expected.ranks, found.ranks)):
        sides = zip_longest(*(one.passes(rank) if rank < one.ranks else [] for one in (expected, found)))
        every += islice((Departure(rank, place, a, b) for place, (a, b) in enumerate(sides) if a != b), 1)
    return every


def figures(one: Recording) -> str:
    """Describe a recording: how long it takes, and for how much of that time the ranks do not compute."""
    time = f"end {exact(one.end / one.unit)}" if one.unit is not None else f"{one.end / 1e6:.4g} ms"
    forward = "" if one.forward is None or one.unit is not None else f" · median forward {one.forward / 1e3:.4g} µs"
    return f"{one.name}: {time} · bubble {one.bubble:.1%}{forward}"


def told(expected: Recording, found: Sequence[Recording]) -> Iterator[str]:
    """Yield where orders differ, and notes on where the recordings come from."""
    for one in found:
        if not (expected.has_order and one.has_order):
            if expected.has_order or one.has_order:
                silent = one if expected.has_order else expected
                yield f"The ranges of {silent.name} are not named, so its order is not compared."
        elif gaps := departures(expected, one):
            ranks = numbered("rank", (gap.rank for gap in gaps))
            yield f"{one.name} departs from the order of {expected.name} on {ranks}:"
            yield from (gap.words(expected.name, one.name) for gap in gaps[:6])
        else:
            yield f"Every rank of {one.name} passes its microbatches in the order of {expected.name}."
    notes: defaultdict[str, list[str]] = defaultdict(list)
    for one in (expected, *found):
        for note in one.notes:
            notes[note].append(one.name)
    yield from (note if len(names) > len(found) else f"{', '.join(names)}: {note}" for note, names in notes.items())
