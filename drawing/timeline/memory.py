"""The memory panel: the memory of each rank over time, stacked by kind of value, all on one scale, with the goals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import Final, NamedTuple

from drawing.canvas.layout import Axis, Entry, Point, compact, legend, swatch
from drawing.canvas.palette import ALARM, GOOD, GRID, GUEST, INK, KINDS, SOFT, TRACK
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, hatch, text_width
from drawing.timeline.boxes import Fold
from drawing.timeline.rows import names, write_names
from lib.analysis.figures import GATHERED, amounts, makespan, peak
from lib.analysis.memory import guests
from lib.cluster.costs import units
from lib.errors.wording import amount, exact, numbered
from lib.puzzles.records import PUZZLES
from lib.trace.lifetimes import held_at, stays_of
from lib.trace.trace import Trace
from lib.values.operations import TIMED
from lib.values.values import OptState, Weight

SERIES: Final = (*list(KINDS)[:2], GATHERED, *list(KINDS)[2:])
STACK: Final = {name: KINDS.get(name, GUEST) for name in SERIES}
"""The stack of memory: lasting values at the bottom, guests above them, then those that come and go."""


class Level(NamedTuple):
    """Memory of a rank from a moment on: running sums in the order of SERIES, so the last is the total."""

    time: int
    sums: tuple[float, ...]


def levels(trace: Trace, rank: int) -> list[Level]:
    """Return the memory curve of a rank, to the end of the run. Where samples share a moment, the highest counts.

    Memory is sampled when an operation starts; one that was issued earlier and had to wait counts from its issue, since
    nothing changed in between. After its last operation a rank has its values at rest; in a failed run, all that it
    had.
    """
    program, visiting = trace.programs[rank], guests(trace.programs[rank])
    kinds = {kind: level for kind, _, level in amounts(trace, rank, visiting)}
    columns = [kinds.get(kind, [0] * len(program.events)) for kind in SERIES]
    found: list[Level] = []
    for event, *own in zip(program.events, *columns, strict=False):
        if event.start is None or event.op not in TIMED:
            continue
        sums = tuple(map(float, accumulate(own)))
        if found and found[-1].time >= event.issued:
            if found[-1].sums[-1] < sums[-1]:
                found[-1] = Level(found[-1].time, sums)
        elif not found or found[-1].sums != sums:
            found.append(Level(event.issued, sums))
    if not program.events:
        return found
    over, end = makespan(trace), program.end
    if end < over or not found:
        found.append(Level(max(end, found[-1].time) if found else 0, _left(trace, rank, visiting)))
    found.append(Level(max(over, found[-1].time), found[-1].sums))
    return found


def _left(trace: Trace, rank: int, visiting: set[int]) -> tuple[float, ...]:
    lives, over = trace.lifetimes()[rank], len(trace.programs[rank].events)
    found = dict.fromkeys(SERIES, 0.0)
    for number in lives.alive(over, held_at(stays_of(trace)[rank], over)):
        value = lives.values[number]
        if value is not None and (trace.error is not None or isinstance(value, Weight | OptState)):
            found[GATHERED if number in visiting else value.kind] += float(value.elements())
    return tuple(accumulate(found.values()))


class Plateau(NamedTuple):
    """A stretch of time for which a rank holds the highest memory of all."""

    rank: int
    start: int
    end: int


def longest(curves: Mapping[int, Sequence[Level]], most: float) -> Plateau | None:
    """Return the longest stretch for which a rank's curve reaches `most`; the first of equal ones."""
    best: Plateau | None = None
    for rank, curve in curves.items():
        start: int | None = None
        for level in curve:
            full = level.sums[-1] >= most * (1 - 1e-12)
            if start is not None and (not full or level is curve[-1]):
                if best is None or level.time - start > best.end - best.start:
                    best = Plateau(rank, start, level.time)
                start = None
            if full and start is None:
                start = level.time
    return best


HEADROOM: Final = 17  # pixels above the row of the peak, for its label
IN_SIGHT: Final = 1.3
"""Goals above this many times the peak are not drawn: they would leave little room for the memory."""
ROOMY: Final = 18  # least pixels of a row's height for hatching, and for the words beside it


def memory(scene: Scene, trace: Trace, axis: Axis, folds: Sequence[Fold], top: float) -> float:
    """Paint the panel from `top` on, a row for each fold, and its legend; return where it ends."""
    most = float(peak(trace).elements)
    curves = {fold.rank: levels(trace, fold.rank) for fold in folds}
    limits = [limit for limit in goals(trace) if limit <= IN_SIGHT * most]
    full = longest(curves, most)
    scene.add(Text(axis.left - 10, top + 8, "memory", TEXT, INK, "end", bold=True))
    scene.add(Text(axis.left, top + 8, _summary(trace, folds, full), TEXT, INK))
    y, tops, (_, height, gap) = top + 20, dict[int, float](), next(row for row in HEIGHTS if len(folds) <= row[0])
    for fold in folds:
        y += HEADROOM if full is not None and fold.rank == full.rank else 0
        tops[fold.rank] = y
        y += height + gap
    shown = max([most, *limits, *(level.sums[-1] for curve in curves.values() for level in curve)])
    panel = _Panel(axis, tops, height, (height - 2) / shown if shown else 0.0)
    for fold in folds:
        panel.row(scene, fold.rank, curves[fold.rank], most, limits)
    write_names(scene, names(trace, folds), [panel.tops[fold.rank] for fold in folds], panel.height, axis.left)
    if full is not None:
        panel.mark(scene, full, most)
    panel.scale(scene, panel.tops[folds[0].rank], most, limits)
    bottom = panel.tops[folds[-1].rank] + panel.height
    return legend(scene, axis.left, bottom + 10, axis.left + axis.width, _entries(curves, limits))


BESIDE_OTHERS: Final = 58  # pixels of the one row of a run beside others


def memory_at_peak(scene: Scene, trace: Trace, axis: Axis, highest: float, top: float) -> float:
    """Paint one row, of the rank with the highest peak, on a scale up to `highest`; return where it ends."""
    most, rank, height = float(peak(trace).elements), peak(trace).rank, BESIDE_OTHERS
    curve = levels(trace, rank)
    panel = _Panel(axis, {rank: top + HEADROOM}, height, (height - 2) / highest)
    panel.row(scene, rank, curve, most, ())
    middle = top + HEADROOM + height / 2
    scene.add(Text(axis.left - 10, middle - 8, "memory", TEXT, INK, "end"))
    scene.add(Text(axis.left - 10, middle + 8, f"of rank {rank}", SMALL, SOFT, "end"))
    if (full := longest({rank: curve}, most)) is not None:
        panel.mark(scene, full, most)
    return top + HEADROOM + height


def kinds_of(traces: Iterable[Trace]) -> list[Entry]:
    """Return the legend of the rows of the ranks with the highest peaks."""
    return [*_entries({number: levels(trace, peak(trace).rank) for number, trace in enumerate(traces)}, ())]


def goals(trace: Trace) -> list[float]:
    """Return the memory limits that its puzzle sets for a run, the largest first; none where it does not have the
    puzzle's size."""
    if trace.puzzle is None or trace.puzzle not in PUZZLES:  # a file may say anything
        return []
    record = PUZZLES[trace.puzzle]
    if record.is_function or not record.fits(trace) or record.costs != trace.costs:
        return []
    return sorted({float(one.memory) for one in record.goals}, reverse=True)


def _summary(trace: Trace, folds: Sequence[Fold], full: Plateau | None) -> str:
    top = peak(trace)
    head = f"at most {amount(top.elements)} elements on"
    if full is None:
        return f"{head} rank {top.rank} at time {exact(units(top.time))}"
    ranks = next(fold.ranks for fold in folds if fold.rank == full.rank)
    start, end = exact(units(full.start)), exact(units(full.end))
    return f"{head} {numbered('rank', ranks)} " + (f"at time {start}" if start == end else f"from {start} to {end}")


HEIGHTS: Final = ((1, 84, 6), (2, 60, 6), (4, 46, 6), (8, 32, 4), (16, 20, 3), (32, 11, 2), (64, 7, 1), (inf, 5, 1))
"""Up to a number of rows: that number, the height of each row, and the gap between two."""


class _Panel(NamedTuple):
    """The tops of the rows, by drawn rank, and the height of an element in pixels."""

    axis: Axis
    tops: Mapping[int, float]
    height: float
    scaling: float

    def row(self, scene: Scene, rank: int, curve: Sequence[Level], most: float, limits: Sequence[float]) -> None:
        """Paint the memory of a rank, with lines at the highest peak and at the goals."""
        axis, top, floor = self.axis, self.tops[rank], self.tops[rank] + self.height
        scene.add(Rect(axis.left, top, axis.width, self.height, TRACK))
        columns = _columns(curve, axis)
        scene.add(*_areas(columns, floor, self.scaling))
        if self.height >= ROOMY:
            scene.add(*_hatching(columns, floor, self.scaling))
            y = floor - self.scaling * most
            scene.add(Poly(((axis.left, y), (axis.left + axis.width, y)), stroke=GRID, dash="2 3"))
        for limit in limits:
            y = floor - self.scaling * limit
            colour = GOOD if most <= limit else ALARM
            scene.add(Poly(((axis.left, y), (axis.left + axis.width, y)), stroke=colour, line=0.8))

    def mark(self, scene: Scene, full: Plateau, most: float) -> None:
        """Paint a bracket over the longest time at the peak, and its label above it."""
        axis, top = self.axis, self.tops[full.rank]
        y = top + self.height - self.scaling * most - 2.5
        start, end = axis.x(full.start), max(axis.x(full.end), axis.x(full.start) + 2)
        scene.add(Poly(((start, y + 3), (start, y), (end, y), (end, y + 3)), stroke=ALARM, line=1.6))
        words = f"peak {compact(most)}"
        half = text_width(words, SMALL) / 2
        middle = min(max((start + end) / 2, axis.left + half), axis.left + axis.width - half)
        scene.add(Poly((((start + end) / 2, y), ((start + end) / 2, top - 2)), stroke=ALARM))
        scene.add(Text(middle, top - 8, words, SMALL, ALARM, "middle"))

    def scale(self, scene: Scene, top: float, most: float, limits: Sequence[float]) -> None:
        """Write the meaning of the lines, right of the first row; a little apart where they lie close."""
        x, floor = self.axis.left + self.axis.width + 3, top + self.height
        if self.height < ROOMY:
            return
        marks = [
            (floor - self.scaling * limit, f"≤ {compact(limit)}", SOFT if most <= limit else ALARM) for limit in limits
        ] or [(floor - self.scaling * most + 3, compact(most), SOFT)]
        last = floor - 3 - SMALL
        for y, words, colour in reversed(marks):  # from below, so that none ends up below the floor
            last = min(y, last)
            scene.add(Text(x, last, words, SMALL, colour))
            last -= SMALL
        scene.add(Text(x, floor - 3, "0", SMALL, SOFT))


def stepped(edge: Sequence[Point], floor: float) -> list[Point]:
    """Return the outline of an area on a floor, whose upper edge goes from each place to the next one in a step."""
    points, level = [(edge[0][0], floor)], floor
    for x, y in edge:
        if y != level:
            points += [(x, level), (x, y)]
            level = y
    return [*points, (edge[-1][0], level), (edge[-1][0], floor)]


def _areas(columns: Sequence[tuple[float, tuple[float, ...]]], floor: float, scale: float) -> Iterator[Poly]:
    for number in reversed(range(len(SERIES) if columns else 0)):
        if all(sums[number] == (sums[number - 1] if number else 0) for _, sums in columns):
            continue
        name, points = SERIES[number], stepped([(x, floor - scale * sums[number]) for x, sums in columns], floor)
        yield Poly(points, fill=STACK[name], title=name)


def _hatching(columns: Sequence[tuple[float, tuple[float, ...]]], floor: float, scale: float) -> Iterator[Poly]:
    """Hatching over the guests, one stretch of equal height at a time."""
    guest = SERIES.index(GATHERED)
    start, band = 0.0, (0.0, 0.0)
    for x, sums in [*columns, (columns[-1][0], columns[-1][1])] if columns else []:
        now = sums[guest - 1], sums[guest]
        if now != band or x == columns[-1][0]:
            height = scale * (band[1] - band[0])
            if height >= 2 and x - start >= 3:
                yield from hatch(start, floor - scale * band[1], x - start, height, KINDS["weight"])
            start, band = x, now


def _columns(curve: Sequence[Level], axis: Axis) -> list[tuple[float, tuple[float, ...]]]:
    """Levels in pixels; the highest where several fall in one pixel."""
    found: list[tuple[float, tuple[float, ...]]] = []
    for level in curve:
        x = axis.x(level.time)
        if found and x - found[-1][0] < 1 and level is not curve[-1]:
            if level.sums[-1] > found[-1][1][-1]:
                found[-1] = (found[-1][0], level.sums)
        else:
            found.append((x, level.sums))
    return found


def _entries(curves: Mapping[int, Sequence[Level]], limits: Sequence[float]) -> Iterator[Entry]:
    """The legend: the kinds of value, guests where there are any, and the lines."""
    guest = SERIES.index(GATHERED)
    for name in SERIES:
        if name != GATHERED:
            yield swatch(KINDS[name], text=name)
        elif any(level.sums[guest] > level.sums[guest - 1] for curve in curves.values() for level in curve):
            yield [Rect(0, 0, 16, 12, GUEST, radius=1.5), *hatch(0, 0, 16, 12, KINDS["weight"])], 16, name
    if limits:
        yield [Poly(((0, 6), (16, 6)), stroke=GOOD, line=1.2)], 16, "goal for memory"
