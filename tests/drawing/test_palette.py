"""Colours by day and by night: written down in one place, told apart, and readable."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from drawing import Picture, draw_collective, draw_step, picture_of
from drawing.canvas import palette
from drawing.canvas.palette import KINDS, LOOKS, READABLE, Colour, contrast, ink_on, layer_colour, mix
from drawing.canvas.scene import SMALL, TEXT, Mark, Poly, Rect, Scene, Text
from lib import check
from tests.drawing.diagrams.exchanges import EXCHANGES
from tests.drawing.runs import solved
from tests.drawing.test_golden import pictures
from tests.support.profiles import sample
from tests.support.puzzles import SCHEDULES

ROOT = Path(__file__).parents[2]
DAY_AND_NIGHT = [str, palette.night]


@pytest.fixture(scope="module")
def every() -> dict[str, Picture]:
    """The golden pictures, every exchange, and the run, the verdict and the step of references."""
    found = pictures() | {f"exchange: {name}": draw_collective(trace) for name, trace in EXCHANGES.items()}
    for puzzle in sample(SCHEDULES):
        reference = solved(puzzle)
        found[f"{puzzle}: run"] = picture_of(reference)
        found[f"{puzzle}: step"] = draw_step(reference)
        found[f"{puzzle}: verdict"] = picture_of(check(reference, puzzle=puzzle))
    return found


def test_no_colour_is_written_down_outside_the_palette() -> None:
    for path in (ROOT / "drawing").rglob("*.py"):
        if path.name != "palette.py":
            assert re.findall(r"#[0-9a-fA-F]{3,8}\b", path.read_text("utf-8")) == [], path


def test_a_colour_by_day_has_one_by_night() -> None:
    named = [value for value in vars(palette).values() if isinstance(value, Colour)]
    boxes = [colour for look in LOOKS.values() for colour in look.pair]
    tints = [colour for pair in palette.TINTS.values() for colour in pair]
    nights: dict[str, str] = {}
    for colour in [*named, *KINDS.values(), *boxes, *tints, *(layer_colour(layer, 8) for layer in range(8))]:
        assert nights.setdefault(str(colour), colour.night) == colour.night


@pytest.mark.parametrize("shade", DAY_AND_NIGHT)
def test_ink_is_readable_on_every_colour(shade: type[str]) -> None:
    fills = [layer_colour(layer, layers) for layers in range(1, 17) for layer in range(layers)]
    fills = [row.pair(fill)[0] for fill in fills for row in palette.PASSES.values()]
    fills += [palette.origin_colour(member, members) for members in (8, 16, 64) for member in range(members)]
    fills += [*KINDS.values(), *(look.fill for look in LOOKS.values()), palette.MINE, palette.ALARM]
    fills += [Colour(f"#{grey:02x}{grey:02x}{grey:02x}") for grey in range(256)]
    for fill in fills:
        assert contrast(shade(ink_on(fill)), shade(fill)) >= READABLE, fill


@pytest.mark.parametrize("shade", DAY_AND_NIGHT)
def test_layers_get_lighter_by_day_and_by_night(shade: type[str]) -> None:
    for layers in (2, 3, 4, 8, 12):
        ramp = [contrast(shade(layer_colour(layer, layers)), "#000000") for layer in range(layers)]
        assert all(one < other for one, other in pairwise(ramp))
    assert layer_colour(99, 8) == layer_colour(7, 8)


@pytest.mark.parametrize("shade", DAY_AND_NIGHT)
def test_every_text_is_large_enough_and_readable_on_what_it_stands_on(
    every: dict[str, Picture], shade: type[str]
) -> None:
    for name, picture in every.items():
        assert picture.scene.width <= 840, name  # a wider one would be shown smaller
        for text, ground in grounds(picture.scene):
            assert text.size == SMALL or text.size >= TEXT, (name, text)
            assert contrast(shade(text.fill), shade(ground)) >= READABLE, (name, text, ground)


def grounds(scene: Scene) -> list[tuple[Text, str]]:
    """Each text with the colour of what was painted last below its middle."""
    found: list[tuple[Text, str]] = []
    below: list[Mark] = [Rect(0, 0, scene.width, scene.height, palette.PAPER)]
    for mark in scene.marks:
        if isinstance(mark, Text):
            ground = next(under for under in reversed(below) if covers(under, mark.x, mark.y))
            found.append((mark, ground.fill))
        elif mark.fill != "none":
            below.append(mark)
    return found


def covers(mark: Mark, x: float, y: float) -> bool:
    """Whether a point is inside, by counting the edges to its right."""
    if isinstance(mark, Rect):
        return mark.x <= x <= mark.x + mark.width and mark.y <= y <= mark.y + mark.height
    inside = False
    if isinstance(mark, Poly):
        for (ax, ay), (bx, by) in pairwise([*mark.points, mark.points[0]]):
            if (ay > y) != (by > y) and x < ax + (y - ay) / (by - ay) * (bx - ax):
                inside = not inside
    return inside


def test_a_colour_by_night_does_not_depend_on_what_was_mixed_before() -> None:
    one, other = Colour("#336699", "#112233"), Colour("#336699", "#ddeeff")
    mixed = [mix(colour, "#ffffff", 0.5) for colour in (one, other)]
    assert mixed[0] == mixed[1]
    assert [colour.night for colour in mixed] == ["#889099", "#eef6ff"]
    assert ink_on(one).night != ink_on(other).night
