"""compare: one axis, the figures of each, and where they first differ."""

from __future__ import annotations

import pytest

from drawing import Picture, draw_figures
from drawing import compare as compare
from drawing.canvas.palette import ALARM, GOOD, INK
from drawing.canvas.scene import Poly, Rect, Text
from lib import LINKS, Trace, simulate
from lib.analysis.difference import difference
from lib.analysis.figures import most_sent
from lib.submissions.load import load_function
from lib.submissions.locations import reference
from tests.drawing.marks import rects
from tests.drawing.runs import RUNS, ddp, overlapped, trace

FRAME = 2.2
"""How much wider than its box a frame is."""


def test_the_first_difference_is_said_and_marked() -> None:
    one, two = RUNS["ddp"], trace(ddp, ranks=4, layers=3, batches=4)
    picture = compare(short=one, long=two)
    assert picture.words.splitlines() == [
        "short: end 5.6 · peak 2,490,368 on rank 0 · bubble 10.7% · sent per rank 786,432 elements",
        "long: end 8.4 · peak 3,801,088 on rank 0 · bubble 10.7% · sent per rank 1,179,648 elements",
        "These runs have different sizes, so their figures are not those of one task: short has 4 ranks, 2 layers, "
        "4 batches; long has 4 ranks, 3 layers, 4 batches.",
        "short and long first differ on rank 0, from 2: short has backward, layer 1, batch 0 (at 2); "
        "long has forward, layer 2, batch 0 (at 2)",
    ]
    svg = picture.svg()
    assert "short and long first differ on rank 0, from 2" in svg
    frames = rects(picture, line=2)
    assert len(frames) == 2
    assert frames[0].x == frames[1].x
    assert frames[0].y < frames[1].y


def test_each_side_is_marked_at_its_own_event() -> None:
    marks = compare(RUNS["ddp"], RUNS["late"]).scene.marks
    gap = difference(RUNS["ddp"], RUNS["late"])
    assert gap is not None
    frames = [mark for mark in marks if isinstance(mark, Rect) and mark.line == 2]
    assert len(frames) == 2
    # One batch, and two batches; a frame lies around its box.
    assert frames[1].width - FRAME == pytest.approx(2 * (frames[0].width - FRAME))
    assert gap.numbers[0] != gap.numbers[1]


def test_equal_schedules_do_the_same() -> None:
    again = trace(ddp, ranks=4, layers=2, batches=4)
    assert difference(RUNS["ddp"], again) is None
    assert "run 1 and run 2 do the same" in compare(RUNS["ddp"], again).words


def test_a_difference_of_time_alone_counts() -> None:
    slow = trace(ddp, ranks=4, layers=2, batches=4, costs=LINKS)
    gap = difference(RUNS["ddp"], slow)
    assert gap is not None
    assert [event and event.op for event in gap.events] == ["allreduce", "allreduce"]


def test_a_schedule_that_is_over_or_has_fewer_ranks() -> None:
    picture = compare(RUNS["alone"], RUNS["ddp"], RUNS["deadlock"], names=["a", "b", "c"])
    assert picture.words.splitlines()[4] == (
        "a and b first differ on rank 1, from 0: a does nothing more; b has forward, layer 0, batch 1 (at 0)"
    )
    assert "c: stopped at 3" in picture.words
    bold = [mark.text for mark in picture.scene.marks if isinstance(mark, Text) and mark.bold]
    assert [text for text in bold if text.startswith(("end ", "stopped"))] == [
        "end 3",
        "end 5.6",
        "stopped at 3",
    ]  # at the three axes


def test_runs_may_come_with_names_in_many_ways() -> None:
    models = simulate(ddp, ranks=4, layers=2, batches=4)
    words = compare(a=models, b=RUNS["overlapped"]).words
    assert compare({"a": models, "b": RUNS["overlapped"]}).words == words
    assert compare(models, RUNS["overlapped"], names=["a", "b"]).words == words
    assert compare(models, b=RUNS["overlapped"]).words.startswith("run 1: end 5.6")
    with pytest.raises(ValueError, match="names has 1 for 2 runs"):
        compare(models, models, names=["a"])


def test_nothing_to_compare() -> None:
    assert compare().words == "nothing to draw yet"
    assert compare(a=[], b=RUNS["ddp"]).words == "nothing to draw yet: a is not solved"


def bars(picture: Picture, title: str) -> list[list[Rect]]:
    """The parts of the bars whose titles begin so, one list for each run."""
    rows: dict[float, list[Rect]] = {}
    for mark in picture.scene.marks:
        if isinstance(mark, Rect) and any(mark.title.startswith(f"{part}: ") for part in title.split("|")):
            rows.setdefault(round(mark.y), []).append(mark)
    return [rows[y] for y in sorted(rows)]


def test_what_is_sent_is_to_scale_and_the_better_one_is_marked() -> None:
    whole, parted = (
        Trace.of(simulate(load_function(reference(name), name), puzzle="wsdp")) for name in ("wsdp", "fsdp")
    )
    picture = compare(wsdp=whole, fsdp=parted)
    sent = bars(picture, "all-gather|all-reduce|reduce-scatter")
    widths = [sum(part.width for part in row) for row in sent]
    figures = [most_sent(trace) for trace in (whole, parted)]
    assert widths[1] / widths[0] == pytest.approx(figures[1] / figures[0], abs=0.04)
    bold = [mark.text for mark in picture.scene.marks if isinstance(mark, Text) and mark.bold]
    assert f"{figures[1]:,.0f}" in bold
    assert f"{figures[0]:,.0f}" not in bold
    assert "sends 29% less" in picture.words


def test_runs_of_different_sizes_are_not_judged() -> None:
    picture = compare(short=RUNS["ddp"], long=trace(ddp, ranks=4, layers=3, batches=4))
    warning = [mark for mark in picture.scene.marks if isinstance(mark, Text) and mark.fill == ALARM and mark.bold]
    assert " ".join(mark.text for mark in warning).startswith("These runs have different sizes")
    assert not any(isinstance(mark, Poly) and mark.stroke == GOOD for mark in picture.scene.marks)
    assert "takes" not in picture.words


def test_the_memory_of_both_is_on_one_scale() -> None:
    picture = compare(ddp=RUNS["ddp"], overlapped=trace(overlapped, ranks=4, layers=2, batches=4))
    peaks = [mark for mark in picture.scene.marks if isinstance(mark, Text) and mark.text.startswith("peak 2.")]
    assert len(peaks) == 2
    assert sum(isinstance(mark, Text) and mark.text == "of rank 0" for mark in picture.scene.marks) == 2


def test_marks_lie_behind_boxes() -> None:
    """The line at the first difference is painted before the boxes of its panel."""
    marks = compare(RUNS["ddp"], RUNS["late"]).scene.marks
    dashed = [(place, mark) for place, mark in enumerate(marks) if isinstance(mark, Poly) and mark.dash == "2 2"]
    lines = [place for place, mark in dashed if mark.stroke == INK]
    assert len(lines) == 2
    boxes = [place for place, mark in enumerate(marks) if isinstance(mark, Rect) and "rank 0" in mark.title]
    assert lines[0] < min(boxes)


def test_figures_alone() -> None:
    """The bars of `compare` without its timelines."""
    picture = draw_figures(ddp=RUNS["ddp"], overlapped=RUNS["overlapped"])
    assert picture.words.splitlines() == compare(ddp=RUNS["ddp"], overlapped=RUNS["overlapped"]).words.splitlines()[:2]
    assert picture.scene.height < 200
    assert draw_figures([], names=["mine"]).words == compare([], names=["mine"]).words
    with pytest.raises(ValueError, match="names has 1 for 2 runs"):
        draw_figures(RUNS["ddp"], RUNS["late"], names=["one"])
