"""What the figures of a run are made of: its end, its peak, and what the rank sends that sends most."""

from __future__ import annotations

from typing import NamedTuple

from lib.analysis.feeding.examples import feeds
from lib.analysis.figures import makespan, peak, sends
from lib.analysis.waiting.critical_path import Path, critical_path
from lib.cluster.costs import units
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.operations import MESSAGES

__all__ = ["TIMES", "Counts", "Share", "counts", "memory_shares", "sent_shares", "time_shares"]

TIMES = ("compute", "collectives", "messages", "reading", "waiting")
"""What the end of a run can be made of."""


class Share(NamedTuple):
    """A part of a figure: one of TIMES, a kind of value, or the operation that sends it; and how much."""

    what: str
    amount: float


class Counts(NamedTuple):
    """How often the rank communicates that does so most: by collective, and in messages that it passes on."""

    collectives: dict[str, int]
    messages: int


def time_shares(trace: Trace, path: Path | None = None) -> tuple[Share, ...]:
    """What determines when a run ends: its critical path by what is done there, and the time that is on no path."""
    whole = makespan(trace)
    found = dict.fromkeys(TIMES, 0)
    for _, _, event in (critical_path(trace) if path is None else path).steps:
        kind = "collectives" if event.op in COLLECTIVES else "messages" if event.op in MESSAGES else "compute"
        found["reading" if feeds(event) else kind] += event.length
    found["waiting"] = max(0, whole - sum(found.values()))
    return tuple(Share(what, units(ticks)) for what, ticks in found.items() if ticks)


def memory_shares(trace: Trace) -> tuple[Share, ...]:
    """What is alive at the peak, by kind of value."""
    found: dict[str, float] = {}
    for alive in peak(trace).alive:
        found[alive.value.kind] = found.get(alive.value.kind, 0.0) + float(alive.value.elements())
    return tuple(Share(kind, elements) for kind, elements in found.items())


def sent_shares(trace: Trace) -> tuple[Share, ...]:
    """What the rank sends that sends most, by operation: collectives in the order of their table, then messages."""
    if not trace.programs:
        return ()
    most = max(sends(trace), key=lambda mine: sum(elements for elements, _ in mine.values()))
    return tuple(Share(op, float(most[op][0])) for op in (*COLLECTIVES, *MESSAGES) if op in most and most[op][0])


def counts(trace: Trace) -> Counts:
    """The collectives and messages of the rank that has most of each."""
    collectives: dict[str, int] = {}
    messages = 0
    for program in trace.programs:
        mine: dict[str, int] = {}
        for event in program.events:
            if event.start is not None and (event.op in COLLECTIVES or event.op == "pass_to"):
                mine[event.op] = mine.get(event.op, 0) + 1
        messages = max(messages, mine.pop("pass_to", 0))
        for op, count in mine.items():
            collectives[op] = max(collectives.get(op, 0), count)
    return Counts({op: collectives[op] for op in COLLECTIVES if op in collectives}, messages)
