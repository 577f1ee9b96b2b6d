"""Pictures of answers: why a rank waits, the critical path, what would be if, and what would help most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from drawing.canvas.layout import legend, swatch
from drawing.canvas.palette import ACCENT, ALARM, GOOD, INK, PAPER, SOFT, TINTS, TRACK, Colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Mark, Rect, Scene, Text, fit
from drawing.comparing.bars import TIME_LOOKS, Part, stack
from drawing.comparing.gaps import mark_chain, mark_gap, mark_operation, mark_path, path_sample, write_chain
from drawing.timeline.paint import Rows
from drawing.timeline.schedule import LEFT, RIGHT, WIDTH, Panel, panels, titled
from lib.analysis.figures import makespan
from lib.analysis.waiting.critical_path import PARTS, Path, Tight, critical_path, slack
from lib.analysis.waiting.what_if import Helps, WhatIf, apart
from lib.analysis.waiting.why import Why
from lib.cluster.costs import ticks, units
from lib.errors.wording import exact, numbered
from lib.values.operations import COMPUTE

MANY: Final = 8
"""Ranks that all have a row; of more, only those that have to do with it."""


def picture_of_why(why: Why) -> Picture:
    """The picture; its words are those of the answer."""
    moment = exact(units(why.time))
    title = f"Why does rank {why.rank} wait at {moment}?" if why.gap is not None else f"Rank {why.rank} at {moment}"
    scene, y = titled(title, why.head())
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


LOOKS: Final[Mapping[str, tuple[Colour, Colour]]] = {**TIME_LOOKS, "links": TINTS["shared"]}
BARS: Final = 24
"""Rows of bars at most."""
WORDS: Final = 180.0
"""Pixels beside the longest bar."""


def picture_of_path(path: Path) -> Picture:
    """The picture; its words are those of the path."""
    scene, y = titled("The critical path", path.head())
    (panel,), y = panels(scene, [path.run], y + 6)
    path_sample(scene, WIDTH - RIGHT, y + 8)
    rows = panel.rows(scene, y + 20)
    left, thick = slack(path.run), max(2.0, rows.height / 10)
    for rank in rows.ranks:  # a bar below what is computed and may not be late
        top = rows.tops[rank] + rows.height - thick
        for event, late in zip(path.run.programs[rank].events, left[rank], strict=True):
            if late == 0 and event.op in COMPUTE and event.length:
                x, end = panel.axis.x(event.start or 0), panel.axis.x(event.end or 0)
                scene.add(Rect(x, top, max(0.6, end - x - 0.8), thick, ALARM))
    mark_path(scene, path, panel.axis, rows)
    y = panel.numbers(scene, rows) + 6
    sample: list[Mark] = [Rect(0, 0, 16, 12, TRACK), Rect(0, 9, 16, 3, ALARM)]
    y = legend(scene, LEFT, y, WIDTH - 12, [(sample, 16, "no slack: any delay makes the run longer")])
    scene.height = _bars(scene, path, panel, y + 8) + 8
    return Picture(scene, path.text())


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
        parts: list[Part] = []
        for kind, took in mine:
            said, (fill, border) = exact(units(took)), LOOKS[kind]
            labels = f"{PARTS[kind]} {said}", said
            parts += [Part(units(took), fill, border, labels, f"{PARTS[kind]}: {said}")] if took else []
        scene.add(Text(axis.left - 10, y + 8, fit(numbered("rank", ranks), axis.left - 14, TEXT), TEXT, INK, "end"))
        end = stack(scene, parts, axis.left, y, scale, 15)
        scene.add(Text(end + 8, y + 8, late.text(), TEXT, INK if late.tight else SOFT))
        y += 20
    if len(alike) > BARS:
        scene.add(Text(axis.left, y + 6, f"and {len(alike) - BARS} more rows", TEXT, SOFT))
        y += 18
    shown = {kind: PARTS[kind] for (mine, _), _ in alike.items() for kind, took in mine if took}
    return legend(scene, LEFT, y + 4, WIDTH - 12, [swatch(*LOOKS[kind], words) for kind, words in shown.items()])


NAMES: Final = 190.0
"""Pixels that the names of what may help take, and WORDS what stands beside the longest bar."""
BESIDE: Final = 170.0


def picture_of_what_if(found: WhatIf) -> Picture:
    """Both timings on one time axis, each with its critical path, and what becomes of the gaps."""
    scene, y = titled(f"{found.words} ...", found.head(), INK if found.gain else SOFT)
    runs = [("as it is", found.before), ("then", found.after)]
    shown, y = panels(scene, [run for _, run in runs], y + 6)
    y += 4
    for (name, run), panel in zip(runs, shown, strict=True):
        top = y
        y = panel.heading(scene, name, y)
        rows = panel.rows(scene, y)
        _mark_changed(scene, found, panel, rows)
        mark_path(scene, critical_path(run), panel.axis, rows)
        path_sample(scene, WIDTH - RIGHT, top + 8)
        y = panel.numbers(scene, rows) + 8
    for line in found.ends():
        y = scene.paragraph(LEFT, y + 6, line, WIDTH - LEFT - 24, 16, INK) - 4
    scene.height = y + 8
    return Picture(scene, found.text())


def _mark_changed(scene: Scene, found: WhatIf, panel: Panel, rows: Rows) -> None:
    change, programs = found.change, panel.trace.programs
    boxes = [box for box in panel.timeline.boxes if box.look not in ("wait", "pending", "failed")] if change else []
    touched = [
        box for box in boxes if change and change.touches(panel.trace, box.rank, programs[box.rank].events[box.number])
    ]
    for box in touched if len(touched) <= 120 else ():  # of more the words say enough
        top, height = rows.lane(box.rank, box.lane)
        x, end = panel.axis.x(box.start), panel.axis.x(box.end)
        scene.add(Rect(x, top, max(0.8, end - x - 0.8), height, "none", ACCENT, 1.8))


def picture_of_helps(found: Helps) -> Picture:
    """A bar for each thing that would help: by how much the run would be over earlier."""
    scene, y = titled("What would help most", found.head())
    rows, whole, y = found.shown(), makespan(found.run), y + 4
    left = 24 + NAMES
    scale = (WIDTH - left - BESIDE) / max([abs(row.gain) for row in rows], default=1)
    for row in rows:
        scene.add(Text(left - 10, y + 8, fit(row.name, NAMES, TEXT), TEXT, INK, "end"))
        width = max(1.0, scale * abs(row.gain))
        scene.add(Rect(left, y, width, 15, GOOD if row.gain > 0 else ALARM, title=row.change.words()))
        scene.add(Rect(left + width, y, BESIDE - 12, 15, PAPER))
        scene.add(Text(left + width + 6, y + 8, apart(row.gain, whole), TEXT, INK))
        y += 20
    if not rows:
        scene.add(Rect(left, y, 200, 15, TRACK), Text(left + 6, y + 8, "nothing alone makes a difference", TEXT, SOFT))
        y += 20
    if rest := found.rest():
        y = scene.paragraph(24, y + 10, f"{rest[0].upper()}{rest[1:]}.", WIDTH - 48, 17, SOFT)
    scene.height = y + 8
    return Picture(scene, found.text())
