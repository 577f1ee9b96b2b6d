"""Hints: one more at a time, the same text whatever is recorded."""

from pathlib import Path

import pytest

from lib import PUZZLES, hint
from lib.puzzles.records import HINTS
from lib.suite.course.exercises import next_hint
from lib.suite.course.progress import Standing, load, record
from tests.support.said import Said


def test_closed_it_says_how_to_open_them(file: Path) -> None:
    text = "3 hints for this puzzle: a question, an idea, nearly the code. To open the first: "
    assert repr(hint("ddp")) == f'{text}hint("ddp", 1)'
    assert hint("ddp")._repr_markdown_() == f'{text}`hint("ddp", 1)`'  # pyright: ignore[reportPrivateUsage]
    assert load() == {}


@pytest.mark.parametrize("puzzle", PUZZLES)
def test_open_they_hold_the_texts_of_the_record(file: Path, puzzle: str) -> None:
    every = PUZZLES[puzzle].hints
    for opened in (1, 2, 3):
        text = hint(puzzle, opened).markdown
        assert [one in text for one in every] == [number <= opened for number in (1, 2, 3)]
        assert [f"**Hint {number}, {kind}**" in text for number, kind in enumerate(HINTS, 1)] == [
            number <= opened for number in (1, 2, 3)
        ]
        assert (f'hint("{puzzle}", {opened + 1})' in text) == (opened < 3)
    assert text.endswith("These were all the hints.")


def test_the_text_does_not_depend_on_what_is_recorded(file: Path) -> None:
    before = [hint("fsdp", opened).markdown for opened in range(4)]
    record("fsdp", Standing(3, True, None, 1.0, 1.0, 3))
    assert [hint("fsdp", opened).markdown for opened in range(4)] == before


def test_opening_counts_up_to_the_most_that_was_open(file: Path) -> None:
    for opened, counted in ((1, 1), (3, 3), (2, 3), (0, 3)):
        hint("ddp", opened)
        assert load()["ddp"] == Standing(hints=counted)


def test_the_next_hint_is_one_more_than_was_recorded_or_seen(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [next_hint("ddp").opened for _ in range(5)] == [1, 2, 3, 3, 3]
    assert next_hint("fsdp", 1).opened == 2
    monkeypatch.setenv("PUZZLES_PROGRESS", "off")
    assert [next_hint("ddp", seen).opened for seen in range(4)] == [1, 2, 3, 3]


SAID = Said(Path(__file__).with_name("said") / "hints.txt")


@pytest.mark.parametrize("expression", SAID.texts)
def test_what_is_no_hint(file: Path, expression: str) -> None:
    SAID.check(expression, {"hint": hint})
    assert load() == {}
