"""The picture of a review: limits, yours above the reference on one time axis, the gaps, and the peak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from drawing.canvas.palette import ALARM, BOUND, INK, KINDS, PAPER, SOFT, TRACK, mix
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Rect, Scene, Text, fit, hatch, text_width
from drawing.comparing.answers import gap_list, mark_gaps, mark_path, path_sample
from drawing.comparing.bars import Bound as Mark
from drawing.comparing.bars import Part, diamond, memory_parts, sent_parts, stack, time_parts
from drawing.comparing.goals import Figure, goals, may_send
from drawing.comparing.plot import Limits, Plot, Point, plot
from drawing.timeline.paint import LEFT, Panel, heading
from drawing.timeline.schedule import RIGHT, WIDTH, panels, titled
from lib.analysis.difference import difference, figures_of, memory_shares, said, sent_shares, time_shares
from lib.cluster.costs import ticks
from lib.errors.wording import amount, counted, exact
from lib.suite.course.review import ROWS, Review

if TYPE_CHECKING:
    from lib.analysis.bounds.limits import Limit

EDGE: Final = 24.0
PLOT: Final = 370.0  # pixels of the plot's width


def limits(scene: Scene, review: Review, y: float) -> float:
    """Paint bars for yours and every goal; below them the plot, and the parts of the bounds. Nothing if incorrect."""
    verdict = review.verdict
    if not verdict.correct:
        return y
    y = goals(scene, verdict.goals, _figures(review), EDGE, WIDTH - 8, y, judged=True) + 10
    bottom, y = plot(scene, _plot(review), EDGE, PLOT, y), y + 12
    # Beside it: how yours compares with the reference, which schedules the bounds cover, and if both can be had.
    left = EDGE + PLOT + 26
    for words, fill, below in ((review.beside(), INK, 6), (review.premise(), SOFT, 6), (review.both(), INK, 0)):
        if words is not None:
            y = scene.paragraph(left, y, words, WIDTH - left - EDGE, 17, fill, bold=fill == INK) + below
    y = max(bottom, y) + 12
    for limit in review.limits():
        diamond(scene, EDGE + 5, y, 4, 4)
        y = scene.paragraph(EDGE + 16, y, limit, WIDTH - 2 * EDGE - 16, 16) + 3
    return y - 8


def speaking(review: Review) -> tuple[Limit | None, Limit | None, Limit | None]:
    """Return the lower bounds of time, memory and traffic, where they apply to this run and say anything."""
    bound = review.bound
    if bound is None or review.excuse is not None or not review.verdict.correct:
        return None, None, None
    time, memory, sent = (limit if limit.value else None for limit in (bound.time, bound.memory, bound.sent))
    return time, memory, sent


def _figures(review: Review) -> list[Figure]:
    verdict, mine = review.verdict, review.mine
    bounds = [
        limit and Mark(limit.value, f"lower bound {amount(limit.value)}", limit.proof) for limit in speaking(review)
    ]
    wanted = verdict.goals
    sent = Figure("sent per rank", may_send(wanted), verdict.sent, sent_parts(sent_shares(mine)), bounds[2])
    return [
        Figure("time", [g.time for g in wanted], verdict.time, time_parts(time_shares(mine, review.path)), bounds[0]),
        Figure("memory", [g.memory for g in wanted], verdict.memory, memory_parts(memory_shares(mine)), bounds[1]),
        *([sent] if verdict.sent else []),
    ]


def _plot(review: Review) -> Plot:
    """Yours, the reference and other ways, the goals, and the bounds with the proved steps between them."""
    looks = {"yours": "mine", "the reference": "reference"}
    points = [Point(name, time, memory, looks[name]) for name, time, memory in review.figures()]
    passed = review.verdict.passed
    for way in review.others:
        name = way.name.replace("_", " ") if passed else ""
        points.append(Point(name, way.time, way.memory, "other", way.inside))
    time, memory, _ = speaking(review)
    if review.bound is None or time is None or memory is None:
        return Plot(_apart(points), review.verdict.goals)
    frontier = review.bound.frontier
    for name, optimum in zip(("fastest", "", "least memory"), frontier, strict=False):
        points.append(Point(name, optimum.end, optimum.peak, "best"))
    if not frontier and review.bound.together is not None:
        points.append(Point("", *review.bound.together, "best"))
    steps = [(optimum.end_bound, float(optimum.peak)) for optimum in frontier]
    return Plot(_apart(points), review.verdict.goals, Limits(time.value, memory.value, steps))


def _apart(points: Sequence[Point]) -> list[Point]:
    """Points at one place have one label between them."""
    found: dict[tuple[float, float], list[Point]] = {}
    for point in points:
        found.setdefault((point.time, point.memory), []).append(point)
    shown: list[Point] = []
    for same in found.values():
        name = ", ".join(dict.fromkeys(point.name for point in same if point.name))
        shown += [point._replace(name=name if place == 0 else "") for place, point in enumerate(same)]
    return shown


ORDER: Final = tuple(KINDS)
ROOM: Final = WIDTH - LEFT - 130.0  # pixels of the longest bar


class Share(NamedTuple):
    """A value in the bar of the peak: its kind, its elements, and whether it was no longer needed."""

    kind: str
    elements: float
    idle: bool
    title: str


def shares(review: Review) -> list[Share]:
    """Return the values of the peak in stacking order: by kind, those no longer needed last."""
    found = [Share(one.value.kind, float(one.elements), one.state == "idle", str(one.value)) for one in review.alive]
    return sorted(found, key=lambda share: (ORDER.index(share.kind), share.idle))


def at_the_peak(scene: Scene, review: Review, y: float) -> float:
    """Draw the bar, that of the reference below it, and the table; return where they end."""
    if not review.alive:
        return y
    y = scene.paragraph(LEFT, y + 6, review.at_the_peak(), WIDTH - LEFT - 24, 17, bold=True) - 6
    mine = shares(review)
    bars = [("yours", mine)]
    if review.reference is not None:
        held = {share.what: share.amount for share in memory_shares(review.reference, guests_apart=False)}
        bars.append(("reference", [Share(kind, held[kind], False, kind) for kind in ORDER if kind in held]))
    most = max(sum(share.elements for share in bar) for _, bar in bars) or 1.0
    for name, bar in bars:
        y = _bar(scene, name, bar, ROOM / most, y + 2) + 3
    y = _table(scene, review, y + 4)
    if any(share.idle for share in mine) and (words := review.leaner()):
        y = scene.paragraph(LEFT, y + 10, words, WIDTH - LEFT - 24, 17, ALARM, bold=True) - 6
    return y


def _bar(scene: Scene, name: str, bar: Sequence[Share], scale: float, y: float) -> float:
    height = 20 if name == "yours" else 12
    scene.add(Text(LEFT - 10, y + height / 2, name, TEXT, INK, "end"))
    x = LEFT + 0.0
    scene.add(Rect(x, y, ROOM, height, TRACK))
    for share in bar:
        width = scale * share.elements
        gap = 0.8 if width > 3 else 0.0
        scene.add(Rect(x, y, max(0.4, width - gap), height, KINDS[share.kind], title=share.title))
        if share.idle:
            scene.add(*hatch(x, y, width - gap, height, PAPER, line=2))
            scene.add(Rect(x + 0.8, y + 0.8, max(0.4, width - gap - 1.6), height - 1.6, "none", ALARM, 1.6))
        x += width
    total = sum(share.elements for share in bar)
    scene.add(Text(x + 6, y + height / 2, amount(total), TEXT, INK if height > 15 else SOFT))
    return y + height


def _table(scene: Scene, review: Review, y: float) -> float:
    table = review.rows()
    left = LEFT + 92
    for row in table[:ROWS]:
        colour = KINDS[row.kind]
        scene.add(Rect(LEFT, y + 1, 12, 12, colour))
        if row.idle:
            scene.add(*hatch(LEFT, y + 1, 12, 12, PAPER, line=2))
            scene.add(Rect(LEFT + 0.7, y + 1.7, 10.6, 10.6, "none", ALARM, 1.4))
        scene.add(Text(left - 8, y + 7, amount(row.elements), TEXT, INK, "end"))
        bold = fit(row.what, 400, TEXT)
        scene.add(Text(left, y + 7, bold, TEXT, ALARM if row.idle else INK, bold=True))
        after, told = left + text_width(bold, TEXT) * 1.06 + 8, f"{row.made}, {row.fate}"
        fits = text_width(told, TEXT) <= WIDTH - after - 14  # otherwise it stands below
        y = scene.paragraph(after if fits else left, y + (7 if fits else 24), told, WIDTH - left - 14, 17, SOFT) - 7
        y = scene.paragraph(left, y + 6, row.advice, WIDTH - left - 14, 17, ALARM) - 6 if row.advice else y
    if rest := table[ROWS:]:
        total = sum(float(row.elements) for row in rest)
        scene.add(Text(left - 8, y + 7, amount(total), TEXT, INK, "end"))
        scene.add(Text(left, y + 7, f"in {exact(len(rest))} more rows", TEXT, SOFT))
        y += 17
    return y + 2


SECTION: Final = 16  # pixels between the parts of the picture
SAME: Final = "the reference does the same operations at the same times: it is not drawn again."


def picture_of_review(review: Review) -> Picture:
    """Return the whole picture. Its words are those of the review, without its text bars."""
    scene, y = titled(_title(review))
    faults = [line for fault in review.verdict.faults for line in fault.splitlines()]
    more = [f"and {counted(len(faults) - 10, 'more line', ',')}"] if len(faults) > 10 else []
    for line in [*faults[:10], *more]:
        scene.add(Text(24, y, fit(line, WIDTH - 48, TEXT), TEXT, ALARM))
        y += 17
    y = limits(scene, review, y)
    y = _timelines(scene, review, y + SECTION)
    y = gap_list(scene, review, y + SECTION)
    y = at_the_peak(scene, review, y + SECTION)
    scene.height = y + 10
    words = [_title(review), *review.bounds(), review.beside(), *review.waits(), *review.memory()]
    return Picture(scene, "\n".join(words))


def _title(review: Review) -> str:
    name = review.verdict.puzzle or "run"
    if not review.verdict.correct:
        return f"{name}: not one correct training step yet"
    best = review.verdict.best
    return f"{name}, yours beside the reference: " + (f"you reached {best!r}" if best else "no goal reached yet")


def _timelines(scene: Scene, review: Review, y: float) -> float:
    """Both runs on one time axis, yours with its gaps and its critical path; only yours where it is incorrect, or the
    reference does the same."""
    gap = None if review.reference is None else difference(review.mine, review.reference)
    runs = [("yours", review.mine)]
    if review.reference is not None and gap is not None:
        runs.append(("the reference", review.reference))
    shown, y = panels(scene, [trace for _, trace in runs], y)
    y += 4
    for (name, trace), panel in zip(runs, shown, strict=True):
        top = y
        y = _made_of(scene, review, panel, heading(scene, name, figures_of(trace), y))
        rows = panel.rows(scene, y)
        if trace is review.mine:
            told, _ = review.reasons()
            mark_gaps(scene, told, panel.axis, rows)
            mark_path(scene, review.path, panel.axis, rows)
            path_sample(scene, WIDTH - RIGHT, top + 8)
        y = panel.numbers(scene, rows) + 8
    if review.reference is not None:
        words = SAME if gap is None else f"{said(gap, 'yours', 'the reference')}."
        y = scene.paragraph(LEFT, y + 4, f"{words[0].upper()}{words[1:]}", WIDTH - LEFT - 24, 16, SOFT) - 4
    return y - 8


def _made_of(scene: Scene, review: Review, panel: Panel, y: float) -> float:
    """Paint the critical path of a run and its lower bound as bars, to the scale of the time axis."""
    axis, trace = panel.axis, panel.trace
    shares = time_shares(trace, review.path if trace is review.mine else None)
    if trace.error is not None or not shares:
        return y
    bars = [("critical path", time_parts(shares))]
    limit, _, _ = speaking(review)
    if limit is not None and trace is review.mine:
        shades, parts = [mix(BOUND, PAPER, 0.45), mix(BOUND, PAPER, 0.65)], list[Part]()
        for place, (size, what) in enumerate(limit.parts):
            parts.append(Part(size, shades[place % 2], BOUND, (amount(size),), f"{amount(size)} for {what}"))
        bars.append(("lower bound", parts))
    for name, parts in bars:
        scene.add(Text(axis.left - 10, y + 6, name, SMALL, SOFT, "end"))
        stack(scene, parts, axis.left, y - 1, axis.width / max(1, axis.end) * ticks(1), 14)
        y += 18
    return y + 5
