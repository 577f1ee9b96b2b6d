"""Tensors of ranges of a line of elements (see sizes): taking ranges out of one, and putting several together."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from lib.replay.plan.sizes import Range
from lib.values.placement import Elements

__all__ = ["common", "in_order", "join", "select", "within"]


def select(flat: Tensor, have: Sequence[Range], want: Sequence[Range], width: Elements = 1) -> Tensor:
    """The ranges `want` of a flat tensor that has the ranges `have`. A view where they lie side by side."""
    if tuple(have) == tuple(want):
        return flat
    parts = [flat[int(low * width) : int(high * width)] for low, high in within(have, want)]
    return parts[0] if len(parts) == 1 else torch.cat(parts or [flat[:0]])


def within(have: Sequence[Range], want: Sequence[Range]) -> list[Range]:
    """Return where in the tensor the wanted ranges lie. Both are ascending; what is wanted is there."""
    found: list[Range] = []
    held = iter([*have, (sys.maxsize, sys.maxsize)])
    (first, last), at = next(held), 0
    for start, stop in want:
        while start < stop:
            while last <= start:
                at += last - first
                first, last = next(held)
            if start < first:
                raise AssertionError(f"elements {start} to {stop} are not in {list(have)}")
            end = min(stop, last)
            found.append((at + start - first, at + end - first))
            start = end
    return found


def common(left: Sequence[Range], right: Sequence[Range]) -> list[Range]:
    """Return what is in both."""
    found: list[Range] = []
    one = other = 0
    while one < len(left) and other < len(right):
        start, stop = max(left[one][0], right[other][0]), min(left[one][1], right[other][1])
        if start < stop:
            found.append((start, stop))
        if left[one][1] < right[other][1]:
            one += 1
        else:
            other += 1
    return found


def join(parts: Sequence[tuple[Tensor, Sequence[Range]]], width: Elements = 1) -> Tensor:
    """Flat tensors of disjoint ranges as one new one, in the order of the line."""
    pieces: list[tuple[int, Tensor]] = []
    for flat, ranges in parts:
        sizes = [int((stop - start) * width) for start, stop in ranges]
        pieces += zip([start for start, _ in ranges], flat.split(sizes), strict=True)
    pieces.sort(key=lambda piece: piece[0])
    return torch.cat([tensor for _, tensor in pieces] or [parts[0][0]])


def in_order(ranges: Sequence[Sequence[Range]]) -> bool:
    """Tell whether tensors of these ranges, one after the other, are in the order of the line already."""
    starts = [start for one in ranges for start, _ in one]
    return starts == sorted(starts)
