"""What is recorded and what is not, where, and what comes next."""

import json
import os
import sys
from pathlib import Path

import pytest

from lib import PUZZLES, CheckError, Model, Trace, check
from lib.suite.course import progress
from lib.suite.course.progress import Standing, known, load, next_puzzle, place
from tests.support.functions import fat, good, official, run, unsolved, wrong

# -- recorded ---------------------------------------------------------------------------------------------------


def test_a_check_is_recorded(file: Path) -> None:
    verdict = Model.check(run(good), puzzle="basic")
    assert verdict is not None
    first, _ = PUZZLES["basic"].goals
    assert load() == {"basic": Standing(1, True, first.name, 17.0, verdict.memory)}
    Model.check(official("basic"), puzzle="basic")
    Model.check(run(good), puzzle="basic")
    assert load() == {"basic": Standing(3, True, "as good as the classic", 17.0, 2_621_440.0)}


def test_a_correct_run_that_misses_the_goal_is_not_passed(file: Path) -> None:
    verdict = Model.check(run(fat), puzzle="basic")
    assert verdict is not None
    assert load() == {"basic": Standing(1, False, None, 17.0, verdict.memory)}


def test_a_run_that_is_not_correct_only_counts(file: Path) -> None:
    Model.check(run(good), puzzle="basic")
    before = load()["basic"]
    with pytest.raises(CheckError):
        Model.check(run(wrong), puzzle="basic")
    assert load()["basic"] == before.plus(Standing(runs=1), "basic")


def test_a_goal_of_ones_own_beside_the_puzzle(file: Path) -> None:
    Model.check(run(good), puzzle="basic", time=100)
    assert load()["basic"].passed


# -- not recorded -----------------------------------------------------------------------------------------------


def test_what_is_not_recorded(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Model.check(run(unsolved), puzzle="basic")
    Model.check(run(good))
    Model.check(run(good), time=17)
    Model.check(run(good, layers=3))
    with pytest.raises(CheckError, match="the puzzle basic has 2 layers, this run has 3"):
        Model.check(run(good, layers=3), puzzle="basic")
    sandbox = Model(layers=2, batches=4)
    good(sandbox)
    Model.check(sandbox, puzzle="basic")
    check(run(good), "basic")
    check(Trace.of(run(good)), "basic")
    assert not file.parent.exists()
    assert "not recorded" not in capsys.readouterr().out


@pytest.mark.parametrize("off", ["off", "OFF"])
def test_off_records_nothing(file: Path, monkeypatch: pytest.MonkeyPatch, off: str, tmp_path: Path) -> None:
    monkeypatch.setenv("PUZZLES_PROGRESS", off)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    assert place() is None
    Model.check(run(good), puzzle="basic")
    assert load() == {}
    assert list(tmp_path.iterdir()) == []


def test_these_tests_record_nothing_by_themselves() -> None:
    assert os.environ["PUZZLES_PROGRESS"] == "off"


# -- where nothing can be written -------------------------------------------------------------------------------


def test_a_place_that_cannot_be_written_breaks_no_check(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.parent.write_text("a file where the folder should be")
    for _ in range(3):
        verdict = Model.check(run(good), puzzle="basic")
        assert verdict is not None
        assert verdict.passed
    lines = capsys.readouterr().out.splitlines()
    notes = [line for line in lines if line.startswith("Note: your progress is not recorded: ")]
    assert len(notes) == 1
    assert str(file.parent) in notes[0]
    assert "Set PUZZLES_PROGRESS to a file that can be written, or to off." in notes[0]
    assert lines.count("Correct!") == 3


def test_a_folder_in_place_of_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.mkdir(parents=True)
    Model.check(run(good), puzzle="basic")
    assert "Note: your progress is not recorded: " in capsys.readouterr().out
    assert known() == {}
    assert "Note: your progress cannot be read: " in capsys.readouterr().out


def test_a_damaged_file_is_said_once_and_recording_goes_on(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.parent.mkdir()
    file.write_text("{")
    Model.check(run(good), puzzle="basic")
    Model.check(run(good), puzzle="basic")
    out = capsys.readouterr().out
    assert out.count("was damaged") == 1
    assert "It is kept as progress.json.damaged, and a new one begun." in out
    assert load()["basic"].runs == 2


def test_known_says_what_is_damaged_and_gives_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.parent.mkdir()
    file.write_text("{")
    assert known() == {}
    assert f"Note: {file} was damaged: " in capsys.readouterr().out
    assert known() == {}
    assert capsys.readouterr().out == ""


def test_a_newer_file_is_said_and_left_alone(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.parent.mkdir()
    text = json.dumps({"format": "llm-training-puzzles progress", "version": 99})
    file.write_text(text)
    Model.check(run(good), puzzle="basic")
    assert "of a newer version (99)" in capsys.readouterr().out
    assert file.read_text() == text


# -- where ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="platformdirs knows where it is elsewhere")
@pytest.mark.parametrize(("told", "folder"), [(None, ".local/state"), ("s", "s"), ("../relative", ".local/state")])
def test_the_place_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str | None, folder: str) -> None:
    monkeypatch.delenv("PUZZLES_PROGRESS")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    if told is not None:
        monkeypatch.setenv("XDG_STATE_HOME", told if told.startswith(".") else str(tmp_path / told))
    assert place() == tmp_path / folder / "llm-training-puzzles" / "progress.json"


def test_in_a_browser_it_lies_among_the_files_that_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUZZLES_PROGRESS", raising=False)
    monkeypatch.setattr(sys, "platform", "emscripten")
    monkeypatch.setattr(progress, "BROWSER_FILES", tmp_path / "drive")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert place() == tmp_path / "home" / "llm-training-puzzles" / "progress.json"
    (tmp_path / "drive").mkdir()
    assert place() == tmp_path / "drive" / "llm-training-puzzles" / "progress.json"


def test_no_home_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("PUZZLES_PROGRESS")
    monkeypatch.setattr("platformdirs.user_state_path", homeless)
    monkeypatch.setattr(progress, "_said", set[str]())
    Model.check(run(good), puzzle="basic")
    note = "Note: your progress is not recorded: there is no home folder: Could not determine home directory."
    assert note in capsys.readouterr().out


# -- what next --------------------------------------------------------------------------------------------------


def test_what_comes_next_is_the_first_whose_needs_are_solved() -> None:
    solved: set[str] = set()
    while (record := next_puzzle(solved)) is not None:
        assert record.id not in solved
        assert solved.issuperset(record.needs)
        earlier = [other for other in PUZZLES.values() if other.number < record.number and other.id not in solved]
        assert not any(solved.issuperset(other.needs) for other in earlier)
        solved.add(record.id)
    assert solved == set(PUZZLES)


def test_the_needs_of_a_puzzle_come_before_it_wherever_one_is() -> None:
    before = {record.id for record in PUZZLES.values() if record.number <= PUZZLES["wsdp"].number}
    record = next_puzzle(before - {"ddp"})
    assert record is not None
    assert record.id == "ddp"
