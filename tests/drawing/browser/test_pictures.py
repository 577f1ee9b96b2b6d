"""Pictures in notebooks, the page of a ring and that of the gallery: words, titles, width, light and dark."""

import re
from fractions import Fraction
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from drawing import Picture, draw_gallery, draw_ring, picture_of
from drawing.canvas.palette import ALARM, PAPER, SOFT
from drawing.canvas.scene import Rect, Scene, Text
from lib.schedules.gallery import Piece, gallery
from lib.schedules.pipelines.timing import Timed, time_order
from tests.drawing.browser.conftest import Show, press, rgb
from tests.drawing.diagrams.exchanges import EXCHANGES
from tests.drawing.runs import RUNS
from tests.suite.cli.commands import puzzles

pytestmark = pytest.mark.xdist_group("browser")
EVIL = "</title><img src=x onerror=alert(1)> 100% #1 'and' \"so\" é\n&amp;\u2028\\"


def small(fill: str = ALARM, words: str = "a box", title: str = "") -> Picture:
    return Picture(Scene(840, 100, [Rect(10, 10, 80, 80, fill, title=title), Text(200, 50, "text", fill=SOFT)]), words)


def cells(*pictures: Picture, body: str = "", root: str = "") -> str:
    outputs = "".join(f"<p>{picture._repr_mimebundle_()['text/html']}</p>" for picture in pictures)
    return f"<!doctype html><html {root}><meta charset=utf-8><body {body}><i>a word</i>{outputs}</body>"


def colours(page: Page) -> tuple[str, str]:
    page.wait_for_selector("svg", state="attached")
    return tuple(
        page.evaluate(f"getComputedStyle(document.querySelector('svg').querySelector('{tag}')).fill")
        for tag in ("rect", "text")
    )


def test_it_is_part_of_the_page_with_its_words_and_titles(show: Show) -> None:
    page = show(cells(picture_of(RUNS["ddp"])))
    words = "<timeline of 4 ranks, 2 layers, 4 batches: end 5.6, peak 2,490,368 on rank 0>"
    assert page.get_by_role("img", name=words, exact=True).count() == 1
    middles = page.evaluate(
        "[...document.querySelectorAll('svg path:has(title)')].map(path => [path, path.getBoundingClientRect()])"
        ".map(([path, {x, y, width, height}]) => document.elementFromPoint(x + width / 2, y + height / 2) === path)"
    )
    assert len(middles) > 40
    assert sum(middles) > 0.8 * len(middles)  # labels do not stand in the way; what is very thin may lie under another


def test_text_from_outside_stays_text(show: Show) -> None:
    page = show(cells(small(words=EVIL, title=EVIL)))
    page.wait_for_selector("svg")
    assert page.evaluate("document.images.length") == 0
    assert page.locator("path title").text_content() == EVIL
    assert page.get_attribute("svg", "aria-label") == EVIL


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
        ({"root": "style='color-scheme:light dark'"}, None),
    ],
)
def test_the_page_of_a_notebook_decides_and_else_the_reader(
    show: Show, host: dict[str, str], dark: bool | None
) -> None:
    for prefers in (False, True):
        night = prefers if dark is None else dark
        page = show(cells(small(), **host), dark=prefers)
        assert colours(page) == ((rgb(PAPER.night), rgb(SOFT.night)) if night else (rgb(PAPER), rgb(SOFT)))


@pytest.mark.parametrize("dark", [False, True])
def test_a_file_follows_the_reader(show: Show, dark: bool) -> None:
    assert colours(show(small().svg(), dark=dark))[0] == rgb(PAPER.night if dark else PAPER)


def test_nothing_leaks_out_and_pictures_do_not_meet(show: Show) -> None:
    page = show(cells(small(), small("#b3261e"), body="data-jp-theme-light=false style='color:#000001'"))
    expect(page.locator("svg")).to_have_count(2)
    fills = "[...document.querySelectorAll('svg path')].map(path => getComputedStyle(path).fill)"
    assert page.evaluate(fills) == [rgb(ALARM.night), rgb(ALARM)]  # the same by day, and the second the same by night
    assert page.evaluate("getComputedStyle(document.querySelector('i')).color") == "rgb(0, 0, 1)"
    assert page.evaluate("document.querySelectorAll('[id]').length") == 0


@pytest.mark.parametrize(("cell", "shown"), [(600, 700), (840, 840), (1000, 1000), (1900, 1200)])
def test_a_picture_is_as_wide_as_its_cell_and_a_small_one_stays_small(show: Show, cell: int, shown: int) -> None:
    page = show(cells(small(), Picture(Scene(300, 50), "small"), body="style='margin:0'"), width=cell)
    expect(page.locator("svg")).to_have_count(2)
    sizes = page.evaluate("[...document.querySelectorAll('svg')].map(svg => svg.getBoundingClientRect().toJSON())")
    assert [size["width"] for size in sizes] == [shown, 300]
    assert sizes[0]["height"] == pytest.approx(shown / 8.4, abs=0.1)


def test_keys_buttons_and_slider_step_round_a_ring(show: Show) -> None:
    ring = draw_ring(EXCHANGES["allreduce"])
    page = show(ring, calm=True)
    press(page, "ArrowRight", 2)
    assert page.inner_text("#count") == "round 2 of 6"
    press(page, "ArrowLeft")
    assert page.inner_text("#count") == "round 1 of 6"
    press(page, "End")
    assert page.is_disabled("#next")
    assert page.locator(".band").count() - page.locator(".new").count() == 16
    press(page, "Home")
    page.click("#next")
    assert "which adds its own" in page.inner_text("#words")
    assert page.locator(".new").count() == 4
    moving = show(ring)
    press(moving, "ArrowRight")
    expect(moving.locator(".new")).to_have_count(4)


def slide(page: Page, **to: float) -> None:
    for name, value in to.items():
        page.evaluate(
            f"(s => (s.value = {value}, s.dispatchEvent(new Event('input'))))(document.getElementById('{name}'))"
        )


def timed_anew(piece: Piece, costs: dict[str, float]) -> Timed:
    """The schedule with other costs of a rank's share, of which a stage has its part."""
    forward, input_half, weight_half = (Fraction(costs[kind]) / piece.chunks for kind in "FIW")
    each = {"forward": forward, "input_half": input_half, "weight_half": weight_half, "message": costs["message"]}
    return time_order(piece.order, **each)


def test_sliders_of_costs_time_every_schedule_as_the_timer_does(show: Show) -> None:
    shown = gallery(4, 8, chunks=(1, 2))
    page = show(draw_gallery(shown))
    for costs in ({"F": 2.0, "I": 1.25, "W": 0.75, "message": 0.5}, {"F": 1.0, "I": 2.0, "W": 3.0, "message": 1.5}):
        for kind, cost in costs.items():
            slide(page, **{f"cost-{kind}": cost})
        assert page.inner_text("#world").endswith(f"messages are posted and take {costs['message']:g}.")
        timed = [None if one.timed is None else timed_anew(one, costs) for one in shown.pieces]
        ends, bubbles = page.evaluate(
            "[DATA.pieces.map((one) => one.end ?? -1), DATA.pieces.map((one) => one.bubble ?? [])]"
        )
        assert ends == pytest.approx([-1 if one is None else one.end for one in timed])
        assert bubbles == [[] if one is None else pytest.approx(list(one.bubble), abs=1e-9) for one in timed]
    slide(page, **{"cost-F": 1, "cost-I": 1, "cost-W": 1, "cost-message": 0})
    assert page.inner_text("#world").endswith("messages are posted and take no time.")


def test_every_dot_with_a_name_has_its_label(show: Show) -> None:
    page = show(draw_gallery(gallery(8, 16)))
    named = page.evaluate("DATA.pieces.filter((one) => one.name && legal(one)).map(titleOf)")
    labels = page.locator("#plot text.small").all_text_contents()
    assert sorted(labels) == sorted(named)


@pytest.mark.thorough
def test_sliders_make_pipelines_in_the_gallery(show: Show) -> None:
    shown = draw_gallery(gallery(4, 8, chunks=(1, 2)))
    page = show(shown)
    page.get_by_role("button", name="GPipe").click()
    assert page.inner_text("#name") == "GPipe"
    assert "33" in page.inner_text("#figures")
    assert page.locator("#timeline rect[rx]").count() == 4 * (8 + 8) + 4
    slide(page, ahead=1)
    assert page.inner_text("#name") == "1F1B"
    assert "nothing ends before 33" in page.inner_text("#beat")
    slide(page, late=2)
    assert page.inner_text("#name") == "ZB-H1"
    assert "nothing can beat it" in page.inner_text("#beat")
    slide(page, chunks=1, group=1, ahead=3, late=0)  # the ranks wait for each other
    expect(page.locator("#timeline")).to_have_text(re.compile("^The ranks wait for each other in a circle: "))
    expect(page.locator("#timeline")).to_have_attribute("aria-label", re.compile("^The ranks wait"))
    page.get_by_role("button", name="V-min").click()  # what no sliders make
    assert page.inner_text("#name") == "V-min"
    assert page.get_attribute("#sliders", "class") == "off"
    assert page.inner_text("#chunks-value") == "–"
    expect(page.locator("#late")).to_have_attribute("aria-valuetext", re.compile("^the sliders cannot"))
    assert page.inner_text("#paper").endswith("the sliders cannot make this one")
    slide(page, chunks=0, ahead=4, late=0)
    assert page.inner_text("#name") == "GPipe"
    page.evaluate("go(DATA.pieces.findIndex((piece) => piece.name === 'zb_v'))")
    frame = re.search(r"height:(\d+)px", shown._repr_mimebundle_()["text/html"])
    assert frame
    needed = page.evaluate("document.body.getBoundingClientRect().height")
    assert needed <= int(frame[1]) <= needed + 60


def test_a_comparison_prints_one_run_a_page(show: Show, tmp_path: Path) -> None:
    """The figures, a page for each run, and where they differ: slides, out of any browser's print."""
    page = tmp_path / "lesson.html"
    assert puzzles("compare", "gpipe:all", "-o", page).exit_code == 0
    runs = page.read_text("utf-8").count("<figure")
    printed = show(page.read_text("utf-8")).pdf(prefer_css_page_size=True)
    assert (runs, len(re.findall(rb"/Type\s*/Page\b", printed))) == (3, 1 + runs + 1)
