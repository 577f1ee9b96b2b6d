"""The picture of a critical path: the path on the timeline, what has no slack, and what each rank has of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from drawing.canvas.axes import legend
from drawing.canvas.palette import ALARM, INK, SOFT, TINTS, TRACK, Colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Mark, Rect, Scene, Text, fit
from drawing.figures.bars import Part, stack
from drawing.figures.parts import TIME_LOOKS
from drawing.review.gaps import mark_path, path_sample
from drawing.review.why import TITLE
from drawing.timeline.paint import Rows
from drawing.timeline.panel import LEFT, RIGHT, WIDTH, Panel, panels
from lib.analysis.waiting.critical_path import PARTS, Path, Tight
from lib.analysis.waiting.slack import slack
from lib.cluster.costs import ticks, units
from lib.errors.wording import exact, numbered
from lib.values.operations import COMPUTE

__all__ = ["picture_of_path"]

LOOKS: Final[Mapping[str, tuple[Colour, Colour]]] = {**TIME_LOOKS, "links": TINTS["shared"]}
BARS: Final = 24
"""Rows of bars at most."""
WORDS: Final = 180.0
"""Pixels beside the longest bar."""


def picture_of_path(path: Path) -> Picture:
    """The picture; its words are those of the path."""
    scene = Scene(WIDTH, 0)
    scene.add(Text(24, 26, "The critical path", TITLE, INK, bold=True))
    y = scene.paragraph(24, 48, path.head(), WIDTH - 48, 17, SOFT)
    (panel,), y = panels(scene, [path.run], y + 6)
    path_sample(scene, WIDTH - RIGHT, y + 8)
    rows = panel.rows(scene, y + 20)
    _mark_slack(scene, path, panel, rows)
    mark_path(scene, path, panel.axis, rows)
    y = panel.numbers(scene, rows) + 6
    sample: list[Mark] = [Rect(0, 0, 16, 12, TRACK), Rect(0, 9, 16, 3, ALARM)]
    y = legend(scene, LEFT, y, WIDTH - 12, [(sample, 16, "no slack: any delay makes the run longer")])
    scene.height = _bars(scene, path, panel, y + 8) + 8
    return Picture(scene, path.text())


def _mark_slack(scene: Scene, path: Path, panel: Panel, rows: Rows) -> None:
    """A bar below what is computed and may not be late."""
    left, thick = slack(path.run), max(2.0, rows.height / 10)
    for rank in rows.ranks:
        top = rows.tops[rank] + rows.height - thick
        for event, late in zip(path.run.programs[rank].events, left[rank], strict=True):
            if late == 0 and event.op in COMPUTE and event.length:
                x, end = panel.axis.x(event.start or 0), panel.axis.x(event.end or 0)
                scene.add(Rect(x, top, max(0.6, end - x - 0.8), thick, ALARM))


def _bars(scene: Scene, path: Path, panel: Panel, y: float) -> float:
    """For each rank what it has of the path, and its slack; ranks with the same in one row. Returns where they end."""
    alike: dict[tuple[tuple[tuple[str, int], ...], Tight], list[int]] = {}
    for rank, (mine, late) in enumerate(zip(path.by_rank(), path.tight(), strict=True)):
        alike.setdefault((tuple(mine.items()), late), []).append(rank)
    words = "What each rank has of it, and of how many things that it computes any delay makes the run longer"
    scene.add(Text(LEFT, y, words, TEXT, INK, bold=True))
    y += 14
    axis = panel.axis
    most = max((sum(took for _, took in mine) for mine, _ in alike), default=0)
    scale = (WIDTH - axis.left - WORDS) / max(1, most) * ticks(1)
    for (mine, late), ranks in list(alike.items())[:BARS]:
        parts = [_part(kind, took) for kind, took in mine if took]
        scene.add(Text(axis.left - 10, y + 8, fit(numbered("rank", ranks), axis.left - 14, TEXT), TEXT, INK, "end"))
        end = stack(scene, parts, axis.left, y, scale, 15)
        scene.add(Text(end + 8, y + 8, late.text(), TEXT, INK if late.tight else SOFT))
        y += 20
    if len(alike) > BARS:
        scene.add(Text(axis.left, y + 6, f"and {len(alike) - BARS} more rows", TEXT, SOFT))
        y += 18
    shown = {kind: PARTS[kind] for (mine, _), _ in alike.items() for kind, took in mine if took}
    return legend(scene, LEFT, y + 4, WIDTH - 12, [_entry(kind, words) for kind, words in shown.items()])


def _part(kind: str, took: int) -> Part:
    said = exact(units(took))
    fill, border = LOOKS[kind]
    return Part(units(took), fill, border, (f"{PARTS[kind]} {said}", said), f"{PARTS[kind]}: {said}")


def _entry(kind: str, words: str) -> tuple[list[Mark], float, str]:
    fill, border = LOOKS[kind]
    return [Rect(0.5, 0.5, 15, 11, fill, border)], 16, words
