"""Marks as SVG: valid, escaped, short, and the same every time."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawing import Picture, draw, picture_of
from drawing.canvas.layout import nice
from drawing.canvas.scene import Poly, Rect, Scene, Text, escape, fit, num, text_width, wrapped
from lib.errors.source_lines import Place
from lib.trace.event import Event, Program
from lib.values.operations import TIMED
from tests.drawing.marks import apart, on_paper, written
from tests.drawing.runs import RUNS, chatter, pictures, quietly, trace

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def every() -> dict[str, Picture]:
    return pictures()


def test_every_picture_is_valid_xml_with_paper_behind_all_of_it(every: dict[str, Picture]) -> None:
    for name, picture in every.items():
        assert on_paper(picture), name
        assert apart(written(picture)), name
        root = ET.fromstring(picture.svg())
        assert root.tag == "{http://www.w3.org/2000/svg}svg", name
        style, paper = root[0][:2]
        assert style.text is not None, name
        assert paper.get("fill") == "#ffffff", name
        assert float(root.get("width", "0")) > 0
        assert float(root.get("height", "0")) > 0


@given(st.text(max_size=60))
@settings(derandomize=True, database=None)
def test_any_text_survives(text: str) -> None:
    """As words, as the title of each kind of mark, and as what is read aloud."""
    marks = [
        Text(1, 1, text),
        Rect(0, 0, 1, 1, "#ff0000", title=text),
        Rect(0, 0, 9, 9, radius=4, title=text),
        Poly([(0, 0), (1, 1)], title=text),
    ]
    root = ET.fromstring(Picture(Scene(100, 100, marks), text).svg())
    if text and text.isprintable():
        shown = [found.text for tag in ("text", "title") for found in root.iter(f"{{http://www.w3.org/2000/svg}}{tag}")]
        assert [*shown, root.get("aria-label")] == [text] * 5


def test_source_lines_and_names_cannot_break_out() -> None:
    run = trace(lambda model: None, ranks=1, layers=1, batches=1)
    evil = '</title><script>alert(1)</script>&"\x00\ud800'
    place = Place(evil, 3, "f", evil)
    events = [Event("forward", 0, frozenset([0]), (), (), 0, 0, 10**9, place)]
    run = replace(run, programs=[Program(0, events)], error=evil)
    svg = picture_of(run).svg()
    assert "<script" not in svg
    ET.fromstring(svg)
    assert escape("a<b") == "a&lt;b"


def test_numbers_are_short() -> None:
    assert [num(value) for value in (0, 1.0, 12.34, -0.01, 99.96)] == ["0", "1", "12.3", "0", "100"]
    assert [nice(size) for size in (0, 0.03, 0.5, 1.1, 4, 7, 1200)] == [1.0, 0.05, 0.5, 2.0, 5.0, 10.0, 2000.0]


def test_text_is_cut_to_its_room_or_wrapped_and_then_no_word_is_lost() -> None:
    assert fit("short", 100, 10) == "short"
    text = "a very long line of text"
    assert fit(text, 60, 10).endswith("…")
    assert text_width(fit(text, 60, 10), 10) <= 62
    assert wrapped(text, 60, 10) == ["a very long", "line of text"]
    assert wrapped("", 60, 11) == []


def test_by_day_only_there_is_no_sheet_and_in_a_notebook_little_more_than_the_svg(every: dict[str, Picture]) -> None:
    assert "<style>" in every["ddp"].svg()
    assert "<style>" not in every["ddp"].svg(night=False)  # bitmaps are made of this one
    plain = sum(len(picture.svg(night=False)) for picture in every.values())
    assert sum(len(picture._repr_mimebundle_()["text/html"]) for picture in every.values()) < 1.2 * plain


def test_very_large_runs_stay_small_and_are_drawn_without_recursion() -> None:
    assert min(len(program.events) for program in RUNS["chatter"].programs) >= 200
    assert len(picture_of(RUNS["chatter"]).svg().encode()) < 500_000
    run = trace(chatter, ranks=16, layers=640, batches=16)
    assert sum(event.op in TIMED for _, event in run.events()) > 20_000
    picture = picture_of(run)
    ET.fromstring(picture.svg())
    assert len(picture.scene.marks) < 20_000


def test_more_ranks_than_rows_are_counted() -> None:
    run = trace(lambda model: model.load_weights(0), ranks=1000, layers=1, batches=1)
    assert ">ranks 0-999</text>" in picture_of(run).svg()
    svg = quietly(draw, run, False)[0].svg()
    assert "and 872 more ranks, not drawn" in svg
