"""The picture of a review: everything is on the paper, nothing overlaps, and every gap is where it should be."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from drawing import Picture, picture_of
from drawing.canvas.palette import ALARM, GRID, INK, TINTS
from drawing.canvas.scene import Poly, Rect, Text, wrapped
from drawing.display import _bundle  # pyright: ignore[reportPrivateUsage]
from drawing.registry import PICTURES
from drawing.review.gaps import hatch
from drawing.review.peak import shares
from drawing.timeline.folding import shown_rows
from drawing.timeline.panel import RIGHT, UNFOLDED
from lib import Model, review, simulate
from lib.analysis.waiting.gaps import KINDS, Gap
from lib.course.review import Review
from lib.errors.source_lines import Place
from lib.schedules.steps import load
from tests.analysis.waiting.test_gaps import compute
from tests.course.test_review import NAMES, bound, of_reference, reviewed
from tests.drawing.marks import apart, on_paper, rects, texts, written
from tests.drawing.runs import deadlock, trace
from tests.drawing.shown import drawn


def failed() -> Review:
    found = review(replace(trace(deadlock, ranks=4, layers=2, batches=4)), puzzle="ddp")
    assert found is not None
    return found


def everything() -> dict[str, Review]:
    found = {name: reviewed(name) for name in NAMES}
    found |= {f"{name}, the reference": of_reference(name) for name in NAMES}
    found["with a bound"] = replace(reviewed("ddp"), bound=bound(), excuse=None)
    found["with an excuse"] = replace(reviewed("ddp"), bound=bound(), excuse="rank 1 computes nothing.")
    return found | {"failed": failed()}


@pytest.fixture(scope="module")
def every() -> dict[str, tuple[Review, Picture]]:
    return {name: (found, picture_of(found)) for name, found in everything().items()}


def axis_left(picture: Picture) -> float:
    """Where time begins: at the first line of the grid."""
    return next(m.points[0][0] for m in picture.scene.marks if isinstance(m, Poly) and m.stroke == GRID)


def test_everything_is_on_the_paper_valid_and_beside_other_words(every: dict[str, tuple[Review, Picture]]) -> None:
    for name, (_, picture) in every.items():
        ET.fromstring(picture.svg())
        assert on_paper(picture), name
        assert apart(written(picture)), name


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
    found = replace(reviewed("pipeline_fsdp"), bound=bound(), excuse=None)
    svg = picture_of(found).svg()
    for name in ("waits", "bounds", "memory"):
        monkeypatch.setattr(Review, name, lambda self: ["  Nothing."])  # pyright: ignore
    assert picture_of(found).svg().partition(">")[2] == svg.partition(">")[2]  # all but what is read aloud


def test_the_letters_on_the_timeline_are_those_of_the_list(every: dict[str, tuple[Review, Picture]]) -> None:
    for name, (_, picture) in every.items():
        letters = [m.text for m in picture.scene.marks if isinstance(m, Text) and len(m.text) == 1 and m.bold]
        listed = sorted(set(letters))
        assert listed == list("abcdef")[: len(listed)], name
        assert all(letters.count(letter) >= 2 for letter in listed), name


def test_the_critical_path_is_drawn_from_the_beginning_to_the_end(every: dict[str, tuple[Review, Picture]]) -> None:
    for name, (found, picture) in every.items():
        lines = [m for m in picture.scene.marks if isinstance(m, Poly) and m.stroke == INK and len(m.points) > 4]
        path = next(line for line in lines if line.points[0][0] == axis_left(picture))
        assert len(path.points) == 2 * len(found.path.steps), name
        assert all(one[0] <= other[0] for one, other in zip(path.points, path.points[1:], strict=False)), name


def test_the_bar_of_the_peak_has_every_value_and_marks_the_idle_ones(
    every: dict[str, tuple[Review, Picture]],
) -> None:
    for name, (found, picture) in every.items():
        stacked = shares(found)
        assert sum(share.elements for share in stacked) == float(found.peak.elements), name
        frames = rects(picture, stroke=ALARM, line=1.6)
        assert len(frames) == sum(share.idle for share in stacked), name


def said(picture: Picture) -> str:
    return "\n".join(texts(picture))


def test_the_lower_bound_has_its_mark_and_its_parts() -> None:
    picture = picture_of(replace(reviewed("ddp"), bound=bound(), excuse=None))
    shown = said(picture)
    assert "lower bound 4.8" in shown
    assert "lower bound 1,048,576" in shown
    titles = [m.title for m in picture.scene.marks if isinstance(m, Poly)]
    assert "Because." in titles
    assert "It ends no earlier than at time 4.8: 4 for 2 layers forward and backward + 0.8 for updates" in shown
    excused = said(picture_of(replace(reviewed("ddp"), bound=bound(), excuse="rank 1 computes nothing.")))
    assert "lower bound 4.8" not in excused
    assert "The lower bound does not speak of this run: rank 1 computes nothing." in excused.replace("\n", " ")


def test_an_incorrect_run_has_no_reference_and_no_limits() -> None:
    picture = picture_of(failed())
    shown = said(picture)
    assert shown.startswith("ddp: not one correct training step yet\nthe run did not end: deadlock")
    assert "the reference" not in shown
    assert "as good as" not in shown
    assert "stopped at 3" in shown
    assert "reference is shown beside a correct run only" in picture.words


def test_a_run_of_nothing_has_a_picture() -> None:
    found = review(simulate(lambda model: None, puzzle="ddp"), puzzle="ddp")
    assert found is not None
    assert "rank 3" in said(picture_of(found))


def test_a_notebook_gets_the_picture_and_the_text() -> None:
    found = reviewed("ddp")
    bundle = _bundle(found, PICTURES[Review])
    assert bundle["text/plain"] == found.text()
    assert drawn(bundle) == picture_of(found).svg(framed=True).strip()
    assert "####" not in picture_of(found).words  # what is read aloud has no bars made of letters
    assert picture_of(found).words.startswith("ddp, yours beside the reference: you reached ")


def test_source_lines_cannot_break_out() -> None:
    evil = '</title><script>alert(1)</script>&"'

    async def kept(model: Model) -> None:
        load(model)
        compute(model, 1)

    found = reviewed("ddp")
    for _, event in found.mine.events():
        event.source = Place(evil, 3, "f", evil)
    svg = picture_of(found).svg()
    ET.fromstring(svg)
    assert "<script" not in svg
    assert "&lt;script" in svg


def test_hatching_stays_in_its_box() -> None:
    for width, height in ((3, 20), (6, 9), (40, 20), (300, 34)):
        for falling in (False, True):
            for line in hatch(10, 5, width, height, "#000000", falling):
                assert all(10 <= x <= 10 + width and 5 <= y <= 5 + height for x, y in line.points)


def test_gaps_of_no_width_are_drawn_too() -> None:
    found = reviewed("ddp")
    tiny = Gap(0, 0, 1, "drain")
    picture = picture_of(replace(found, idle=(tiny,)))
    (mark,) = [m for m in picture.scene.marks if isinstance(m, Rect) and m.title == tiny.text()]
    assert mark.width == 0.8


def test_words_are_wrapped_and_none_is_lost() -> None:
    text = "one two three four five six"
    lines = wrapped(text, 60, 11)
    assert " ".join(lines) == text
    assert len(lines) > 1
    assert wrapped("", 60, 11) == []
