"""What is alive at the peak of a review: a bar of values by kind, those that nobody needs marked, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from drawing.canvas.hatching import hatch
from drawing.canvas.palette import ALARM, INK, KINDS, PAPER, SOFT, TRACK
from drawing.canvas.scene import TEXT, Rect, Scene, Text, fit, text_width
from drawing.timeline.panel import LEFT, WIDTH
from lib.analysis.figures import peak
from lib.errors.wording import amount, exact
from lib.suite.course.review import ROWS, Review

__all__ = ["Share", "at_the_peak", "shares"]

ORDER: Final = tuple(KINDS)
ROOM: Final = WIDTH - LEFT - 130.0
"""Pixels of the longest bar."""


class Share(NamedTuple):
    """A value in the bar of the peak: its kind, its elements, and whether nobody needed it any more."""

    kind: str
    elements: float
    idle: bool
    title: str


def shares(review: Review) -> list[Share]:
    """The values of the peak in the order in which they are stacked: by kind, those that nobody needs last."""
    found = [Share(one.value.kind, float(one.elements), one.state == "idle", str(one.value)) for one in review.alive]
    return sorted(found, key=lambda share: (ORDER.index(share.kind), share.idle))


def at_the_peak(scene: Scene, review: Review, y: float) -> float:
    """The bar, that of the reference below it, and the table; returns where they end."""
    if not review.alive:
        return y
    y = scene.paragraph(LEFT, y + 6, review.at_the_peak(), WIDTH - LEFT - 24, 17, bold=True) - 6
    mine = shares(review)
    bars = [("yours", mine)]
    if review.reference is not None:
        bars.append(("reference", _kinds(review)))
    most = max(sum(share.elements for share in bar) for _, bar in bars) or 1.0
    for name, bar in bars:
        y = _bar(scene, name, bar, ROOM / most, y + 2) + 3
    y = _table(scene, review, y + 4)
    if any(share.idle for share in mine):
        y = scene.paragraph(LEFT, y + 10, review.leaner(), WIDTH - LEFT - 24, 17, ALARM, bold=True) - 6
    return y


def _kinds(review: Review) -> list[Share]:
    """What the reference holds at its own peak, by kind."""
    assert review.reference is not None, "only a correct run has a reference beside it"
    sums: dict[str, float] = {}
    for alive in peak(review.reference).alive:
        sums[alive.value.kind] = sums.get(alive.value.kind, 0.0) + float(alive.value.elements())
    return [Share(kind, sums[kind], False, kind) for kind in ORDER if kind in sums]


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
    """Rows of values that are alike. Below those that nobody needs stands where to delete them."""
    table = review.rows()
    left = LEFT + 92
    for row in table[:ROWS]:
        colour = KINDS[row.kind]
        scene.add(Rect(LEFT, y + 1, 12, 12, colour))
        if row.idle:
            scene.add(
                *hatch(LEFT, y + 1, 12, 12, PAPER, line=2), Rect(LEFT + 0.7, y + 1.7, 10.6, 10.6, "none", ALARM, 1.4)
            )
        scene.add(Text(left - 8, y + 7, amount(row.elements), TEXT, INK, "end"))
        bold = fit(row.what, 400, TEXT)
        scene.add(Text(left, y + 7, bold, TEXT, ALARM if row.idle else INK, bold=True))
        after = left + text_width(bold, TEXT) * 1.06 + 8
        scene.add(Text(after, y + 7, fit(f"{row.made}, {row.fate}", WIDTH - after - 14, TEXT), TEXT, SOFT))
        y += 17
        if row.advice:
            scene.add(Text(left, y + 6, fit(row.advice, WIDTH - left - 14, TEXT), TEXT, ALARM))
            y += 17
    if rest := table[ROWS:]:
        total = sum(float(row.elements) for row in rest)
        scene.add(Text(left - 8, y + 7, amount(total), TEXT, INK, "end"))
        scene.add(Text(left, y + 7, f"in {exact(len(rest))} more rows", TEXT, SOFT))
        y += 17
    return y + 2
