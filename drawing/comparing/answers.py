"""Pictures of answers: why a rank waits, the critical path, and what-ifs.

Also the marks that they and reviews put on a timeline: gaps with letters and reasons, the path, and the chain to a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from drawing.canvas.layout import Axis, legend, swatch
from drawing.canvas.palette import ACCENT, ALARM, INK, LOOKS, PAPER, SOFT, TINTS, TRACK, Colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Mark, Poly, Rect, Scene, Text, fit, hatch, text_width
from drawing.comparing.bars import TIME_LOOKS, Part, stack
from drawing.timeline.paint import LEFT, Panel, Rows, heading
from drawing.timeline.schedule import RIGHT, WIDTH, panels, titled
from lib.analysis.dependencies import At
from lib.analysis.difference import figures_of
from lib.analysis.waiting.chains import Leg, Step
from lib.analysis.waiting.critical_path import PARTS, Path, Tight, critical_path, slack
from lib.analysis.waiting.gaps import Gap, Group
from lib.analysis.waiting.what_if import WhatIf
from lib.analysis.waiting.why import Why
from lib.cluster.costs import ticks, units
from lib.errors.wording import exact, numbered
from lib.suite.course.review import Review
from lib.values.operations import COMPUTE

FALLING: Final = frozenset(["message", "stream"])  # kinds with falling hatching; for the others it rises


def mark_gaps(scene: Scene, groups: Sequence[Group], axis: Axis, rows: Rows) -> None:
    """Mark every gap of the groups on the compute lane of its rank, with the letter of its group."""
    drawn = frozenset(rows.ranks)
    for letter, group in zip(lettered(groups), groups, strict=True):
        for gap in group.gaps:
            if gap.rank in drawn:
                scene.add(*_marked(gap, letter, axis, rows))


def lettered(groups: Sequence[Group]) -> list[str]:
    """Return a letter for each group, except where its gaps have boxes with labels of their own."""
    letters = iter("abcdefghijkl")
    return ["" if all(map(_is_labelled, group.gaps)) else next(letters) for group in groups]


def _is_labelled(gap: Gap) -> bool:
    return gap.kind == "never" or _is_band(gap)


def _is_band(gap: Gap) -> bool:
    """Check if a gap is a communication in its own box, which gets a band along its upper edge."""
    return gap.kind == "communication" and gap.before is not None and gap.before.event.blocking


def _marked(gap: Gap, letter: str, axis: Axis, rows: Rows) -> Iterator[Mark]:
    fill, line = TINTS[gap.kind]
    x, top, height = axis.x(gap.start), rows.tops[gap.rank], rows.height
    width = axis.x(gap.end) - x
    if width > 3:
        width -= 0.8
    if _is_band(gap):
        yield Rect(x, top, max(width, 0.8), max(2.0, height / 8), line, title=gap.text())
    if _is_labelled(gap):
        return
    yield Rect(x, top, max(width, 0.8), height, fill, title=gap.text())
    if width >= 6 and height >= 9:
        yield from hatch(x, top, width, height, line, gap.kind in FALLING)
    if width >= 12 and height >= 14:
        yield from _letter(x + width / 2, top + height / 2, letter, line)


def _letter(x: float, y: float, letter: str, line: str) -> Iterator[Mark]:
    """Yield a letter in a small box, centred."""
    yield Rect(x - 5.5, y - 6.5, 11, 13, PAPER, line, 0.8, radius=2.5)
    yield Text(x, y, letter, SMALL, INK, "middle", bold=True)


def mark_path(scene: Scene, path: Path, axis: Axis, rows: Rows) -> None:
    """Draw the critical path as a line just above the rows that it goes through."""
    points: list[tuple[float, float]] = []
    for rank, _, event in path.steps:
        if rank in rows.tops and event.start is not None:
            y = rows.tops[rank] - 2
            points += [(axis.x(event.start), y), (axis.x(event.start + event.length), y)]
    if points:
        line = max(1.4, min(2.2, rows.height / 12))
        scene.add(Poly(points, stroke=PAPER, line=line + 1.6), Poly(points, stroke=INK, line=line))


def path_sample(scene: Scene, right: float, y: float) -> None:
    """Write what the line means, right-aligned."""
    words = "critical path"
    left = right - text_width(words, TEXT) - 28
    scene.add(Poly(((left, y + 3), (left + 10, y + 3), (left + 10, y - 3), (left + 22, y - 3)), stroke=INK, line=2))
    scene.add(Text(right, y, words, TEXT, SOFT, "end"))


def gap_list(scene: Scene, review: Review, y: float) -> float:
    """Write the critical path in words and every group with its mark; return where they end."""
    for head in review.heads():
        y = scene.paragraph(LEFT, y + 6, head, WIDTH - LEFT - 24, 17, bold=True) - 6
    y += 2
    groups, rest = review.reasons()
    for letter, group in zip(lettered(groups), groups, strict=True):
        fill, line = TINTS[group.kind]
        if group.kind == "never":
            scene.add(Rect(LEFT + 8, y + 0.5, 18, 14, *LOOKS["pending"].pair, dash="3 2"))
        elif not letter:
            scene.add(Rect(LEFT + 8, y + 0.5, 18, 14, *LOOKS["collective"].pair), Rect(LEFT + 7.5, y, 19, 4, line))
        else:
            scene.add(Rect(LEFT, y, 34, 15, fill), *hatch(LEFT, y, 34, 15, line, group.kind in FALLING))
            scene.add(*_letter(LEFT + 17, y + 7.5, letter, line))
        y = scene.paragraph(LEFT + 42, y + 7.5, group.text(), WIDTH - LEFT - 68, 16) - 3.5
    if rest:
        scene.add(Text(LEFT + 42, y + 6, rest, TEXT, SOFT))
        y += 17
    if (further := review.further()) is not None:
        y = scene.paragraph(LEFT, y + 8, further, WIDTH - LEFT - 24, 17, SOFT) - 6
    return y


BADGE: Final = 15  # pixels of a number, and the least height of a row that has one


def _asked(gap: Gap, panel: Panel, rows: Rows) -> Iterator[Mark]:
    """Yield the marks of the gap asked about: tinted, hatched and framed."""
    if gap.rank not in rows.tops:
        return
    fill, line = TINTS[gap.kind]
    x, top, height = panel.axis.x(gap.start), rows.tops[gap.rank], rows.height
    width = max(2.0, panel.axis.x(gap.end) - x)
    yield Rect(x, top, width, height, fill, title=gap.text())
    yield from hatch(x, top, width, height, line, gap.kind in FALLING)
    yield Rect(x, top, width, height, "none", ALARM, 2.2, title=gap.text())
    if width >= BADGE and height >= BADGE:
        yield from badge(x + width / 2, top + height / 2, "?", ALARM)


def badge(x: float, y: float, text: str, line: str = INK) -> Iterator[Mark]:
    """Yield a number or a letter on a small round plate, centred."""
    wide = 7.5 if len(text) < 2 else 9.5
    yield Rect(x - wide, y - 7.5, 2 * wide, 15, PAPER, line, 1.2, radius=7)
    yield Text(x, y, text, SMALL, INK, "middle", bold=True)


def _chain(legs: Sequence[Leg], gap: Gap, panel: Panel, rows: Rows) -> Iterator[Mark]:
    """Yield frames around all legs and arrows between their rows; then their numbers, where there is room."""
    steps = [step for leg in legs for step in leg.steps]
    runs: list[list[Step]] = []  # consecutive steps in one row, told together, the last first
    for step in steps:
        same = runs and runs[-1][-1].at.rank == step.at.rank and runs[-1][-1].at.event.op == step.at.event.op
        if same and step.at.event.op not in ("pass_to", "receive"):
            runs[-1].append(step)
        else:
            runs.append([step])
    for run in runs:
        yield from _framed(panel, rows, run[0].at, run[-1].start, run[0].end)
    rank, end = gap.rank, gap.end
    for step in steps:
        yield from _arrow(panel, rows, step.at.rank, rank, step.end if step is not steps[0] else end)
        rank = step.at.rank
    yield from _numbers(panel, rows, legs)


def _framed(panel: Panel, rows: Rows, at: At, start: int, end: int) -> Iterator[Mark]:
    if at.rank in rows.tops:
        (top, height), x = rows.lane(at.rank, panel.timeline.lane_of.get(at[:2], 0)), panel.axis.x(start)
        width = max(1.5, panel.axis.x(end) - x - 0.8)
        yield Rect(x - 0.2, top, width + 0.4, height, "none", INK, 1.8)


def _arrow(panel: Panel, rows: Rows, source: int, target: int, time: int) -> Iterator[Mark]:
    """An upright arrow from the row of a rank to that of another."""
    if source == target or source not in rows.tops or target not in rows.tops:
        return
    x, down = panel.axis.x(time) - 0.4, rows.tops[target] > rows.tops[source]
    begin = rows.tops[source] + (rows.height if down else 0)
    end = rows.tops[target] + (0 if down else rows.height)
    tip = 6 if down else -6
    yield Poly(((x, begin), (x, end - tip / 2)), stroke=PAPER, line=5)
    yield Poly(((x, begin), (x, end - tip / 2)), stroke=INK, line=2)
    yield Poly(((x - 4, end - tip), (x + 4, end - tip), (x, end)), fill=INK, stroke=PAPER)


def _numbers(panel: Panel, rows: Rows, legs: Sequence[Leg]) -> Iterator[Mark]:
    """The numbers of the legs on the upper edges of their frames: first on wide boxes, then on others where they have
    room beside them."""
    if rows.height < BADGE:
        return
    places, taken = list[tuple[float, float, float, str]](), list[tuple[float, float]]()
    for number, leg in enumerate(legs, 1):
        rank = leg.steps[-1].at.rank
        if rank in rows.tops:
            last = max(one.end for one in leg.steps if one.at.rank == rank)
            left, right = panel.axis.x(leg.start), panel.axis.x(last)
            places.append((right - left, (left + right) / 2, rows.tops[rank], str(number)))
    for _, x, y, number in sorted(places, key=lambda place: -place[0]):
        if all(abs(x - other) > BADGE + 5 or y != row for other, row in taken):
            taken.append((x, y))
            yield from badge(x, y, number)


MANY: Final = 8  # most ranks that all have a row; beyond that, only those involved
PART_LOOKS: Final[Mapping[str, tuple[Colour, Colour]]] = {**TIME_LOOKS, "links": TINTS["shared"]}
BARS: Final = 24  # rows of bars at most
NAMES, BESIDE = 190.0, 180.0  # pixels for names of what may help, and for words beside the longest bar


def picture_of_why(why: Why) -> Picture:
    """Return the picture; its words are those of the answer."""
    moment = exact(units(why.time))
    title = f"Why does rank {why.rank} wait at {moment}?" if why.gap is not None else f"Rank {why.rank} at {moment}"
    scene, y = titled(title, why.head())
    involved = {why.rank, *(step.at.rank for step in why.steps)}
    (panel,), y = panels(scene, [why.run], y + 6, fold=False, only=involved if why.run.ranks > MANY else None)
    rows = panel.rows(scene, y + 6)
    if why.gap is not None:
        scene.add(*_asked(why.gap, panel, rows), *_chain(why.legs, why.gap, panel, rows))
    elif (busy := why.busy) is not None:
        scene.add(*_framed(panel, rows, busy, busy.event.start or 0, busy.event.end or 0))
    y = panel.numbers(scene, rows) + 8
    for number, words in why.told():
        scene.add(*(badge(LEFT - 2, y + 6, number) if number else ()))
        y = scene.paragraph(LEFT + 18, y + 6, words, WIDTH - LEFT - RIGHT, 16, INK if number else SOFT) - 3
    for line in why.ends():
        y = scene.paragraph(LEFT - 8, y + 10, line, WIDTH - LEFT - 24, 16, INK) - 5
    scene.height = y + 10
    return Picture(scene, why.text())


def picture_of_path(path: Path) -> Picture:
    """Return the picture; its words are those of the path."""
    scene, y = titled("The critical path", path.head())
    (panel,), y = panels(scene, [path.run], y + 6)
    path_sample(scene, WIDTH - RIGHT, y + 8)
    rows = panel.rows(scene, y + 20)
    left, thick = slack(path.run), max(2.0, rows.height / 10)
    for rank in rows.ranks:  # a bar below computation that may not be late
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
    """Each rank's share of the path, and its slack; equal ranks share a row. Returns where they end."""
    alike: dict[tuple[tuple[tuple[str, int], ...], Tight], list[int]] = {}
    for rank, (mine, late) in enumerate(zip(path.by_rank(), path.tight(), strict=True)):
        alike.setdefault((tuple(mine.items()), late), []).append(rank)
    words = "How much of it lies on each rank, and how many of the rank's computations have no slack"
    scene.add(Text(LEFT, y, words, TEXT, INK, bold=True))
    y += 14
    axis = panel.axis
    most = max((sum(took for _, took in mine) for mine, _ in alike), default=0)
    scale = (WIDTH - axis.left - BESIDE) / max(1, most) * ticks(1)
    for (mine, late), ranks in list(alike.items())[:BARS]:
        said = [(kind, units(took), exact(units(took))) for kind, took in mine if took]
        parts = [
            Part(long, *PART_LOOKS[kind], (f"{PARTS[kind]} {words}", words), f"{PARTS[kind]}: {words}")
            for kind, long, words in said
        ]
        scene.add(Text(axis.left - 10, y + 8, fit(numbered("rank", ranks), axis.left - 14, TEXT), TEXT, INK, "end"))
        end = stack(scene, parts, axis.left, y, scale, 15)
        scene.add(Text(end + 8, y + 8, late.text(), TEXT, INK if late.tight else SOFT))
        y += 20
    if len(alike) > BARS:
        scene.add(Text(axis.left, y + 6, f"and {len(alike) - BARS} more rows", TEXT, SOFT))
        y += 18
    shown = {kind: PARTS[kind] for (mine, _), _ in alike.items() for kind, took in mine if took}
    return legend(scene, LEFT, y + 4, WIDTH - 12, [swatch(*PART_LOOKS[kind], words) for kind, words in shown.items()])


def picture_of_what_if(found: WhatIf) -> Picture:
    """Draw both timings on one time axis, each with its critical path, and the changes in the gaps."""
    scene, y = titled(f"{found.words} ...", found.head(), INK if found.gain else SOFT)
    runs = [("as it is", found.before), ("then", found.after)]
    shown, y = panels(scene, [run for _, run in runs], y + 6)
    y += 4
    for (name, run), panel in zip(runs, shown, strict=True):
        top = y
        y = heading(scene, name, figures_of(run), y)
        rows = panel.rows(scene, y)
        scene.add(*_changed(found, panel, rows))
        mark_path(scene, critical_path(run), panel.axis, rows)
        path_sample(scene, WIDTH - RIGHT, top + 8)
        y = panel.numbers(scene, rows) + 8
    for line in found.ends():
        y = scene.paragraph(LEFT, y + 6, line, WIDTH - LEFT - 24, 16, INK) - 4
    scene.height = y + 8
    return Picture(scene, found.text())


def _changed(found: WhatIf, panel: Panel, rows: Rows) -> list[Rect]:
    """Return frames around changed boxes; none where there are many, as the words say enough."""
    frames, change = list[Rect](), found.change
    for box in panel.timeline.boxes if change else ():
        event = panel.trace.programs[box.rank].events[box.number]
        if change and box.look not in ("wait", "pending", "failed") and change.touches(panel.trace, box.rank, event):
            (top, height), x, end = rows.lane(box.rank, box.lane), panel.axis.x(box.start), panel.axis.x(box.end)
            frames.append(Rect(x, top, max(0.8, end - x - 0.8), height, "none", ACCENT, 1.8))
    return frames if len(frames) <= 120 else []
