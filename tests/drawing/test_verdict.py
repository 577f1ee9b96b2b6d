"""The picture of a verdict: a party where the goal is reached, and plain bars where it is not."""

from __future__ import annotations

from dataclasses import replace

from drawing import picture_of
from drawing.canvas.palette import GOLD
from drawing.canvas.scene import Poly, Text
from lib.checker.verdict import Verdict
from lib.puzzles.records import Goal
from tests.drawing.runs import VERDICT


def stars(verdict: Verdict) -> int:
    """Stars under the trophy: a tenth of its points each, golden."""
    marks = picture_of(verdict).scene.marks
    return sum(isinstance(mark, Poly) and len(mark.points) == 10 and mark.fill == GOLD for mark in marks)


def texts(verdict: Verdict) -> list[str]:
    return [mark.text for mark in picture_of(verdict).scene.marks if isinstance(mark, Text)]


def test_a_star_for_each_goal_and_bars_for_all() -> None:
    assert stars(VERDICT) == 2
    shown = texts(VERDICT)
    assert shown[0] == "ddp: correct! Reached: as good as the classic"
    assert "time over: 5.6 of 5.5" in shown
    assert "memory 1,835,008 of 2,000,000" in shown
    assert picture_of(VERDICT).scene.height == 190


def test_no_party_for_a_run_that_is_wrong_or_misses_the_goal() -> None:
    missed = replace(VERDICT, goals=(Goal("passes", 1.0, 10, False),))
    assert picture_of(missed).words == "ddp: correct, but not within the goal yet"
    wrong = replace(VERDICT, correct=False, faults=("layer 0 has no final weight",))
    assert picture_of(wrong).words == "ddp: not one correct training step yet"
    assert "layer 0 has no final weight" in texts(wrong)
    assert stars(missed) == stars(wrong) == 0


def test_a_goal_of_time_alone_has_no_bar_for_memory() -> None:
    mine = replace(VERDICT, goals=(Goal("your goal", 6.0, 2.0**62, True),), puzzle=None)
    assert not any(text.startswith("memory") for text in texts(mine))
    assert stars(replace(mine, goals=())) == 1


def test_confetti_is_the_same_for_the_same_puzzle() -> None:
    assert picture_of(VERDICT).svg() == picture_of(replace(VERDICT)).svg()
    other = [m for m in picture_of(replace(VERDICT, puzzle="fsdp")).scene.marks if isinstance(m, Poly)]
    assert [m for m in picture_of(VERDICT).scene.marks if isinstance(m, Poly)] != other
