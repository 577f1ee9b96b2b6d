"""replay: from a job to a result. Runs the ranks, wherever they are to be, and puts together what they report.

This module knows torch; `lib.replay` imports it only when something is to be replayed.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from lib.replay.errors import ReplayError
from lib.replay.examples import Examples, Reader
from lib.replay.layers.reference import Comparison, Deviation, compared
from lib.replay.measure import assemble, whole_step
from lib.replay.options import Hook, ReplayOptions
from lib.replay.plan.describe import raised
from lib.replay.plan.memory import plan_that_fits, simulated_curve
from lib.replay.plan.plan import Plan
from lib.replay.plan.processes import processes_of
from lib.replay.processes import torchrun
from lib.replay.rank.context import Job, RankContext, device_of
from lib.replay.rank.steps import Report, steps
from lib.replay.result import LibraryResult, ProcessFigures, RankFigures, ReplayResult
from lib.replay.transports.local import LocalTransport, LocalWorld, drive
from lib.replay.transports.transport import Handle
from lib.trace.trace import Trace
from lib.values.operations import COMMUNICATION

__all__ = ["run"]


def run(trace: Trace, options: ReplayOptions, hook: Hook | None = None) -> ReplayResult:
    """Replays a Trace: in this process, as one process of torchrun, or in processes of its own."""
    if options.profile is not None and any(len(ranks) > 1 for ranks in processes_of(trace, options)):
        raise ReplayError("torch.profiler records a process, so a profile needs one for each rank: leave out processes")
    if options.profile is not None:
        _has_room_for(options.profile)
        _clear(Path(options.profile), ("replay", *options.against), trace.ranks)
    if options.transport == "local":
        return _run_local(Job.of(plan_that_fits(trace, options), options, hook))
    if torchrun.process_here() is not None:
        here = torchrun.ranks_of_this_machine(processes_of(trace, options))
        plan = plan_that_fits(trace, options, here)
        return _run_torchrun(Job.of(plan, options, hook, share=False))
    return _run_forked(Job.of(plan_that_fits(trace, options), options, hook))


def _has_room_for(profiles: str) -> None:
    """Makes the folder of profiles. ReplayError before the run, and not after it, where none can be written there."""
    try:
        Path(profiles).mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ReplayError(f"profiles are written into a folder; {profiles} is a file") from None
    except OSError as error:
        raise ReplayError(f"profiles cannot be written into {profiles}: {error.strerror}") from None
    if not os.access(profiles, os.W_OK):
        raise ReplayError(f"profiles cannot be written into {profiles}: Permission denied")


def _clear(profiles: Path, names: Sequence[str], ranks: int) -> None:
    """Takes away what an earlier run of more ranks left of these profiles: the rest of them is written over."""
    for name in names:
        for path in profiles.glob(f"{name}_rank*.json"):
            rank = path.stem.removeprefix(f"{name}_rank")
            if rank.isdecimal() and int(rank) >= ranks:
                path.unlink(missing_ok=True)


def _run_local(job: Job) -> ReplayResult:
    """All ranks in this process, taking turns. Each process of the job has a reader all the same."""
    begun = time.perf_counter_ns()
    plan, world = job.plan, LocalWorld(job.plan.ranks)
    reports: list[Report] = [{} for _ in range(plan.ranks)]
    with _threads(job.options.threads), tempfile.TemporaryDirectory(prefix="puzzles-replay-") as folder:
        examples = Examples(Path(folder))
        examples.write(job.examples())
        readers = {rank: reader for ranks in job.processes for reader in [Reader(examples)] for rank in ranks}
        contexts = [
            RankContext(
                job,
                rank,
                LocalTransport(rank, world),
                readers[rank],
                device_of(job.options, rank),
                torch.zeros(kept, dtype=job.initial.dtype),
            )
            for rank, kept in enumerate(job.kept)
        ]
        drive([_named(context, report) for context, report in zip(contexts, reports, strict=True)])
        comparison = compared(plan, job.options, job.initial, [context.results for context in contexts])
    return _assembled(job, reports, begun, comparison)


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Torch on so many threads for a while: what the process had before comes back."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _named(context: RankContext, report: Report) -> Iterator[Handle]:
    """The steps of a rank, whose errors say where they happened."""
    now = -1

    def now_in(index: int) -> None:
        nonlocal now
        now = index

    context.now_in = now_in
    try:
        yield from steps(context, report)
    except Exception as error:
        raise raised(context.plan, context.rank, now, f"{type(error).__name__}: {error}") from error


def _run_torchrun(job: Job) -> ReplayResult:
    """This process's ranks. Every process gets the result."""
    rank, reports, comparison = torchrun.play_here(job)
    return replace(_assembled(job, reports, 0, comparison), rank=rank)


def _run_forked(job: Job) -> ReplayResult:
    """In processes of this machine."""
    from lib.replay.processes.launch import forked  # here and not above: it needs a system that can fork

    begun = time.perf_counter_ns()
    with forked(job) as (reports, results):
        return _assembled(job, reports, begun, compared(job.plan, job.options, job.initial, results))


def _assembled(job: Job, reports: Sequence[Report], begun: int, comparison: Comparison) -> ReplayResult:
    """The result, from the reports of all ranks and what the comparison gave."""
    plan = job.plan
    measured = assemble(plan, reports)
    return ReplayResult(
        simulated=plan.trace,
        measured=measured.trace,
        options=job.options,
        unit=measured.unit,
        seconds=measured.steps,
        startup=(max(report["ready"] for report in reports) - begun) / 1e9,
        errors=tuple(comparison.replay),
        spreads=measured.spreads,
        ranks=tuple(_figures(plan, rank, report) for rank, report in enumerate(reports)),
        lengths=measured.lengths,
        processes=tuple(_process_figures(ranks, [reports[rank] for rank in ranks]) for ranks in job.processes),
        libraries=tuple(_library(plan, name, reports, found) for name, found in comparison.libraries.items()),
    )


def _library(plan: Plan, name: str, reports: Sequence[Report], errors: Sequence[Deviation]) -> LibraryResult:
    mine: Counter[str] = Counter()
    theirs: Counter[str] = Counter()
    counts: list[dict[str, int]] = [report["libraries"][name]["counts"] for report in reports]
    for rank_plan, counted in zip(plan.rank_plans, counts, strict=True):
        mine.update(event.op for event in rank_plan.program.events if event.op in COMMUNICATION)
        theirs.update(counted)
    steps = [[report["libraries"][name]["steps"][i] for report in reports] for i in range(len(reports[0]["steps"]))]
    return LibraryResult(
        name,
        tuple(errors),
        seconds=tuple(whole_step(spans, reports) / 1e9 for spans in steps),
        counts=dict(sorted(theirs.items())),
        replay_counts=dict(sorted(mine.items())),
        rank_counts=tuple(dict(sorted(counted.items())) for counted in counts),
        by=reports[0]["libraries"][name]["by"],
    )


def _figures(plan: Plan, rank: int, report: Report) -> RankFigures:
    simulated = simulated_curve(plan, rank)
    by_event = tuple((index, simulated[index], values + flying) for index, values, flying, _ in report["memory"])
    return RankFigures(
        rank=rank,
        simulated=max(simulated.values(), default=0.0),
        measured=max((measured for _, _, measured in by_event), default=0),
        in_flight=max((flying for _, _, flying, _ in report["memory"]), default=0),
        sent=report["sent"],
        simulated_sent=_simulated_sent(plan, rank),
        allocator=report["allocator_peak"],
        by_event=by_event,
    )


def _process_figures(ranks: tuple[int, ...], reports: Sequence[Report]) -> ProcessFigures:
    sockets: list[list[int]] = [report["socket_bytes"] for report in reports if report["socket_bytes"] is not None]
    wire = max(after for _, after in sockets) - min(before for before, _ in sockets) if sockets else None
    return ProcessFigures(ranks, wire, *max(map(tuple, (report["read"] for report in reports))))


def _simulated_sent(plan: Plan, rank: int) -> float:
    """What the simulator says that a rank sends, in bytes of this replay: what rows say, and whole messages."""
    rank_plan, sizes = plan.rank_plans[rank], plan.sizes
    sent = [collective.sent(rank, sizes.simulated) for collective in rank_plan.collectives.values()]
    sends = [event for event in rank_plan.program.events if event.op == "pass_to"]
    sent += [sizes.simulated(rank_plan.program.values_of(event.inputs)) for event in sends]
    return float(sum(sent) * sizes.bytes)
