"""The goal of a puzzle as a picture: bars for its goals, a schedule that reaches one, and no line of its code."""

import pytest

from drawing import picture_of
from drawing.canvas.scene import Poly, Rect
from drawing.display import (
    PICTURES,
    _bundle,  # pyright: ignore[reportPrivateUsage]
)
from lib import PUZZLES, check, goal
from lib.puzzles.records import Task
from lib.suite.course.solutions import answer, schedule_of
from tests.drawing.marks import texts
from tests.drawing.shown import drawn
from tests.support.profiles import sample
from tests.support.puzzles import SCHEDULES


@pytest.mark.parametrize("puzzle", sample(SCHEDULES))
def test_it_shows_every_goal_and_a_schedule_that_reaches_one(puzzle: str) -> None:
    picture, record = picture_of(goal(puzzle)), PUZZLES[puzzle]
    words = texts(picture)
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


@pytest.mark.parametrize("puzzle", sample(PUZZLES))
def test_no_line_of_the_answer_is_in_it(puzzle: str) -> None:
    picture = picture_of(goal(puzzle))
    titles = [mark.title for mark in picture.scene.marks if isinstance(mark, Rect | Poly)]
    assert not any("line" in title or ".py" in title for title in titles)
    svg = picture.svg()
    lines = [line.strip() for line in answer(puzzle).splitlines()]
    assert [line for line in lines if len(line) > 12 and line in svg] == []
