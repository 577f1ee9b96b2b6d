"""Tensors of ranges of a line of elements (see sizes): taking ranges out of one, and putting several together."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lib.replay.plan.sizes import Range

__all__ = ["in_order", "join", "select"]


def select(flat: Tensor, have: Sequence[Range], want: Sequence[Range], width: int = 1) -> Tensor:
    """The ranges `want` of a flat tensor that has the ranges `have`. A view where they lie side by side."""
    if tuple(have) == tuple(want):
        return flat
    parts = [flat[a * width : b * width] for a, b in _places(have, want)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _places(have: Sequence[Range], want: Sequence[Range]) -> list[Range]:
    """Where in the tensor the wanted ranges lie. Both are ascending; what is wanted is there."""
    found: list[Range] = []
    for start, stop in want:
        at = 0
        while start < stop:
            for first, last in have:
                if first <= start < last:
                    end = min(stop, last)
                    found.append((at + start - first, at + end - first))
                    start = end
                    break
                at += last - first
            else:
                raise AssertionError(f"elements {start} to {stop} are not in {list(have)}")
            at = 0
    return found


def join(parts: Sequence[tuple[Tensor, Sequence[Range]]], width: int = 1) -> Tensor:
    """Flat tensors of disjoint ranges as one, in the order of the line. A new tensor, except for a single part."""
    pieces: list[tuple[int, Tensor]] = []
    for flat, ranges in parts:
        at = 0
        for start, stop in ranges:
            size = (stop - start) * width
            pieces.append((start, flat[at : at + size]))
            at += size
    pieces.sort(key=lambda piece: piece[0])
    return pieces[0][1] if len(pieces) == 1 else torch.cat([tensor for _, tensor in pieces])


def in_order(ranges: Sequence[Sequence[Range]]) -> bool:
    """Whether tensors of these ranges, one after the other, are in the order of the line already."""
    starts = [start for one in ranges for start, _ in one]
    return starts == sorted(starts)
