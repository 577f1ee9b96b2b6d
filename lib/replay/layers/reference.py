"""The reference: one process does ordinary training on the whole batch, with autograd and torch's own optimizer.

In float64, whatever the type of the replay, from the same initial numbers: so the deviation is the replay's own. Each
rank's gradients, updated weights and optimizer states are compared element by element, and final weights of different
ranks with each other.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from torch import Tensor

from lib.replay.layers import optimizers
from lib.replay.layers.initial_numbers import InitialNumbers
from lib.replay.layers.layers import Held
from lib.replay.layers.ranges import common, select
from lib.replay.options import ReplayOptions
from lib.replay.plan.library_plan import library_results
from lib.replay.plan.plan import Plan
from lib.replay.plan.sizes import Range, length
from lib.values.placement import Schema

__all__ = ["Comparison", "Deviation", "Reference", "compare", "compared", "train", "undivided"]

WHATS = ("gradient", "weight", "optimizer state", "final weight", "replicas")


@dataclass(frozen=True, slots=True)
class Deviation:
    """The distance of a replay from ordinary training in one respect: at worst, on which rank and layer.

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
        """Tell whether it is within the tolerance (not a number never is)."""
        return self.relative <= self.tolerance


@dataclass(frozen=True, slots=True)
class Reference:
    """The result of ordinary training: flat float64 tensors, by layer."""

    gradients: Mapping[int, Tensor]
    weights: Mapping[int, Tensor]
    states: Mapping[int, Tensor]

    def of_updates(self) -> Iterator[tuple[str, Mapping[int, Tensor]]]:
        """Return what belongs to an update, in the order in which ranks keep it."""
        return zip(WHATS, (self.gradients, self.weights, self.states), strict=False)


class Comparison(NamedTuple):
    """The worst deviations of a replay, and of each library that was run beside it."""

    replay: list[Deviation]
    libraries: dict[str, list[Deviation]]

    def to_json(self) -> dict[str, Any]:
        """Plain data, for the other ranks."""
        return {
            "replay": [asdict(one) for one in self.replay],
            "libraries": {name: [asdict(one) for one in found] for name, found in self.libraries.items()},
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Comparison:
        """Return what `to_json` gave."""
        libraries = {name: [Deviation(**one) for one in found] for name, found in data["libraries"].items()}
        return cls([Deviation(**one) for one in data["replay"]], libraries)


def compared(plan: Plan, options: ReplayOptions, initial: InitialNumbers, results: Sequence[Tensor]) -> Comparison:
    """Return how far the replay, and each library, was from ordinary training. `results` has what each rank kept."""
    if not options.verify:
        return Comparison([], {name: [] for name in options.against})
    reference = train(plan, options, initial)
    libraries = {name: compare_library(plan, options, reference, results, name) for name in options.against}
    return Comparison(compare(plan, options, reference, results), libraries)


def train(plan: Plan, options: ReplayOptions, initial: InitialNumbers) -> Reference:
    """One step of ordinary training."""
    weighted = [i for i in range(plan.trace.layers) if plan.sizes.weight(i)]
    weights = {i: initial.matrix(i).double().clone().requires_grad_() for i in weighted}
    batches = range(plan.trace.batches)
    y, target = undivided(initial, weights, batches)[-1], initial.rows("target", batches).double()
    initial.layers[-1].loss(y, target.view(y.shape), len(target)).backward()
    gradients = {i: _flat(weights[i].grad) for i in weighted}
    after = {i: weights[i].detach().view(-1) for i in weighted}
    states = [initial("state", i).double() for i in weighted]
    stepped = optimizers.torch_step(options.optimizer, [*gradients.values()], [*after.values()], states)
    return Reference(gradients, after, dict(zip(weighted, stepped, strict=True)))


def undivided(initial: InitialNumbers, weights: Mapping[int, Tensor], batches: Sequence[int]) -> list[Tensor]:
    """The activations of some batches, as one process that has these weights works them out: the data, and then what
    each layer gives."""
    shape, found = initial.sizes.shape, [initial.rows("data", batches).double()]

    def held(tensor: Tensor, schema: Schema) -> Held:
        sizes = {role: dim.size for role, dim in zip(schema.roles[: schema.ndim], schema.spaces, strict=False)}
        if "batch" in sizes:
            sizes["batch"] = len(batches)
        return Held(tensor.view(*sizes.values()), {role: ((0, size),) for role, size in sizes.items()})

    for number, (kind, layer) in enumerate(zip(shape.kinds, initial.layers, strict=True)):
        takes = [held(found[one], schema) for one, schema in zip(shape.of(number), kind.activations, strict=True)]
        if kind.weight is not None:
            takes.append(held(weights[number], kind.weight))
        found.append(layer.whole(takes[0], takes[-1]).reshape(-1, dict(kind.gives)["features"].size))
    return found


def _flat(tensor: Tensor | None) -> Tensor:
    assert tensor is not None, "every weight takes part in the loss"
    return tensor.reshape(-1)


def compare(plan: Plan, options: ReplayOptions, reference: Reference, results: Sequence[Tensor]) -> list[Deviation]:
    """The worst deviation in each respect. `results` has what each rank kept (see plan.Compared)."""
    worst: dict[str, Deviation] = {}
    tolerance = options.number.tolerance
    seen: dict[tuple[int, tuple[Range, ...]], Tensor] = {}

    def note(what: str, rank: int, layer: int, event: int | None, found: Tensor, true: Tensor) -> None:
        absolute, relative = difference(found, true)
        before = worst.get(what)
        # Not a number is worse than any, and is not displaced.
        if before is None or (before.relative == before.relative and not relative <= before.relative):
            worst[what] = Deviation(what, absolute, relative, rank, layer, event, tolerance)

    for rank, (rank_plan, kept) in enumerate(zip(plan.rank_plans, results, strict=True)):
        for event, updated in rank_plan.updates.items():
            at = updated.offset
            for what, true in reference.of_updates():
                whole = plan.sizes.weight(updated.layer)
                width = true[updated.layer].numel() // whole
                numel = length(updated.ranges) * width
                part = select(true[updated.layer], [(0, whole)], updated.ranges, width)
                note(what, rank, updated.layer, event, kept[at : at + numel], part)
                at += numel
        for event, final in rank_plan.final_weights.items():
            mine = kept[final.offset : final.offset + length(final.ranges)]
            true = select(reference.weights[final.layer], [(0, plan.sizes.weight(final.layer))], final.ranges)
            note("final weight", rank, final.layer, event, mine, true)
            for other in _overlapping(seen, final.layer, final.ranges):
                note("replicas", rank, final.layer, event, *_common(mine, final.ranges, seen[other], other[1]))
            seen.setdefault((final.layer, final.ranges), mine)
    return [worst[what] for what in WHATS if what in worst]


def compare_library(
    plan: Plan, options: ReplayOptions, reference: Reference, results: Sequence[Tensor], name: str
) -> list[Deviation]:
    """The same for what a library computed (see library_plan.LibraryResults)."""
    found: list[Deviation] = []
    for rank, kept in enumerate(results):
        mine = library_results(plan, options.against, rank)[0][name]
        at = mine.offset
        for layer in mine.layers:
            for what, true in reference.of_updates():
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
    return [key for key in seen if key[0] == layer and common(key[1], ranges)]


def _common(mine: Tensor, ranges: Sequence[Range], other: Tensor, theirs: Sequence[Range]) -> tuple[Tensor, Tensor]:
    both = common(ranges, theirs)
    return select(mine, ranges, both), select(other, theirs, both)
