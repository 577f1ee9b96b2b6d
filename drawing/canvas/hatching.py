"""Hatching: slanted lines over a rectangle."""

from __future__ import annotations

from collections.abc import Iterator

from drawing.canvas.scene import Poly

__all__ = ["hatch"]


def hatch(
    x: float, y: float, width: float, height: float, stroke: str, falling: bool = False, line: float = 0.7
) -> Iterator[Poly]:
    """Slanted lines over a rectangle, as one line that goes to and fro."""
    points: list[tuple[float, float]] = []
    offset, up = 6.0, True
    while offset < width + height:
        # The line on which dx + dy = offset, dx from the left and dy from the bottom, cut off at the edges.
        low = (min(offset, width), max(0.0, offset - width))
        high = (max(0.0, offset - height), min(offset, height))
        for dx, dy in (low, high) if up else (high, low):
            points.append((x + (dx if falling else width - dx), y + height - dy))
        offset, up = offset + 7, not up
    if len(points) > 1:
        yield Poly(points, stroke=stroke, line=line)
