"""The limits of a review: yours beside every goal, and time against memory with the lower bounds in words beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from drawing.canvas.palette import BOUND, INK, PAPER, SOFT, mix
from drawing.canvas.scene import Scene
from drawing.figures.bars import Bound as Mark
from drawing.figures.bars import Part, diamond
from drawing.figures.goals import Figure, goals, may_send
from drawing.figures.parts import memory_parts, sent_parts, time_parts
from drawing.figures.plot import Limits, Plot, Point, plot
from drawing.timeline.panel import WIDTH
from lib.analysis.shares import memory_shares, sent_shares, time_shares
from lib.errors.wording import amount
from lib.suite.course.review import Review

if TYPE_CHECKING:
    from lib.analysis.bounds.limits import Limit  # only a review needs the bounds: `import drawing` should be quick

__all__ = ["bound_parts", "limits", "speaking"]

EDGE: Final = 24.0
PLOT: Final = 370.0
"""Pixels that the plot is wide."""


def limits(scene: Scene, review: Review, y: float) -> float:
    """Bars for yours and for every goal; below them the plot, and what the bounds are made of. Nothing if incorrect."""
    verdict = review.verdict
    if not verdict.correct:
        return y
    y = goals(scene, verdict.goals, _figures(review), EDGE, WIDTH - 8, y, judged=True) + 10
    bottom = plot(scene, _plot(review), EDGE, PLOT, y)
    left = EDGE + PLOT + 26
    y = max(bottom, _words(scene, review, left, WIDTH - left - EDGE, y + 12)) + 8
    for limit in review.limits():
        diamond(scene, EDGE + 5, y, 4, 4)
        y = scene.paragraph(EDGE + 16, y, limit, WIDTH - 2 * EDGE - 16, 16) + 3
    return y - 8


def speaking(review: Review) -> tuple[Limit | None, Limit | None, Limit | None]:
    """The lower bounds of time, memory and what is sent, where they speak of this run and say anything."""
    if review.bound is None or review.excuse is not None or not review.verdict.correct:
        return None, None, None
    time, memory, sent = [
        limit if limit.value else None for limit in (review.bound.time, review.bound.memory, review.bound.sent)
    ]
    return time, memory, sent


def bound_parts(limit: Limit) -> list[Part]:
    """What a lower bound is made of, in two shades by turns."""
    shades = [mix(BOUND, PAPER, 0.45), mix(BOUND, PAPER, 0.65)]
    return [
        Part(part.amount, shades[place % 2], BOUND, (amount(part.amount),), f"{amount(part.amount)} for {part.what}")
        for place, part in enumerate(limit.parts)
    ]


def _figures(review: Review) -> list[Figure]:
    """Yours, what they are made of, the goals and the bounds."""
    verdict, mine = review.verdict, review.mine
    bounds = [
        limit and Mark(limit.value, f"lower bound {amount(limit.value)}", limit.proof) for limit in speaking(review)
    ]
    wanted = verdict.goals
    found = [
        Figure("time", [g.time for g in wanted], verdict.time, time_parts(time_shares(mine, review.path)), bounds[0]),
        Figure("memory", [g.memory for g in wanted], verdict.memory, memory_parts(memory_shares(mine)), bounds[1]),
    ]
    if verdict.sent:
        parts = sent_parts(sent_shares(mine))
        found.append(Figure("sent per rank", may_send(wanted), verdict.sent, parts, bounds[2]))
    return found


def _plot(review: Review) -> Plot:
    """Yours, the reference and other ways, the goals, and the bounds with what is proved between them."""
    looks = {"yours": "mine", "the reference": "reference"}
    points = [Point(name, time, memory, looks[name]) for name, time, memory in review.figures()]
    passed = review.verdict.passed
    points += [
        Point(way.name.replace("_", " ") if passed else "", way.time, way.memory, "other", way.inside)
        for way in review.others
    ]
    time, memory, _ = speaking(review)
    if review.bound is None or time is None or memory is None:
        return Plot(_apart(points), review.verdict.goals)
    frontier = review.bound.frontier
    points += [
        Point(name, optimum.end, optimum.peak, "best")
        for name, optimum in zip(("fastest", "", "least memory"), frontier, strict=False)
    ]
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


def _words(scene: Scene, review: Review, left: float, room: float, y: float) -> float:
    """How yours compares with the reference, of which schedules the bounds speak, and whether both can be had."""
    y = scene.paragraph(left, y, review.beside(), room, 17, INK, bold=True) + 6
    if (premise := review.premise()) is not None:
        y = scene.paragraph(left, y, premise, room, 17, SOFT) + 6
    if (both := review.both()) is not None:
        y = scene.paragraph(left, y, both, room, 17, INK, bold=True)
    return y
