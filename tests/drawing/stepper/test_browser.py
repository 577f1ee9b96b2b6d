"""The page in a headless Chromium: it is quick, keys and pointer work, and what it shows are the figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drawing.canvas.palette import KINDS
from drawing.stepper import View, step_through
from lib import Trace
from lib.analysis import figures
from tests.drawing.stepper.browser import Browser, Page, find_chromium
from tests.drawing.stepper.runs import HOSTILE, TRACES, hostile, large, still

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (CHROMIUM can name one)")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    with Browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


class Opener:
    """Opens pages, and asks each at the end whether all went well."""

    def __init__(self, browser: Browser, folder: Path) -> None:
        self.browser = browser
        self.folder = folder
        self.pages: list[tuple[Page, Path]] = []

    def __call__(self, view: View | Trace, **options: Any) -> Page:
        path = self.folder / f"{len(self.pages)}.html"
        (view if isinstance(view, View) else step_through(view)).save(path)
        page = self.browser.page(**options).open(path)
        self.pages.append((page, path))
        return page


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Opener]:
    opener = Opener(browser, tmp_path)
    yield opener
    for page, path in opener.pages:
        assert page.seen("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled") == []
        urls = [event["request"]["url"] for event in page.seen("Network.requestWillBeSent")]
        assert [url for url in urls if url != "data:,"] == [path.resolve().as_uri()]
        page.call("Page.close")


def text(page: Page, selector: str) -> str:
    return page.run(f"document.querySelector({selector!r}).innerText")


def facts(page: Page) -> dict[str, str]:
    return dict(
        page.run("[...document.querySelectorAll('#facts dt')].map(t => [t.innerText, t.nextSibling.innerText])")
    )


def cursor(page: Page) -> str:
    return text(page, "#clock")


def test_16_ranks_with_200_events_are_there_within_a_second(show: Opener) -> None:
    times = [float(show(large()).run("document.documentElement.dataset.ready")) for _ in range(3)]
    assert min(times) < 1000, times


def test_keys_step_through_the_events_of_a_rank(show: Opener) -> None:
    page = show(TRACES["ddp"])
    assert cursor(page) == "time 0 of 5.6"
    assert text(page, "#summary").startswith("Event 4 of 14: forward, layer 0, batch 0; time 0 to 1")
    page.press("ArrowRight", 3)
    assert cursor(page) == "time 2 of 5.6"
    assert text(page, "#summary").startswith("Event 7 of 14: backward, layer 1, batch 0; time 2 to 3")
    page.press("ArrowLeft")
    assert text(page, "#summary").startswith("Event 6 of 14: loss")
    page.press("End")
    assert cursor(page) == "time 5.6 of 5.6"
    assert text(page, "#summary") == "After all 14 events: finished; holds 2,752,512 elements"
    page.press("ArrowRight")
    assert cursor(page) == "time 5.6 of 5.6"
    page.press("Home")
    assert text(page, "#summary").startswith("Event 4 of 14")
    page.press("ArrowLeft", 9)
    assert text(page, "#summary").startswith("Event 1 of 14")


def test_the_details_of_an_event(show: Opener) -> None:
    page = show(TRACES["1f1b"])
    page.press("ArrowDown")
    assert text(page, "#event-title") == "Rank 1"
    found = facts(page)
    assert found == {
        "operation": "receive",
        "layer": "1",
        "batches": "0",
        "rank": "1",
        "called at": "0",
        "start": "1.2",
        "end": "1.4",
        "cost": "0.2",
        "waited": "1.2",
        "peer": "rank 0",
        "inputs": "none",
        "outputs": "activation 1, batch 0",
        "source": "not known",  # nobody wrote what follows an order
    }


def test_the_line_of_an_event(show: Opener) -> None:
    page = show(TRACES["ddp"])
    assert facts(page)["source"].startswith("runs.py, line ")
    assert text(page, "#code").startswith("model.activations[layer + 1] = model.forward(")


def test_up_and_down_go_to_other_ranks_and_stay_there(show: Opener) -> None:
    page = show(TRACES["1f1b"])
    page.press("ArrowUp")
    assert text(page, "#event-title") == "Rank 0"
    page.press("ArrowDown", 9)
    assert text(page, "#event-title") == "Rank 3"
    assert page.run("document.querySelectorAll('#cards .card.chosen').length") == 1
    assert text(page, "#cards .card.chosen button") == "rank 3"
    assert text(page, "#chosen .card button") == "rank 3"


def test_space_plays_and_pauses(show: Opener) -> None:
    page = show(TRACES["1f1b"])
    page.press(" ")
    assert text(page, "#play") == "Pause"
    assert page.run("document.getElementById('summary').getAttribute('aria-live')") == "off"
    page.until("Number(document.getElementById('slider').value) > 0.5")
    page.press(" ")
    assert text(page, "#play") == "Play"
    assert page.run("document.getElementById('summary').getAttribute('aria-live')") == "polite"
    assert cursor(page) != "time 0 of 16.8"
    stopped = cursor(page)
    page.settle()
    assert cursor(page) == stopped


def test_playing_stops_at_the_end(show: Opener) -> None:
    page = show(TRACES["alone"])
    page.run("document.getElementById('speed').value = '4'")
    page.run("app.seek(2.9)")
    page.press(" ")
    page.until("document.getElementById('play').textContent === 'Play'")
    page.settle()
    assert cursor(page) == "time 3 of 3"


def test_who_wants_no_motion_gets_steps(show: Opener) -> None:
    page = show(TRACES["alone"], calm=True)
    page.run("document.getElementById('speed').value = '4'")
    page.press(" ")
    page.until("document.getElementById('summary').textContent.startsWith('Event 6 of')")
    page.press(" ")
    assert text(page, "#play") == "Play"


def test_plus_and_minus_zoom(show: Opener) -> None:
    page = show(TRACES["1f1b"])
    assert page.run("app.to - app.from") == page.run("EDGE")
    page.press("+", 2)
    assert page.run("(app.to - app.from) * 4") == page.run("EDGE")
    page.press("End")
    assert page.run("app.to") == page.run("EDGE")
    page.press("-")
    assert page.run("(app.to - app.from) * 2") == page.run("EDGE")
    page.press("0")
    assert (page.run("app.from"), page.run("app.to")) == (0, page.run("EDGE"))


def test_arrows_mean_the_same_wherever_the_focus_is(show: Opener) -> None:
    page = show(TRACES["chatter"])
    page.run("document.getElementById('table').open = true")
    for place in ("#slider", "#rank", "#play", "#table .scroll", "#table button", ".timeline"):
        page.press("Home")
        page.run("app.select(0, 0)")
        page.run(f"document.querySelector({place!r}).focus()")
        assert page.run(f"document.activeElement === document.querySelector({place!r})"), place
        begun = page.run("app.index")
        page.press("ArrowRight", 3)
        assert (page.run("app.index"), page.run("app.rank")) == (begun + 3, 0), place
        page.press("ArrowLeft")
        assert (page.run("app.index"), page.run("app.rank")) == (begun + 2, 0), place
        page.press("ArrowDown", 2)
        assert page.run("app.rank") == 2, place
        page.press("ArrowUp")
        assert page.run("app.rank") == 1, place


def test_the_slider_says_the_time(show: Opener) -> None:
    page = show(TRACES["ddp"])
    page.run("document.getElementById('slider').focus()")
    page.press("ArrowRight", 3)
    assert cursor(page) == "time 2 of 5.6"
    assert page.run("document.getElementById('slider').getAttribute('aria-valuetext')") == "time 2 of 5.6"
    page.press("End")
    assert cursor(page) == "time 5.6 of 5.6"


def test_the_speed_is_one_of_five(show: Opener) -> None:
    page = show(TRACES["alone"])
    said: list[str] = []
    for _ in range(6):
        said.append(text(page, "#speed"))
        page.run("document.getElementById('speed').click()")
    assert said == ["speed 1×", "speed 2×", "speed 4×", "speed ¼×", "speed ½×", "speed 1×"]


WIDE = "(a => (b => a.right <= b.left && a.top < b.bottom)(document.querySelector('#held').getBoundingClientRect()))"


@pytest.mark.parametrize(("width", "beside"), [(1280, True), (840, True), (600, False)])
def test_the_timeline_and_what_is_held_are_beside_each_other(
    browser: Browser, show: Opener, width: int, beside: bool
) -> None:
    page = show(TRACES["1f1b"], width=width)
    assert page.run(f"{WIDE}(document.querySelector('.timeline').getBoundingClientRect())") == beside
    assert page.run("document.documentElement.scrollWidth <= window.innerWidth")


def test_messages_are_drawn_from_the_row_of_the_sender_to_that_of_the_receiver(show: Opener) -> None:
    page = show(TRACES["relay"])
    found = page.run("RUNS[0].messages.map(m => [m.source, m.target, app.timelines[0].ends(m)])")
    tops, high = page.run("app.timelines[0].tops"), page.run("RUNS[0].rows.height")
    assert found
    for source, target, ends in found:
        down = target > source
        assert ends["from"]["y"] == tops[source] + (high if down else 0)
        assert ends["to"]["y"] == tops[target] + (0 if down else high)
        assert ends["from"]["x"] <= ends["to"]["x"]


def point(page: Page, rank: int, time: float) -> tuple[float, float]:
    """Where a moment of a rank lies in the window."""
    return tuple(
        page.run(
            "(() => { const t = app.timelines[0], r = t.host.getBoundingClientRect();"
            f" return [r.left + t.x({time}), r.top + t.tops[{rank}] + 8]; }})()"
        )
    )


def test_pointing_says_what_is_there(show: Opener) -> None:
    page = show(TRACES["ddp"])
    assert page.run("document.getElementById('tip').hidden")
    page.mouse("Moved", *point(page, 2, 2.5))
    page.settle()
    lines = text(page, "#tip").split("\n")
    assert lines[:2] == ["backward, layer 1, batch 2", "rank 2, time 2 to 3, cost 1"]
    assert lines[2].startswith("runs.py, line ")
    assert "model.backward(" in lines[3]
    assert page.run("app.rank") == 0
    page.press("ArrowRight")
    assert page.run("document.getElementById('tip').hidden")


def test_a_click_selects_and_a_drag_takes_the_cursor_along(show: Opener) -> None:
    page = show(TRACES["ddp"])
    page.click(*point(page, 2, 2.5))
    assert text(page, "#event-title") == "Rank 2"
    assert facts(page)["operation"] == "backward"
    assert cursor(page) == "time 2 of 5.6"
    page.mouse("Pressed", *point(page, 2, 2.5), pressed=True)
    page.mouse("Moved", *point(page, 2, 3.5), pressed=True)
    page.mouse("Moved", *point(page, 2, 4.3), pressed=True)
    page.mouse("Released", *point(page, 2, 4.3))
    page.settle()
    assert page.run("Math.abs(app.time - 4.3) < 0.01")
    assert facts(page)["operation"] == "backward"
    assert facts(page)["layer"] == "0"


@pytest.mark.parametrize("name", ["ddp", "overlapped", "prefetch", "1f1b", "deadlock"])
def test_what_it_shows_are_the_figures(show: Opener, name: str) -> None:
    trace = TRACES[name]
    page = show(trace)
    sums = page.run("RUNS[0].ranks.map(rank => rank.events.map((_, i) => rank.memory(i)))")
    kinds = page.run("KINDS.map(kind => kind.name)")
    for program in trace.programs:
        for sample in figures.samples(trace, program.rank):
            wanted = [round(float(sample.by_kind.get(kind, 0)), 6) for kind in kinds]
            assert sums[program.rank][sample.index] == wanted
    words = page.run("RUNS[0].ranks.map(r => r.events.map((_, i) => r.holdings(i).map(s => VALUES[s.value].words)))")
    for program in trace.programs:
        for index in range(len(program.events)):
            assert words[program.rank][index] == [
                str(alive.value) for alive in figures.alive_at(trace, program.rank, index)
            ]
    for _ in range(5):
        page.press("ArrowRight", 2)
        index = page.run("app.index")
        alive = figures.alive_at(trace, 0, index)
        total = sum(float(held.value.elements()) for held in alive)
        assert text(page, ".card .sum") == f"{round(total, 2):,.10g} elements"
        assert page.run("document.querySelectorAll('.card .value').length") >= len(alive)


def test_values_outside_the_stores_are_dashed_and_said(show: Opener) -> None:
    page = show(TRACES["prefetch"])
    page.run("document.querySelector('.card details').open = true")
    page.press("ArrowRight", 9)
    lines = text(page, ".card details").split("\n")
    assert "outside the stores" in lines[0]
    assert "outside the stores: a communication under way" in lines
    assert page.run("document.querySelectorAll('.card .value.outside').length") > 0
    assert page.run("getComputedStyle(document.querySelector('.card .value.outside')).strokeDasharray") != "none"


def test_messages_in_flight(show: Opener) -> None:
    page = show(TRACES["relay"])
    page.run("app.seek(1.1)")
    page.settle()
    assert text(page, "#traffic") == ("rank 0 to rank 1: activation 1, batch 0; sent at 1, received at 1.4")
    page.run("app.seek(2)")
    page.settle()
    assert text(page, "#traffic") == "nothing"
    page = show(TRACES["unread"])
    page.press("End")
    assert "never received" in text(page, "#traffic")


def test_a_collective_under_way_and_its_members(show: Opener) -> None:
    page = show(TRACES["ddp"])
    page.run("app.seek(3.1)")
    page.settle()
    assert text(page, "#traffic") == "all-reduce of layer 1, ranks 0-3, time 3 to 3.3"
    assert page.run("app.run.partners(app.rank, app.index).map(([rank]) => rank)") == [1, 2, 3]


def test_two_runs_have_one_cursor(show: Opener) -> None:
    page = show(step_through(TRACES["ddp"], TRACES["overlapped"], names=("first", "second")))
    assert page.run("document.querySelectorAll('.timeline').length") == 2
    assert page.run("document.querySelectorAll('#cards .card').length") == 8
    assert page.run("document.querySelectorAll('#chosen .card').length") == 2
    assert text(page, "#notes").startswith("first and second first differ on rank 0")
    page.press("ArrowDown", 4)
    assert text(page, "#event-title") == "Rank 0 of second"
    page.press("ArrowRight", 12)
    assert page.run("new Set(app.timelines.map(t => t.x(app.time))).size") == 1
    assert text(page, ".card button") == "rank 0"


def test_a_run_that_failed(show: Opener) -> None:
    page = show(TRACES["deadlock"])
    assert text(page, ".error").startswith("deadlock: these ranks wait for each other")
    page.press("End")
    assert cursor(page) == "time 3 of 3"
    assert text(page, "#summary").startswith("Event 7 of 8: waits for ever: all-reduce") or "waits for ever" in text(
        page, "#summary"
    )
    assert facts(page)["end"] == "never"
    assert facts(page)["waited"] == "for ever"


def test_a_run_in_which_nothing_takes_time(show: Opener) -> None:
    page = show(still())
    assert cursor(page) == "time 0 of 0"
    page.press("ArrowLeft", 3)
    assert text(page, "#summary") == "Event 1 of 1: load weights, layer 0; time 0 to 0; holds 0 elements"
    page.press("ArrowRight", 3)
    page.press("+")
    page.press("ArrowDown")
    assert text(page, "#summary") == "After all 0 events: finished; holds 0 elements"
    page.press(" ")
    page.until("document.getElementById('play').textContent === 'Play'")


def test_a_puzzle_that_is_not_solved_yet(show: Opener) -> None:
    page = show(step_through([]))
    assert text(page, "#notes") == "nothing to step through yet"
    assert page.run("document.querySelector('main').hidden")


def test_many_ranks_leave_a_choice(show: Opener) -> None:
    page = show(TRACES["chatter"])
    assert page.run("document.querySelectorAll('.card').length") == 1
    assert page.run("document.querySelectorAll('#rank option').length") == 16
    assert page.run("!document.getElementById('choice').hidden")
    page.run("{ const s = document.getElementById('rank'); s.value = '7'; s.dispatchEvent(new Event('change')); }")
    page.settle()
    assert text(page, ".card button") == "rank 7"
    assert text(page, "#event-title") == "Rank 7"
    page = show(TRACES["ddp"])
    assert page.run("document.getElementById('choice').hidden")


def test_the_table_follows_the_cursor(show: Opener) -> None:
    page = show(TRACES["1f1b"])
    page.run("document.getElementById('table').open = true")
    page.press("ArrowRight", 2)
    assert page.run("document.querySelectorAll('#table tbody tr').length") == len(TRACES["1f1b"].programs[0].events)
    assert page.run("document.querySelector('#table tr[aria-current]').dataset.row") == "4"
    page.run("document.querySelector('#table button[data-index=\"2\"]').click()")
    page.settle()
    assert text(page, "#summary").startswith("Event 3 of")
    page.press("ArrowDown")
    assert text(page, "#table caption") == "Events of rank 1"


def test_hostile_texts_are_shown_as_text(show: Opener) -> None:
    page = show(step_through(hostile(), hostile(), names=[HOSTILE, HOSTILE]))
    page.press("ArrowLeft")
    page.run("document.querySelectorAll('details').forEach(part => part.open = true)")
    page.mouse("Moved", *point(page, 0, 0.5))
    page.settle()
    assert page.run("window.pwned") is None
    assert page.run("document.querySelectorAll('img').length") == 0
    assert page.run("document.scripts.length") == 2
    visible = HOSTILE.replace("\ud800", "\ufffd")
    assert page.run("document.querySelector('#code').textContent").replace("\ud800", "\ufffd") == visible
    assert all("onerror" in text(page, place) for place in ("h1", "h2", "#tip", ".error"))


def test_day_and_night(show: Opener) -> None:
    colours = [
        show(TRACES["ddp"], dark=dark).run("getComputedStyle(document.body).backgroundColor") for dark in (False, True)
    ]
    assert colours == ["rgb(255, 255, 255)", "rgb(22, 24, 28)"]


@pytest.mark.parametrize("dark", [False, True])
def test_kinds_have_one_colour_in_the_legend_the_card_and_the_memory(show: Opener, dark: bool) -> None:
    page = show(TRACES["ddp"], dark=dark)
    wanted = KINDS["weight"].night if dark else str(KINDS["weight"])
    assert page.run("app.timelines[0].kinds[0]") == wanted
    shown = page.run("getComputedStyle(document.querySelector('#kinds .swatch')).backgroundColor")
    assert shown == page.run("getComputedStyle(document.querySelector('#chosen .value')).fill")
    assert shown == "rgb({}, {}, {})".format(*(int(wanted[at : at + 2], 16) for at in (1, 3, 5)))


def test_a_screen_reader_finds_names_for_everything(show: Opener) -> None:
    page = show(step_through(TRACES["ddp"], TRACES["1f1b"]))
    page.call("Accessibility.enable")
    nodes = [node for node in page.call("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    roles = {
        "button",
        "slider",
        "combobox",
        "application",
        "image",
        "region",
        "group",
        "heading",
        "table",
        "article",
        "Canvas",
    }
    named = [(n["role"]["value"], n["name"]["value"]) for n in nodes if n["role"]["value"] in roles and "name" in n]
    nameless = [role for role, name in named if not name and role in roles - {"group"}]
    assert nameless == []
    found = dict(named)
    assert found["slider"] == "Simulated time"
    assert found["application"].startswith("Timeline of run 2: left and right for moments")
    assert any(name.startswith("What rank 0 holds: ") for role, name in named if role == "image")


def test_tab_reaches_everything_and_focus_is_seen(show: Opener) -> None:
    page = show(TRACES["ddp"])
    seen: list[str] = []
    for _ in range(14):
        page.press("Tab")
        seen.append(
            page.run("document.activeElement.id || document.activeElement.className || document.activeElement.tagName")
        )
        assert page.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert seen[:9] == ["previous", "play", "next", "slider", "speed", "out", "whole", "in", "timeline"]


@pytest.mark.parametrize(("light", "paper"), [("true", "rgb(255, 255, 255)"), ("false", "rgb(22, 24, 28)")])
def test_it_takes_the_side_of_the_notebook_and_not_that_of_the_system(
    browser: Browser, tmp_path: Path, light: str, paper: str
) -> None:
    path = tmp_path / "notebook.html"
    output = step_through(TRACES["ddp"])._repr_mimebundle_()["text/html"]
    path.write_text(f"<!DOCTYPE html><html data-ready=''><body data-jp-theme-light={light}>{output}</body></html>")
    page = browser.page()
    page.call("Emulation.setEmulatedMedia", features=[])
    page.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)
    page.open(path)
    page.wait(lambda: bool(page.seen("Target.attachedToTarget")), "a frame of its own")
    frame = Page(browser, page.seen("Target.attachedToTarget")[-1]["sessionId"])
    frame.until("document.documentElement?.dataset.ready !== undefined")
    assert frame.run("getComputedStyle(document.body).backgroundColor") == paper


def test_inside_a_notebook(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "notebook.html"
    bundle = step_through(TRACES["ddp"])._repr_mimebundle_()
    path.write_text(f"<!DOCTYPE html><html data-ready=''><body>{bundle['text/html']}</body></html>", "utf-8")
    page = browser.page()
    page.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)
    page.open(path)
    page.wait(lambda: bool(page.seen("Target.attachedToTarget")), "a frame of its own")
    frame = Page(browser, page.seen("Target.attachedToTarget")[-1]["sessionId"])
    frame.until("document.documentElement?.dataset.ready !== undefined")
    frame.settle()
    assert cursor(frame) == "time 0 of 5.6"
    assert frame.run("window.origin") == "null"
    rect = "document.querySelector('iframe').getBoundingClientRect()"
    assert page.run(f"{rect}.width") > 1000
    page.click(page.run(f"{rect}.left") + 400, page.run(f"{rect}.top") + 150)
    for _ in range(3):
        page.press("ArrowRight")
    frame.settle()
    assert cursor(frame) != "time 0 of 5.6"
