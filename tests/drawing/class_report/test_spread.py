"""The spread of a class, as boxes."""

import xml.etree.ElementTree as ET

import pytest

from drawing.canvas.scene import Rect, Text
from drawing.comparing.dots import HIGH, LEFT, RIGHT, TOP, Handed, draw_spread
from lib.puzzles.records import Goal
from tests.drawing.marks import rects, texts

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
