"""replay: from a job to a result. Runs the ranks, wherever they are to be, and puts together what they report.

The measured Trace has the same events with the times that they really took. A measured time unit is the median forward
of one batch. A collective starts when its last member has called it, a receive when the message was sent. Shown is the
step whose whole time is the median, not a mixture. This imports torch: only when something is to be replayed.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from lib.cluster.costs import TICKS
from lib.replay.layers.training import Comparison
from lib.replay.options import Hook, ReplayOptions
from lib.replay.plan import Plan, plan_of, raised
from lib.replay.rank.context import Job, RankContext, Reader, device_of
from lib.replay.rank.interpreter import Report, Times, steps
from lib.replay.rank.play import play_with_torchrun, torchrun_is_here
from lib.replay.rank.transport import Handle, LocalTransport, LocalWorld, drive
from lib.replay.result import Deviation, LibraryResult, RankFigures, ReplayResult, Spread
from lib.replay.sizes import refuse_if_too_large, simulated_curve
from lib.trace.event import Event, Program
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMMUNICATION, COMPUTE, MESSAGES, OPERATIONS, READS
from lib.values.values import Activation


def run(trace: Trace, options: ReplayOptions, hook: Hook | None = None) -> ReplayResult:
    """Replay a Trace: in this process, as one process of torchrun, or in processes of its own."""
    plan = plan_of(trace, options)
    if options.transport != "local" and torchrun_is_here():
        job = Job.of(plan, options, hook, share=False)
        rank, reports, comparison = play_with_torchrun(job)
        return replace(_assembled(job, reports, 0, comparison), rank=rank)
    refuse_if_too_large(plan, options)  # under torchrun each machine has a part of it, whose size the system tells
    job = Job.of(plan, options, hook)
    if options.transport == "local":
        return _run_local(job)
    from lib.replay.rank.forked import forked  # here and not above: it needs a system that can fork

    begun = time.perf_counter_ns()
    with forked(job) as (reports, results):
        return _assembled(job, reports, begun, job.compared(results))


def _run_local(job: Job) -> ReplayResult:
    """Run all ranks in this process, taking turns."""
    begun, threads, world = time.perf_counter_ns(), torch.get_num_threads(), LocalWorld(job.plan.ranks)
    reports: list[Report] = [{} for _ in range(job.plan.ranks)]
    torch.set_num_threads(job.options.threads)
    try:
        with tempfile.TemporaryDirectory(prefix="puzzles-replay-") as folder:
            job.write_examples(Path(folder))
            contexts: list[RankContext] = []
            for rank, kept in enumerate(job.kept):
                way, device = LocalTransport(rank, world), device_of(job.options, rank)
                results = torch.zeros(kept, dtype=job.initial.dtype)
                contexts.append(RankContext(job, rank, way, Reader(Path(folder)), device, results))
            drive([_named(context, report) for context, report in zip(contexts, reports, strict=True)])
            comparison = job.compared([context.results for context in contexts])
    finally:
        torch.set_num_threads(threads)
    return _assembled(job, reports, begun, comparison)


def _named(context: RankContext, report: Report) -> Iterator[Handle]:
    """Do the steps of a rank, whose errors say where they happened."""
    try:
        yield from steps(context, report)
    except Exception as error:
        raise raised(context.plan, context.rank, context.now, f"{type(error).__name__}: {error}") from error


# -- the result ---------------------------------------------------------------------------------------------------


def _assembled(job: Job, reports: Sequence[Report], begun: int, comparison: Comparison) -> ReplayResult:
    """Put the result together, from the reports of all ranks and what the comparison gave."""
    plan, count = job.plan, len(reports[0]["steps"])
    shared = all(report["shared_clock"] for report in reports)
    unit = _unit(plan, reports)
    seconds = unit / 1e9
    whole = [_whole_step([report["steps"][n][2:] for report in reports], shared) for n in range(count)]
    runs = [_programs(plan, [report["steps"][n] for report in reports], shared, unit) for n in range(count)]
    middle = sorted(range(count), key=lambda n: whole[n])[(count - 1) // 2]
    by_event = [list(zip(*(run[rank].events for run in runs), strict=True)) for rank in range(plan.ranks)]
    return ReplayResult(
        simulated=plan.trace,
        measured=replace(plan.trace, programs=runs[middle]),
        options=job.options,
        unit=seconds,
        seconds=tuple(n / 1e9 for n in whole),
        startup=(max(report["ready"] for report in reports) - begun) / 1e9,
        errors=tuple(comparison[""]),
        spreads=tuple(_spreads(plan, by_event, seconds)),
        ranks=tuple(_figures(plan, rank, report) for rank, report in enumerate(reports)),
        lengths=tuple(
            tuple(median(event.length for event in same) / TICKS * seconds for same in events) for events in by_event
        ),
        libraries=tuple(_library(plan, name, reports, shared, comparison[name]) for name in job.options.against),
    )


def _library(
    plan: Plan, name: str, reports: Sequence[Report], shared: bool, errors: Sequence[Deviation]
) -> LibraryResult:
    each = [report["libraries"][name] for report in reports]
    events = (event.op for rank_plan in plan.rank_plans for event in rank_plan.program.events)
    theirs = Counter[str]()
    for one in each:
        theirs.update(one["counts"])
    return LibraryResult(
        name,
        tuple(errors),
        seconds=tuple(_whole_step(spans, shared) / 1e9 for spans in zip(*(one["steps"] for one in each), strict=True)),
        counts=dict(sorted(theirs.items())),
        replay_counts=dict(sorted(Counter(op for op in events if op in COMMUNICATION).items())),
        rank_counts=tuple(dict(sorted(one["counts"].items())) for one in each),
        by=each[0]["by"],
    )


def _figures(plan: Plan, rank: int, report: Report) -> RankFigures:
    simulated = simulated_curve(plan, rank)
    by_event = tuple((index, simulated[index], values + flying) for index, values, flying in report["memory"])
    # What it sends according to the simulator: what rows say, and whole messages.
    rank_plan, sizes = plan.rank_plans[rank], plan.sizes
    sent = [collective.sent(rank, sizes.simulated) for collective in rank_plan.collectives.values()]
    sends = [event for event in rank_plan.program.events if event.op == "pass_to"]
    sent += [sizes.simulated(rank_plan.program.values_of(event.inputs)) for event in sends]
    return RankFigures(
        rank=rank,
        simulated=max(simulated.values(), default=0.0),
        measured=max((measured for _, _, measured in by_event), default=0),
        in_flight=max((flying for _, _, flying in report["memory"]), default=0),
        sent=report["sent"],
        simulated_sent=float(sum(sent) * sizes.bytes),
        allocator=report["allocator_peak"],
        wire=report["wire"],
        examples=report["read"][0],
        bytes=report["read"][1],
        by_event=by_event,
    )


# -- times --------------------------------------------------------------------------------------------------------


def _whole_step(spans: Sequence[Sequence[int]], shared: bool) -> int:
    """Return the nanoseconds of a whole step, from the first rank's start to the last rank's end."""
    if shared:
        return max(end for _, end in spans) - min(start for start, _ in spans)
    return max(end - start for start, end in spans)


def _unit(plan: Plan, reports: Sequence[Report]) -> float:
    """Return the nanoseconds of the median forward of one batch. What has a part of a weight does a part of that
    work."""
    found: list[float] = []
    for rank_plan, report in zip(plan.rank_plans, reports, strict=True):
        for i, event in enumerate(rank_plan.program.events):
            value = rank_plan.program.values[event.outputs[0]] if event.op == "forward" else None
            if isinstance(value, Activation):
                inputs = rank_plan.inputs(event)
                work = OPERATIONS["forward"].work(plan.trace.shape, event.layer, len(value.batches), inputs)
                if work:  # of no key that a row may see there is none
                    found += [(ends[i] - starts[i]) / float(work) for starts, ends, _, _ in report["steps"]]
    return max(median(found), 1.0) if found else 1e6


def _programs(plan: Plan, times: Sequence[Times], shared: bool, unit: float) -> list[Program]:
    """Return the programs of all ranks in one step, from the moment at which it began, with the times that they
    took."""
    first, scale = min(begun for _, _, begun, _ in times), TICKS / unit
    starts: list[list[int]] = []
    ends: list[list[int]] = []
    for started, ended, begun, over in times:
        zero = first if shared else begun
        starts.append([time - zero for time in started])
        # What was not waited for, and was not seen to end, ended with the step at the latest.
        ends.append([(over if time < 0 else time) - zero for time in ended])
    made: list[Program] = []
    for rank, rank_plan in enumerate(plan.rank_plans):
        events: list[Event] = []
        for index, event in enumerate(rank_plan.program.events):
            called, end = starts[rank][index], ends[rank][index]
            begun = called
            if event.op in COLLECTIVES and (collective := rank_plan.collectives.get(index)) is not None:
                begun = max(starts[other][i] for other, i in zip(collective.members, collective.events, strict=True))
            elif event.op == "receive" and (message := rank_plan.messages.get(index)) is not None:
                begun = max(called, starts[message.source][message.sent])
            start = round(min(begun, end) * scale)
            events.append(event.at(round(called * scale), start, max(0, round(end * scale) - start)))
        made.append(Program(rank, events, rank_plan.program.values, rank_plan.program.moves))
    return made


def _spreads(plan: Plan, by_event: Sequence[Sequence[Sequence[Event]]], seconds: float) -> list[Spread]:
    """Return medians by operation, over all ranks and steps: what computes, in the order in which it is first done,
    then what communicates. Of collectives from the moment at which all were there."""
    simulated: dict[str, list[float]] = {}
    measured: dict[str, list[float]] = {}
    for rank, rank_plan in enumerate(plan.rank_plans):
        for event, same in zip(rank_plan.program.events, by_event[rank], strict=True):
            simulated.setdefault(event.op, []).append(event.length / TICKS)
            measured.setdefault(event.op, []).extend(real.length / TICKS * seconds for real in same)
    return [
        Spread(op, len(simulated[op]), median(simulated[op]), median(measured[op]))
        for kind in (COMPUTE, COLLECTIVES, MESSAGES, READS, ("wait",))
        for op in simulated
        if op in kind
    ]
