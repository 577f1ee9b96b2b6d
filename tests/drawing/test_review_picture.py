"""The picture of a review: everything is on the paper, nothing overlaps, and every gap is where it should be."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from drawing import Picture, picture_of
from drawing.canvas.palette import ALARM, GRID, INK, TINTS
from drawing.canvas.scene import Mark, Poly, Rect, Text, text_width, wrapped
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
from tests.drawing.runs import deadlock, trace
from tests.drawing.shown import drawn

ROOT = Path(__file__).parents[2]


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


def corners(mark: Mark) -> list[tuple[float, float]]:
    if isinstance(mark, Poly):
        return list(mark.points)
    if isinstance(mark, Rect):
        return [(mark.x, mark.y), (mark.x + mark.width, mark.y + mark.height)]
    left, top, right, bottom = place(mark)
    return [(left, top), (right, bottom)]


def axis_left(picture: Picture) -> float:
    """Where time begins: at the first line of the grid."""
    return next(m.points[0][0] for m in picture.scene.marks if isinstance(m, Poly) and m.stroke == GRID)


def place(text: Text) -> tuple[float, float, float, float]:
    """About where the letters are: fonts are narrower than the pictures assume, and a line is lower than its size."""
    width, height = 0.9 * text_width(text.text, text.size), 0.7 * text.size
    if text.turned:
        return text.x - height / 2, text.y - width / 2, text.x + height / 2, text.y + width / 2
    left = text.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[text.anchor] * width
    return left, text.y - height / 2, left + width, text.y + height / 2


def test_everything_is_on_the_paper_and_valid(every: dict[str, tuple[Review, Picture]]) -> None:
    for name, (_, picture) in every.items():
        ET.fromstring(picture.svg())
        for mark in picture.scene.marks:
            for x, y in corners(mark):
                assert -1 <= x <= picture.scene.width + 1, (name, mark)
                assert -1 <= y <= picture.scene.height + 1, (name, mark)


def test_no_words_lie_on_others(every: dict[str, tuple[Review, Picture]]) -> None:
    for name, (_, picture) in every.items():
        texts = sorted(((place(m), m) for m in picture.scene.marks if isinstance(m, Text)), key=lambda pair: pair[0][1])
        for (one, first), (other, second) in combinations(texts, 2):
            if other[1] >= one[3]:
                continue
            assert other[0] >= one[2] or one[0] >= other[2], (name, first, second)


def test_each_gap_is_marked_over_its_time(every: dict[str, tuple[Review, Picture]]) -> None:
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


def test_every_kind_of_gap_has_a_tint() -> None:
    assert set(TINTS) == set(KINDS)


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
        frames = [m for m in picture.scene.marks if isinstance(m, Rect) and m.stroke == ALARM and m.line == 1.6]
        assert len(frames) == sum(share.idle for share in stacked), name


def texts(picture: Picture) -> str:
    return "\n".join(mark.text for mark in picture.scene.marks if isinstance(mark, Text))


def test_the_lower_bound_has_its_mark_and_its_parts() -> None:
    picture = picture_of(replace(reviewed("ddp"), bound=bound(), excuse=None))
    shown = texts(picture)
    assert "lower bound 4.8" in shown
    assert "lower bound 1,048,576" in shown
    titles = [m.title for m in picture.scene.marks if isinstance(m, Poly)]
    assert "Because." in titles
    assert "It ends no earlier than at time 4.8: 4 for 2 layers forward and backward + 0.8 for updates" in shown
    excused = texts(picture_of(replace(reviewed("ddp"), bound=bound(), excuse="rank 1 computes nothing.")))
    assert "lower bound 4.8" not in excused
    assert "The lower bound does not speak of this run: rank 1 computes nothing." in excused.replace("\n", " ")


def test_an_incorrect_run_has_no_reference_and_no_limits() -> None:
    picture = picture_of(failed())
    shown = texts(picture)
    assert shown.startswith("ddp: not one correct training step yet\nthe run did not end: deadlock")
    assert "the reference" not in shown
    assert "as good as" not in shown
    assert "stopped at 3" in shown
    assert "reference is shown beside a correct run only" in picture.words


def test_a_run_of_nothing_has_a_picture() -> None:
    found = review(simulate(lambda model: None, puzzle="ddp"), puzzle="ddp")
    assert found is not None
    assert "rank 3" in texts(picture_of(found))


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


def test_texts_and_pictures_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from drawing import picture_of\n"
        "from tests.course.test_review import reviewed\n"
        "for name in ('gpipe', 'pipeline_fsdp'):\n"
        "    found = reviewed(name)\n"
        "    print(found.text(), picture_of(found).svg())"
    )
    found: set[bytes] = set()
    for seed in ("0", "1", "4242"):
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, check=True)
        found.add(run.stdout)
    assert len(found) == 1
