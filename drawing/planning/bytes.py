"""Memory of plans as stacked bars, on one scale, beside the memory of a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final

from drawing.canvas.layout import legend, swatch
from drawing.canvas.palette import ALARM, INK, KINDS, MINE, NONE, SOFT, Colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit, text_width
from drawing.comparing.bars import Part, stack
from drawing.planning import require
from lib.plan.memory import Memory
from lib.plan.records import GIB

__all__ = ["MEMORY_LOOKS", "draw_memory"]

MEMORY_LOOKS: Final[Mapping[str, Colour]] = {
    "weights": KINDS["weight"],
    "gradients": KINDS["weight gradient"],
    "optimizer": KINDS["optimizer state"],
    "activations": KINDS["activation"],
    "logits": KINDS["activation gradient"],
}
"""The colours of the kinds of bytes: those of the five kinds of value."""
WIDTH, ROW, HIGH = 840, 30, 18


def draw_memory(plans: Mapping[str, Memory], limit: float, title: str = "Memory of the GPU that holds most") -> Picture:
    """Draw the memory of plans, by their names, below each other, and the `limit` in bytes as a line."""
    said = "draw_memory takes plans by name, with their Memory as memory_of gives it, and a limit in bytes"
    require(plans, Memory, said)
    if not isinstance(limit, int | float) or not 0 < limit < inf:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"{said}; got the limit {limit!r:.80}")
    scene = Scene(WIDTH, 84 + ROW * len(plans) + 34)
    scene.add(Text(20, 24, fit(f"{title}", WIDTH - 40, TEXT + 2), TEXT + 2, INK, bold=True))
    top = legend(scene, 20, 42, WIDTH - 20, [swatch(colour, text=kind) for kind, colour in MEMORY_LOOKS.items()]) + 12
    left = 40 + min(220.0, max(text_width(f"{name}", TEXT) for name in plans))
    scale = (WIDTH - left - 110) / max(limit, *(memory.total for memory in plans.values()))
    for row, (name, memory) in enumerate(plans.items()):
        y = top + ROW * row
        scene.add(Text(left - 10, y + HIGH / 2, fit(f"{name}", left - 30, TEXT), TEXT, INK, "end"))
        parts = [
            Part(
                size,
                MEMORY_LOOKS[kind],
                labels=(f"{kind} {size / GIB:.1f}", f"{size / GIB:.1f}"),
                title=f"{kind}: {size / GIB:.2f} GiB",
            )
            for kind, size in zip(memory._fields, memory, strict=True)
        ]
        end, over = stack(scene, parts, left, y, scale, HIGH), memory.total > limit
        words = f"{memory.total / GIB:.1f} GiB"
        scene.add(Text(end + 8, y + HIGH / 2, words, TEXT, ALARM if over else INK, bold=over))
    x, bottom = left + scale * limit, top + ROW * len(plans)
    scene.add(Poly(((x, top - 6), (x, bottom)), stroke=MINE, line=1.6, dash="4 3"))
    scene.add(Text(x, bottom + 9, f"{limit / GIB:.0f} GiB of a GPU", SMALL, SOFT, "middle"))
    scene.add(Rect(left - 1, top - 6, 1, bottom - top + 6, SOFT, NONE))
    scene.height = bottom + 26
    said = "; ".join(f"{name}: {memory}" for name, memory in plans.items())
    return Picture(scene, f"Memory of the GPU that holds most, of {limit / GIB:.0f} GiB. {said}.")
