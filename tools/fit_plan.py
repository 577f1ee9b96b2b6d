"""Fit the constants of `lib/plan/clusters.toml` to the published runs that are for it, and print them.

    python -m tools.fit_plan

Four fits, each on what the one before left: Megatron on A100, FSDP on A100, FSDP on one host of H100 and on several,
Llama 3's first row. What was fitted to what is said in sets.toml; all other rows are held out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from math import exp, log
from statistics import mean
from typing import Any, Final

from lib.plan.judge import Published, error, published
from lib.plan.records import CLUSTERS, Cluster

SHARES: Final = ("gemm", "hbm_share", "link_share", "attention", "interference")
"""Constants that are at most 1."""
TOLERATED: Final = 0.05
"""Errors below it count by their square, and above it by themselves, so that an odd row does not rule the fit."""
Clusters = dict[str, Cluster]


def fit(runs: Sequence[Published], clusters: Clusters, names: Sequence[str], alike: Sequence[str]) -> Clusters:
    """Return the clusters with the constants `names` of those that are `alike` fitted to runs."""

    def made(logs: Sequence[float]) -> Clusters:
        constants = {name: exp(value) for name, value in zip(names, logs, strict=True)}
        return clusters | {one: replace(clusters[one], **constants) for one in alike}

    def loss(logs: Sequence[float]) -> float:
        if any(value > 0 for name, value in zip(names, logs, strict=True) if name in SHARES):
            return 1e9
        there = made(logs)
        return sum((1 + (log(1 + error(run, there)) / TOLERATED) ** 2) ** 0.5 for run in runs)

    usual: dict[str, Any] = {
        one.name: one.default for one in fields(Cluster)
    }  # not those of the file: a fit is to be the same again
    return made(minimum(loss, [log(usual[name]) for name in names]))


def minimum(loss: Callable[[Sequence[float]], float], start: Sequence[float]) -> Sequence[float]:
    """Return where a function is least, by Nelder and Mead's simplex (1965) from a start: 60 rounds a dimension."""
    corners = [[x - 0.15 * (i == j) for j, x in enumerate(start)] for i in range(len(start) + 1)]
    points = sorted((loss(corner), corner) for corner in corners)
    for _ in range(60 * len(start)):
        worst = points[-1][1]
        centre = [mean(values) for values in zip(*(corner for _, corner in points[:-1]), strict=True)]

        def beyond(factor: float, c: list[float] = centre, w: list[float] = worst) -> tuple[float, list[float]]:
            corner = [a + factor * (a - b) for a, b in zip(c, w, strict=True)]
            return loss(corner), corner

        new = beyond(1)
        if new < points[0]:
            new = min(new, beyond(2))
        elif new >= points[-2]:
            new = min(new, beyond(-0.5))
        if new < points[-1]:
            points[-1] = new
        else:
            best = points[0][1]
            halved = [[(a + b) / 2 for a, b in zip(corner, best, strict=True)] for _, corner in points[1:]]
            points = [points[0], *((loss(corner), corner) for corner in halved)]
        points.sort()
    return points[0][1]


def fitted() -> Clusters:
    """Return all clusters with the constants that the published runs give."""

    def of(*sets: str) -> list[Published]:
        return [run for run in published() if run.set in sets]

    clusters: Clusters = dict(CLUSTERS)
    a100, h100 = ("a100", "a100-100g", "a100-eager"), ("h100", "h100-llama3", "h100-titan", "h200", "h800", "b200")
    clusters = fit(of("vtrain_fitted"), clusters, ("gemm", "half_size", "link_share", "collective"), a100)
    clusters = fit(of("foundry_a100_fitted"), clusters, ("attention", "hbm_share", "interference"), a100[-1:])
    eager = clusters["a100-eager"]
    for name in a100[:-1]:  # Megatron's kernels are fused: its share of HBM is not that of PyTorch without a compiler
        clusters[name] = replace(clusters[name], attention=eager.attention, interference=eager.interference)
    clusters |= {name: replace(clusters[name], collective=eager.collective) for name in h100}
    clusters = fit(of("foundry_h100_fitted"), clusters, ("gemm", "half_size", "attention", "interference"), h100)
    clusters = fit(of("foundry_hosts_fitted"), clusters, ("hop",), h100)
    clusters = fit(of("torchtitan_cp")[:1], clusters, ("attention",), ("h100-titan",))
    llama = replace(clusters["h100-llama3"], attention=clusters["h100-titan"].attention)
    clusters["h100-titan"] = replace(clusters["h100-titan"], attention=clusters["h100"].attention)
    return fit(of("llama3_fitted"), clusters | {"h100-llama3": llama}, ("gemm",), ("h100-llama3",))


def main() -> None:
    """Print the fitted constants beside those of the file."""
    for name, cluster in fitted().items():
        print(f"[{name}]")
        for constant in (*SHARES, "half_size", "collective", "hop"):
            print(
                f"{constant} = {getattr(cluster, constant):.4g}  # the file has {getattr(CLUSTERS[name], constant):g}"
            )


if __name__ == "__main__":
    main()
