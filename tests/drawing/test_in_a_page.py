"""A picture in the pages of notebooks, in a headless Chromium: words, titles, width, light and dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drawing import Picture, picture_of
from drawing.canvas.palette import ALARM, INK, PAPER, SOFT
from drawing.canvas.scene import Rect, Scene, Text
from tests.drawing.runs import RUNS
from tests.drawing.stepper.browser import Browser, Page, find_chromium

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (CHROMIUM can name one)")
EVIL = "</title><img src=x onerror=alert(1)> 100% #1 'and' \"so\" é\n&amp;\u2028\\"
Show = Callable[..., Page]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    with Browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Show]:
    opened: list[Page] = []

    def open_page(*pictures: Picture, body: str = "", root: str = "", **options: Any) -> Page:
        outputs = "".join(f"<p>{picture._repr_mimebundle_()['text/html']}</p>" for picture in pictures)
        path = tmp_path / f"{len(opened)}.html"
        whole = f"<!doctype html><html data-ready {root}><meta charset=utf-8><body {body}><i>a word</i>{outputs}</body>"
        path.write_text(whole, encoding="utf-8")
        page = browser.page(**options).open(path)
        page.until(f"document.querySelectorAll('svg').length === {len(pictures)}")
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        assert page.seen("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled") == []
        page.call("Page.close")


def small(fill: str = ALARM, words: str = "a box", title: str = "") -> Picture:
    return Picture(Scene(840, 100, [Rect(10, 10, 80, 80, fill, title=title), Text(200, 50, "text", fill=SOFT)]), words)


def paper(page: Page, number: int = 0) -> str:
    """The colour of the paper of a picture."""
    return page.run(f"getComputedStyle(document.querySelectorAll('svg')[{number}].querySelector('rect')).fill")


def rgb(colour: str) -> str:
    return "rgb({}, {}, {})".format(*(int(colour[place : place + 2], 16) for place in (1, 3, 5)))


def test_it_is_part_of_the_page_with_its_words_and_titles(show: Show) -> None:
    page = show(picture_of(RUNS["ddp"]))
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    images = [node["name"]["value"] for node in tree if node.get("role", {}).get("value") == "image"]
    assert images == ["<timeline of 4 ranks, 2 layers, 4 batches: end 5.6, peak 2,490,368 on rank 0>"]
    middles = page.run(
        "[...document.querySelectorAll('svg path:has(title)')].map(path => [path, path.getBoundingClientRect()])"
        ".map(([path, {x, y, width, height}]) => document.elementFromPoint(x + width / 2, y + height / 2) === path)"
    )
    assert len(middles) > 40
    assert sum(middles) > 0.8 * len(middles)  # labels do not stand in the way; what is very thin may lie under another


def test_text_from_outside_stays_text(show: Show) -> None:
    page = show(small(words=EVIL, title=EVIL))
    page.settle()
    assert page.run("document.images.length") == 0
    assert page.run("document.querySelector('path title').textContent") == EVIL
    assert page.run("document.querySelector('svg').getAttribute('aria-label')") == EVIL


@pytest.mark.parametrize(
    ("host", "dark"),
    [
        ({}, False),
        ({"body": "data-jp-theme-light=true"}, False),
        ({"body": "data-jp-theme-light=false"}, True),
        ({"body": "class=vscode-light"}, False),
        ({"body": "class=vscode-dark"}, True),
        ({"body": "class=vscode-high-contrast"}, True),
        ({"body": "class='vscode-high-contrast vscode-high-contrast-light'"}, False),
        ({"root": "theme=dark"}, True),
        ({"root": "style='color-scheme:dark'"}, True),
    ],
)
def test_it_is_dark_where_the_page_is(show: Show, host: dict[str, str], dark: bool) -> None:
    for prefers in (False, True):  # the page decides, not the system around it
        page = show(small(), **host, dark=prefers)
        assert paper(page) == rgb(PAPER.night if dark else PAPER)
        text = page.run("getComputedStyle(document.querySelector('svg text')).fill")
        assert text == rgb(SOFT.night if dark else SOFT)


def test_a_page_of_no_notebook_follows_the_reader(show: Show) -> None:
    for prefers in (False, True):
        page = show(small(), root="style='color-scheme:light dark'", dark=prefers)
        assert paper(page) == rgb(PAPER.night if prefers else PAPER)


def test_a_file_follows_the_reader(browser: Browser, tmp_path: Path) -> None:
    path = small().save(tmp_path / "picture.svg")
    for prefers in (False, True):
        page = browser.page(dark=prefers)
        page.call("Page.navigate", url=path.resolve().as_uri())
        page.until("document.documentElement.tagName === 'svg'")
        assert paper(page) == rgb(PAPER.night if prefers else PAPER)
        page.call("Page.close")


def test_nothing_leaks_out_and_pictures_do_not_meet(show: Show) -> None:
    blue = small("#b3261e")  # the red of the alarm by day, but the same by night
    page = show(small(), blue, body="data-jp-theme-light=false style='color:#000001'")
    fills = "[...document.querySelectorAll('svg path')].map(path => getComputedStyle(path).fill)"
    assert page.run(fills) == [rgb(ALARM.night), rgb(ALARM)]
    assert page.run("getComputedStyle(document.querySelector('i')).color") == "rgb(0, 0, 1)"
    assert page.run("document.querySelectorAll('[id]').length") == 0
    assert rgb(INK) != rgb(INK.night)


@pytest.mark.parametrize(("cell", "shown"), [(600, 700), (840, 840), (1000, 1000), (1900, 1200)])
def test_a_picture_is_as_wide_as_its_cell(show: Show, cell: int, shown: int) -> None:
    page = show(small(), body="style='margin:0'", width=cell)
    assert page.run("document.querySelector('svg').getBoundingClientRect().width") == shown
    assert page.run("document.querySelector('svg').getBoundingClientRect().height") == pytest.approx(
        shown / 8.4, abs=0.1
    )


def test_a_small_picture_stays_small(show: Show) -> None:
    page = show(Picture(Scene(300, 50), "small"), width=1900)
    assert page.run("document.querySelector('svg').getBoundingClientRect().width") == 300
