"""Which ranks keep the results of which library, and whether a library can train this model on these ranks at all."""

from __future__ import annotations

from dataclasses import dataclass

from lib.replay.errors import ReplayError
from lib.replay.plan.plan import Plan

__all__ = ["PIPELINES", "LibraryResults", "batches_of", "layers_of", "library_results"]

PIPELINES = ("gpipe", "1f1b")


@dataclass(frozen=True, slots=True)
class LibraryResults:
    """What a rank keeps of a library's step: gradient, weight and state of whole layers, from `offset` on."""

    offset: int
    layers: tuple[int, ...]


def library_results(plan: Plan, against: tuple[str, ...], rank: int) -> tuple[dict[str, LibraryResults], int]:
    """What a rank keeps of each library, and how many numbers it keeps in all."""
    at = plan.rank_plans[rank].kept
    found: dict[str, LibraryResults] = {}
    for name in against:
        _refuse(plan, name)
        layers = layers_of(plan, name, rank)
        if name not in PIPELINES and rank != 0:
            layers = ()
        found[name] = LibraryResults(at, layers)
        at += len(layers) * plan.sizes.weight * (2 + plan.sizes.moments)
    return found, at


def layers_of(plan: Plan, name: str, rank: int) -> tuple[int, ...]:
    """The layers that a rank trains: all, or those of its stage."""
    layers = plan.trace.layers
    if name not in PIPELINES:
        return tuple(range(layers))
    each = layers // plan.ranks
    return tuple(range(rank * each, (rank + 1) * each))


def batches_of(plan: Plan, rank: int) -> range:
    """The batches of a rank where each takes every n-th."""
    return range(rank, plan.trace.batches, plan.ranks)


def _refuse(plan: Plan, name: str) -> None:
    ranks, layers, batches = plan.ranks, plan.trace.layers, plan.trace.batches
    wrong = None
    if ranks == 1:
        wrong = "more than one rank"
    elif name in PIPELINES and layers % ranks:
        wrong = f"as many layers on each rank: {layers} do not divide by {ranks}"
    elif name not in PIPELINES and batches < ranks:
        wrong = f"a batch for every rank: there are {batches} for {ranks}"
    elif name == "hsdp" and ranks % 2:
        wrong = f"an even number of ranks, for a mesh of 2 x n; there are {ranks}"
    if wrong is not None:
        raise ReplayError(f"{name} cannot train beside this Trace: it needs {wrong}")
