"""The truth: one process does ordinary training on the whole batch, with autograd and torch's own optimizer.

In float64, whatever the type of the replay, from the same initial numbers: so the deviation is the replay's own. Each
rank's gradients, updated weights and optimizer states are compared element by element, and final weights of different
ranks with each other.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lib.replay.layers import layers, optim
from lib.replay.layers.layers import Source
from lib.replay.layers.tensors import select
from lib.replay.options import ReplayOptions
from lib.replay.plan.libraries_plan import shares
from lib.replay.plan.plan import Plan
from lib.replay.plan.sizes import Range, length

__all__ = ["Deviation", "Truth", "compare", "train"]

WHATS = ("gradient", "weight", "optimizer state", "final weight", "replicas")


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far a replay was from the truth in one respect: at worst, on which rank and layer.

    `relative` is the largest difference divided by the largest entry of the true tensor. `event` is the number of the
    operation on that rank, None for what a library computed.
    """

    what: str
    absolute: float
    relative: float
    rank: int
    layer: int
    event: int | None
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether it is within the tolerance (not a number never is)."""
        return self.relative <= self.tolerance


@dataclass(frozen=True, slots=True)
class Truth:
    """Flat float64 tensors, by layer."""

    gradients: list[Tensor]
    weights: list[Tensor]
    states: list[Tensor]


def train(plan: Plan, options: ReplayOptions, source: Source) -> Truth:
    """One step of ordinary training."""
    sizes, trace = plan.sizes, plan.trace
    count = range(trace.layers)
    parameters = [
        torch.nn.Parameter(source("weight", i).double().view(sizes.hidden, sizes.hidden).clone()) for i in count
    ]
    states = [source("state", i).double() for i in count]
    batches = range(trace.batches)
    x, target = source.rows("data", batches).double(), source.rows("target", batches).double()
    for weight in parameters:
        x = layers.forward(x, weight)
    layers.loss(x, target, x.shape[0]).backward()
    gradients = [_flat(weight.grad) for weight in parameters]
    weights = [weight.detach().view(-1) for weight in parameters]
    return Truth(gradients, weights, optim.torch_step(options.optimizer, gradients, weights, states))


def _flat(tensor: Tensor | None) -> Tensor:
    assert tensor is not None, "every weight takes part in the loss"
    return tensor.reshape(-1)


def compare(plan: Plan, options: ReplayOptions, truth: Truth, results: Sequence[Tensor]) -> list[Deviation]:
    """The worst deviation in each respect. `results` has what each rank kept (see plan.Judged and plan.Final)."""
    worst: dict[str, Deviation] = {}
    tolerance = options.number.tolerance
    whole: list[Range] = [(0, plan.sizes.weight)]
    seen: dict[tuple[int, tuple[Range, ...]], Tensor] = {}

    def note(what: str, rank: int, layer: int, event: int | None, found: Tensor, true: Tensor) -> None:
        absolute, relative = difference(found, true)
        before = worst.get(what)
        # Not a number is worse than any, and is not displaced.
        if before is None or (before.relative == before.relative and not relative <= before.relative):
            worst[what] = Deviation(what, absolute, relative, rank, layer, event, tolerance)

    for rank, (desk, kept) in enumerate(zip(plan.desks, results, strict=True)):
        for event, judged in desk.judged.items():
            at = judged.offset
            for what, true, width in (
                ("gradient", truth.gradients, 1),
                ("weight", truth.weights, 1),
                ("optimizer state", truth.states, plan.sizes.moments),
            ):
                numel = length(judged.ranges) * width
                part = select(true[judged.layer], whole, judged.ranges, width)
                note(what, rank, judged.layer, event, kept[at : at + numel], part)
                at += numel
        for event, final in desk.finals.items():
            mine = kept[final.offset : final.offset + length(final.ranges)]
            true = select(truth.weights[final.layer], whole, final.ranges)
            note("final weight", rank, final.layer, event, mine, true)
            for other in _overlapping(seen, final.layer, final.ranges):
                note("replicas", rank, final.layer, event, *_common(mine, final.ranges, seen[other], other[1]))
            seen.setdefault((final.layer, final.ranges), mine)
    return [worst[what] for what in WHATS if what in worst]


def compare_library(
    plan: Plan, options: ReplayOptions, truth: Truth, results: Sequence[Tensor], name: str
) -> list[Deviation]:
    """The same for what a library computed (see shares.Share)."""
    found: list[Deviation] = []
    for rank, kept in enumerate(results):
        share = shares(plan, options.against, rank)[0][name]
        at = share.offset
        for layer in share.layers:
            for what, true in (("gradient", truth.gradients), ("weight", truth.weights), (WHATS[2], truth.states)):
                numel = true[layer].numel()
                off = difference(kept[at : at + numel], true[layer])
                found.append(Deviation(what, *off, rank, layer, None, options.number.tolerance))
                at += numel
    return [sorted((d for d in found if d.what == what), key=_badness)[-1] for what in WHATS[:3]]


def _badness(deviation: Deviation) -> float:
    return deviation.relative if deviation.relative == deviation.relative else float("inf")


def difference(found: Tensor, true: Tensor) -> tuple[float, float]:
    """The largest difference of two tensors, and the same divided by the largest entry of the second."""
    if found.numel() == 0:
        return 0.0, 0.0
    found, true = found.double(), true.double()
    absolute = (found - true).abs().max().item()
    scale = true.abs().max().item()
    return absolute, absolute / scale if scale else (0.0 if absolute == 0 else float("inf"))


def _overlapping(
    seen: Iterable[tuple[int, tuple[Range, ...]]], layer: int, ranges: tuple[Range, ...]
) -> list[tuple[int, tuple[Range, ...]]]:
    return [key for key in seen if key[0] == layer and _intersection(key[1], ranges)]


def _intersection(left: Sequence[Range], right: Sequence[Range]) -> list[Range]:
    found = [(max(a, c), min(b, d)) for a, b in left for c, d in right]
    return sorted((start, stop) for start, stop in found if start < stop)


def _common(mine: Tensor, ranges: Sequence[Range], other: Tensor, theirs: Sequence[Range]) -> tuple[Tensor, Tensor]:
    both = _intersection(ranges, theirs)
    return select(mine, ranges, both), select(other, theirs, both)
