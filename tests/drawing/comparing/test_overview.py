"""Many runs: small timelines, on one axis and inside their place."""

from __future__ import annotations

import pytest

from drawing.canvas.scene import Poly, Rect, Scene, moved
from drawing.comparing.overview import HIGH, WIDE, thumbnails
from lib.analysis.figures import makespan
from tests.drawing.marks import corners
from tests.drawing.runs import RUNS


@pytest.mark.parametrize("names", [["ddp", "late", "relay"], ["chatter"], ["deadlock"], ["deadlock", "alone"]])
def test_each_is_inside_its_place_and_of_many_events_it_has_fewer_marks(names: list[str]) -> None:
    for name, marks in zip(names, thumbnails([RUNS[name] for name in names]), strict=True):
        events = sum(1 for _ in RUNS[name].events())
        assert (events > 3000) == (name == "chatter")
        assert name != "chatter" or len(marks) < events / 2
        for x, y in (corner for mark in marks for corner in corners(mark)):
            assert -0.1 <= x <= WIDE + 5
            assert -0.1 <= y <= HIGH + 0.1


def test_what_takes_half_the_time_is_half_as_wide() -> None:
    long, short = RUNS["overlapped"], RUNS["ddp"]
    widths = [max(x for mark in marks[1:] for x, _ in corners(mark)) for marks in thumbnails([long, short])]
    memory = next(mark for mark in thumbnails([long, short])[1] if isinstance(mark, Poly) and mark.fill != "none")
    assert widths[0] == pytest.approx(WIDE, abs=1)
    assert max(x for x, _ in memory.points) == pytest.approx(WIDE * makespan(short) / makespan(long), abs=1)


def test_a_mark_is_moved_and_paper_is_painted_where_it_is_wanted() -> None:
    for mark in (Rect(1, 2, 3, 4), Poly([(1, 2), (3, 4)], dash="3 2")):
        assert moved(moved(mark, 3, 4), -3, -4) == mark
    assert ["<rect" in Scene(9, 9, [], paper=paper).svg() for paper in (False, True)] == [False, True]
