"""How much memory a replay will need, known before anything is started; and how much there is."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lib.analysis.figures import samples
from lib.replay.errors import NotEnoughMemory
from lib.replay.options import ReplayOptions
from lib.replay.plan.plan import IN_FORM, Plan, make_plan
from lib.replay.plan.sizes import Sizes, length
from lib.trace.event import STORES
from lib.trace.trace import Trace
from lib.values.operations import READS

__all__ = ["Need", "available", "plan_that_fits", "predict", "refuse_if_too_large", "simulated_curve"]

PROCESS = 60 * 2**20
"""What a forked rank adds of its own before it holds a tensor: measured 13 MB, with room for workspaces."""


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that a replay needs: `peaks` of the values, a rank; `host` of this machine's main memory in all."""

    peaks: tuple[int, ...]
    host: int


def plan_that_fits(trace: Trace, options: ReplayOptions, here: Sequence[int] | None = None) -> Plan:
    """The plan of a replay that fits. UnfitTrace or NotEnoughMemory before anything is started.

    `here` are the ranks that this machine is to hold, under torchrun; without it, it holds all.
    """
    plan = make_plan(trace, Sizes.of(trace, options))
    refuse_if_too_large(predict(plan, options, here), options)
    return plan


def simulated_curve(plan: Plan, rank: int) -> dict[int, float]:
    """By event, the bytes that the simulator says are alive when it starts, at the sizes of the replay."""
    return {sample.index: plan.sizes.simulated_bytes(sample.by_kind) for sample in samples(plan.trace, rank)}


def predict(plan: Plan, options: ReplayOptions, here: Sequence[int] | None = None) -> Need:
    """What a replay will need of this machine, from the simulated memory. `here` are its ranks, where not all are."""
    sizes, number = plan.sizes, options.number.bytes
    ranks = range(plan.ranks) if here is None else [rank for rank in here if rank < plan.ranks]
    peaks = tuple(round(max(simulated_curve(plan, rank).values(), default=0.0)) for rank in range(plan.ranks))
    layers, batches = plan.trace.layers, plan.trace.shape.items
    results = [rank_plan.kept * number for rank_plan in plan.rank_plans]
    if here is None:  # the data and the first weights once, in memory that forked ranks share
        host = (sizes.weights * (1 + sizes.moments) + batches * (sizes.batch(0) + sizes.batch(layers))) * number
    else:  # every process its own; the first rank collects what all have kept
        host = sum(peaks[rank] + results[rank] for rank in ranks)
    host += sum(results) if 0 in ranks else 0
    host += 0 if options.transport == "local" else PROCESS * len(ranks)
    if options.verify and 0 in ranks:  # training in float64: weights, gradients, states, and what autograd keeps
        activations = sum(map(sizes.batch, range(layers + 1)))
        host += 8 * (sizes.weights * (3 + sizes.moments) + 3 * batches * activations)
    if options.against:
        host += len(ranks) * number * (sizes.weights * (4 + sizes.moments) + 2 * layers * batches * sizes.batch(0))
    if any(event.op in READS for _, event in plan.trace.events()):  # what readers keep
        host += len(ranks) * batches * sizes.batch(0) * number
    if not options.on_gpu:
        host += sum(peaks[rank] + _beside(plan, rank) * number for rank in ranks)
    return Need(peaks, host)


def _beside(plan: Plan, rank: int) -> int:
    """Numbers that are in no value: softmaxes that are kept, and scores, exponentials and gradients of an attention."""
    mine, scores = plan.rank_plans[rank], 0
    for event in mine.program.events:
        if event.op in IN_FORM and (heads := plan.sizes.shape.kinds[event.layer or 0].layer.heads):
            x, *_, keys = [[*plan.sizes.parts(value).values()] for value in mine.inputs(event)]
            scores = max(scores, heads * length(x[0]) * length(x[1]) * length(keys[1]))
    return sum(mine.keeps.values()) + 3 * scores


def refuse_if_too_large(need: Need, options: ReplayOptions) -> None:
    """NotEnoughMemory where the prediction is more than there is, or than the options allow.

    A GPU is not asked: what does not fit there is an error of its operation, where a system that runs out of main
    memory kills whom it likes.
    """
    limit = available() if options.memory_limit is None else options.memory_limit
    if limit is not None and need.host > limit:
        most = max(range(len(need.peaks)), key=need.peaks.__getitem__)
        raise NotEnoughMemory(
            f"this replay needs about {_say(need.host)} of memory (rank {most} alone holds "
            f"{_say(need.peaks[most])} of {', '.join(STORES)}), and {_say(limit)} may be used: "
            "make hidden or length smaller, describe smaller layers, or use a smaller dtype",
            rank=most,
        )


def available() -> int | None:
    """Bytes of main memory that are free for us, where the system says so."""
    found = [number for number in (_meminfo(), _cgroup()) if number is not None]
    if found:
        return min(found)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _meminfo() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _cgroup() -> int | None:
    folder = Path("/sys/fs/cgroup")
    try:
        limit = (folder / "memory.max").read_text("ascii").strip()
        used = (folder / "memory.current").read_text("ascii").strip()
    except OSError:
        return None
    return int(limit) - int(used) if limit.isdigit() and used.isdigit() else None


def _say(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"
