"""The picture of a review: limits, yours above the reference on one time axis, the gaps, and the peak."""

from __future__ import annotations

from typing import Final

from drawing.canvas.palette import ALARM, INK, SOFT
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Scene, Text, fit
from drawing.figures.bars import stack
from drawing.figures.parts import time_parts
from drawing.review.gaps import gap_list, mark_gaps, mark_path, path_sample
from drawing.review.limits import bound_parts, limits, speaking
from drawing.review.peak import at_the_peak
from drawing.timeline.panel import LEFT, RIGHT, WIDTH, Panel, panels
from lib.analysis.difference import difference
from lib.analysis.shares import time_shares
from lib.cluster.costs import ticks
from lib.errors.wording import counted
from lib.suite.course.review import Review

__all__ = ["picture_of_review"]

SECTION: Final = 16
"""Pixels between the parts of the picture."""
SAME: Final = "the reference does the same operations at the same times: it is not drawn again."
FAULTS: Final = 10
"""Lines of what is wrong with an incorrect run that are shown."""


def picture_of_review(review: Review) -> Picture:
    """The whole picture. Its words are those of the review, without the bars made of letters."""
    scene = Scene(WIDTH, 0)
    y = _headline(scene, review)
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


def _headline(scene: Scene, review: Review) -> float:
    scene.add(Text(24, 26, fit(_title(review), WIDTH - 48, 17), 17, INK, bold=True))
    y = 48.0
    lines = [line for fault in review.verdict.faults for line in fault.splitlines()]
    for line in lines[:FAULTS]:
        scene.add(Text(24, y, fit(line, WIDTH - 48, TEXT), TEXT, ALARM))
        y += 17
    if more := lines[FAULTS:]:
        scene.add(Text(24, y, f"and {counted(len(more), 'more line', ',')}", TEXT, ALARM))
        y += 17
    return y


def _timelines(scene: Scene, review: Review, y: float) -> float:
    """Both runs on one time axis, yours with its gaps and its critical path; of an incorrect run, and where the
    reference does the same, yours only."""
    gap = None if review.reference is None else difference(review.mine, review.reference)
    runs = [("yours", review.mine)]
    if review.reference is not None and gap is not None:
        runs.append(("the reference", review.reference))
    shown, y = panels(scene, [trace for _, trace in runs], y)
    y += 4
    for (name, trace), panel in zip(runs, shown, strict=True):
        top = y
        y = _made_of(scene, review, panel, panel.heading(scene, name, y))
        rows = panel.rows(scene, y)
        if trace is review.mine:
            told, _ = review.reasons()
            mark_gaps(scene, told, panel.axis, rows)
            mark_path(scene, review.path, panel.axis, rows)
            path_sample(scene, WIDTH - RIGHT, top + 8)
        y = panel.numbers(scene, rows) + 8
    if review.reference is not None:
        words = SAME if gap is None else f"{gap.words('yours', 'the reference')}."
        y = scene.paragraph(LEFT, y + 4, f"{words[0].upper()}{words[1:]}", WIDTH - LEFT - 24, 16, SOFT) - 4
    return y - 8


def _made_of(scene: Scene, review: Review, panel: Panel, y: float) -> float:
    """What determines the end of a run, to the scale of its time axis, and what its lower bound is made of."""
    axis, trace = panel.axis, panel.trace
    shares = time_shares(trace, review.path if trace is review.mine else None)
    if trace.error is not None or not shares:
        return y
    bars = [("critical path", time_parts(shares))]
    limit, _, _ = speaking(review)
    if limit is not None and trace is review.mine:
        bars.append(("lower bound", bound_parts(limit)))
    for name, parts in bars:
        scene.add(Text(axis.left - 10, y + 6, name, SMALL, SOFT, "end"))
        stack(scene, parts, axis.left, y - 1, axis.width / max(1, axis.end) * ticks(1), 14)
        y += 18
    return y + 5
