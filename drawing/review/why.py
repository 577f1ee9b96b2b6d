"""The picture of a gap: the whole timeline, the gap and the chain that led to its end, and the chain in words."""

from __future__ import annotations

from typing import Final

from drawing.canvas.palette import INK, SOFT
from drawing.canvas.picture import Picture
from drawing.canvas.scene import Scene, Text, fit
from drawing.review.chain import mark_chain, mark_gap, mark_operation, write_chain
from drawing.timeline.panel import LEFT, WIDTH, panels
from lib.analysis.waiting.why import Why
from lib.cluster.costs import units
from lib.errors.wording import exact

__all__ = ["MANY", "TITLE", "picture_of_why"]

MANY: Final = 8
"""Ranks that all have a row; of more, only those that have to do with it."""
TITLE: Final = 17


def picture_of_why(why: Why) -> Picture:
    """The picture; its words are those of the answer."""
    scene = Scene(WIDTH, 0)
    moment = exact(units(why.time))
    title = f"Why does rank {why.rank} wait at {moment}?" if why.gap is not None else f"Rank {why.rank} at {moment}"
    scene.add(Text(24, 26, fit(title, WIDTH - 48, TITLE), TITLE, INK, bold=True))
    y = scene.paragraph(24, 48, why.head(), WIDTH - 48, 17, SOFT)
    involved = {why.rank, *(step.at.rank for step in why.steps)}
    (panel,), y = panels(scene, [why.run], y + 6, fold=False, only=involved if why.run.ranks > MANY else None)
    rows = panel.rows(scene, y + 6)
    if why.gap is not None:
        mark_gap(scene, why.gap, panel, rows)
        mark_chain(scene, why.legs, why.gap, panel, rows)
    elif why.busy is not None:
        mark_operation(scene, why.busy, panel, rows)
    y = panel.numbers(scene, rows) + 8
    told = [("", f"... {why.left_out()} ...") if one is None else (str(one[0]), one[1].text(why.run, why.file))
            for one in why.told()]  # fmt: skip
    y = write_chain(scene, told, y)
    for line in why.ends():
        y = scene.paragraph(LEFT - 8, y + 10, line, WIDTH - LEFT - 24, 16, INK) - 5
    scene.height = y + 10
    return Picture(scene, why.text())
