"""The page of the gallery: what it says without a browser, and what its sliders do in one."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from drawing import draw_gallery
from lib.schedules.gallery import gallery
from tests.drawing.stepper.browser import Browser, Page, find_chromium

CHROMIUM = find_chromium()


def test_it_says_in_words_what_it_shows() -> None:
    page = draw_gallery(gallery(4, 8, chunks=(1, 2)))
    assert page.words.startswith("<Pipelines of 4 ranks and 8 microbatches; messages are posted and take no time. ")
    assert "1F1B ends at 33 with 4" in page.words
    assert "messages are awaited and take 0.4: both sides stand still meanwhile" in repr(
        draw_gallery(gallery(2, 2, chunks=(1,), message=0.4, messages="awaited"))
    )


def test_what_is_no_gallery() -> None:
    with pytest.raises(TypeError, match=r"draw_gallery takes what gallery\(ranks=4, batches=8\) gives; got tuple"):
        draw_gallery(())  # pyright: ignore[reportArgumentType]


def test_it_is_the_same_every_time() -> None:
    assert draw_gallery(gallery(2, 3)).html() == draw_gallery(gallery(2, 3)).html()


def height(ranks: int) -> int:
    html = draw_gallery(gallery(ranks, 4, chunks=(1, 2)))._repr_mimebundle_()["text/html"]
    found = re.search(r"height:(\d+)px", html)
    assert found
    return int(found[1])


def test_each_rank_makes_it_higher() -> None:
    assert height(8) - height(4) == 4 * 30  # pixels of a rank in gallery.js


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    folder = tmp_path_factory.mktemp("gallery")
    path = draw_gallery(gallery(4, 8, chunks=(1, 2))).save(folder / "gallery.html")
    with Browser(CHROMIUM, folder) as browser:
        page = browser.page().open(path)
        yield page
        assert page.seen("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled") == []


def text(page: Page, selector: str) -> str:
    return page.run(f"document.querySelector({selector!r}).innerText")


def slide(page: Page, **to: int) -> None:
    for name, value in to.items():
        page.run(f"(s => (s.value = {value}, s.dispatchEvent(new Event('input'))))(document.getElementById('{name}'))")


def test_it_begins_with_gpipe(page: Page) -> None:
    page.run("go(DATA.pieces.findIndex((piece) => piece.name === 'gpipe'))")
    assert text(page, "#name") == "GPipe"
    assert "33" in text(page, "#figures")
    assert page.run("document.querySelectorAll('#timeline rect[rx]').length") == 4 * (8 + 8) + 4


def test_a_slider_makes_1f1b_of_gpipe(page: Page) -> None:
    page.run("go(DATA.pieces.findIndex((piece) => piece.name === 'gpipe'))")
    slide(page, ahead=1)
    assert text(page, "#name") == "1F1B"
    assert "nothing ends before 33" in text(page, "#beat")
    slide(page, late=2)
    assert text(page, "#name") == "ZB-H1"
    assert "nothing can beat it" in text(page, "#beat")


def test_a_circle_says_who_waits(page: Page) -> None:
    slide(page, chunks=1, group=1, ahead=3, late=0)
    assert text(page, "#timeline").startswith("The ranks wait for each other in a circle: ")
    assert page.run("document.getElementById('timeline').getAttribute('aria-label')").startswith("The ranks wait")


def test_what_the_sliders_cannot_make_has_a_button(page: Page) -> None:
    page.run("[...document.querySelectorAll('#names button')].find(b => b.innerText === 'V-min').click()")
    assert text(page, "#name") == "V-min"
    assert page.run("document.getElementById('sliders').className") == "off"
    assert text(page, "#chunks-value") == "–"
    assert page.run("document.getElementById('late').getAttribute('aria-valuetext')").startswith("the sliders cannot")
    assert text(page, "#paper").endswith("the sliders cannot make this one")
    slide(page, chunks=0, ahead=4, late=0)
    assert text(page, "#name") == "GPipe"


def test_its_frame_is_as_high_as_it_is(page: Page) -> None:
    page.run("go(DATA.pieces.findIndex((piece) => piece.name === 'zb_v'))")
    needed = page.run("document.body.getBoundingClientRect().height")
    assert needed <= height(4) <= needed + 60
