"""Calibration: measure and fit the constants of this machine, as a cluster for `puzzles plan`.

Matrix products and memory copies are timed on one device, and all-gathers in a replay over all ranks. The formulas
are the planner's (`lib/plan/resources.py`); the constants minimise the relative errors, in closed form. What is not
measured (attention, interference, the network between hosts) is taken from a similar record. This imports torch.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import itertools
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import mul
from typing import Final, NamedTuple

import torch
from torch.utils.benchmark import Timer

from lib.plan.files import cluster_named
from lib.plan.records import CLUSTERS, Cluster, Plan
from lib.plan.resources import product, ring
from lib.replay import ReplayError, replay
from lib.replay.options import ReplayOptions
from lib.schedules.data_parallel import fully_sharded
from lib.simulator.simulator import simulate

RATES: Final = {"product": ("flops", "gemm"), "copy": ("hbm", "hbm_share"), "all-gather": ("nvlink", "link_share")}
"""Each kind of work timed, and the two Cluster fields whose product is its rate: the peak and the share of it."""
WARMUP, ROUNDS, LONG_ENOUGH = 2, 9, 0.1
"""Unmeasured steps of a replay, the steps whose median counts, and the seconds for which other work is repeated."""
Sizes = Mapping[str, Sequence[tuple[int, ...]]]
"""By kind of work: M, N and K of products, the bytes of copies, and the sides of gathered weights."""
SIZES: Final[Mapping[str, Sizes]] = {
    "cuda": {
        "all-gather": [(512,), (1024,), (2048,), (8192,)],
        "product": [*itertools.product((2048, 8192), repeat=3), (4096, 4096, 4096)],
        "copy": [(2**28,), (2**30,)],
    },
    "cpu": {
        "all-gather": [(256,), (512,), (1024,), (2048,)],
        "product": [*itertools.product((128, 1024), repeat=3), (256, 256, 256), (512, 512, 512)],
        "copy": [(2**26,), (2**27,)],
    },
}
"""By device. Copies are larger than a cache, and the largest products are near the peak."""


class Timed(NamedTuple):
    """The median `seconds` of a product (`sizes` M, N, K), a copy (bytes) or an all-gather (bytes of its result)."""

    kind: str
    sizes: tuple[int, ...]
    seconds: float


def calibrated(like: str | None, ranks: int | None, backend: str | None) -> tuple[Cluster, list[Timed], int]:
    """Measure this machine's GPU, or its CPU without one: return its cluster, the timings and the number of ranks.

    `like` is a cluster's name or file: by default the one named after the GPU, else h100, whose data sheet is then
    ignored. `ranks` defaults to the number of GPUs for nccl and to two for gloo. ReplayError where the ranks cannot be
    started or the times make no sense, ValueError for options that contradict each other.
    """
    on_gpu = torch.cuda.is_available()
    place, numbers = ("cuda", "bfloat16") if on_gpu else ("cpu", "float32")  # few CPUs have units for bfloat16
    way = backend or ("nccl" if on_gpu else "gloo")
    options = ReplayOptions(transport=way, device=place, dtype=numbers, warmup=WARMUP, steps=ROUNDS, verify=False)
    ranks = ranks or (torch.cuda.device_count() if way == "nccl" else 2)
    device = torch.cuda.get_device_name() if on_gpu else f"a core of a CPU ({platform.machine()})"
    known = like or next((name for name in CLUSTERS if name in device.lower()), None)
    base = cluster_named(known or "h100")
    if on_gpu:
        base = replace(base, memory=float(torch.cuda.get_device_properties(0).total_memory))
    timed = measured(options, ranks, SIZES[place])
    cluster = fitted(timed, base, ranks, sheet=on_gpu and known is not None)
    rings = f"all-gathers of {ranks} ranks over {way}" if ranks > 1 else "one rank, so no ring"
    source = f"Measured on {device} with torch {torch.__version__}: products in {numbers}, copies, {rings}"
    return replace(cluster, source=f"{source}; all else is that of {known or 'h100'}"), timed, ranks


def measured(options: ReplayOptions, ranks: int, sizes: Sizes) -> list[Timed]:
    """Time all-gathers, products and copies. The all-gathers come first: a process that has used CUDA cannot fork."""
    timed: list[Timed] = []
    for (side,) in sizes["all-gather"] if ranks > 1 else ():
        result = replay(simulate(fully_sharded(), ranks=ranks, layers=1, batches=ranks), options, hidden=side)
        seconds = next(one.measured for one in result.spreads if one.op == "allgather")
        timed.append(Timed("all-gather", (side * side * options.number.bytes,), seconds))
    device, dtype = torch.device("cuda" if options.on_gpu else "cpu"), getattr(torch, options.dtype)
    numbers = torch.Generator(device).manual_seed(0)

    def median_of(call: str, **inputs: torch.Tensor) -> float:
        timer = Timer(call, globals={"torch": torch, **inputs}, num_threads=options.threads)  # as many as a rank has
        return timer.blocked_autorange(min_run_time=LONG_ENOUGH).median

    for m, n, k in sizes["product"]:
        left, right = (torch.randn(*two, generator=numbers, device=device, dtype=dtype) for two in ((m, k), (k, n)))
        timed.append(Timed("product", (m, n, k), median_of("torch.matmul(left, right)", left=left, right=right)))
    for (size,) in sizes["copy"]:
        new, old = (torch.ones(size, device=device, dtype=torch.uint8) for _ in range(2))
        timed.append(Timed("copy", (size,), median_of("new.copy_(old)", new=new, old=old)))
    return timed


def fitted(timed: Sequence[Timed], like: Cluster, ranks: int, *, sheet: bool) -> Cluster:
    """Return the cluster whose constants explain these times best, to four digits. ReplayError where they give no rate.

    Constants that were not timed, such as the ring of a single rank, are those of `like`. With its data `sheet` its
    peaks are kept too, and the share reached is fitted; without a sheet, or above it, the peak is the measured rate.
    """
    constants: dict[str, float] = {}
    for kind, (peak, share) in RATES.items():
        terms = [(*_terms(one, like, ranks), one.seconds) for one in timed if one.kind == kind]
        if not terms:
            continue
        # Each row is divided by its time: what counts is the relative error.
        inverse, more = least_squares([(work / time, other / time, 1.0) for work, other, time in terms])
        if not inverse:
            wrong = f"the times of each {kind} do not grow with its size, so they give no rate"
            raise ReplayError(f"{wrong}: did other programs run on this machine? Try again when they are over")
        of_sheet = sheet and 1 / inverse <= getattr(like, peak)
        constants |= {share: 1 / inverse / getattr(like, peak)} if of_sheet else {peak: 1 / inverse, share: 1.0}
        constants |= {"product": {"half_size": more / inverse}, "all-gather": {"collective": 2 * more}}.get(kind, {})
    return replace(like, **{name: float(f"{value:.4g}") for name, value in constants.items()})


def _terms(one: Timed, like: Cluster, ranks: int) -> tuple[float, float]:
    """Return the two terms of the planner's linear formula: the seconds of the work at a rate of 1, and the seconds
    added by a `half_size` of 1 (to a product) or by one second for each all-gather."""
    plain = replace(like, **dict.fromkeys(itertools.chain(*RATES.values()), 1.0), half_size=0.0, collective=0.0)
    work = predicted(one, plain, ranks)
    return work, predicted(one, replace(plain, half_size=1.0, collective=2.0), ranks) - work


def predicted(one: Timed, cluster: Cluster, ranks: int) -> float:
    """Return the seconds that the planner predicts for the work that was timed."""
    if one.kind == "product":
        m, n, k = one.sizes
        return product(cluster, Plan(1, 1), m, (n, k))
    (size,) = one.sizes
    return 2 * size / cluster.hbm / cluster.hbm_share if one.kind == "copy" else ring(size, ranks, ranks, cluster)


def least_squares(rows: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Return the two non-negative factors that best explain the times; a row is work, other work and time."""
    a, b, t = zip(*rows, strict=True)
    aa, ab, bb, at, bt = (sum(map(mul, *pair)) for pair in ((a, a), (a, b), (b, b), (a, t), (b, t)))
    determinant = aa * bb - ab * ab
    if determinant > 1e-9 * aa * bb:
        found = (at * bb - bt * ab) / determinant, (bt * aa - at * ab) / determinant
        if min(found) >= 0:
            return found
    # Only one kind, the one that explains more: its residual is t.t - (x.t)^2 / x.x.
    if not bb or at * at / aa > bt * bt / bb * (1 + 1e-9):
        return at / aa, 0.0
    return 0.0, bt / bb
