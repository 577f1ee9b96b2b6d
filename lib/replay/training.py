"""The initial numbers, an optimizer's step, and the truth: one process trains on the whole batch, with autograd and
torch's own optimizer, in float64 and from the same initial numbers, so that all deviations are the replay's own.

SGD with momentum keeps one number a weight, exactly the simulated optimizer state. Adam keeps two, side by side, so its
state takes twice the memory that the simulator shows. A replay starts in mid-training: states are not zero, and Adam
has made AGE steps, so that a wrong gradient shows (its scale hardly matters in Adam's first step).
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from lib.replay import UnfitTrace, grids  # noqa: F401 # its layers register themselves in REAL_LAYERS
from lib.replay.layers import REAL_LAYERS, Held, normal
from lib.replay.options import ReplayOptions
from lib.replay.plan import Plan
from lib.replay.result import Comparison, Deviation
from lib.replay.sizes import Sizes, within
from lib.values.dims import RunSet
from lib.values.placement import Elements, Schema

KINDS = ("weight", "state", "data", "target", "classes")
RATE, MOMENTUM, BETAS, EPS = 0.05, 0.9, (0.9, 0.999), 1e-8
AGE = 10
WHATS = ("gradient", "weight", "optimizer state", "final weight", "replicas")


class Kept(NamedTuple):
    """A tensor a rank keeps for comparison: one of WHATS, flat, on the CPU. `event` made it; None for a library."""

    what: str
    layer: int
    elements: RunSet
    event: int | None
    tensor: Tensor


def select(flat: Tensor, have: RunSet, want: RunSet, width: Elements = 1) -> Tensor:
    """Take the elements `want` of a flat tensor of the elements `have`: a view where they are contiguous."""
    if have == want:
        return flat
    parts = [flat[int(low * width) : int(high * width)] for low, high in within(have, want)]
    return parts[0] if len(parts) == 1 else torch.cat(parts or [flat[:0]])


def join(parts: Sequence[tuple[Tensor, RunSet]], width: Elements = 1) -> Tensor:
    """Join flat tensors of disjoint elements into a new one, in the order of the line."""
    pieces: list[tuple[int, Tensor]] = []
    for flat, elements in parts:
        sizes = [int((after - first) * width) for first, after in elements.runs]
        pieces += zip([first for first, _ in elements.runs], flat.split(sizes), strict=True)
    pieces.sort(key=lambda piece: piece[0])
    return torch.cat([tensor for _, tensor in pieces] or [parts[0][0]])


class InitialNumbers:
    """Weights, optimizer states, data, targets and classes of rows, by layer or by batch, as the real layers draw them.

    All are seeded, so that each rank can make what it needs, and drawn in float64, then rounded: all types start alike.
    With `share`, whole tensors are kept once made, for ranks forked later; without it, only data, targets and the parts
    of weights and states asked for. Padding batches are zeros, and their loss has no gradient.
    """

    def __init__(self, sizes: Sizes, dtype: torch.dtype, seed: int = 0, share: bool = True) -> None:
        self.sizes, self.dtype, self.seed, self.share = sizes, dtype, seed, share
        for kind in sizes.shape.kinds:
            if kind.name not in REAL_LAYERS:
                raise UnfitTrace(f"{kind.name} has no real layer: a kind is replayed by a subclass of RealLayer")
        self.layers = [REAL_LAYERS[kind.name](kind, lambda batch: self("classes", batch)) for kind in sizes.shape.kinds]
        self._kept: dict[tuple[str, int], Tensor] = {}
        self._parts: dict[tuple[str, int, RunSet], Tensor] = {}

    def make_all(self) -> None:
        """Make all but the classes, in memory that the ranks forked from here will share."""
        batches = range(self.sizes.shape.items)
        for kind, number in (*product(KINDS[:2], self.sizes.weighted), *product(KINDS[2:4], batches)):
            self(kind, number)

    def __call__(self, kind: str, index: int) -> Tensor:
        """Return one whole tensor, flat, on the CPU. Do not write to it."""
        if (kept := self._kept.get((kind, index))) is not None:
            return kept
        made = self._make(kind, index)
        if self.share or kind in ("data", "target"):
            self._kept[kind, index] = made
        return made

    def slice(self, kind: str, index: int, elements: RunSet, width: int = 1) -> Tensor:
        """Return a copy of some elements of the weight or the state of a layer."""
        part = self._parts.get((kind, index, elements))
        if part is None:
            part = select(self(kind, index), RunSet.span(0, self.sizes.weight(index)), elements, width)
            if not self.share:
                self._parts[kind, index, elements] = part = part.clone()
        return part.clone()

    def rows(self, kind: str, batches: Sequence[int]) -> Tensor:
        """Return a copy of the data or targets of some batches, stacked into one matrix."""
        edge = self.sizes.shape.activations[-1 if kind == "target" else 0]
        features = edge.spaces[edge.ndim - 1].size
        return torch.cat([self(kind, batch) for batch in batches]).view(-1, features)

    def matrix(self, layer: int) -> Tensor:
        """Return the weight of a layer in the form of its dims. Do not write to it."""
        schema = self.sizes.shape.kinds[layer].weight
        assert schema is not None, "a layer that has no weight is not asked for it"
        return self("weight", layer).view([dim.size for dim in schema.spaces])

    def _make(self, kind: str, index: int) -> Tensor:
        sizes, numbers = self.sizes, self.sizes.batch(self.sizes.shape.layers if kind == "target" else 0)
        if kind in ("data", "target") and index >= sizes.shape.batches:
            return torch.zeros(numbers, dtype=self.dtype)
        generator = torch.Generator().manual_seed((self.seed * 8 + KINDS.index(kind)) * 1_000_003 + index)
        match kind:
            case "classes":
                return torch.randint(2**30, (sizes.output_points,), generator=generator)  # of any vocabulary
            case "weight":
                made = self.layers[index].weight(sizes.weight(index), generator)
            case "state":  # not zero, so that a lost or mixed-up one shows; second moments are squares
                made = normal(sizes.weight(index) * sizes.moments, generator)
                made.view(-1, sizes.moments)[:, 1:].square_()
            case "data":
                made = self.layers[0].data(numbers, generator)
            case _:
                made = normal(numbers, generator)
        return made.to(self.dtype)


def step(name: str, grads: list[Tensor], weights: list[Tensor], states: list[Tensor]) -> None:
    """Make one step of optimizer `name`, in place on weights and states (Adam's moments lie side by side).

    Uses torch.optim's functions: its classes first import torch's compiler, which takes longer than most replays.
    """
    told: dict[str, Any] = {"lr": RATE, "weight_decay": 0.0, "maximize": False, "foreach": False}
    if name == "sgd":
        sgd(weights, grads, [*states], momentum=MOMENTUM, dampening=0.0, nesterov=False, **told)
        return
    firsts, seconds = ([state.view(-1, 2)[:, moment] for state in states] for moment in range(2))
    ages = [torch.tensor(float(AGE)) for _ in states]
    adam(weights, grads, firsts, seconds, [], ages, amsgrad=False, beta1=BETAS[0], beta2=BETAS[1], eps=EPS, **told)


# -- the truth ----------------------------------------------------------------------------------------------------


def undivided(initial: InitialNumbers, weights: Mapping[int, Tensor], batches: Sequence[int]) -> list[Tensor]:
    """Return the activations of some batches as one process computes them: the data, then the output of each layer."""
    shape, found = initial.sizes.shape, [initial.rows("data", batches).double()]

    def held(tensor: Tensor, schema: Schema) -> Held:
        sizes = {role: dim.size for role, dim in zip(schema.roles[: schema.ndim], schema.spaces, strict=False)}
        sizes |= {"batch": len(batches)} if "batch" in sizes else {}
        form = [*sizes.values()] if schema.route is None else [-1, sizes["features"]]
        return Held(tensor.view(form), {role: RunSet.span(0, size) for role, size in sizes.items()})

    for number, (kind, layer) in enumerate(zip(shape.kinds, initial.layers, strict=True)):
        takes = [held(found[one], schema) for one, schema in zip(shape.of(number), kind.activations, strict=True)]
        if kind.weight is not None:
            takes.append(held(weights[number], kind.weight))
        found.append(layer.whole(takes[0], takes[-1]).reshape(-1, kind.gives["features"].size))
    return found


def _train(plan: Plan, options: ReplayOptions, initial: InitialNumbers) -> dict[str, dict[int, Tensor]]:
    """Do one ordinary step; return gradients, weights and states by their name in WHATS and layer, flat, in float64."""
    weighted = plan.sizes.weighted
    weights = {i: initial.matrix(i).double().clone().requires_grad_() for i in weighted}
    batches = range(plan.trace.batches)
    y, target = undivided(initial, weights, batches)[-1], initial.rows("target", batches).double()
    initial.layers[-1].loss(y, target.view(y.shape), len(target)).backward()
    grads: list[Any] = [weight.grad for weight in weights.values()]
    gradients, after = [grad.reshape(-1) for grad in grads], [weight.detach().view(-1) for weight in weights.values()]
    states = [initial("state", i).to(torch.float64, copy=True) for i in weighted]
    step(options.optimizer, gradients, after, states)
    each = (dict(zip(weighted, results, strict=True)) for results in (gradients, after, states))
    return dict(zip(WHATS, each, strict=False))


def compared(
    plan: Plan, options: ReplayOptions, initial: InitialNumbers, kept: Sequence[Mapping[str, Sequence[Kept]]]
) -> Comparison:
    """Return how far the replay ("") and each library deviate from ordinary training, by what each rank has kept."""
    names = ("", *options.against)
    if not options.verify:
        return {name: [] for name in names}
    truth, sizes = _train(plan, options, initial), plan.sizes

    def deviations(name: str) -> Iterator[Deviation]:
        finals: dict[tuple[int, RunSet], Tensor] = {}
        for rank, of_rank in enumerate(kept):
            for what, layer, elements, event, mine in of_rank[name]:
                where, whole = (rank, layer, event, options.number.tolerance), sizes.weight(layer)
                true = truth[what.removeprefix("final ")][layer]
                true = select(true, RunSet.span(0, whole), elements, true.numel() // whole)
                yield Deviation(what, *difference(mine, true), *where)
                if what == "final weight":
                    for (of, theirs), other in finals.items():
                        if of == layer and (both := elements & theirs):
                            pair = select(mine, elements, both), select(other, theirs, both)
                            yield Deviation("replicas", *difference(*pair), *where)
                    finals.setdefault((layer, elements), mine)

    return {name: _worst([*deviations(name)]) for name in names}


def _worst(deviations: Sequence[Deviation]) -> list[Deviation]:
    """Return the worst deviation in each respect; NaN is worse than any number."""
    each = ([one for one in deviations if one.what == what] for what in WHATS)
    return [max(some, key=lambda one: math.inf if math.isnan(one.relative) else one.relative) for some in each if some]


def difference(found: Tensor, true: Tensor) -> tuple[float, float]:
    """Return the largest difference of two tensors, and the same divided by the largest entry of the second."""
    if found.numel() == 0:
        return 0.0, 0.0
    absolute, scale = (found.double() - true).abs().max().item(), true.abs().max().item()
    return absolute, absolute / scale if scale else (0.0 if absolute == 0 else math.inf)
