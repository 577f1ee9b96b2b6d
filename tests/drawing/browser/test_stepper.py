"""The page to step through a run: it is quick, keys and pointer work, and what it shows are the figures."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from drawing.canvas.palette import KINDS, PAPER
from drawing.pages.view import step_through
from lib.analysis import figures
from tests.drawing.browser.conftest import Show, press, rgb, settle
from tests.drawing.pages.runs import HOSTILE, TRACES, hostile, large, still

pytestmark = pytest.mark.xdist_group("browser")


def facts(page: Page) -> dict[str, str]:
    return dict(
        page.evaluate("[...document.querySelectorAll('#facts dt')].map(t => [t.innerText, t.nextSibling.innerText])")
    )


def test_keys_step_through_the_events_of_a_rank(show: Show) -> None:
    page = show(TRACES["ddp"])
    assert page.inner_text("#clock") == "time 0 of 5.6"
    assert page.inner_text("#summary").startswith("Event 4 of 14: forward, layer 0, batch 0; time 0 to 1")
    press(page, "ArrowRight", 3)
    assert page.inner_text("#clock") == page.get_attribute("#slider", "aria-valuetext") == "time 2 of 5.6"
    assert page.inner_text("#summary").startswith("Event 7 of 14: backward, layer 1, batch 0; time 2 to 3")
    press(page, "ArrowLeft")
    assert page.inner_text("#summary").startswith("Event 6 of 14: loss")
    press(page, "End")
    assert page.inner_text("#clock") == "time 5.6 of 5.6"
    assert page.inner_text("#summary") == "After all 14 events: finished; holds 2,752,512 elements"
    press(page, "ArrowRight")
    assert page.inner_text("#clock") == "time 5.6 of 5.6"
    press(page, "Home")
    assert page.inner_text("#summary").startswith("Event 4 of 14")
    press(page, "ArrowLeft", 9)
    assert page.inner_text("#summary").startswith("Event 1 of 14")


def test_the_details_of_an_event_and_of_those_of_other_ranks(show: Show) -> None:
    page = show(TRACES["1f1b"])
    press(page, "ArrowDown")
    assert page.inner_text("#event-title") == "Rank 1"
    told = "".join(f"{name}: {what}\n" for name, what in facts(page).items())
    assert told == Path(__file__).with_name("receive.txt").read_text("utf-8")
    press(page, "ArrowUp", 2)
    assert page.inner_text("#event-title") == "Rank 0"
    press(page, "ArrowDown", 9)
    assert page.inner_text("#event-title") == "Rank 3"
    assert page.locator("#cards .card.chosen").count() == 1
    assert page.inner_text("#cards .card.chosen button") == "rank 3"
    assert page.inner_text("#chosen .card button") == "rank 3"
    page = show(TRACES["ddp"])
    assert facts(page)["source"].startswith("runs.py, line ")
    assert page.inner_text("#code").startswith("model.activations[layer + 1] = model.forward(")


def test_an_exchange_of_halos_says_and_draws_who_gives_what_to_whom(show: Show) -> None:
    page = show(TRACES["halo"])
    page.evaluate("app.select(0, 1, 6)")
    settle(page)
    assert "gives row 4 to rank 0, row 11 to rank 2; gets row 3 from rank 0, row 12 from rank 2" in page.inner_text(
        "#summary"
    )
    under_way = page.inner_text("#traffic").splitlines()
    assert under_way[0].startswith("halo exchange of layer 0, ranks 0-3")
    assert under_way[1].startswith("rank 0 to rank 1: activation 0, batches 0, 1, rows 3 of 64; sent at 0")
    assert page.evaluate("RUNS[0].partners(1, 6).map(([rank]) => rank)") == [0, 2, 3]
    ends = page.evaluate("RUNS[0].inFlight(0).map((m) => [m.source, m.target, app.timelines[0].ends(m)])")
    assert [(source, target) for source, target, _ in ends] == [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]
    tops, high = page.evaluate("app.timelines[0].tops"), page.evaluate("RUNS[0].rows.height")
    for source, target, line in ends:  # from the row of the one to that of the other
        assert line["from"]["x"] < line["to"]["x"]
        assert line["from"]["y"] == tops[source] + (high if source < target else 0)
        assert line["to"]["y"] == tops[target] + (0 if source < target else high)


def test_space_plays_and_pauses_at_a_speed_up_to_the_end(show: Show) -> None:
    page = show(TRACES["1f1b"])
    press(page, " ")
    assert page.inner_text("#play") == "Pause"
    assert page.get_attribute("#summary", "aria-live") == "off"
    expect(page.locator("#clock")).not_to_have_text("time 0 of 16.8")
    press(page, " ")
    assert page.inner_text("#play") == "Play"
    assert page.get_attribute("#summary", "aria-live") == "polite"
    assert page.inner_text("#clock") != "time 0 of 16.8"
    stopped = page.inner_text("#clock")
    settle(page)
    assert page.inner_text("#clock") == stopped
    for speed in ("1×", "2×", "4×", "¼×", "½×", "1×"):
        assert page.inner_text("#speed") == f"speed {speed}"
        page.evaluate("document.getElementById('speed').click()")
    page = show(TRACES["alone"])
    page.evaluate("app.seek(2.9)")
    press(page, " ")
    expect(page.locator("#play")).to_have_text("Play")
    settle(page)
    assert page.inner_text("#clock") == "time 3 of 3"
    page = show(TRACES["alone"], calm=True)  # who wants no motion gets steps
    press(page, " ")
    expect(page.locator("#summary")).to_contain_text("Event 6 of")
    press(page, " ")
    assert page.inner_text("#play") == "Play"


def test_plus_and_minus_zoom(show: Show) -> None:
    page = show(TRACES["1f1b"])
    for key, times, shown in (("+", 2, 0.25), ("End", 1, 0.25), ("-", 1, 0.5), ("0", 1, 1)):
        press(page, key, times)
        assert page.evaluate("(app.to - app.from) / EDGE") == shown
        assert page.evaluate("app.to === EDGE") == (key != "+")


def test_arrows_mean_the_same_wherever_the_focus_is(show: Show) -> None:
    page = show(TRACES["chatter"])
    page.evaluate("document.getElementById('table').open = true")
    page.wait_for_selector("#table button")
    for place in ("#slider", "#rank", "#play", "#table .scroll", "#table button", ".timeline"):
        press(page, "Home")
        page.evaluate("app.select(0, 0)")
        settle(page)  # the table is written anew, and a button that is replaced loses the focus
        page.evaluate(f"document.querySelector({place!r}).focus()")
        assert page.evaluate(f"document.activeElement === document.querySelector({place!r})"), place
        begun = page.evaluate("app.index")
        for key, times, index, rank in (("Right", 3, 3, 0), ("Left", 1, 2, 0), ("Down", 2, 2, 2), ("Up", 1, 2, 1)):
            press(page, f"Arrow{key}", times)
            assert page.evaluate("[app.index, app.rank]") == [begun + index, rank], (place, key)


WIDE = "(a => (b => a.right <= b.left && a.top < b.bottom)(document.querySelector('#held').getBoundingClientRect()))"


@pytest.mark.parametrize(("width", "beside"), [(1280, True), (840, True), (600, False)])
def test_the_timeline_and_what_is_held_are_beside_each_other(show: Show, width: int, beside: bool) -> None:
    page = show(TRACES["1f1b"], width=width)
    assert page.evaluate(f"{WIDE}(document.querySelector('.timeline').getBoundingClientRect())") == beside
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def point(page: Page, rank: int, time: float) -> tuple[float, float]:
    """Where a moment of a rank lies in the window."""
    return tuple(
        page.evaluate(
            "(() => { const t = app.timelines[0], r = t.host.getBoundingClientRect();"
            f" return [r.left + t.x({time}), r.top + t.tops[{rank}] + 8]; }})()"
        )
    )


def test_pointing_says_what_is_there_a_click_selects_and_a_drag_takes_the_cursor_along(show: Show) -> None:
    page = show(TRACES["ddp"])
    assert page.evaluate("document.getElementById('tip').hidden")
    page.mouse.move(*point(page, 2, 2.5))
    settle(page)
    lines = page.inner_text("#tip").split("\n")
    assert lines[:2] == ["backward, layer 1, batch 2", "rank 2, time 2 to 3, cost 1"]
    assert lines[2].startswith("runs.py, line ")
    assert "model.backward(" in lines[3]
    assert page.evaluate("app.rank") == 0
    press(page, "ArrowRight")
    assert page.evaluate("document.getElementById('tip').hidden")
    page.mouse.click(*point(page, 2, 2.5))
    settle(page)
    assert page.inner_text("#event-title") == "Rank 2"
    assert facts(page)["operation"] == "backward"
    assert page.inner_text("#clock") == "time 2 of 5.6"
    page.mouse.down()
    page.mouse.move(*point(page, 2, 3.5))
    page.mouse.move(*point(page, 2, 4.3))
    page.mouse.up()
    settle(page)
    assert page.evaluate("Math.abs(app.time - 4.3) < 0.01")
    assert facts(page)["operation"] == "backward"
    assert facts(page)["layer"] == "0"


@pytest.mark.parametrize("name", ["overlapped", "prefetch", "deadlock"])
def test_what_it_shows_are_the_figures(show: Show, name: str) -> None:
    trace = TRACES[name]
    page = show(trace)
    sums = page.evaluate("RUNS[0].ranks.map(rank => rank.events.map((_, i) => rank.memory(i)))")
    kinds = page.evaluate("KINDS.map(kind => kind.name)")
    for program in trace.programs:
        for sample in figures.samples(trace, program.rank):
            wanted = [round(float(sample.by_kind.get(kind, 0)), 6) for kind in kinds]
            assert sums[program.rank][sample.index] == wanted
    words = page.evaluate(
        "RUNS[0].ranks.map(r => r.events.map((_, i) => r.holdings(i).map(s => VALUES[s.value].words)))"
    )
    for program in trace.programs:
        for index in range(len(program.events)):
            alive = figures.alive_at(trace, program.rank, index)
            assert words[program.rank][index] == [str(one.value) for one in alive]
    for _ in range(5):
        press(page, "ArrowRight", 2)
        index = page.evaluate("app.index")
        alive = figures.alive_at(trace, 0, index)
        total = sum(float(held.value.elements()) for held in alive)
        assert page.inner_text(".card .sum") == f"{round(total, 2):,.10g} elements"
        assert page.locator(".card .value").count() >= len(alive)


def test_values_outside_the_stores_are_dashed_and_said(show: Show) -> None:
    page = show(TRACES["prefetch"])
    page.evaluate("document.querySelector('.card details').open = true")
    press(page, "ArrowRight", 9)
    lines = page.inner_text(".card details").split("\n")
    assert "outside the stores" in lines[0]
    assert "outside the stores: a communication under way" in lines
    assert page.locator(".card .value.outside").count() > 0
    assert page.evaluate("getComputedStyle(document.querySelector('.card .value.outside')).strokeDasharray") != "none"


def test_communication_under_way(show: Show) -> None:
    page = show(TRACES["relay"])
    for time, said in ((1.1, "rank 0 to rank 1: activation 1, batch 0; sent at 1, received at 1.4"), (2, "nothing")):
        page.evaluate(f"app.seek({time})")
        settle(page)
        assert page.inner_text("#traffic") == said
    page = show(TRACES["unread"])
    press(page, "End")
    assert "never received" in page.inner_text("#traffic")
    page = show(TRACES["ddp"])
    page.evaluate("app.seek(3.1)")
    settle(page)
    assert page.inner_text("#traffic") == "all-reduce of layer 1, ranks 0-3, time 3 to 3.3"
    assert page.evaluate("app.run.partners(app.rank, app.index).map(([rank]) => rank)") == [1, 2, 3]


def test_two_runs_have_one_cursor(show: Show) -> None:
    page = show(step_through(TRACES["ddp"], TRACES["overlapped"], names=("first", "second")))
    assert page.locator(".timeline").count() == 2
    assert page.locator("#cards .card").count() == 8
    assert page.locator("#chosen .card").count() == 2
    assert page.inner_text("#notes").startswith("first and second first differ on rank 0")
    press(page, "ArrowDown", 4)
    assert page.inner_text("#event-title") == "Rank 0 of second"
    press(page, "ArrowRight", 12)
    assert page.evaluate("new Set(app.timelines.map(t => t.x(app.time))).size") == 1
    assert page.inner_text(".card button") == "rank 0"


def test_a_run_that_failed(show: Show) -> None:
    page = show(TRACES["deadlock"])
    assert page.inner_text(".error").startswith("deadlock: these ranks wait for each other")
    press(page, "End")
    assert page.inner_text("#clock") == "time 3 of 3"
    assert "waits for ever" in page.inner_text("#summary")
    assert facts(page)["end"] == "never"
    assert facts(page)["waited"] == "for ever"


def test_a_run_in_which_nothing_takes_time_one_not_solved_yet_and_a_large_one(show: Show) -> None:
    page = show(still())
    assert page.inner_text("#clock") == "time 0 of 0"
    press(page, "ArrowLeft", 3)
    assert page.inner_text("#summary") == "Event 1 of 1: load weights, layer 0; time 0 to 0; holds 0 elements"
    press(page, "ArrowRight", 3)
    press(page, "+")
    press(page, "ArrowDown")
    assert page.inner_text("#summary") == "After all 0 events: finished; holds 0 elements"
    press(page, " ")
    expect(page.locator("#play")).to_have_text("Play")
    page = show(step_through([]))
    assert page.inner_text("#notes") == "nothing to step through yet"
    assert page.evaluate("document.querySelector('main').hidden")
    assert show(large()).evaluate("document.querySelectorAll('*').length") < 1000  # 16 ranks with 200 events


def test_many_ranks_leave_a_choice(show: Show) -> None:
    page = show(TRACES["chatter"])
    assert page.locator(".card").count() == 1
    assert page.locator("#rank option").count() == 16
    assert page.evaluate("!document.getElementById('choice').hidden")
    page.evaluate("{ const s = document.getElementById('rank'); s.value = '7'; s.dispatchEvent(new Event('change')); }")
    settle(page)
    assert page.inner_text(".card button") == "rank 7"
    assert page.inner_text("#event-title") == "Rank 7"
    page = show(TRACES["ddp"])
    assert page.evaluate("document.getElementById('choice').hidden")


def test_the_table_follows_the_cursor(show: Show) -> None:
    page = show(TRACES["1f1b"])
    page.evaluate("document.getElementById('table').open = true")
    press(page, "ArrowRight", 2)
    assert page.locator("#table tbody tr").count() == len(TRACES["1f1b"].programs[0].events)
    assert page.evaluate("document.querySelector('#table tr[aria-current]').dataset.row") == "4"
    page.evaluate("document.querySelector('#table button[data-index=\"2\"]').click()")
    settle(page)
    assert page.inner_text("#summary").startswith("Event 3 of")
    press(page, "ArrowDown")
    assert page.inner_text("#table caption") == "Events of rank 1"


def test_hostile_texts_are_shown_as_text(show: Show) -> None:
    page = show(step_through(hostile(), hostile(), names=[HOSTILE, HOSTILE]))
    press(page, "ArrowLeft")
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    page.mouse.move(*point(page, 0, 0.5))
    settle(page)
    assert page.evaluate("window.pwned") is None
    assert page.locator("img").count() == 0
    assert page.evaluate("document.scripts.length") == 2
    visible = HOSTILE.replace("\ud800", "\ufffd")
    assert page.evaluate("document.querySelector('#code').textContent").replace("\ud800", "\ufffd") == visible
    assert all("onerror" in page.inner_text(place) for place in ("h1", "h2", "#tip", ".error"))


@pytest.mark.parametrize("dark", [False, True])
def test_kinds_have_one_colour_in_the_legend_the_card_and_the_memory(show: Show, dark: bool) -> None:
    page = show(TRACES["ddp"], dark=dark)
    paper, wanted = (PAPER.night, KINDS["weight"].night) if dark else (str(PAPER), str(KINDS["weight"]))
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == rgb(paper)
    assert page.evaluate("app.timelines[0].kinds[0]") == wanted
    shown = page.evaluate("getComputedStyle(document.querySelector('#kinds .swatch')).backgroundColor")
    assert shown == page.evaluate("getComputedStyle(document.querySelector('#chosen .value')).fill")
    assert shown == rgb(wanted)


def test_a_screen_reader_finds_names_for_everything(show: Show) -> None:
    page = show(step_through(TRACES["ddp"], TRACES["1f1b"]))
    said = page.locator("body").aria_snapshot()
    nameless = re.findall(r"- '?(?:button|slider|combobox|application|img|region|heading|table|article)(?! \")", said)
    assert nameless == []
    assert 'slider "Simulated time"' in said
    assert "run 2: left and right for moments" in said
    assert 'img "What rank 0 holds: ' in said


def test_tab_reaches_everything_and_focus_is_seen(show: Show) -> None:
    page = show(TRACES["ddp"])
    seen: list[str] = []
    for _ in range(14):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert seen[:9] == ["previous", "play", "next", "slider", "speed", "out", "whole", "in", "timeline"]


def test_inside_a_notebook_it_has_its_own_keys_and_no_origin(show: Show) -> None:
    output = step_through(TRACES["ddp"])._repr_mimebundle_()["text/html"]
    page = show(f"<!DOCTYPE html><html><body>{output}</body></html>", dark=None)
    frame = page.frames[1]
    assert frame.inner_text("#clock") == "time 0 of 5.6"
    assert frame.evaluate("window.origin") == "null"
    rect = page.evaluate("document.querySelector('iframe').getBoundingClientRect().toJSON()")
    assert rect["width"] > 1000
    page.mouse.click(rect["left"] + 400, rect["top"] + 150)
    press(page, "ArrowRight", 3)
    settle(frame)
    assert frame.inner_text("#clock") != "time 0 of 5.6"
