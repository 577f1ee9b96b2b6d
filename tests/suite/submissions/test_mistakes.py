"""What a mistake in a puzzle whose answer is a plain function is told, to the letter, and the picture beside it."""

from collections import Counter
from pathlib import Path

import pytest

from drawing import picture_of
from drawing.canvas.scene import Text
from lib import CheckError, check_function
from lib.cluster.layouts import Holdings
from lib.suite.submissions import function_check
from lib.suite.submissions.function_check import judge_answers, where
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference
from lib.suite.submissions.table import ask_here
from tests.suite.submissions.mistakes import MISTAKES, Mistake
from tests.suite.submissions.test_map_puzzles import MAPS
from tests.suite.submissions.test_table_puzzles import TABLES
from tests.support.profiles import sample


@pytest.mark.parametrize("mistake", sample(MISTAKES), ids=lambda mistake: f"{mistake.puzzle}, {mistake.name}")
def test_a_mistake_is_told_and_shown_on_the_smallest_input(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_check, "PATIENCE", 100)  # seconds on the wall, where a machine may be busy
    with pytest.raises(CheckError) as raised:
        check_function(mistake.function(), puzzle=mistake.puzzle)
    assert str(raised.value) == mistake.message
    assert mistake.thought.endswith(".")
    shown = raised.value.shown
    if mistake.puzzle in MAPS:
        assert isinstance(shown, Holdings)
        assert shown.wrong or mistake.name == "held_by_several_devices"  # where nothing is wrong
        words = [mark.text for mark in picture_of(shown).scene.marks if isinstance(mark, Text)]
        assert shown.title in words or f"{shown.title[:30]}" in words[0]
    elif shown is not None:  # there is none of an input that is to be refused
        assert picture_of(shown).scene.marks


def test_what_a_given_function_refuses_is_told_at_the_line_that_made_it(tmp_path: Path) -> None:
    source = tmp_path / "dispatch.py"
    right = reference("dispatch").read_text("utf-8")
    source.write_text(right.replace("physical = -(-slots // together) * together", "physical = slots"), "utf-8")
    (fault,) = judge_answers("dispatch", ask_here(load_function(source, "dispatch"), where)).faults
    assert "2 devices (dispatch.py, line " in fault
    assert "in dispatch: physical = slots)" in fault
    assert fault.endswith("so `physical = slots` is wrong for it: work physical out by hand")


def test_each_has_four_mistakes_and_more() -> None:
    counts = Counter(mistake.puzzle for mistake in MISTAKES)
    assert set(counts) == {*MAPS, *TABLES, "dispatch"}
    assert min(counts.values()) >= 4
