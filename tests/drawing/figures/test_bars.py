"""Bars: to scale, with room for their words, and the bound beside or below."""

import random

import pytest

from drawing.canvas.palette import BOUND, MINE
from drawing.canvas.scene import Scene, text_width
from drawing.comparing.bars import Bar, Bound, Column, Part, columns
from tests.drawing.marks import polys, rects, written


def painted(column: Column, width: float) -> Scene:
    scene = Scene(width + 20, 200)
    columns(scene, [(column, 10, width)], 0)
    return scene


@pytest.mark.parametrize("seed", range(20))
def test_every_bar_has_room_with_its_words(seed: int) -> None:
    draw = random.Random(seed)
    amounts = [draw.randint(1, 10 ** draw.randint(1, 9)) for _ in range(draw.randint(1, 5))]
    width = draw.uniform(120, 300)
    column = Column("time", [Bar([Part(amount, MINE)], f"{amount:,}", bold=True, good=True) for amount in amounts])
    scene = painted(column, width)
    for text in written(scene, bold=True):
        assert text.x + text_width(text.text, text.size) <= 10 + width
    bars = rects(scene, fill=MINE)
    scale = column.scale(width)
    for bar, amount in zip(bars, amounts, strict=True):
        assert bar.width == pytest.approx(scale * amount, abs=1)


def test_the_parts_of_a_bar_are_its_length() -> None:
    parts = [Part(3, MINE), Part(0, MINE), Part(5, MINE)]
    scene = painted(Column("time", [Bar(parts, "8")]), 200)
    first, second = rects(scene, fill=MINE)
    assert second.x - 10 == pytest.approx(Column("time", [Bar(parts, "8")]).scale(200) * 3)
    assert (first.width + 0.8) / (second.width + 0.8) == pytest.approx(3 / 5)
    nothing = painted(Column("sent", [Bar([Part(0, MINE)], "0"), None]), 100)
    assert rects(nothing, fill=MINE) == []
    assert written(nothing, text="0")


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.98])
@pytest.mark.parametrize("words", ["bound 5", "bound of the memory 1,234,567"])
def test_the_words_of_a_bound_stay_in_their_column(share: float, words: str) -> None:
    scene = painted(Column("time", [Bar([Part(100, MINE)], "100")], bound=Bound(100 * share, words)), 180)
    (text,) = written(scene, fill=BOUND)
    left = text.x - (text_width(text.text, text.size) if text.anchor == "end" else 0)
    assert left >= 5
    assert left + text_width(text.text, text.size) <= 10 + 180 + 1
    diamond = polys(scene, fill=BOUND)[0]
    assert diamond.points[0][0] == pytest.approx(
        10 + Column("", [Bar([Part(100, MINE)], "100")]).scale(180) * 100 * share
    )
