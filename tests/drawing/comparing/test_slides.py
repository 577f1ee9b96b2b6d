"""Slides: everything on a page has its place, and letters are as large as the page allows."""

import pytest

from drawing.canvas.palette import GRID
from drawing.canvas.picture import Picture
from drawing.canvas.scene import Poly, Text, text_width
from drawing.comparing.comparison import Compared, Comparison
from drawing.comparing.overview import HEIGHT, WIDTH, Slide, scenes_of
from drawing.timeline.schedule import picture_of_trace
from tests.drawing.marks import on_paper, texts
from tests.drawing.runs import RUNS

NAMES = ["ddp", "late", "deadlock", "alone"]


def timeline(name: str) -> Slide:
    def paint(width: float, height: float, beside: float) -> Picture:
        return Comparison([Compared(name, RUNS[name])], width=width, beside=beside).part(0)

    return Slide(name, ["time 5.6"], paint)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_holds_its_picture(name: str) -> None:
    scene = scenes_of([timeline("late"), timeline(name)], "GPipe")[1]
    assert (scene.width, scene.height) == (WIDTH, HEIGHT) == (1280, 720)
    assert on_paper(scene)
    assert "2 / 2" in texts(scene)


@pytest.mark.parametrize("name", ["relay", "late"])
def test_letters_are_larger_than_in_a_picture(name: str) -> None:
    plain = {mark.text: mark.size for mark in picture_of_trace(RUNS[name]).scene.marks if isinstance(mark, Text)}
    large = {mark.text: mark.size for mark in scenes_of([timeline(name)], "")[0].marks if isinstance(mark, Text)}
    assert large["rank 0"] >= 1.4 * plain["rank 0"]


def test_what_is_too_long_is_cut_to_its_page() -> None:
    long = "a name that a student gave, " * 30
    for slide in (Slide(long, [long] * 9), timeline("ddp")._replace(title=long, said=[long] * 9)):
        for mark in scenes_of([slide], long)[0].marks:
            if isinstance(mark, Text) and mark.anchor == "start":
                assert mark.x + text_width(mark.text, mark.size) <= WIDTH, mark
                assert mark.y < HEIGHT


def test_pages_of_a_series_have_one_scale_and_one_axis() -> None:
    """Whatever their heights, and whatever stands above them: a moment has one place on every page."""
    names = ["ddp", "late", "overlapped"]
    runs = [Compared(name, RUNS[name]) for name in names]

    def page(*places: int) -> Slide:
        def paint(width: float, height: float, beside: float) -> Picture:
            return Comparison(runs, width=width, beside=beside).part(*places)

        return Slide("a", ["words"] * len(places), paint, "one" if len(places) == 1 else "two")

    scenes = scenes_of([Slide("cover"), *map(page, range(3)), page(0, 1), page(0, 2)], "")
    grids = [
        {round(mark.points[0][0], 3) for mark in scene.marks if isinstance(mark, Poly) and mark.stroke == GRID}
        for scene in scenes[1:]
    ]
    assert len(grids[0]) > 3
    assert all(grids[0] <= grid for grid in grids)
    sizes = [
        next(mark.size for mark in scene.marks if isinstance(mark, Text) and mark.text == "time")
        for scene in scenes[1:]
    ]
    assert len({round(size, 6) for size in sizes[:3]}) == 1
    assert sizes[3] == sizes[4] <= sizes[0]
    assert not any(isinstance(mark, Text) and mark.text == "layer" for scene in scenes for mark in scene.marks)
