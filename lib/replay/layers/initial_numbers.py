"""The numbers that training starts from. All are seeded: each rank makes those that it needs, and asks nobody."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from lib.replay.options import ReplayOptions
from lib.replay.plan.plan import Plan
from lib.replay.plan.sizes import Range, Sizes

__all__ = ["GAIN", "InitialNumbers"]

GAIN = 1.3
"""Weights are normal with a spread of GAIN / sqrt(hidden), so that activations neither vanish nor grow."""
KINDS = ("weight", "state", "data", "target")


class InitialNumbers:
    """Weights, optimizer states, data and targets, by layer or by batch.

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
        self._kept: dict[tuple[str, int], Tensor] = {}
        self._parts: dict[tuple[str, int, tuple[Range, ...]], Tensor] = {}

    @classmethod
    def of(cls, plan: Plan, options: ReplayOptions, share: bool = True) -> InitialNumbers:
        """Those of a replay."""
        return cls(plan.sizes, getattr(torch, options.dtype), options.seed, share, plan.trace.batches)

    def make_all(self, plan: Plan) -> None:
        """Makes all of them, in the memory that ranks will share which are forked from here."""
        for layer in range(plan.trace.layers):
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

    def rows(self, kind: str, batches: Iterable[int]) -> Tensor:
        """A copy of the data or targets of some batches, one under the other: rows of `hidden` numbers."""
        return torch.cat([self(kind, batch) for batch in batches]).view(-1, self.sizes.hidden)

    def matrix(self, layer: int) -> Tensor:
        """The weight of a layer as a matrix. Not to be written to."""
        return self("weight", layer).view(self.sizes.hidden, self.sizes.hidden)

    def _make(self, kind: str, index: int) -> Tensor:
        if kind in ("data", "target") and self.batches is not None and index >= self.batches:
            return torch.zeros(self.sizes.batch, dtype=self.dtype)
        generator = torch.Generator().manual_seed((self.seed * 8 + KINDS.index(kind)) * 1_000_003 + index)
        sizes = self.sizes
        if kind == "weight":
            numbers = _normal(sizes.weight, generator).mul_(GAIN / math.sqrt(sizes.hidden))
        elif kind == "state":
            # Not zero, so that a state that gets lost or mixed up shows; second moments are squares.
            numbers = _normal(sizes.weight * sizes.moments, generator)
            if sizes.moments == 2:
                numbers.view(-1, 2)[:, 1].square_()
        else:
            numbers = _normal(sizes.batch, generator)
        return numbers.to(self.dtype)


def _normal(count: int, generator: torch.Generator) -> Tensor:
    return torch.randn(count, generator=generator, dtype=torch.float64)
