"""The commands for students: how far am I, a hint, the answer."""

import json
from pathlib import Path

import pytest

from lib import PUZZLES, hint
from lib.suite.cli import console as terminal
from lib.suite.course import progress
from lib.suite.course.progress import Standing, load, record
from lib.suite.submissions.locations import reference
from tests.suite.cli.commands import STUB, puzzles, words
from tests.support.profiles import sample

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, a progress file of its own, and a solution that passes."""
    monkeypatch.setenv("PUZZLES_PROGRESS", str(tmp_path / "state" / "progress.json"))
    monkeypatch.setattr(progress, "_said", set[str]())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(reference("basic").read_text("utf-8"), "utf-8")
    (tmp_path / "unsolved.py").write_text(STUB, "utf-8")
    return tmp_path


# -- puzzles ----------------------------------------------------------------------------------------------------


def test_alone_it_says_how_far_you_are(folder: Path) -> None:
    result = puzzles()
    assert result.exit_code == 0
    for puzzle in PUZZLES:
        assert f" {puzzle} " in result.output
    assert f"0 of {len(PUZZLES)} solved. Next: basic (One device), " in words(result)
    assert "01_basic.ipynb" in result.output
    assert not (folder / "state").exists()


def test_what_was_reached_is_in_the_table(folder: Path) -> None:
    puzzles("run", "mine.py")
    record("grad_accum", Standing(3, False, None, 20.0, 3_000_000.0, 2))
    result = puzzles()
    rows = {
        line.split("│")[2].strip(): [cell.strip() for cell in line.split("│")[3:-1]]
        for line in result.output.splitlines()
        if line.startswith("│")
    }
    assert rows["basic"] == ["solved", "as good as the classic", "17", "2,621,440", ""]
    assert rows["grad_accum"] == ["tried", "", "20", "3,000,000", "2 of 3"]
    assert rows["ddp"] == ["", "", "", "", ""]
    assert f"1 of {len(PUZZLES)} solved. Next: {list(PUZZLES)[1]}" in words(result)
    table = [line for line in result.output.splitlines() if line[:1] in "┏┃┡│├└"]
    assert max(map(len, table)) <= terminal.WIDTH


def test_fix_shows_the_line_that_the_message_of_a_run_does_not_have(folder: Path) -> None:
    line = "grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)"
    text = reference("ddp").read_text("utf-8")
    assert text.count(f"        {line}\n") == 1
    (folder / "ddp.py").write_text(text.replace(f"        {line}\n", ""), "utf-8")
    told, mended = puzzles("run", "ddp.py", "--puzzle", "ddp"), puzzles("fix", "ddp.py", "--puzzle", "ddp")
    assert told.exit_code == mended.exit_code == 1
    assert "puzzles fix FILE" in words(told)
    assert "model.allreduce" not in told.output
    assert "model.allreduce" in mended.output


def test_when_recording_is_off_it_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUZZLES_PROGRESS", "off")
    assert "Progress is not recorded: PUZZLES_PROGRESS is off." in puzzles().output


# -- run --------------------------------------------------------------------------------------------------------


def test_run_and_check_record_your_own_function_only(folder: Path) -> None:
    puzzles("run", "mine.py", "--save", "mine.json")
    puzzles("check", "mine.py")
    assert load()["basic"].runs == 2
    others = ["run basic", "run mine.json", "run unsolved.py", "run mine.py --layers 3", "draw mine.py"]
    for other in [*others, f"run {reference('basic')}", "compare mine.py basic"]:
        puzzles(*other.split())
    assert {puzzle: standing.runs for puzzle, standing in load().items()} == {"basic": 2}


# -- hint -------------------------------------------------------------------------------------------------------


def test_the_command_and_the_notebook_count_together(folder: Path) -> None:
    hint("ddp", 1)
    assert puzzles("hint", "ddp").output.count("Hint ") == 2


# -- reveal -----------------------------------------------------------------------------------------------------


def test_before_it_passes_the_answer_is_not_shown(folder: Path) -> None:
    for standing, missing in (
        (Standing(), "basic has not been checked yet."),
        (Standing(runs=2), "basic has been checked (2 so far), but no run was one correct training step yet."),
        (Standing(1, False, None, 18.0, 9.0), "basic is correct, with time 18 and memory 9 at best"),
    ):
        record("basic", standing)
        result = puzzles("reveal", "basic")
        assert result.exit_code == 1
        assert missing in words(result)
        assert "puzzles hint basic" in words(result)
        assert "in the repository under solutions/" in words(result)
        assert "model.backward(" not in result.output


def test_a_notebook_of_their_own_that_passes_is_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUZZLES_PROGRESS", "off")
    monkeypatch.setenv("PUZZLES_FOLDER", str(folder))
    mine = folder / f"{PUZZLES['basic'].stem}.ipynb"
    for source, status in ((STUB, 1), (reference("basic").read_text("utf-8"), 0)):
        mine.write_text(json.dumps({"cells": [{"cell_type": "code", "source": source}]}), "utf-8")
        assert puzzles("reveal", "basic").exit_code == status


@pytest.mark.parametrize("puzzle", sample(PUZZLES))
def test_every_puzzle_can_be_revealed(folder: Path, puzzle: str) -> None:
    record(puzzle, Standing(1, True, None, 1.0, 1.0))
    result = puzzles("reveal", puzzle)
    assert result.exit_code == 0
    assert ("official: Correct!" if PUZZLES[puzzle].is_function else "│ official") in result.output
