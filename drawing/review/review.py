"""The picture of a review: limits, yours above the reference on one time axis, the gaps, and the fullest moment."""

from __future__ import annotations

from typing import Final

from drawing.canvas.axes import Axis, legend
from drawing.canvas.palette import ALARM, INK, SOFT
from drawing.canvas.picture import Picture
from drawing.canvas.scene import Scene, Text, fit, text_width
from drawing.review.gaps import gap_list, mark_gaps, mark_path, path_sample, wrapped
from drawing.review.limits import limits
from drawing.review.peak import fullest
from drawing.side_by_side import difference, figures_of
from drawing.timeline.boxes import Timeline, boxes
from drawing.timeline.paint import SHOWN, more_ranks, operations, paint, place_rows
from drawing.timeline.schedule import LEFT, RIGHT, WIDTH
from lib.analysis.figures import end
from lib.course.review import GROUPS, Review
from lib.errors.wording import counted
from lib.trace.trace import Trace

__all__ = ["picture_of_review"]

SECTION: Final = 16
"""Pixels between the parts of the picture."""
FAULTS: Final = 10
"""Lines of what is wrong with an incorrect run that are shown."""


def picture_of_review(review: Review) -> Picture:
    """The whole picture. Its words are those of the review, without the bars made of letters."""
    scene = Scene(WIDTH, 0)
    y = _headline(scene, review)
    y = limits(scene, review, y)
    y = _timelines(scene, review, y + SECTION)
    y = gap_list(scene, review, y + SECTION)
    y = fullest(scene, review, y + SECTION)
    scene.height = y + 10
    words = [_title(review), *review.bounds(), *review.beside(), *review.waits(), *review.memory()]
    return Picture(scene, "\n".join(words))


def _title(review: Review) -> str:
    name = review.verdict.puzzle or "run"
    if not review.verdict.correct:
        return f"{name}: not one correct training step yet"
    best = review.verdict.best
    return f"{name}, yours beside the reference: " + (f"you reached {best!r}" if best else "no tier reached yet")


def _headline(scene: Scene, review: Review) -> float:
    scene.add(Text(24, 26, fit(_title(review), WIDTH - 48, 17), 17, INK, bold=True))
    y = 48.0
    lines = [line for fault in review.verdict.faults for line in fault.splitlines()]
    for line in lines[:FAULTS]:
        scene.add(Text(24, y, fit(line, WIDTH - 48, 11), 11, ALARM))
        y += 17
    if more := lines[FAULTS:]:
        scene.add(Text(24, y, f"and {counted(len(more), 'more line', ',')}", 11, ALARM))
        y += 17
    return y


def _timelines(scene: Scene, review: Review, y: float) -> float:
    """Both runs on one time axis; of an incorrect run its own timeline only."""
    runs = [("yours", review.mine)]
    if review.reference is not None:
        runs.append(("the reference", review.reference))
    timelines = [boxes(trace, SHOWN) for _, trace in runs]
    axis = Axis(LEFT, WIDTH - LEFT - RIGHT, max(timeline.end for timeline in timelines))
    entries = operations(review.mine.layers, [box for timeline in timelines for box in timeline.boxes])
    y = legend(scene, LEFT, y, WIDTH - 12, entries) + 4
    for (name, trace), timeline in zip(runs, timelines, strict=True):
        y = _timeline(scene, review if trace is review.mine else None, name, trace, timeline, axis, y) + 8
    if review.reference is not None:
        gap = difference(review.mine, review.reference)
        line = (
            "yours and the reference do the same operations at the same times."
            if gap is None
            else f"{gap.words('yours', 'the reference')}."
        )
        line = line[0].upper() + line[1:]
        for words in wrapped(line, WIDTH - LEFT - 24, 11):
            scene.add(Text(LEFT, y + 4, words, 11, SOFT))
            y += 16
    return y - 8


def _timeline(
    scene: Scene, review: Review | None, name: str, trace: Trace, timeline: Timeline, axis: Axis, y: float
) -> float:
    """A heading with figures, and the rows; on those of `review` its gaps and its critical path."""
    scene.add(Text(LEFT, y + 8, name, 12, INK, bold=True))
    after = LEFT + text_width(name, 12) * 1.08 + 12
    scene.add(Text(after, y + 8, fit(figures_of(trace), WIDTH - after - 10, 11), 11, SOFT))
    rows = place_rows(timeline.lanes, y + 26)
    paint(scene, trace, timeline, axis, rows, trace.layers)
    if review is not None:
        mark_gaps(scene, review.groups[:GROUPS], axis, rows)
        mark_path(scene, review.path, axis, rows)
        path_sample(scene, WIDTH - RIGHT, y + 8)
    word = "end" if trace.error is None else "stopped at"
    return axis.numbers(scene, more_ranks(scene, trace, rows, axis) + 2, end(trace), word)
