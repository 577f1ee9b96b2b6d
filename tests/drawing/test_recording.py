"""Pictures of recordings: both on one axis, where they depart, and what is said of a run without names."""

from pathlib import Path

from drawing.canvas.palette import ALARM
from drawing.comparing.recordings import draw_recordings
from lib.analysis.recordings.recording import Recording, Span
from lib.schedules.formats.timelines.recorded import recording_of_order
from lib.schedules.pipelines.catalogue import SCHEDULES
from tests.drawing.marks import rects, texts


def schedule(name: str) -> Recording:
    return recording_of_order(SCHEDULES[name].make(4, 6), SCHEDULES[name].title)


def slower(one: Recording, times: float, unit: float | None = None) -> Recording:
    """The same, measured on something so many times as slow."""
    spans = tuple(s._replace(start=round(s.start * times), end=round(s.end * times)) for s in one.spans)
    return Recording("measured", spans, one.ranks, unit)


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
