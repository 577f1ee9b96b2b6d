"""The numbers that training starts from. All are seeded: each rank makes those that it needs, and asks nobody."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lib.replay.errors import UnfitTrace
from lib.replay.layers.layers import REAL_LAYERS, RealLayer, normal
from lib.replay.options import ReplayOptions
from lib.replay.plan.plan import Plan
from lib.replay.plan.sizes import Range, Sizes
from lib.values.kinds.kind import LayerKind

__all__ = ["InitialNumbers"]

KINDS = ("weight", "state", "data", "target", "classes")
CLASSES = 2**30
"""More than any vocabulary has."""


class InitialNumbers:
    """Weights, optimizer states, data and targets, by layer or by batch; and the real layers, which say of what kind
    they are. Classes are whole numbers, one for each row of a batch.

    They are drawn in float64 and rounded, so all types start from the same. With `share` whole tensors are kept once
    they are made, as ranks that are forked later share them; without, only the parts of weights that are asked for.
    Batches from the number `batches` on are padding: data and targets of zeros, whose loss has no gradient.
    """

    def __init__(
        self, sizes: Sizes, dtype: torch.dtype, seed: int = 0, share: bool = True, batches: int | None = None
    ) -> None:
        self.sizes = sizes
        self.dtype = dtype
        self.seed = seed
        self.share = share
        self.batches = batches
        self.layers = [self._real(kind) for kind in sizes.shape.kinds]
        self._kept: dict[tuple[str, int], Tensor] = {}
        self._parts: dict[tuple[str, int, tuple[Range, ...]], Tensor] = {}

    @classmethod
    def of(cls, plan: Plan, options: ReplayOptions, share: bool = True) -> InitialNumbers:
        """Those of a replay."""
        return cls(plan.sizes, getattr(torch, options.dtype), options.seed, share, plan.trace.batches)

    def make_all(self, plan: Plan) -> None:
        """Makes all of them, in the memory that ranks will share which are forked from here."""
        for layer in range(plan.trace.layers):
            if self.sizes.weight(layer):
                self("weight", layer)
                self("state", layer)
        for batch in range(plan.trace.shape.items):
            self("data", batch)
            self("target", batch)

    def __call__(self, kind: str, index: int) -> Tensor:
        """One whole tensor, flat, on the CPU. Not to be written to."""
        found = self._kept.get((kind, index))
        if found is None:
            found = self._make(kind, index)
            if self.share or kind in ("data", "target"):
                self._kept[kind, index] = found
        return found

    def slice(self, kind: str, index: int, ranges: Sequence[Range], width: int = 1) -> Tensor:
        """A copy of some ranges of one."""
        key = (kind, index, tuple(ranges))
        if key in self._parts:
            return self._parts[key].clone()
        whole = self(kind, index)
        parts = [whole[start * width : stop * width] for start, stop in ranges]
        found = torch.cat(parts) if len(parts) != 1 else parts[0].clone()
        if not self.share:
            self._parts[key] = found
            return found.clone()
        return found

    def rows(self, kind: str, batches: Sequence[int]) -> Tensor:
        """A copy of the data or targets of some batches, one under the other, as a matrix."""
        edge = self.sizes.shape.activations[-1 if kind == "target" else 0]
        features = edge.spaces[edge.ndim - 1].size
        return torch.cat([self(kind, batch) for batch in batches]).view(-1, features)

    def matrix(self, layer: int) -> Tensor:
        """The weight of a layer in the form of its dims. Not to be written to."""
        schema = self.sizes.shape.kinds[layer].weight
        assert schema is not None, "a layer that has no weight is not asked for it"
        return self("weight", layer).view([dim.size for dim in schema.spaces])

    def _real(self, kind: LayerKind) -> RealLayer:
        if kind.name not in REAL_LAYERS:
            raise UnfitTrace(f"{kind.name} has no real layer: a kind of layer is replayed by a row in REAL_LAYERS")
        return REAL_LAYERS[kind.name](kind, lambda batch: self("classes", batch))

    def _make(self, kind: str, index: int) -> Tensor:
        sizes = self.sizes
        last = sizes.shape.layers if kind == "target" else 0
        if kind in ("data", "target") and self.batches is not None and index >= self.batches:
            return torch.zeros(sizes.batch(last), dtype=self.dtype)
        generator = torch.Generator().manual_seed((self.seed * 8 + KINDS.index(kind)) * 1_000_003 + index)
        if kind == "classes":
            return torch.randint(CLASSES, (sizes.output_points,), generator=generator)
        if kind == "weight":
            numbers = self.layers[index].weight(sizes.weight(index), generator)
        elif kind == "state":
            # Not zero, so that a state that gets lost or mixed up shows; second moments are squares.
            numbers = normal(sizes.weight(index) * sizes.moments, generator)
            if sizes.moments == 2:
                numbers.view(-1, 2)[:, 1].square_()
        elif kind == "data":
            numbers = self.layers[0].data(sizes.batch(0), generator)
        else:
            numbers = normal(sizes.batch(last), generator)
        return numbers.to(self.dtype)
