"""compare: one axis, the figures of each, and where they first differ; recordings of real runs, too."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from drawing import compare, draw_figures
from drawing.canvas.palette import ALARM, GOOD, INK, SOFT
from drawing.comparing.recordings import draw_recordings
from lib import LINKS, Trace, simulate
from lib.analysis.difference import difference
from lib.analysis.figures import most_sent
from lib.analysis.recording import Recording, Span
from lib.schedules.formats.trace import recording_of_order
from lib.schedules.pipelines.catalogue import SCHEDULES
from tests.drawing.marks import polys, rects, texts
from tests.drawing.runs import RUNS, ddp, overlapped, solved, trace
from tests.support.puzzles import way

FRAME = 2.2
"""How much wider than its box a frame is."""


def test_runs_of_different_sizes_are_told_apart_and_not_judged() -> None:
    picture = compare(short=RUNS["ddp"], long=trace(ddp, ranks=4, layers=3, batches=4))
    assert picture.words.splitlines() == [
        "short: end 5.6 · peak 2,490,368 on rank 0 · bubble 10.7% · sent per rank 786,432 elements",
        "long: end 8.4 · peak 3,801,088 on rank 0 · bubble 10.7% · sent per rank 1,179,648 elements",
        "Different sizes, so none is the better one: short has 4 ranks, 2 layers, 4 batches; "
        "long has 4 ranks, 3 layers, 4 batches.",
        "short and long first differ on rank 0, from 2: short has backward, layer 1, batch 0 (at 2); "
        "long has forward, layer 2, batch 0 (at 2)",
    ]
    assert "short and long first differ on rank 0, from 2" in " ".join(texts(picture))
    one, two = rects(picture, line=2)
    assert one.x == two.x
    assert one.y < two.y
    assert " ".join(texts(picture, fill=SOFT)).startswith("Different sizes")
    assert polys(picture, stroke=GOOD) == []


def test_a_schedule_that_is_over_or_has_fewer_ranks() -> None:
    picture = compare(a=RUNS["alone"], b=RUNS["ddp"], c=RUNS["deadlock"])
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
    assert compare(models, b=RUNS["overlapped"]).words.startswith("run 1: end 5.6")
    bars = draw_figures(a=models, b=RUNS["overlapped"])
    assert bars.words.splitlines() == words.splitlines()[:2]
    assert bars.scene.height < 200
    assert draw_figures(mine=[]).words == compare(mine=[]).words


def test_what_is_sent_is_to_scale_and_the_better_one_is_marked() -> None:
    runs = [solved("wsdp"), Trace.of(simulate(way("fsdp"), puzzle="wsdp"))]
    picture = compare(wsdp=runs[0], fsdp=runs[1])
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
    assert "sends 25% less" in picture.words


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


def schedule(name: str) -> Recording:
    return recording_of_order(SCHEDULES[name].order(4, 6), SCHEDULES[name].title)


def slower(one: Recording, times: float) -> Recording:
    """The same, measured on something so many times as slow."""
    spans = tuple(s._replace(start=round(s.start * times), end=round(s.end * times)) for s in one.spans)
    return Recording("measured", spans, one.ranks)


def test_the_median_forward_of_both_is_as_wide() -> None:
    one = schedule("one_f_one_b")
    picture = draw_recordings(one, slower(one, 0.37))
    said = texts(picture)
    assert said.count("end 27") == 2
    assert "Every rank of measured passes its microbatches in the order of 1F1B." in said
    assert rects(picture, stroke=ALARM) == []
    assert [said.count(f"rank {rank}") for rank in range(4)] == [2] * 4


def test_departures_are_framed_and_said() -> None:
    picture = draw_recordings(schedule("one_f_one_b"), schedule("gpipe"))
    assert len(rects(picture, stroke=ALARM)) == 8
    assert "GPipe departs from the order of 1F1B on ranks 0-3:" in picture.words
    assert "rank 3, position 1: 1F1B has 3B0, GPipe has 3F1" in picture.words


def test_one_that_takes_many_times_as_long_has_an_axis_of_its_own() -> None:
    one = schedule("gpipe")
    stretched = tuple(s._replace(start=s.start * 9, end=s.start * 9 + s.end - s.start) for s in one.spans)
    said = " ".join(texts(draw_recordings(one, Recording("measured", stretched, 4))))
    assert "each has the whole width" in said


def test_a_run_without_names_is_in_milliseconds_and_its_legend_has_what_is_known(tmp_path: Path) -> None:
    spans = (
        Span(0, 0, 2_000_000, "", "<a & b>"),
        Span(0, 1, 9, "allreduce", "gloo:all_reduce", stream="communication"),
    )
    picture = draw_recordings(schedule("gpipe"), Recording("theirs", spans, 1))
    assert "The ranges of theirs are not named, so its order is not compared." in picture.words
    assert "theirs: 2 ms · bubble 0.0%" in picture.words
    assert "&lt;a &amp; b&gt;" in picture.save(tmp_path / "picture.svg").read_text("utf-8")
    boxes = (Span(0, 0, 10, "", "aten::mm"), Span(0, 10, 30, "backward", "autograd"))
    said = texts(draw_recordings(Recording("theirs", boxes, 1)))
    assert {"other", "backward"} <= {*said}
    assert not [text for text in said if text.startswith(("layer", "stage", "forward"))]
