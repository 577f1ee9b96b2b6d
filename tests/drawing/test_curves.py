"""draw_curves: where the lowest curve becomes another one, and what is written on the paper."""

from typing import Any

import pytest

from drawing import draw_curves
from drawing.canvas.scene import Text
from drawing.comparing.plot import crossings
from tests.drawing.marks import polys, texts

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
