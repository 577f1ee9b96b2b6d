"""The step of a plan over time: a line for each rank of its pipeline, as all ranks of a stage are alike.

What no work hides of the communication inside a pass is hatched in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from drawing.canvas.layout import Entry, legend, nice, swatch
from drawing.canvas.palette import EDGE, GRID, INK, PASSES, SOFT, TINTS, TRACK, band, fill_and_border, layer_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit, hatch
from drawing.planning import require
from drawing.timeline.paint import banded
from lib.errors.wording import exact
from lib.plan.timing import Span

__all__ = ["draw_plan"]

WIDTH, LEFT, RIGHT, ROW = 840, 84, 20, 22
MOST: Final = 20_000
"""Passes, at most, of a picture."""
LOOKS: Final = {"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight"}
NAMES: Final = {"tp": "tensor", "cp": "context", "ep": "expert", "fsdp": "FSDP"}
HATCHED: Final = {"tp": "communication", "cp": "shared", "ep": "collective", "fsdp": "fill"}


def draw_plan(spans: Sequence[Span], title: str) -> Picture:
    """Draw the passes of a step (`lib.plan.pipeline.timeline`). ValueError for none, or for more than can be seen."""
    said = f"draw_plan draws 1 to {MOST:,} passes, as timeline(model, cluster, plan) of lib.plan.pipeline gives them"
    require(spans, Span, said)
    if len(spans) > MOST:
        raise ValueError(f"{said}; got {len(spans):,}")
    ranks, stages = 1 + max(span.rank for span in spans), 1 + max(span.stage for span in spans)
    end = max(span.end for span in spans)
    scale, scene = (WIDTH - LEFT - RIGHT) / end, Scene(WIDTH, 0)
    scene.add(Text(20, 24, fit(f"{title}", WIDTH - 40, TEXT + 2), TEXT + 2, INK, bold=True))
    kinds = [kind for kind in LOOKS if any(span.kind == kind for span in spans)]
    shares = [kind for kind in NAMES if any(kind in span.exposed for span in spans)]
    entries = [_pass(kind, stages) for kind in kinds]
    entries += [_hatched(kind) for kind in shares]
    top = legend(scene, 20, 42, WIDTH - 20, entries) + 8
    bottom = top + ROW * ranks
    step = nice(end / 8)
    for number in range(int(end / step) + 1):
        x = LEFT + scale * step * number
        scene.add(Poly(((x, top), (x, bottom)), stroke=GRID))
        scene.add(Text(x, bottom + 11, exact(round(step * number, 6)), SMALL, SOFT, "middle"))
    for rank in range(ranks):
        y = top + ROW * rank
        scene.add(Rect(LEFT, y + 2, WIDTH - LEFT - RIGHT, ROW - 4, TRACK))
        scene.add(Text(LEFT - 10, y + ROW / 2, f"pp rank {rank}", TEXT, INK, "end"))
    for span in spans:
        fill, border = _look(span.kind, span.stage, stages)
        x, y, wide = LEFT + scale * span.start, top + ROW * span.rank + 2, scale * (span.end - span.start)
        told = ", ".join(f"{NAMES[kind]} {share:.0%}" for kind, share in span.exposed.items())
        words = f"{PASSES[LOOKS[span.kind]].words} of microbatch {span.microbatch}, stage {span.stage}: "
        words += f"{span.end - span.start:.4g} ms from {span.start:.5g}" + (f"; in the open: {told}" if told else "")
        scene.add(Rect(x, y, max(wide - 0.4, 0.3), ROW - 4, fill, border if wide > 4 else "none", title=words))
        if wide > 2:
            scene.add(*banded(band(LOOKS[span.kind]), x, y, wide - 0.4, ROW - 4, layer_colour(span.stage, stages)))
        if wide > 4:
            right = x + wide - 0.4
            for kind, share in span.exposed.items():
                part = share * wide
                right -= part
                if part > 1:
                    scene.add(*hatch(right, y, part, ROW - 4, TINTS[HATCHED[kind]][1], line=1.2))
    scene.add(Rect(LEFT, top, WIDTH - LEFT - RIGHT, bottom - top, "none", EDGE))
    scene.add(Text((LEFT + WIDTH - RIGHT) / 2, bottom + 27, "milliseconds", TEXT, SOFT, "middle"))
    scene.height = bottom + 42
    return Picture(scene, f"{title}. {ranks} lines, {len(spans):,} passes, {end:.5g} ms.")


def _look(kind: str, stage: int, stages: int) -> tuple[str, str]:
    return fill_and_border(LOOKS[kind], layer_colour(stage, stages))


def _pass(kind: str, stages: int) -> Entry:
    marks, wide, words = swatch(*_look(kind, 0, stages), PASSES[LOOKS[kind]].words)
    return [*marks, *banded(band(LOOKS[kind]), 0, 0, wide, 12, layer_colour(0, stages))], wide, words


def _hatched(kind: str) -> Entry:
    marks, wide, _ = swatch(*TINTS[HATCHED[kind]])
    return [*marks, *hatch(0, 0, 16, 12, TINTS[HATCHED[kind]][1], line=1.2)], wide, f"{NAMES[kind]}, in the open"
