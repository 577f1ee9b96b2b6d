"""Pages: safe whatever a Trace says, the same everywhere, small, and whole; what they are given."""

from __future__ import annotations

import hashlib
import html
import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from drawing import draw_gallery
from drawing.canvas.palette import LOOKS, PASSES
from drawing.canvas.picture import json_in_html
from drawing.pages.data import encode, gifts, legend, shown_ranks, style, words_of
from drawing.pages.view import View, step_through
from drawing.timeline.boxes import Box, boxes
from lib import Layer, Model, Trace
from lib.analysis import figures
from lib.cluster.costs import units
from lib.schedules.gallery import gallery
from lib.simulator.simulator import Unsolved
from lib.trace.trace import Event
from lib.values.operations import TIMED
from tests.drawing.pages.runs import HOSTILE, TRACES, hostile, large
from tests.drawing.runs import trace as run_of
from tests.drawing.shown import data_of
from tests.suite.cli.commands import Page
from tests.support.inside import PROGRAMS


def test_hostile_texts_become_no_markup_and_arrive_unchanged() -> None:
    page = step_through(hostile(), hostile(), names=[HOSTILE, HOSTILE]).html()
    plain = step_through(TRACES["alone"]).html()
    assert [tag for tag, _ in Page(page).elements] == [tag for tag, _ in Page(plain).elements]
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


def test_only_its_own_script_may_run_and_it_asks_for_nothing_from_anywhere() -> None:
    page = step_through(TRACES["ddp"]).html()
    links = [tag[name] for _, tag in Page(page).elements for name in ("src", "href") if name in tag]
    assert links == ["data:,"]  # an empty icon, so that browsers do not look for one
    assert "url(" not in page
    policy = next(str(tag[1]["content"]) for tag in Page(page).elements if "http-equiv" in tag[1])
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", script)
    assert not re.search(r"\beval\b|\bFunction\(|fetch\(|XMLHttpRequest|import\(", script)


def test_16_ranks_with_200_events_are_less_than_a_megabyte() -> None:
    view = large()
    ((_, trace),) = view.runs
    assert sum(len(program.events) for program in trace.programs) >= trace.ranks * 200 == 16 * 200
    assert len(view.html().encode()) < 1_000_000
    assert len(view._repr_mimebundle_()["text/html"].encode()) < 1_000_000


def test_what_a_notebook_gets() -> None:
    view = step_through(TRACES["ddp"])
    bundle = view._repr_mimebundle_()
    assert sorted(bundle) == ["text/html", "text/plain"]
    *_, (tag, attributes) = Page(bundle["text/html"]).elements
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


def test_each_rank_makes_it_higher() -> None:
    pages = [draw_gallery(gallery(ranks, 4, chunks=(1, 2)))._repr_mimebundle_()["text/html"] for ranks in (4, 8)]
    low, high = (int(number) for page in pages for number in re.findall(r"height:(\d+)px", page))
    assert high - low == 4 * 30  # pixels of a rank in gallery.js


def rows(data: dict[str, Any], kind: str, found: list[Any]) -> list[dict[str, Any]]:
    return [dict(zip(data["fields"][kind], row, strict=True)) for row in found]


@pytest.mark.parametrize("name", TRACES)
def test_every_event_is_there_with_its_own_times_and_the_boxes_of_the_drawing(name: str) -> None:
    trace = TRACES[name]
    data = encode([(name, trace)])
    (run,) = data["runs"]
    assert run["end"] == figures.end(trace)
    shown: list[tuple[int, ...]] = []
    for program, rank in zip(trace.programs, run["ranks"], strict=True):
        found = rows(data, "event", rank["events"])
        assert len(found) == len(program.events)
        for row, event in zip(found, program.events, strict=True):
            start, end = (None if time is None else units(time) for time in (event.start, event.end))
            assert (row["issued"], row["start"], row["end"]) == (units(event.issued), start, end)
            assert row["sampled"] == (event.op in TIMED and event.start is not None)
            inputs = [data["values"][i][-1] for i in row["inputs"]]
            assert inputs == [str(program.values[i]) for i in event.inputs]
            place = trace.place(event)
            assert (None if row["place"] < 0 else data["places"][row["place"]]) == (place and tuple(place))
        for row in rows(data, "box", rank["boxes"]):
            shown += [(program.rank, row["event"], row["start"], row["end"], row["lane"])]
    assert sorted(shown) == sorted((b.rank, b.number, units(b.start), units(b.end), b.lane) for b in boxes(trace).boxes)


def test_messages_know_both_ends() -> None:
    trace = TRACES["1f1b"]
    data = encode([("", trace)])
    found = rows(data, "message", data["runs"][0]["messages"])
    assert len(found) == sum(event.op == "pass_to" for _, event in trace.events())
    for row in found:
        send = trace.programs[row["source"]].events[row["send"]]
        receive = trace.programs[row["target"]].events[row["receive"]]
        assert (send.op, send.peer) == ("pass_to", row["target"])
        assert (receive.op, receive.peer) == ("receive", row["source"])
        sent, received = trace.programs[row["source"]].values, trace.programs[row["target"]].values
        assert [sent[i] for i in send.inputs] == [received[i] for i in receive.outputs]
    unread = encode([("", TRACES["unread"])])
    found = rows(unread, "message", unread["runs"][0]["messages"])
    assert [row["receive"] >= 0 for row in found] == [True, False]  # nobody received the second


@pytest.mark.parametrize("way", ["halo", "alltoall"])
def test_each_event_says_its_rows_and_an_exchange_who_gives_which_to_whom(way: str) -> None:
    trace = TRACES[way]
    name = {"halo": "halo exchange", "alltoall": "all-to-all"}[way]
    told = [words_of(trace, trace.programs[1], number) for number in range(len(trace.programs[1].events))]
    assert {"forward, layer 1, batches 0, 1, rows 4-11", "cut, layer 1, batches 0, 1, row 11"} <= set(told)
    there = "gives row 4 to rank 0, row 11 to rank 2; gets row 3 from rank 0, row 12 from rank 2"
    assert [f"{name}, layer {layer}, batches 0, 1, all ranks: {there}" in told for layer in (0, 1)] == [True, True]
    both = "the gradient of row {} {way} rank 0, the gradient of row {} {way} rank 2"
    back = f"gives {both.format(3, 12, way='to')}; gets {both.format(4, 11, way='from')}"
    assert f"{name}, layer 1, batches 0, 1, all ranks: {back}" in told
    assert ("cut, layer 1, batches 0, 1, no rows" in told) == (way == "alltoall")


@pytest.mark.parametrize("way", ["halo", "alltoall"])
def test_gifts_of_an_exchange_are_drawn_as_messages_are(way: str) -> None:
    trace = TRACES[way]
    data = encode([("", trace)])
    found = rows(data, "message", data["runs"][0]["messages"])
    assert len(found) == len(gifts(trace)) == 4 * 6
    for row in found:
        sent, got = (
            trace.programs[row[rank]].events[row[event]] for rank, event in (("source", "send"), ("target", "receive"))
        )
        assert sent.start == got.start
        assert abs(row["source"] - row["target"]) == 1
        for rank, numbers in ((row["source"], sent.inputs), (row["target"], got.outputs)):
            assert data["texts"][row["words"]] in [str(trace.programs[rank].values[number]) for number in numbers]


def test_an_exchange_in_which_each_gives_to_all_is_told_as_a_whole() -> None:
    async def swap(model: Model) -> None:
        x = model.get_activation([model.rank])
        await model.alltoall([x.cut("rows", 2 * other, 2 * other + 2) for other in range(4)], 0)

    run = run_of(swap, ranks=4, layers=[Layer("convolution", 8, 8, 8, kernel=1)], batches=4)
    assert gifts(run) == []
    assert words_of(run, run.programs[0], 5) == "all-to-all, layer 0, batch 0, all ranks, rows 0, 1"


def test_two_runs_say_where_they_differ_and_one_where_it_failed() -> None:
    data = encode([("a", TRACES["ddp"]), ("b", TRACES["overlapped"])])
    assert [run["name"] for run in data["runs"]] == ["a", "b"]
    assert data["notes"][0].startswith("a and b first differ on rank 0")
    assert encode([("a", TRACES["ddp"]), ("b", TRACES["ddp"])])["notes"] == ["a and b do the same"]
    assert "failed here" in [row[-1] for row in encode([("", TRACES["failed"])], [])["legend"]]


def test_a_very_large_run_shows_its_first_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = TRACES["chatter"]
    monkeypatch.setattr("drawing.pages.data.BUDGET", 2 * len(trace.programs[0].events))
    assert shown_ranks(trace) == 2
    (run,) = encode([("", trace)])["runs"]
    assert len(run["ranks"]) == 2
    assert run["more"] == "and 14 more ranks, not in this page"
    monkeypatch.setattr("drawing.pages.data.BUDGET", 1)
    assert shown_ranks(trace) == 1


@pytest.mark.parametrize("family", [*PASSES, *LOOKS])
def test_every_family_of_boxes_has_its_looks_by_day_and_by_night(family: str) -> None:
    event = Event("forward", 1, frozenset(), (), (), 0, 0, 1, None)
    *looks, share = style(Box(0, 0, family, 0, 1), event, 2)
    assert -0.2 < share < 0.2
    assert all(str(colour).startswith("#") or colour in ("none", "") for colour in looks)
    assert len(legend(2, {family})) == 2 + (family in LOOKS)


def test_parts_of_sums_and_layers_without_a_weight_are_known() -> None:
    program = PROGRAMS["ring"]
    data = encode([("", Trace.of(program.run()))])
    assert data["runs"][0]["weighted"] == [int(layer.kind != "attention") for layer in program.layers]
    partial = {row["words"]: row["partial"] for row in rows(data, "value", data["values"])}
    assert any(partial.values())
    for words, is_partial in partial.items():
        # A weight has no rows: those of its gradient are the ones that are summed in it.
        assert is_partial == ("of a sum" in words or ("weight gradient" in words and "rows" in words)), words
