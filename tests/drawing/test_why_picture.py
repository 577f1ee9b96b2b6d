"""Pictures of a gap and what led to it, of the critical path, and of what would be."""

import xml.etree.ElementTree as ET

import pytest

from drawing import Picture, picture_of
from drawing.canvas.palette import ACCENT, ALARM, GOOD, INK, PAPER
from drawing.comparing.answers import MANY
from lib import LINKS, critical_path, retime, what_helps, what_if, why
from tests.drawing.marks import apart, on_paper, polys, rects, texts, written
from tests.drawing.runs import solved
from tests.drawing.test_review_picture import axis_left

ASKED = {"gpipe": (0, 12), "fsdp": (1, 11.3), "hsdp": (2, 0.1), "loader": (5, 0.2), "pipeline_fsdp": (12, 9)}


@pytest.fixture(scope="module")
def every() -> dict[str, Picture]:
    found: dict[str, Picture] = {}
    for name, (rank, time) in ASKED.items():
        trace = solved(name)
        found |= {f"why {name}": picture_of(why(trace, rank, time)), f"path {name}": picture_of(critical_path(trace))}
        found |= {f"if {name}": picture_of(what_if(trace, op="backward", faster=2))}
        found |= {f"helps {name}": picture_of(what_helps(trace))}
    linked = retime(solved("hsdp"), LINKS)
    return found | {"path links": picture_of(critical_path(linked)), "why links": picture_of(why(linked, 3, 0.1))}


def test_everything_is_on_the_paper_valid_and_beside_other_words(every: dict[str, Picture]) -> None:
    """But for the numbers of legs, whose plates lie on what is below them."""
    for name, picture in every.items():
        ET.fromstring(picture.svg())
        assert on_paper(picture), name
        plates = {(plate.x + plate.width / 2, plate.y + plate.height / 2) for plate in rects(picture, radius=7)}
        assert apart([text for text in written(picture) if (text.x, text.y) not in plates]), name


def test_the_gap_and_each_leg_have_a_frame_and_rows_an_arrow_between_them() -> None:
    trace = solved("gpipe")
    found = why(trace, 3, 2)
    assert found is not None
    assert found.gap is not None
    (frame,) = rects(found, stroke=ALARM, line=2.2)
    assert frame.title == found.gap.text()
    assert frame.x == pytest.approx(axis_left(picture_of(found)))
    frames = rects(found, fill="none", stroke=INK, line=1.8)
    assert len(frames) == 3 + 2 * 2 + 1  # of three ranks what they compute, and both ends of two messages and one end
    assert len(polys(found, fill=INK, stroke=PAPER)) == 3
    assert "1" in texts(picture_of(found))


def test_of_many_ranks_those_are_drawn_that_have_to_do_with_it() -> None:
    trace = solved("pipeline_fsdp")
    assert trace.ranks > MANY
    shown = texts(picture_of(why(trace, 12, 9)))
    assert "and 12 more ranks, not drawn" in shown
    assert [f"rank {rank}" in shown for rank in (0, 11, 12, 13)] == [False, False, True, True]


def test_what_changes_is_framed_before_and_after() -> None:
    found = what_if(solved("gpipe"), op="backward", layer=7, faster=2)
    frames = rects(picture_of(found), stroke=ACCENT)
    assert len(frames) == 2 * 4
    assert sum(frame.width for frame in frames[4:]) < sum(frame.width for frame in frames[:4])


def test_the_words_are_those_of_the_answer_and_what_helps_most_has_the_longest_bar() -> None:
    trace = solved("gpipe")
    helps = what_helps(trace)
    for found in (why(trace, 0, 12), critical_path(trace), what_if(trace, rank=0), helps):
        assert found is not None
        assert picture_of(found).words == found.text()
    assert helps is not None
    bars = [bar.width for bar in rects(helps, fill=GOOD)]
    assert bars == sorted(bars, reverse=True)
    assert len(bars) == len(helps.shown())
