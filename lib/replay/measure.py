"""The measured Trace: the same events with the times that they really took, for everything that reads a Trace.

A measured time unit is the median forward of one batch through one layer. A rank's event keeps its order and its
length; a collective starts when its last member has called it, a receive when the message was sent. Shown is the step
whose whole time is the median, not a mixture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from lib.cluster.costs import TICKS
from lib.replay.plan.plan import Plan, RankPlan
from lib.trace.event import Event, Program
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.layers import Shape
from lib.values.operations import COMPUTE, MESSAGES, OPERATIONS, READS
from lib.values.values import Activation

__all__ = ["Measured", "Spread", "assemble", "whole_step"]

Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Spread:
    """How long operations of one kind took, simulated and measured: how many, and the median of one, in seconds."""

    op: str
    count: int
    simulated: float
    measured: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What the steps of a replay give: the Trace, the unit in seconds, all steps' seconds, and medians by operation.

    `lengths` has the median seconds of every event, rank by rank.
    """

    trace: Trace
    unit: float
    steps: tuple[float, ...]
    spreads: tuple[Spread, ...]
    lengths: tuple[tuple[float, ...], ...]


def assemble(plan: Plan, reports: Sequence[Report]) -> Measured:
    """Puts together what the ranks measured."""
    count = len(reports[0]["steps"])
    shared = all(report["shared_clock"] for report in reports)
    whole = [whole_step([report["steps"][n][2:] for report in reports], reports) for n in range(count)]
    unit = _unit(plan, reports)
    middle = sorted(range(count), key=lambda n: whole[n])[(count - 1) // 2]
    runs: list[list[Program]] = []
    for number in range(count):
        starts, ends = _aligned(reports, number, shared)
        runs.append([_program(plan, rank, starts, ends, unit) for rank in range(plan.ranks)])
    made = replace(plan.trace, programs=runs[middle])
    seconds = unit / 1e9
    lengths = tuple(
        tuple(median(event.length for event in same) / TICKS * seconds for same in _by_event(runs, rank))
        for rank in range(plan.ranks)
    )
    spreads = tuple(_spreads(plan, runs, seconds))
    return Measured(made, seconds, tuple(n / 1e9 for n in whole), spreads, lengths)


def _by_event(runs: Sequence[Sequence[Program]], rank: int) -> Iterator[tuple[Event, ...]]:
    """The same event of a rank in all steps, one event after the other."""
    return zip(*(run[rank].events for run in runs), strict=True)


def whole_step(spans: Sequence[tuple[int, int]], reports: Sequence[Report]) -> int:
    """Nanoseconds of a whole step, from the first rank's start to the last rank's end."""
    if all(report["shared_clock"] for report in reports):
        return max(end for _, end in spans) - min(start for start, _ in spans)
    return max(end - start for start, end in spans)


def _unit(plan: Plan, reports: Sequence[Report]) -> float:
    """Nanoseconds of the median forward of one batch."""
    found = [
        (ends[i] - starts[i]) / batches
        for rank_plan, report in zip(plan.rank_plans, reports, strict=True)
        for i, batches in _forwards(plan.trace.shape, rank_plan)
        for starts, ends, _, _ in report["steps"]
    ]
    return max(median(found), 1.0) if found else 1e6


def _forwards(shape: Shape, rank_plan: RankPlan) -> list[tuple[int, float]]:
    """Events that are a forward, with the number of batches that each really has: of a part of a weight, a part."""
    found: list[tuple[int, float]] = []
    for i, event in enumerate(rank_plan.program.events):
        value = rank_plan.program.values[event.outputs[0]] if event.op == "forward" else None
        if isinstance(value, Activation):
            work = OPERATIONS["forward"].work(shape, event.layer, len(value.batches), rank_plan.inputs(event))
            if work:  # of no key that a row may see there is none
                found.append((i, float(work)))
    return found


def _aligned(reports: Sequence[Report], number: int, shared: bool) -> tuple[list[list[int]], list[list[int]]]:
    """Starts and ends of all ranks' events, from the moment at which the step began."""
    begun = [report["steps"][number][2] for report in reports]
    origin = [min(begun)] * len(begun) if shared else begun
    starts: list[list[int]] = []
    ends: list[list[int]] = []
    for report, zero in zip(reports, origin, strict=True):
        first, last, _, over = report["steps"][number]
        starts.append([time - zero for time in first])
        # What nobody waited for, and was not seen to end, ended with the step at the latest.
        ends.append([(over if time < 0 else time) - zero for time in last])
    return starts, ends


def _program(plan: Plan, rank: int, starts: list[list[int]], ends: list[list[int]], unit: float) -> Program:
    rank_plan = plan.rank_plans[rank]
    events: list[Event] = []
    scale = TICKS / unit
    for index, event in enumerate(rank_plan.program.events):
        called, end = starts[rank][index], ends[rank][index]
        begun = called
        if event.op in COLLECTIVES and (collective := rank_plan.collectives.get(index)) is not None:
            begun = max(starts[other][i] for other, i in zip(collective.members, collective.events, strict=True))
        elif event.op == "receive" and (message := rank_plan.messages.get(index)) is not None:
            begun = max(called, starts[message.source][message.sent])
        begun = min(begun, end)
        start = round(begun * scale)
        events.append(event.at(round(called * scale), start, max(0, round(end * scale) - start)))
    return Program(rank, events, rank_plan.program.values, rank_plan.program.moves)


def _spreads(plan: Plan, runs: Sequence[Sequence[Program]], seconds: float) -> list[Spread]:
    """Medians by operation, over all ranks and steps: what computes, in the order in which it is first done, then what
    communicates. Of collectives from the moment at which all were there."""
    simulated: dict[str, list[float]] = {}
    measured: dict[str, list[float]] = {}
    for rank, rank_plan in enumerate(plan.rank_plans):
        for event, same in zip(rank_plan.program.events, _by_event(runs, rank), strict=True):
            simulated.setdefault(event.op, []).append(event.length / TICKS)
            measured.setdefault(event.op, []).extend(real.length / TICKS * seconds for real in same)
    return [
        Spread(op, len(simulated[op]), median(simulated[op]), median(measured[op]))
        for kind in (COMPUTE, COLLECTIVES, MESSAGES, READS, ("wait",))
        for op in simulated
        if op in kind
    ]
