"""Pages in a notebook's frame, and the report of a class on a phone, as a reader sees them."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from drawing import draw_gallery, draw_ring, step_through
from drawing.canvas.palette import PAPER
from lib.schedules.gallery import gallery
from tests.drawing.runs import RUNS
from tests.suite.cli.grading.test_report import small, written

pytestmark = pytest.mark.xdist_group("browser")
LIGHT, DARK = ["", "data-jp-theme-light=true"], ["data-jp-theme-light=false", "class=vscode-dark"]
"""Pages by the side that they take; all of those that pictures ask for are in test_pictures."""
SEEN = 50
"""How often it is looked whether a frame is painted, a tenth of a second apart."""


def corner(tab: Page, path: Path, shown: Any, root: str) -> tuple[int, ...]:
    """The colour in the corner of a page in its frame, once that is painted."""
    output = shown._repr_mimebundle_()["text/html"]
    assert "framed-page" in output
    path.write_text(
        f"<!doctype html><html data-ready {root}><meta charset=utf-8><body style='margin:0'>{output}", "utf-8"
    )
    tab.set_viewport_size({"width": 700, "height": 400})
    tab.emulate_media(color_scheme="null")  # playwright's own would be said to the frame, too, whatever is around it
    tab.goto(path.as_uri())
    for _ in range(SEEN):
        image = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
        if image.getcolors(100) is None:
            pixel = image.getpixel((3, 3))
            assert isinstance(pixel, tuple)
            return pixel
        tab.wait_for_timeout(100)
    raise AssertionError("nothing was painted in the frame")


@pytest.mark.parametrize("root", LIGHT + DARK)
def test_the_notebook_decides(tab: Page, tmp_path: Path, root: str) -> None:
    wanted = PAPER.night if root in DARK else PAPER
    rgb = tuple(int(wanted[place : place + 2], 16) for place in (1, 3, 5))
    for shown in (step_through(RUNS["ddp"]), draw_ring(RUNS["ddp"])):
        assert corner(tab, tmp_path / "page.html", shown, root) == rgb


def test_a_notebook_that_is_not_trusted_shows_a_still_picture_and_a_sentence(tab: Page, tmp_path: Path) -> None:
    for shown in (step_through(RUNS["ddp"]), draw_ring(RUNS["ddp"]), draw_gallery(gallery(2, 3))):
        output = shown._repr_mimebundle_()["text/html"]
        sanitized = re.sub(r' onload="[^"]*"|<iframe.*</iframe>', "", output, flags=re.DOTALL)
        for html, still in ((output, 0), (sanitized, 1)):
            (tmp_path / "page.html").write_text(f"<!doctype html><meta charset=utf-8><body>{html}", "utf-8")
            tab.goto((tmp_path / "page.html").as_uri())
            expect(tab.get_by_text("This notebook is not trusted")).to_have_count(still)
            expect(tab.get_by_role("img")).to_have_count(still)


def test_no_page_of_a_class_report_is_wider_than_a_phone(tab: Page, tmp_path: Path) -> None:
    pages = [name for name in written(*small(), tmp_path) if name.endswith(".html")]
    students = [name for name in pages if name.startswith("students")]
    tab.set_viewport_size({"width": 390, "height": 900})
    for name in [*(name for name in pages if "/" not in name), *students[:2]]:
        tab.goto((tmp_path / name).as_uri())
        tab.wait_for_selector("h1")
        tab.evaluate(
            "document.querySelectorAll('section, article').forEach(e => e.style.contentVisibility = 'visible')"
        )
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, name
        wide = "[...document.querySelectorAll('caption')].filter(c => c.getBoundingClientRect().width > 390).length"
        assert tab.evaluate(wide) == 0, name
