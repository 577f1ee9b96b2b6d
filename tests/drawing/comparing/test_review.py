"""Pictures of a review, of a gap and what led to it, of the critical path, and of what would be."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from drawing import Picture, picture_of
from drawing.canvas.palette import ACCENT, ALARM, GRID, INK, PAPER, TINTS
from drawing.canvas.scene import Rect, hatch
from drawing.comparing.answers import MANY
from drawing.comparing.review import shares
from drawing.display import PICTURES, _bundle  # pyright: ignore[reportPrivateUsage]
from drawing.timeline.rows import shown_rows
from drawing.timeline.schedule import RIGHT, UNFOLDED
from lib import LINKS, critical_path, retime, review, simulate, what_if, why
from lib.analysis.waiting.gaps import KINDS, Gap
from lib.suite.course.review import Review
from tests.drawing.marks import fits, polys, rects, texts
from tests.drawing.runs import deadlock, solved, trace
from tests.drawing.shown import drawn
from tests.suite.course.test_review import NAMES, bound, of_reference, reviewed


@pytest.fixture(scope="module")
def every() -> dict[str, tuple[Review, Picture]]:
    found = {name: reviewed(name) for name in NAMES}
    found |= {f"{name}, the reference": of_reference(name) for name in NAMES}
    found["with a bound"] = replace(reviewed("ddp"), bound=bound(), excuse=None)
    found["with an excuse"] = replace(reviewed("ddp"), bound=bound(), excuse="rank 1 computes nothing.")
    failed = review(trace(deadlock, ranks=4, layers=2, batches=4), puzzle="ddp")
    nothing = review(simulate(lambda model: None, puzzle="ddp"), puzzle="ddp")
    assert failed is not None
    assert nothing is not None
    return {name: (one, picture_of(one)) for name, one in {**found, "failed": failed, "nothing": nothing}.items()}


def axis_left(picture: Picture) -> float:
    """Where time begins: at the first line of the grid."""
    return polys(picture, stroke=GRID)[0].points[0][0]


def test_everything_is_on_the_paper_valid_and_beside_other_words(every: dict[str, tuple[Review, Picture]]) -> None:
    for name, (_, picture) in every.items():
        assert fits(picture), name


def test_each_gap_is_marked_over_its_time(every: dict[str, tuple[Review, Picture]]) -> None:
    assert set(TINTS) == set(KINDS)
    for name, (found, picture) in every.items():
        titled = {mark.title: mark for mark in picture.scene.marks if isinstance(mark, Rect)}
        drawn = {row.rank for row in shown_rows(found.mine, found.mine.ranks > UNFOLDED).rows}
        gaps = [gap for group in found.groups[:6] for gap in group.gaps if gap.rank in drawn]
        shown = [gap for gap in gaps if gap.kind != "never"]
        assert {gap.text() for gap in shown} <= set(titled), name
        if not shown:
            continue
        end = max(e.end or 0 for _, e in found.mine.events())
        if found.reference is not None:
            end = max(end, *(e.end or 0 for _, e in found.reference.events()))
        left = axis_left(picture)
        scale = (picture.scene.width - left - RIGHT) / end if found.mine.error is None else None
        for gap in shown:
            mark = titled[gap.text()]
            assert mark.fill in TINTS[gap.kind]
            if scale is not None:
                assert mark.x == pytest.approx(left + scale * gap.start)
                assert mark.width == pytest.approx(scale * gap.length, abs=0.9)


def test_the_picture_reads_no_words_of_the_review(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands on the paper comes from rows: words in another order, or with a blank before them, change nothing."""
    found = replace(reviewed("ddp"), bound=bound(), excuse=None)
    svg = picture_of(found).svg()
    for name in ("waits", "bounds", "memory"):
        monkeypatch.setattr(Review, name, lambda self: ["  Nothing."])  # pyright: ignore
    assert picture_of(found).svg().partition(">")[2] == svg.partition(">")[2]  # all but what is read aloud


def test_letters_critical_path_and_bar_of_the_peak_are_those_of_the_review(
    every: dict[str, tuple[Review, Picture]],
) -> None:
    for name, (found, picture) in every.items():
        letters = [text for text in texts(picture, bold=True) if len(text) == 1]
        listed = sorted(set(letters))
        assert listed == list("abcdef")[: len(listed)], name
        assert all(letters.count(letter) >= 2 for letter in listed), name
        lines = [line.points for line in polys(picture, stroke=INK) if len(line.points) > 4]
        path = next((points for points in lines if points[0][0] == axis_left(picture)), [])
        assert len(path) == 2 * len(found.path.steps), name
        assert all(one[0] <= other[0] for one, other in pairwise(path)), name
        stacked = shares(found)
        assert sum(share.elements for share in stacked) == float(found.peak.elements), name
        assert len(rects(picture, stroke=ALARM, line=1.6)) == sum(share.idle for share in stacked), name


def test_what_does_not_apply_is_not_shown(every: dict[str, tuple[Review, Picture]]) -> None:
    excused = " ".join(texts(every["with an excuse"][1]))
    assert "lower bound 4.8" not in excused
    assert "The lower bound does not speak of this run: rank 1 computes nothing." in excused
    picture = every["failed"][1]
    shown = "\n".join(texts(picture))
    assert shown.startswith("ddp: not one correct training step yet\nthe run did not end: deadlock")
    assert "the reference" not in shown
    assert "as good as" not in shown
    assert "stopped at 3" in shown
    assert "reference is shown beside a correct run only" in picture.words
    assert "rank 3" in texts(every["nothing"][1])


def test_a_notebook_gets_the_picture_and_the_text() -> None:
    found = reviewed("ddp")
    bundle = _bundle(found, PICTURES[Review])
    assert bundle["text/plain"] == found.text()
    assert drawn(bundle) == picture_of(found).svg(framed=True).strip()
    assert "####" not in picture_of(found).words  # what is read aloud has no bars made of letters
    assert picture_of(found).words.startswith("ddp, yours beside the reference: you reached ")


def test_hatching_stays_in_its_box() -> None:
    for width, height in ((3, 20), (6, 9), (40, 20), (300, 34)):
        for falling in (False, True):
            for line in hatch(10, 5, width, height, "#000000", falling):
                assert all(10 <= x <= 10 + width and 5 <= y <= 5 + height for x, y in line.points)


def test_gaps_of_no_width_are_drawn_too() -> None:
    found = reviewed("ddp")
    tiny = Gap(0, 0, 1, "drain")
    picture = picture_of(replace(found, idle=(tiny,)))
    (mark,) = rects(picture, title=tiny.text())
    assert mark.width == 0.8


ASKED = {"gpipe": (0, 12), "fsdp": (1, 11.3), "hsdp": (2, 0.1), "loader": (5, 0.2), "pipeline_fsdp": (12, 9)}


@pytest.fixture(scope="module")
def answers() -> dict[str, Picture]:
    found: dict[str, Picture] = {}
    for name, (rank, time) in ASKED.items():
        trace = solved(name)
        found |= {f"why {name}": picture_of(why(trace, rank, time)), f"path {name}": picture_of(critical_path(trace))}
        found |= {f"if {name}": picture_of(what_if(trace, op="backward", faster=2))}
    linked = retime(solved("hsdp"), LINKS)
    return found | {"path links": picture_of(critical_path(linked)), "why links": picture_of(why(linked, 3, 0.1))}


def test_all_of_an_answer_is_on_the_paper_valid_and_beside_other_words(answers: dict[str, Picture]) -> None:
    """But for the numbers of legs, whose plates lie on what is below them."""
    for name, picture in answers.items():
        plates = [(plate.x + plate.width / 2, plate.y + plate.height / 2) for plate in rects(picture, radius=7)]
        assert fits(picture, *plates), name


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


def test_the_words_are_those_of_the_answer() -> None:
    trace = solved("gpipe")
    for found in (why(trace, 0, 12), critical_path(trace), what_if(trace, rank=0)):
        assert found is not None
        assert picture_of(found).words == found.text()
