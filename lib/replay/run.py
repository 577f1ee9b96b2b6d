"""replay: from a Trace to a result. Plans, makes sure that it fits, runs the ranks, and compares.

This module knows torch; `lib.replay` imports it only when something is to be replayed.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from lib.replay.errors import RankRaised, ReplayError, WrongWorld
from lib.replay.layers import reference as truth
from lib.replay.layers.layers import Source
from lib.replay.measure import assemble, whole_step
from lib.replay.options import Hook, ReplayOptions, can_fork
from lib.replay.plan.memory import predict, refuse_if_too_large, simulated_curve
from lib.replay.plan.plan import Plan, describe_event, make_plan
from lib.replay.plan.sizes import Sizes
from lib.replay.rank.interpreter import Kit
from lib.replay.rank.worker import Report, job
from lib.replay.result import LibraryResult, RankFigures, ReplayResult
from lib.replay.transports import local
from lib.trace.event import COMMUNICATION
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.values import Value

__all__ = ["assembled", "compared", "device_of", "make_source", "prepare", "run_forked", "run_local"]


def prepare(trace: Trace, options: ReplayOptions, here: Sequence[int] | None = None) -> Plan:
    """The plan of a replay that fits. UnfitTrace or NotEnoughMemory before anything is started.

    `here` are the ranks that this machine is to hold, under torchrun; without it, it holds all.
    """
    plan = make_plan(trace, Sizes(options.hidden, options.length, options.moments, options.number.bytes))
    refuse_if_too_large(predict(plan, options, here), options)
    return plan


def make_source(plan: Plan, options: ReplayOptions, share: bool = True) -> Source:
    """Where the initial numbers come from."""
    return Source(plan.sizes, getattr(torch, options.dtype), options.seed, share)


def device_of(options: ReplayOptions, local_rank: int) -> torch.device:
    """The device of a rank: the CPU, or the GPUs in turn. WrongWorld where there are too few."""
    if not options.on_gpu:
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if count == 0:
        raise WrongWorld("there is no GPU here that torch can use: transport='gloo', device='cpu' needs none")
    if options.transport == "nccl" and local_rank >= count:
        raise WrongWorld(
            f"nccl needs a GPU for each rank of a machine: this one has {count}, and a rank number {local_rank}. "
            "With transport='gloo', device='cuda' several ranks share one"
        )
    return torch.device("cuda", local_rank % count)


def run_local(plan: Plan, options: ReplayOptions, hook: Hook | None = None) -> ReplayResult:
    """All ranks in this process, taking turns."""
    begun = time.perf_counter_ns()
    source = make_source(plan, options)
    world = local.LocalWorld(plan.ranks)
    at = [-1] * plan.ranks
    kits: list[Kit] = []
    for rank, desk in enumerate(plan.desks):
        results = torch.zeros(desk.results, dtype=source.dtype)
        device = device_of(options, rank)
        transport = local.LocalTransport(rank, world)
        kit = Kit(rank, plan, options, source, transport, device, results, hook=hook)
        kit.at = _noted(at, rank)
        kits.append(kit)
    reports: list[Report] = [{} for _ in kits]
    jobs = [_named(plan, at, kit, job(kit, report)) for kit, report in zip(kits, reports, strict=True)]
    with _threads(options.threads):
        local.drive(jobs)
        errors, _ = compared(plan, options, source, [kit.results for kit in kits])
    return assembled(plan, options, reports, begun, errors, {})


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Torch on so many threads for a while: what the process had before comes back."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _noted(at: list[int], rank: int) -> Any:
    def note(index: int) -> None:
        at[rank] = index

    return note


def _named(plan: Plan, at: list[int], kit: Kit, steps: Any) -> Any:
    """The job of a rank, whose errors say where they happened."""
    try:
        yield from steps
    except Exception as error:
        operation = describe_event(plan, kit.rank, at[kit.rank])
        what = f"rank {kit.rank} failed in {operation}: {type(error).__name__}: {error}"
        raise RankRaised(what, rank=kit.rank, operation=operation) from error


def compared(
    plan: Plan, options: ReplayOptions, source: Source, results: Sequence[Tensor]
) -> tuple[list[truth.Deviation], dict[str, list[truth.Deviation]]]:
    """How far the replay, and each library, was from ordinary training."""
    if not options.verify:
        return [], {name: [] for name in options.against}
    true = truth.train(plan, options, source)
    others = {name: truth.compare_library(plan, options, true, results, name) for name in options.against}
    return truth.compare(plan, options, true, results), others


def assembled(
    plan: Plan,
    options: ReplayOptions,
    reports: Sequence[Report],
    begun: int,
    errors: Sequence[truth.Deviation],
    others: dict[str, list[truth.Deviation]],
) -> ReplayResult:
    """The result, from the reports of all ranks and what the comparison gave."""
    measured = assemble(plan, reports)
    return ReplayResult(
        simulated=plan.trace,
        measured=measured.trace,
        options=options,
        unit=measured.unit,
        seconds=measured.steps,
        startup=(max(report["ready"] for report in reports) - begun) / 1e9,
        errors=tuple(errors),
        spreads=measured.spreads,
        ranks=tuple(_figures(plan, rank, report) for rank, report in enumerate(reports)),
        lengths=measured.lengths,
        libraries=tuple(_library(plan, name, reports, others[name]) for name in options.against),
    )


def _library(plan: Plan, name: str, reports: Sequence[Report], errors: Sequence[truth.Deviation]) -> LibraryResult:
    mine: Counter[str] = Counter()
    theirs: Counter[str] = Counter()
    for desk, report in zip(plan.desks, reports, strict=True):
        mine.update(event.op for event in desk.program.events if event.op in COMMUNICATION)
        theirs.update(report["libraries"][name]["counts"])
    steps = [[report["libraries"][name]["steps"][i] for report in reports] for i in range(len(reports[0]["steps"]))]
    seconds = tuple(whole_step(spans, reports) / 1e9 for spans in steps)
    return LibraryResult(name, tuple(errors), seconds, dict(sorted(theirs.items())), dict(sorted(mine.items())))


def _figures(plan: Plan, rank: int, report: Report) -> RankFigures:
    simulated = simulated_curve(plan, rank)
    by_event = tuple((index, simulated[index], values + flying) for index, values, flying, _ in report["memory"])
    return RankFigures(
        rank=rank,
        simulated=max(simulated.values(), default=0.0),
        measured=max((measured for _, _, measured in by_event), default=0),
        in_flight=max((flying for _, _, flying, _ in report["memory"]), default=0),
        sent=sum(moved for _, moved in report["moved"]),
        simulated_sent=_simulated_sent(plan, rank),
        wire=report["wire"],
        allocator=report["allocator_peak"],
        by_event=by_event,
    )


def _simulated_sent(plan: Plan, rank: int) -> float:
    """What the simulator says that a rank sends, in bytes of this replay: rings, and whole messages."""
    desk, sizes = plan.desks[rank], plan.sizes
    total = Fraction(0)
    for index, event in enumerate(desk.program.events):
        if event.op == "pass_to":
            total += _exact(sizes, desk.program.values_of(event.inputs))
        elif (joint := desk.joints.get(index)) is not None:
            row, root = COLLECTIVES[event.op], event.arg[0] if event.arg else 0
            total += row.sent(row.brought(joint.brought), root, lambda values: _exact(sizes, values))[
                joint.members.index(rank)
            ]
    return float(total * sizes.bytes)


def _exact(sizes: Sizes, values: Sequence[Value]) -> Fraction:
    """Elements as the simulator counts them, with fractions, at our sizes."""
    return sum((_exact_one(sizes, value) for value in values), Fraction(0))


def _exact_one(sizes: Sizes, value: Any) -> Fraction:
    share = Fraction(len(value.shards), value.total) if hasattr(value, "shards") else Fraction(1)
    whole = sizes.weight * sizes.width(value) if hasattr(value, "shards") else sizes.batch * len(value.batches)
    return share * whole


def run_forked(plan: Plan, options: ReplayOptions, hook: Hook | None = None) -> ReplayResult:
    """Each rank a process of this machine."""
    from lib.replay.processes.launch import forked

    if not can_fork():
        raise ReplayError(f"{sys.platform} cannot fork the ranks: use transport='local', or torchrun")
    if options.on_gpu:
        device_of(options, plan.ranks - 1)
    begun = time.perf_counter_ns()
    source = make_source(plan, options)
    with forked(plan, options, source, hook) as (reports, results):
        return assembled(plan, options, reports, begun, *compared(plan, options, source, results))
