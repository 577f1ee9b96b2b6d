"""Where each kind of parallelism stops hiding what it sends: work over communication, by tokens a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2
from typing import Final

from drawing.canvas.palette import BOUND, EDGE, GRID, INK, NONE, PAPER, SOFT, TRACK, origin_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit
from drawing.comparing.plot import Frame
from drawing.planning import require
from lib.errors.wording import exact
from lib.plan.roofline import hides_from

__all__ = ["draw_roofline"]

WIDTH, LEFT, TOP, RIGHT, HIGH, LINE = 840, 66.0, 40.0, 190.0, 250.0, 16.0
TALLEST: Final = 64.0


def draw_roofline(curves: Mapping[str, Sequence[tuple[int, float]]], title: str) -> Picture:
    """Draw the curves of `lib.plan.roofline.roofline`, both axes as logarithms of base 2: below the line at 1 what is
    sent takes longer than the work, and a ring marks from how many tokens on it does not. ValueError without a curve,
    or with one that has no two points."""
    takes = "draw_roofline draws curves of two points or more, as lib.plan.roofline.roofline gives them"
    require(curves, list, takes)
    if any(len(curve) < 2 for curve in curves.values()):
        raise ValueError(takes)
    every = [min(TALLEST, ratio) for curve in curves.values() for _, ratio in curve]
    low, high = log2(min([0.5, *every])) - 0.3, log2(max([2.0, *every])) + 0.3
    tokens = [count for count, _ in next(iter(curves.values()))]
    frame = Frame(LEFT, TOP, WIDTH - RIGHT, TOP + HIGH, (log2(tokens[0]), low), (log2(tokens[-1]), high))
    scene = Scene(WIDTH, TOP + HIGH + 48)
    scene.add(Text(LEFT, 22, fit(f"{title}", WIDTH - LEFT - 24, TEXT + 2), TEXT + 2, INK, bold=True))
    one = frame.y(0)
    scene.add(Rect(LEFT, one, frame.right - LEFT, frame.bottom - one, TRACK))
    for count in tokens:
        x = frame.x(log2(count))
        scene.add(Poly(((x, frame.top), (x, frame.bottom)), stroke=GRID))
        scene.add(Text(x, frame.bottom + 12, f"{count:,}", SMALL, SOFT, "middle"))
    for power in range(int(low), int(high) + 1):
        y = frame.y(power)
        scene.add(Poly(((LEFT, y), (frame.right, y)), stroke=GRID))
        scene.add(Text(LEFT - 8, y, exact(2.0**power), SMALL, SOFT, "end"))
    scene.add(Poly(((LEFT, one), (frame.right, one)), stroke=BOUND, line=1.6))
    scene.add(Text(frame.right - 6, one + 10, "below: what is sent is seen", SMALL, SOFT, "end"))
    scene.add(Rect(LEFT, frame.top, frame.right - LEFT, frame.bottom - frame.top, NONE, EDGE))
    said: list[str] = []
    ends: list[tuple[float, int, str]] = []
    for number, (name, curve) in enumerate(curves.items()):
        colour, start = origin_colour(number, len(curves)), hides_from([*curve])
        points = [frame.at(log2(count), log2(min(TALLEST, ratio))) for count, ratio in curve]
        scene.add(Poly(points, stroke=colour, line=2.4))
        words = "never" if start is None else "always" if start == curve[0][0] else f"from {start:,} tokens"
        said.append(f"{name}: {words}")
        ends.append((points[-1][1], number, f"{name}: {words}"))
        if start is not None and start != curve[0][0]:
            x = frame.x(log2(start))
            scene.add(Rect(x - 5, one - 5, 10, 10, PAPER, colour, 2, radius=5, title=f"{name} hides it {words}"))
    y = frame.top - LINE
    for end, number, words in sorted(ends):
        y = max(y + LINE, end)
        scene.add(Rect(frame.right + 10, y - 4, 8, 8, origin_colour(number, len(curves)), radius=4))
        scene.add(Text(frame.right + 23, y, fit(words, RIGHT - 30, TEXT), TEXT, INK))
    scene.add(Text((LEFT + frame.right) / 2, frame.bottom + 32, "tokens a GPU", TEXT, SOFT, "middle"))
    scene.add(Text(LEFT - 46, TOP + HIGH / 2, "work over what is sent", TEXT, SOFT, "middle", turned=True))
    return Picture(scene, f"{title}. What is sent is hidden, {'; '.join(said)}.")
