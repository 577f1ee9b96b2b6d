"""Slides: everything on a page has its place, and letters are as large as the page allows."""

from __future__ import annotations

import pytest

from drawing.canvas.scene import Text, text_width
from drawing.comparing.comparison import Compared, Comparison
from drawing.comparing.slides import HEIGHT, WIDTH, Slide, scene_of
from drawing.timeline.schedule import picture_of_trace
from tests.drawing.marks import on_paper, texts
from tests.drawing.runs import RUNS

NAMES = ["ddp", "late", "deadlock", "alone"]


def timeline(name: str) -> Slide:
    runs = [Compared("", RUNS[name])]
    return Slide(name, ["time 5.6"], lambda width: Comparison(runs, width=width).timelines())


@pytest.mark.parametrize("name", NAMES)
def test_a_page_holds_its_picture(name: str) -> None:
    scene = scene_of(timeline(name), 2, 9, "GPipe")
    assert (scene.width, scene.height) == (WIDTH, HEIGHT) == (1280, 720)
    assert on_paper(scene)
    assert "2 / 9" in texts(scene)


@pytest.mark.parametrize("name", ["relay", "late"])
def test_letters_are_larger_than_in_a_picture(name: str) -> None:
    plain = {mark.text: mark.size for mark in picture_of_trace(RUNS[name]).scene.marks if isinstance(mark, Text)}
    large = {mark.text: mark.size for mark in scene_of(timeline(name), 1, 1, "").marks if isinstance(mark, Text)}
    assert large["rank 0"] >= 1.4 * plain["rank 0"]


def test_what_is_too_long_is_cut_to_its_page() -> None:
    long = "a name that a student gave, " * 30
    for slide in (Slide(long, [long] * 9), timeline("ddp")._replace(title=long, said=[long] * 9)):
        for mark in scene_of(slide, 1, 1, long).marks:
            if isinstance(mark, Text) and mark.anchor == "start":
                assert mark.x + text_width(mark.text, mark.size) <= WIDTH, mark
                assert mark.y < HEIGHT
