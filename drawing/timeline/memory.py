"""The memory panel: for each rank what it holds over time, stacked by kind of value, all on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from drawing.canvas.axes import Axis, legend, swatch
from drawing.canvas.palette import ALARM, GRID, INK, KINDS, PAPER, SOFT, TRACK
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, text_width
from drawing.timeline.folding import Fold
from drawing.timeline.names import names, write_names
from lib.analysis import figures
from lib.analysis.figures import Peak, samples
from lib.cluster.clock import units
from lib.errors.wording import amount, exact
from lib.trace.trace import Trace

__all__ = ["Level", "levels", "memory"]

ORDER: Final = tuple(KINDS)


class Level(NamedTuple):
    """Memory of a rank from a moment on: running sums in the order of KINDS, so the last is the total."""

    time: int
    sums: tuple[float, ...]


def levels(trace: Trace, rank: int) -> list[Level]:
    """The memory curve of a rank. Of samples at one moment the highest counts; the last level is where it ends.

    Memory is sampled when an operation starts; what was issued earlier and had to wait is placed where it was issued,
    since nothing changed in between.
    """
    program = trace.programs[rank]
    found: list[Level] = []
    for sample in samples(trace, rank):
        total = 0.0
        sums: list[float] = []
        for kind in ORDER:
            total += float(sample.by_kind.get(kind, 0))
            sums.append(total)
        time = program.events[sample.index].issued
        if found and found[-1].time >= time:
            if found[-1].sums[-1] < total:
                found[-1] = Level(found[-1].time, tuple(sums))
        elif not found or found[-1].sums != tuple(sums):
            found.append(Level(time, tuple(sums)))
    if found:
        end = max((event.end or 0 for event in program.events), default=0)
        found.append(Level(max(end, found[-1].time), found[-1].sums))
    return found


def memory(scene: Scene, trace: Trace, axis: Axis, folds: Sequence[Fold], top: float) -> float:
    """Paints the panel from `top` on, a row for each fold; returns where it ends."""
    peak = figures.peak(trace)
    scene.add(Text(axis.left - 10, top + 8, "memory", TEXT, INK, "end", bold=True))
    most = float(peak.elements)
    summary = f"at most {amount(most)} elements on rank {peak.rank} at time {exact(units(peak.time))}"
    scene.add(Text(axis.left, top + 8, summary, TEXT, INK))
    top += 20
    height, gap = _height(len(folds))
    named = names(trace, folds)
    tops = [top + place * (height + gap) for place in range(len(folds))]
    for fold, y in zip(folds, tops, strict=True):
        scene.add(Rect(axis.left, y, axis.width, height, TRACK))
        _areas(scene, levels(trace, fold.rank), axis, y + height, (height - 2) / most if most else 0.0)
        if height >= 18:
            scene.add(Poly(((axis.left, y + 2), (axis.left + axis.width, y + 2)), stroke=GRID, dash="2 3"))
    write_names(scene, named, tops, height, axis.left)
    for fold, y in zip(folds, tops, strict=True):
        if most and peak.rank in fold.ranks:
            _peak(scene, trace, peak, axis, y, height)
    bottom = tops[-1] + height
    scene.add(Text(axis.left + axis.width + 5, top + 4, compact(most), SMALL, SOFT))
    if height >= 18:
        scene.add(Text(axis.left + axis.width + 5, top + height - 3, "0", SMALL, SOFT))
    entries = [swatch(colour, text=kind) for kind, colour in KINDS.items()]
    return legend(scene, axis.left, bottom + 10, axis.left + axis.width, entries)


def _height(count: int) -> tuple[float, float]:
    for most, height, gap in ((1, 84, 6), (2, 60, 6), (4, 46, 6), (8, 32, 4), (16, 20, 3), (32, 11, 2), (64, 7, 1)):
        if count <= most:
            return height, gap
    return 5, 1


def _areas(scene: Scene, curve: Sequence[Level], axis: Axis, floor: float, scale: float) -> None:
    """The highest sum of kinds first and the smaller ones over it: each kind needs only one edge then."""
    columns = _columns(curve, axis)
    for kind in reversed(range(len(ORDER))):
        if all(sums[kind] == (sums[kind - 1] if kind else 0) for _, sums in columns):
            continue
        points = [(columns[0][0], floor)]
        for x, sums in columns:
            y = floor - scale * sums[kind]
            if points[-1][1] != y:
                points += [(x, points[-1][1]), (x, y)]
        points += [(columns[-1][0], points[-1][1]), (columns[-1][0], floor)]
        scene.add(Poly(points, fill=KINDS[ORDER[kind]], title=ORDER[kind]))


def _columns(curve: Sequence[Level], axis: Axis) -> list[tuple[float, tuple[float, ...]]]:
    """Levels in pixels; of those within one pixel the highest."""
    found: list[tuple[float, tuple[float, ...]]] = []
    for level in curve:
        x = axis.x(level.time)
        if found and x - found[-1][0] < 1 and level is not curve[-1]:
            if level.sums[-1] > found[-1][1][-1]:
                found[-1] = (found[-1][0], level.sums)
        else:
            found.append((x, level.sums))
    return found


def _peak(scene: Scene, trace: Trace, peak: Peak, axis: Axis, top: float, height: float) -> None:
    """Marks the peak: a line, a dot, and a label beside it."""
    event = trace.programs[peak.rank].events[peak.index]
    x = axis.x(peak.time if event.blocking else event.issued)
    scene.add(Poly(((x, top), (x, top + height)), stroke=ALARM, line=1.5))
    scene.add(Poly(((x - 4, top - 3), (x + 4, top - 3), (x, top + 4)), fill=ALARM))
    if height < 18:
        return
    words = f"peak {compact(float(peak.elements))}"
    room = text_width(words, SMALL) + 8
    left = x + 5 if x + 5 + room < axis.left + axis.width else x - 5 - room
    scene.add(Rect(left, top + 3, room, 14, PAPER, ALARM, 0.7, radius=2), Text(left + 4, top + 10, words, SMALL, ALARM))


def compact(elements: float) -> str:
    """A number of elements for an axis: 1.84 M, 262 k."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if elements >= size:
            return f"{elements / size:.3g} {unit}"
    return f"{elements:.3g}"
