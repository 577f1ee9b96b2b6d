"""Plots: points where they belong, no label on another, curves that cross, and the spread of a class."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from drawing import draw_curves
from drawing.canvas.palette import MINE, TRACK
from drawing.canvas.scene import Rect, Scene, Text
from drawing.comparing.dots import HIGH, LEFT, RIGHT, TOP, Handed, draw_spread
from drawing.comparing.plot import Limits, Plot, Point, crossings, plot
from lib.puzzles.puzzle import Goal
from tests.drawing.marks import apart, corners, polys, rects, texts, written


def painted(shown: Plot) -> Scene:
    scene = Scene(400, 260)
    plot(scene, shown, 10, 370, 0)
    return scene


def some(seed: int) -> Plot:
    draw = random.Random(seed)
    points = [Point("yours", draw.uniform(10, 30), draw.uniform(1e6, 3e6), "mine")]
    points += [Point(f"way {n}", draw.uniform(10, 30), draw.uniform(1e6, 3e6), "other") for n in range(4)]
    goals = [Goal("passes", 30, 3_000_000, True), Goal("as good as ours", draw.uniform(15, 25), 2_000_000, False)]
    return Plot(points, goals, Limits(9.0, 900_000.0, draw.choice([(), ((9.0, 2e6), (14.0, 1.5e6), (20.0, 9e5))])))


@pytest.mark.parametrize("seed", range(25))
def test_no_label_lies_on_another_or_leaves_the_paper_and_nothing_can_be_left_of_and_below_the_steps(seed: int) -> None:
    shown = some(seed)
    scene = painted(shown)
    labels = [mark for mark in written(scene) if not mark.turned]
    assert any(mark.text == "yours" for mark in labels)
    assert all(0 <= x <= 400 and 0 <= y <= 260 for mark in labels for x, y in corners(mark))
    assert apart(labels)
    (region,) = polys(scene, fill=TRACK)
    assert len(region.points) == 4 + 2 + 2 * max(0, len(shown.limits.steps if shown.limits else ()) - 1)
    assert min(x for x, _ in region.points) == pytest.approx(64)  # the left edge, with the axis before it


def test_less_is_left_and_below() -> None:
    shown = Plot([Point("yours", 10, 2e6, "mine"), Point("", 20, 1e6, "mine")])
    one, other = rects(painted(shown), fill=MINE)
    assert one.x < other.x
    assert one.y < other.y


def test_a_run_of_another_kind_is_hollow() -> None:
    points = [Point("yours", 10, 2e6, "mine"), Point("other", 5, 1e6, "other", inside=False)]
    rings = rects(painted(Plot(points)), stroke=MINE)
    assert [mark.fill for mark in rings] == ["none"]


FLAT = [(0, 1.0), (1, 1.0), (2, 1.0)]
UP = [(0, 0.0), (1, 0.5), (2, 2.0)]
DOWN = [(0, 3.0), (1, 1.5), (2, 0.5)]


def where(**curves: Any) -> list[tuple[object, ...]]:
    return [tuple(crossing) for crossing in crossings(curves)]


def test_the_lowest_becomes_another_one() -> None:
    assert where(up=UP, flat=FLAT) == [(pytest.approx(1 + 1 / 3), 1.0, "up", "flat")]
    assert where(up=UP, flat=FLAT, down=DOWN) == [
        (pytest.approx(1 + 1 / 3), 1.0, "up", "flat"),
        (pytest.approx(1.5), 1.0, "flat", "down"),
    ]
    assert where(flat=FLAT, lower=[(x, 0.5) for x, _ in FLAT]) == []
    assert where(one=FLAT, same=FLAT) == []
    # They meet just where there is a point: neither lost nor told twice.
    assert where(a=[(0, 0), (1, 1), (2, 2)], b=[(0, 0.5), (1, 1), (2, 1.5)]) == [(1, 1, "a", "b")]
    assert where(a=[(0, 0), (1, 1), (2, 1)], b=[(0, 0.5), (1, 1), (2, 1)]) == []
    assert where(a=[(0, 0), (1, 1), (2, 0)], b=[(0, 0.5), (1, 1), (2, 0.5)]) == []


def test_the_picture_has_a_line_a_name_and_the_crossing() -> None:
    picture = draw_curves({"up": UP, "flat": FLAT}, across="price", title="A title")
    words = texts(picture)
    assert {"A title", "price", "time", "up", "flat", "1.3333", "up is lowest up to 1.3333, then flat."} <= set(words)
    lines = polys(picture, line=2.4)
    assert [len(line.points) for line in lines] == [3, 3]


def test_of_equal_curves_none_is_called_lowest() -> None:
    assert draw_curves({"one": UP, "other": UP}, across="price").words.endswith(" the curves coincide.")


def test_of_a_curve_alone_the_lowest_place_is_marked() -> None:
    picture = draw_curves({"peak": [(1, 3.0), (2, 1.5), (3, 2.0)]}, across="segments")
    assert "peak is lowest at 2, with 1.5" in picture.words
    assert [mark.text for mark in picture.scene.marks if isinstance(mark, Text) and mark.bold][1:] == ["2"]


def test_doublings_are_equally_wide_and_keep_their_numbers() -> None:
    curves = {"flat": [(1, 1.0), (2, 1.0), (8, 1.0)], "steep": [(1, 2.0), (2, 2.0), (8, 0.0)]}
    picture = draw_curves(curves, across="ranks", doublings=True)
    flat = polys(picture, line=2.4)[0].points
    assert flat[2][0] - flat[1][0] == pytest.approx(2 * (flat[1][0] - flat[0][0]))
    # Halfway from 2 to 8 in doublings is 4. There stands one number, in bold, and no other below it.
    assert [word for word in texts(picture) if word in {"1", "2", "4", "8"}].count("4") == 1
    assert "flat is lowest up to 4, then steep" in picture.words
    with pytest.raises(ValueError, match="no doublings of 0"):
        draw_curves({"a": [(0, 1), (1, 1)]}, across="x", doublings=True)


GOALS = (Goal("passes", 20.0, 3e6), Goal("best", 18.0, 2e6))
HANDED = (
    Handed(18.0, 2e6, 40, True, "eighteen"),
    Handed(19.0, 1.5e6, 1, True, "nineteen"),
    Handed(25.0, 3.5e6, 3, False, "<script>"),
    Handed(900.0, 3e6, 2, False, "late"),
    Handed(19.0, 9e9, 1, False, "large"),
)


def test_every_schedule_has_its_place_and_what_the_pointer_shows() -> None:
    scene = draw_spread("Puzzle", HANDED, GOALS, (18.0, 2e6), (18.0, 2e6)).scene
    assert {one.title for one in HANDED} <= {mark.title for mark in scene.marks if not isinstance(mark, Text)}
    dots = {mark.title: mark for mark in rects(scene)}
    for one in HANDED[:3]:
        assert LEFT < dots[one.title].x < dots[one.title].x + dots[one.title].width < RIGHT
        assert TOP < dots[one.title].y < dots[one.title].y + dots[one.title].height < TOP + HIGH
    widths = [dots[one.title].width for one in HANDED[:3]]
    assert widths[0] > widths[2] > widths[1]
    words = texts(scene)
    assert "reference, and best of the class" in words
    assert any("3 students beyond the edge" in text for text in words)


def test_the_bars_count_everybody_and_what_is_shown_of_others_is_text() -> None:
    scene = draw_spread("<b>", HANDED, GOALS).scene
    assert "<b>" not in scene.svg()
    assert "<script>" not in scene.svg()
    assert "&lt;script&gt;" in scene.svg()
    bars = [mark for mark in scene.marks if isinstance(mark, Rect) and mark.title.endswith(("student", "students"))]
    above = [int(bar.title.split()[0]) for bar in bars if bar.y < TOP]
    beside = [int(bar.title.split()[0]) for bar in bars if bar.x > RIGHT]
    assert sum(above) == sum(beside) == sum(one.students for one in HANDED)


@pytest.mark.parametrize("count", [1, 2, 400])
def test_of_any_number_it_can_be_drawn(count: int) -> None:
    handed = [Handed(5 + number % 7, 1e6 + 1000 * (number % 31), 1, number % 2 == 0) for number in range(count)]
    picture = draw_spread("Puzzle", handed)
    ET.fromstring(picture.svg())
    assert str(count) in picture.words
    with pytest.raises(ValueError, match="no schedule"):
        draw_spread("Puzzle", [])
