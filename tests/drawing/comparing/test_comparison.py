"""compare: one axis, the figures of each, and where they first differ."""

from collections import defaultdict

import pytest

from drawing import compare as compare
from drawing import draw_figures
from drawing.canvas.palette import ALARM, GOOD, INK
from lib import LINKS, Trace, simulate
from lib.analysis.difference import difference
from lib.analysis.figures import most_sent
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference
from tests.drawing.marks import polys, rects, texts
from tests.drawing.runs import RUNS, ddp, overlapped, solved, trace

FRAME = 2.2
"""How much wider than its box a frame is."""


def test_runs_of_different_sizes_are_told_apart_and_not_judged() -> None:
    picture = compare(short=RUNS["ddp"], long=trace(ddp, ranks=4, layers=3, batches=4))
    assert picture.words.splitlines() == [
        "short: end 5.6 · peak 2,490,368 on rank 0 · bubble 10.7% · sent per rank 786,432 elements",
        "long: end 8.4 · peak 3,801,088 on rank 0 · bubble 10.7% · sent per rank 1,179,648 elements",
        "These runs have different sizes, so their figures are not those of one task: short has 4 ranks, 2 layers, "
        "4 batches; long has 4 ranks, 3 layers, 4 batches.",
        "short and long first differ on rank 0, from 2: short has backward, layer 1, batch 0 (at 2); "
        "long has forward, layer 2, batch 0 (at 2)",
    ]
    assert "short and long first differ on rank 0, from 2" in " ".join(texts(picture))
    one, two = rects(picture, line=2)
    assert one.x == two.x
    assert one.y < two.y
    assert " ".join(texts(picture, fill=ALARM, bold=True)).startswith("These runs have different sizes")
    assert polys(picture, stroke=GOOD) == []


def test_a_schedule_that_is_over_or_has_fewer_ranks() -> None:
    picture = compare(RUNS["alone"], RUNS["ddp"], RUNS["deadlock"], names=["a", "b", "c"])
    assert picture.words.splitlines()[4] == (
        "a and b first differ on rank 1, from 0: a does nothing more; b has forward, layer 0, batch 1 (at 0)"
    )
    assert "c: stopped at 3" in picture.words
    at_the_axes = [text for text in texts(picture, bold=True) if text.startswith(("end ", "stopped"))]
    assert at_the_axes == ["end 3", "end 5.6", "stopped at 3"]


def test_runs_may_come_with_names_in_many_ways_and_figures_without_timelines() -> None:
    models = simulate(ddp, ranks=4, layers=2, batches=4)
    words = compare(a=models, b=RUNS["overlapped"]).words
    assert compare({"a": models, "b": RUNS["overlapped"]}).words == words
    assert compare(models, RUNS["overlapped"], names=["a", "b"]).words == words
    assert compare(models, b=RUNS["overlapped"]).words.startswith("run 1: end 5.6")
    bars = draw_figures(a=models, b=RUNS["overlapped"])
    assert bars.words.splitlines() == words.splitlines()[:2]
    assert bars.scene.height < 200
    assert draw_figures([], names=["mine"]).words == compare([], names=["mine"]).words


def test_what_is_sent_is_to_scale_and_the_better_one_is_marked() -> None:
    runs = [solved("wsdp"), Trace.of(simulate(load_function(reference("fsdp"), "fsdp"), puzzle="wsdp"))]
    picture = compare(*runs, names=["wsdp", "fsdp"])
    widths: dict[float, float] = defaultdict(float)
    for part in rects(picture):
        if part.title.startswith(("all-gather: ", "all-reduce: ", "reduce-scatter: ")):
            widths[round(part.y)] += part.width
    upper, lower = (widths[y] for y in sorted(widths))
    whole, parted = map(most_sent, runs)
    assert lower / upper == pytest.approx(parted / whole, abs=0.04)
    bold = texts(picture, bold=True)
    assert f"{parted:,.0f}" in bold
    assert f"{whole:,.0f}" not in bold
    assert "sends 29% less" in picture.words


def test_the_memory_of_both_is_on_one_scale() -> None:
    said = texts(compare(ddp=RUNS["ddp"], overlapped=trace(overlapped, ranks=4, layers=2, batches=4)))
    assert sum(text.startswith("peak 2.") for text in said) == 2
    assert said.count("of rank 0") == 2


def test_each_side_is_marked_at_its_own_event_and_behind_its_boxes() -> None:
    picture = compare(RUNS["ddp"], RUNS["late"])
    one, two = rects(picture, line=2)
    # One batch, and two batches; a frame lies around its box.
    assert two.width - FRAME == pytest.approx(2 * (one.width - FRAME))
    marks = picture.scene.marks
    lines = [number for number, mark in enumerate(marks) if mark in polys(picture, dash="2 2", stroke=INK)]
    assert len(lines) == 2
    assert lines[0] < min(number for number, mark in enumerate(marks) if "rank 0" in getattr(mark, "title", ""))


def test_a_difference_of_time_alone_counts() -> None:
    assert "run 1 and run 2 do the same" in compare(RUNS["ddp"], trace(ddp, ranks=4, layers=2, batches=4)).words
    gap = difference(RUNS["ddp"], trace(ddp, ranks=4, layers=2, batches=4, costs=LINKS))
    assert gap is not None
    assert [event and event.op for event in gap.events] == ["allreduce", "allreduce"]
