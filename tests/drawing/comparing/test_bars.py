"""Bars: to scale, with room for their words; the goal of a puzzle, and the verdict on a run."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from drawing import picture_of
from drawing.canvas.palette import BOUND, GOLD, MINE, PAPER
from drawing.canvas.scene import Poly, Rect, Scene, text_width
from drawing.comparing.bars import Bar, Bound, Column, Part, columns
from drawing.display import PICTURES, _bundle  # pyright: ignore[reportPrivateUsage]
from lib import PUZZLES, check, goal
from lib.checker.verdict import Verdict
from lib.puzzles.puzzle import Goal, Task
from lib.suite.course import progress
from lib.suite.course.progress import Standing
from lib.suite.course.solutions import answer, schedule_of
from tests.drawing.marks import polys, rects, texts, written
from tests.drawing.runs import VERDICT
from tests.drawing.shown import drawn
from tests.support.profiles import sample
from tests.support.puzzles import SCHEDULES


def painted(column: Column, width: float) -> Scene:
    scene = Scene(width + 20, 200)
    columns(scene, [(column, 10, width)], 0)
    return scene


@pytest.mark.parametrize("seed", range(20))
def test_every_bar_has_room_with_its_words(seed: int) -> None:
    draw = random.Random(seed)
    amounts = [draw.randint(1, 10 ** draw.randint(1, 9)) for _ in range(draw.randint(1, 5))]
    width = draw.uniform(120, 300)
    column = Column("time", [Bar([Part(amount, MINE)], f"{amount:,}", bold=True, good=True) for amount in amounts])
    scene = painted(column, width)
    for text in written(scene, bold=True):
        assert text.x + text_width(text.text, text.size) <= 10 + width
    bars = rects(scene, fill=MINE)
    scale = column.scale(width)
    for bar, amount in zip(bars, amounts, strict=True):
        assert bar.width == pytest.approx(scale * amount, abs=1)


def test_the_parts_of_a_bar_are_its_length() -> None:
    parts = [Part(3, MINE), Part(0, MINE), Part(5, MINE)]
    scene = painted(Column("time", [Bar(parts, "8")]), 200)
    first, second = rects(scene, fill=MINE)
    assert second.x - 10 == pytest.approx(Column("time", [Bar(parts, "8")]).scale(200) * 3)
    assert (first.width + 0.8) / (second.width + 0.8) == pytest.approx(3 / 5)
    nothing = painted(Column("sent", [Bar([Part(0, MINE)], "0"), None]), 100)
    assert rects(nothing, fill=MINE) == []
    assert written(nothing, text="0")


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.98])
@pytest.mark.parametrize("words", ["bound 5", "bound of the memory 1,234,567"])
def test_the_words_of_a_bound_stay_in_their_column(share: float, words: str) -> None:
    scene = painted(Column("time", [Bar([Part(100, MINE)], "100")], bound=Bound(100 * share, words)), 180)
    (text,) = written(scene, fill=BOUND)
    left = text.x - (text_width(text.text, text.size) if text.anchor == "end" else 0)
    assert left >= 5
    assert left + text_width(text.text, text.size) <= 10 + 180 + 1
    diamond = polys(scene, fill=BOUND)[0]
    assert diamond.points[0][0] == pytest.approx(
        10 + Column("", [Bar([Part(100, MINE)], "100")]).scale(180) * 100 * share
    )


def stars(verdict: Verdict) -> int:
    """Stars under the trophy: a tenth of its points each, golden."""
    return sum(len(mark.points) == 10 for mark in polys(verdict, fill=GOLD))


def test_no_party_for_a_run_that_is_wrong_or_misses_the_goal() -> None:
    missed = replace(VERDICT, goals=(Goal("passes", 1.0, 10, False),))
    assert picture_of(missed).words.splitlines() == [
        "ddp: correct, but not within the goal yet",
        "yours: time 5.6, memory 1,835,008",
        "passes (time at most 1, memory at most 10): not reached",
    ]
    wrong = replace(VERDICT, correct=False, faults=("layer 0 has no final weight",))
    assert picture_of(wrong).words.splitlines()[0] == "ddp: not one correct training step yet"
    assert "layer 0 has no final weight" in texts(wrong)
    assert stars(missed) == stars(wrong) == 0
    assert polys(VERDICT) != polys(replace(VERDICT, puzzle="fsdp")), "confetti of its own"


def test_a_goal_of_time_alone_has_no_bar_for_memory() -> None:
    mine = replace(VERDICT, goals=(Goal("your goal", 6.0, 2.0**62, True),), puzzle=None)
    assert not any(text.startswith("memory") for text in texts(mine))
    assert stars(replace(mine, goals=())) == 1


def bars(verdict: Verdict) -> dict[float, list[Rect]]:
    found: dict[float, list[Rect]] = {}
    for mark in picture_of(verdict).scene.marks:
        if isinstance(mark, Rect) and mark.height in (15, 14) and mark.fill != PAPER:
            found.setdefault(round(mark.x - (0.5 if mark.height == 14 else 0), 3), []).append(mark)
    return found


def test_what_is_sent_has_bars_where_the_puzzle_is_about_it() -> None:
    assert len(bars(VERDICT)) == 2
    sends = replace(VERDICT, sent=3.0, goals=tuple(goal._replace(sent=2) for goal in VERDICT.goals))
    assert len(bars(sends)) == 3
    assert texts(sends).count("2: 1 over") == 3
    assert "sent per rank 3" in picture_of(sends).words


@pytest.mark.parametrize("puzzle", sample(SCHEDULES))
def test_it_shows_every_goal_and_after_a_correct_run_a_schedule_that_reaches_one(
    puzzle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = PUZZLES[puzzle]
    monkeypatch.delitem(progress.passed_here, puzzle, raising=False)
    limits_alone = texts(picture_of(goal(puzzle)))
    assert not any(words.startswith("rank") for words in limits_alone)
    assert f'hint("{puzzle}", 2)' in " ".join(limits_alone)
    monkeypatch.setitem(progress.passed_here, puzzle, None)
    picture = picture_of(goal(puzzle))
    words = texts(picture)
    assert {wanted.name for wanted in record.goals} <= {*limits_alone} & {*words}
    assert words[0] == record.heading
    for wanted in record.goals:
        assert wanted.name in words
        assert f"{wanted.time:.10g}" in words
        assert f"{wanted.memory:,}" in words
    run = schedule_of(puzzle)
    assert run is not None
    assert f"A schedule that reaches “{check(run, puzzle).best}”" in words
    limits = [record.sent, *(wanted.sent for wanted in record.goals)]
    assert ("sent per rank at most" in words) == any(limit is not None for limit in limits)
    text = goal(puzzle).text()
    assert picture.words == text == repr(goal(puzzle)) == _bundle(goal(puzzle), PICTURES[Task])["text/plain"]
    assert drawn(_bundle(goal(puzzle), PICTURES[Task]))


def test_the_second_hint_and_the_first_correct_run_open_the_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUZZLES_PROGRESS", str(tmp_path / "progress.json"))
    hints = [Standing(hints=1), Standing(hints=2)]
    runs = [Standing(runs=1), Standing(runs=1, time=99.0, memory=1.0)]
    for puzzle, steps in {"ddp": hints, "gpipe": runs}.items():
        monkeypatch.delitem(progress.passed_here, puzzle, raising=False)
        for standing, opens in zip(steps, (False, True), strict=True):
            progress.record(puzzle, standing)
            shown = texts(picture_of(goal(puzzle)))
            assert any(words.startswith("A schedule that reaches “") for words in shown) == opens


@pytest.mark.parametrize("puzzle", sample(PUZZLES))
def test_no_line_of_the_answer_is_in_it(puzzle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(progress.passed_here, puzzle, None)
    picture = picture_of(goal(puzzle))
    titles = [mark.title for mark in picture.scene.marks if isinstance(mark, Rect | Poly)]
    assert not any("line" in title or ".py" in title for title in titles)
    svg = picture.svg()
    lines = [line.strip() for line in answer(puzzle).splitlines()]
    assert [line for line in lines if len(line) > 12 and line in svg] == []
