"""The page as text: safe whatever a Trace says, the same everywhere, small, and whole."""

import hashlib
import html
import re
from base64 import b64encode
from html.parser import HTMLParser
from pathlib import Path

import pytest

from drawing.canvas.picture import json_in_html
from drawing.pages.view import View, step_through
from lib import Trace
from lib.simulator.simulator import Unsolved
from tests.drawing.shown import data_of
from tests.drawing.stepper.runs import HOSTILE, TRACES, hostile, large

ROOT = Path(__file__).parents[3]


class Tags(HTMLParser):
    """The start tags of a page, as a browser finds them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_hostile_texts_become_no_markup_and_arrive_unchanged() -> None:
    page = step_through(hostile(), hostile(), names=[HOSTILE, HOSTILE]).html()
    plain = step_through(TRACES["alone"]).html()
    assert [tag for tag, _ in Tags(page).found] == [tag for tag, _ in Tags(plain).found]
    assert page.isascii() == plain.isascii()
    page.encode()  # although a text had half a surrogate pair
    data = data_of(page)
    assert [(run["error"], run["puzzle"]) for run in data["runs"]] == [(HOSTILE, HOSTILE)] * 2
    assert data["places"] == [[HOSTILE, 1, HOSTILE, HOSTILE]]


def test_json_in_html() -> None:
    text = json_in_html(["</script>", "<!--", "&amp;", "\u2028\u2029", "é"])
    assert text == r'["\u003c/script\u003e","\u003c!--","\u0026amp;","\u2028\u2029","\u00e9"]'
    with pytest.raises(ValueError, match="Out of range"):
        json_in_html(float("nan"))


def test_only_its_own_script_may_run() -> None:
    page = step_through(TRACES["alone"]).html()
    policy = next(str(tag[1]["content"]) for tag in Tags(page).found if "http-equiv" in tag[1])
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", script)
    assert not re.search(r"\beval\b|\bFunction\(|fetch\(|XMLHttpRequest|import\(", script)


def test_it_asks_for_nothing_from_anywhere() -> None:
    page = step_through(TRACES["ddp"]).html()
    links = [tag[name] for _, tag in Tags(page).found for name in ("src", "href") if name in tag]
    assert links == ["data:,"]  # an empty icon, so that browsers do not look for one
    assert "url(" not in page


def test_16_ranks_with_200_events_are_less_than_a_megabyte() -> None:
    view = large()
    (trace,) = (trace for _, trace in view.runs)
    assert trace.ranks == 16
    assert sum(len(program.events) for program in trace.programs) >= 16 * 200
    assert len(view.html().encode()) < 1_000_000
    assert len(view._repr_mimebundle_()["text/html"].encode()) < 1_000_000


def test_what_a_notebook_gets() -> None:
    view = step_through(TRACES["ddp"])
    bundle = view._repr_mimebundle_()
    assert sorted(bundle) == ["text/html", "text/plain"]
    (_, (tag, attributes)) = Tags(bundle["text/html"]).found
    assert tag == "iframe"
    assert attributes["sandbox"] == "allow-scripts"
    assert attributes["title"] == "Step through a run"
    assert html.unescape(str(attributes["srcdoc"])) == html.unescape(view.html())
    wanted = "<step through 4 ranks, 2 layers, 4 batches: end 5.6, peak 2,490,368 on rank 0>"
    assert bundle["text/plain"] == repr(view) == wanted


def test_save(tmp_path: Path) -> None:
    trace = TRACES["1f1b"]
    view = View([("", trace)])
    path = view.save(tmp_path / "run.html")
    assert path.read_bytes() == view.html().encode()
    trace.save(tmp_path / "run.json")
    assert View([("", Trace.load(tmp_path / "run.json"))]).html() == view.html()
    with pytest.raises(ValueError, match=r"a page is saved as \.html; got '\.svg'"):
        view.save(tmp_path / "run.svg")


def test_a_puzzle_that_is_not_solved_yet() -> None:
    for view in (step_through(Unsolved("fsdp")), step_through(TRACES["ddp"], Unsolved("fsdp"))):
        assert data_of(view.html())["notes"] == ["nothing to step through yet: fsdp is not solved"]
        assert repr(view) == "<nothing to step through>"
        assert "height:120px" in view._repr_mimebundle_()["text/html"]
