"""The gaps of a review: tinted and lettered on the timeline, listed with their reasons, and the critical path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from drawing.canvas.axes import Axis
from drawing.canvas.hatching import hatch
from drawing.canvas.palette import INK, LOOKS, PAPER, SOFT, TINTS
from drawing.canvas.scene import SMALL, TEXT, Mark, Poly, Rect, Scene, Text, text_width
from drawing.timeline.paint import Rows
from drawing.timeline.panel import LEFT, WIDTH
from lib.analysis.waiting.critical_path import Path
from lib.analysis.waiting.gaps import Gap, Group
from lib.suite.course.review import Review

__all__ = ["gap_list", "hatch", "mark_gaps", "mark_path", "path_sample"]

FALLING: Final = frozenset(["message", "stream"])
"""Kinds whose hatching falls; that of the others rises."""
LETTERS: Final = "abcdefghijkl"


def mark_gaps(scene: Scene, groups: Sequence[Group], axis: Axis, rows: Rows) -> None:
    """Marks every gap of the groups on the compute lane of its rank, with the letter of its group."""
    drawn = frozenset(rows.ranks)
    for letter, group in zip(lettered(groups), groups, strict=True):
        for gap in group.gaps:
            if gap.rank in drawn:
                scene.add(*_marked(gap, letter, axis, rows))


def lettered(groups: Sequence[Group]) -> list[str]:
    """A letter for each group, but for those whose gaps have boxes of their own, with labels that must be readable."""
    letters = iter(LETTERS)
    return ["" if all(map(_is_labelled, group.gaps)) else next(letters) for group in groups]


def _is_labelled(gap: Gap) -> bool:
    return gap.kind == "never" or _is_band(gap)


def _is_band(gap: Gap) -> bool:
    """Whether a gap is a communication in its own box, which gets a band along its upper edge."""
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
        yield from badge(x + width / 2, top + height / 2, letter, gap.kind)


def badge(x: float, y: float, letter: str, kind: str) -> Iterator[Mark]:
    """A letter in a small box, centred."""
    _, line = TINTS[kind]
    yield Rect(x - 5.5, y - 6.5, 11, 13, PAPER, line, 0.8, radius=2.5)
    yield Text(x, y, letter, SMALL, INK, "middle", bold=True)


def mark_path(scene: Scene, path: Path, axis: Axis, rows: Rows) -> None:
    """The critical path as a line just above the rows that it goes through."""
    points: list[tuple[float, float]] = []
    for rank, _, event in path.steps:
        if rank in rows.tops and event.start is not None:
            y = rows.tops[rank] - 2
            points += [(axis.x(event.start), y), (axis.x(event.start + event.length), y)]
    if points:
        line = max(1.4, min(2.2, rows.height / 12))
        scene.add(Poly(points, stroke=PAPER, line=line + 1.6), Poly(points, stroke=INK, line=line))


def path_sample(scene: Scene, right: float, y: float) -> None:
    """Says what the line is, right-aligned."""
    words = "critical path"
    left = right - text_width(words, TEXT) - 28
    scene.add(Poly(((left, y + 3), (left + 10, y + 3), (left + 10, y - 3), (left + 22, y - 3)), stroke=INK, line=2))
    scene.add(Text(right, y, words, TEXT, SOFT, "end"))


def gap_list(scene: Scene, review: Review, y: float) -> float:
    """The critical path in words and every group with its mark; returns where they end."""
    for head in review.heads():
        y = scene.paragraph(LEFT, y + 6, head, WIDTH - LEFT - 24, 17, bold=True) - 6
    y += 2
    groups, rest = review.reasons()
    for letter, group in zip(lettered(groups), groups, strict=True):
        _sample(scene, group, letter, y)
        y = scene.paragraph(LEFT + 42, y + 7.5, group.text(), WIDTH - LEFT - 68, 16) - 3.5
    if rest:
        scene.add(Text(LEFT + 42, y + 6, rest, TEXT, SOFT))
        y += 17
    if (further := review.further()) is not None:
        y = scene.paragraph(LEFT, y + 8, further, WIDTH - LEFT - 24, 17, SOFT) - 6
    return y


def _sample(scene: Scene, group: Group, letter: str, y: float) -> None:
    """How a group looks on the timeline."""
    fill, line = TINTS[group.kind]
    if group.kind == "never":
        scene.add(Rect(LEFT + 8, y + 0.5, 18, 14, *LOOKS["pending"].pair, dash="3 2"))
        return
    if not letter:
        scene.add(Rect(LEFT + 8, y + 0.5, 18, 14, *LOOKS["collective"].pair), Rect(LEFT + 7.5, y, 19, 4, line))
        return
    scene.add(Rect(LEFT, y, 34, 15, fill), *hatch(LEFT, y, 34, 15, line, group.kind in FALLING))
    scene.add(*badge(LEFT + 17, y + 7.5, letter, group.kind))
