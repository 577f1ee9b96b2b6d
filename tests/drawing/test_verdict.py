"""The picture of a verdict: a party where the goal is reached, and plain bars where it is not."""

from dataclasses import replace

from drawing import picture_of
from drawing.canvas.palette import GOLD, PAPER
from drawing.canvas.scene import Rect
from lib.checker.verdict import Verdict
from lib.puzzles.records import Goal
from tests.drawing.marks import polys, texts
from tests.drawing.runs import VERDICT


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


def test_a_goal_of_time_alone_has_no_bar_for_memory() -> None:
    mine = replace(VERDICT, goals=(Goal("your goal", 6.0, 2.0**62, True),), puzzle=None)
    assert not any(text.startswith("memory") for text in texts(mine))
    assert stars(replace(mine, goals=())) == 1


def bars(verdict: Verdict) -> dict[float, list[Rect]]:
    """The bars of each column, by its left."""
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


def test_each_puzzle_has_confetti_of_its_own() -> None:
    assert polys(VERDICT) != polys(replace(VERDICT, puzzle="fsdp"))
