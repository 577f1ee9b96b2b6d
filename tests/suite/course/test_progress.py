"""Progress: what is recorded and what is not, where, what a file may hold, and that nothing is ever lost."""

import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import asdict
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import PUZZLES, CheckError, Model, Trace, check
from lib.suite.course import progress
from lib.suite.course.progress import ProgressError, Standing, known, next_puzzle, place
from tests.support.functions import fat, good, official, run, unsolved, wrong
from tests.support.said import Said


def test_a_check_is_recorded(file: Path) -> None:
    verdict = Model.check(run(good), puzzle="basic")
    assert verdict is not None
    first, _ = PUZZLES["basic"].goals
    assert known() == {"basic": Standing(1, True, first.name, 17.0, verdict.memory)}
    Model.check(official("basic"), puzzle="basic")
    Model.check(run(good), puzzle="basic")
    assert known() == {"basic": Standing(3, True, "as good as the classic", 17.0, 2_621_440.0)}


def test_a_correct_run_that_misses_the_goal_is_not_passed(file: Path) -> None:
    verdict = Model.check(run(fat), puzzle="basic")
    assert verdict is not None
    assert known() == {"basic": Standing(1, False, None, 17.0, verdict.memory)}


def test_a_run_that_is_not_correct_only_counts(file: Path) -> None:
    Model.check(run(good), puzzle="basic")
    before = known()["basic"]
    with pytest.raises(CheckError):
        Model.check(run(wrong), puzzle="basic")
    assert known()["basic"] == before.plus(Standing(runs=1), "basic")


def test_a_goal_of_ones_own_beside_the_puzzle(file: Path) -> None:
    Model.check(run(good), puzzle="basic", time=100)
    assert known()["basic"].passed


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
    assert known() == {}
    assert list(tmp_path.iterdir()) == []


def test_these_tests_record_nothing_by_themselves() -> None:
    assert os.environ["PUZZLES_PROGRESS"] == "off"


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
    assert lines.count("Correct! Also right at 2 other sizes.") == 3


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
    assert known()["basic"].runs == 2
    file.write_text("{")
    assert known() == {}
    assert f"Note: {file} was damaged: " in capsys.readouterr().out


def test_a_newer_file_is_said_and_left_alone(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.parent.mkdir()
    text = json.dumps({"format": "llm-training-puzzles progress", "version": 99})
    file.write_text(text)
    Model.check(run(good), puzzle="basic")
    assert "of a newer version (99)" in capsys.readouterr().out
    assert file.read_text() == text


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


def test_what_comes_next_is_the_first_whose_needs_are_solved_on_the_core_path_before_others() -> None:
    solved: set[str] = set()
    core = {record.id for record in PUZZLES.values() if not record.deepens}
    while (record := next_puzzle(solved)) is not None:
        assert record.id not in solved
        assert solved.issuperset(record.needs)
        assert record.id in core or core <= solved
        earlier = [other for other in PUZZLES.values() if other.number < record.number and other.id not in solved]
        earlier = [other for other in earlier if (other.id in core) == (record.id in core)]
        assert not any(solved.issuperset(other.needs) for other in earlier)
        solved.add(record.id)
    assert solved == set(PUZZLES)


def test_the_needs_of_a_puzzle_come_before_it_wherever_one_is() -> None:
    before = {record.id for record in PUZZLES.values() if record.number <= PUZZLES["wsdp"].number}
    record = next_puzzle(before - {"ddp"})
    assert record is not None
    assert record.id == "ddp"


GOALS = [goal.name for goal in PUZZLES["ddp"].goals]
FIGURES = st.floats(0, 1e12, allow_nan=False)


@st.composite
def standings(draw: st.DrawFn) -> Standing:
    measured = draw(st.booleans())
    predictions = draw(st.integers(0, 50))
    return Standing(
        runs=draw(st.integers(0, 50)),
        passed=measured and draw(st.booleans()),
        goal=draw(st.sampled_from([None, *GOALS, "a goal of another version"])) if measured else None,
        time=draw(FIGURES) if measured else None,
        memory=draw(FIGURES) if measured else None,
        hints=draw(st.integers(0, 3)),
        predictions=predictions,
        right=draw(st.integers(0, predictions)),
    )


def entry(**changes: Any) -> dict[str, Any]:
    return asdict(Standing(3, True, GOALS[0], 5.6, 1835008.0, 1, 3, 2)) | changes


def data(**entries: Any) -> str:
    return json.dumps({"format": progress.FORMAT, "version": 1, "puzzles": entries})


def put(file: Path, **entries: Any) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(data(**entries), "utf-8")


@given(standings(), standings(), standings())
def test_adding_is_the_same_in_any_order(a: Standing, b: Standing, c: Standing) -> None:
    assert a.plus(b, "ddp") == b.plus(a, "ddp")
    assert a.plus(b, "ddp").plus(c, "ddp") == a.plus(b.plus(c, "ddp"), "ddp")
    assert a.plus(Standing(), "ddp") == a


@given(standings(), standings())
def test_nothing_gets_worse(a: Standing, b: Standing) -> None:
    both = a.plus(b, "ddp")
    for name in ("runs", "hints", "predictions", "right", "passed"):
        assert getattr(both, name) >= getattr(a, name)
    if a.goal in GOALS:
        assert both.goal in GOALS[GOALS.index(a.goal) :]
    assert (both.goal, both.time, both.memory) in [(one.goal, one.time, one.memory) for one in (a, b)]


def test_the_harder_goal_wins_then_time_then_memory() -> None:
    slow, quick = Standing(1, True, GOALS[1], 5.6, 9.0), Standing(1, True, GOALS[0], 5.0, 1.0)
    assert slow.plus(quick, "ddp").time == 5.6
    assert quick.plus(Standing(1, True, GOALS[0], 4.9, 2.0), "ddp").time == 4.9
    assert quick.plus(Standing(1, True, GOALS[0], 5.0, 0.5), "ddp").memory == 0.5


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Gives the place of a file that is not there, again and again."""
    file = tmp_path_factory.mktemp("state") / "progress.json"

    def empty() -> Path:
        for path in file.parent.iterdir():
            path.unlink()
        return file

    return empty


@given(st.lists(st.tuples(st.sampled_from(["ddp", "fsdp", "of_another_version"]), standings()), max_size=6))
def test_what_is_added_is_read_again(fresh: Callable[[], Path], added: Any) -> None:
    file = fresh()
    for puzzle, standing in added:
        assert progress.add(file, puzzle, standing) == ""
    expected = {
        puzzle: reduce(lambda a, b: a.plus(b, puzzle), [s for p, s in added if p == puzzle])
        for puzzle in {puzzle for puzzle, _ in added}
    }
    assert progress.read(file) == expected


def test_processes_at_the_same_time_lose_nothing(file: Path) -> None:
    code = (
        "import sys; from pathlib import Path; import lib.suite.course.progress as progress\n"
        "progress.PATIENCE = 100.0  # on a busy machine a process may wait for its turn longer than a person would\n"
        "one = progress.Standing(runs=1, time=float(sys.argv[2]), memory=1.0)\n"
        "for n in range(20): progress.add(Path(sys.argv[1]), 'ddp', one)"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(file), str(n)]) for n in range(5, 8)]
    assert [process.wait(100) for process in running] == [0] * 3
    assert progress.read(file)["ddp"] == Standing(runs=60, time=5.0, memory=1.0)
    assert sorted(path.name for path in file.parent.iterdir()) == [".progress.json.lock", "progress.json"]


def test_a_lock_that_nobody_gives_back_is_said(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    progress.add(file, "ddp", Standing(runs=1))
    with progress._alone(file), pytest.raises(OSError, match=r"another process has kept .* locked"):  # pyright: ignore[reportPrivateUsage]
        progress.add(file, "ddp", Standing(runs=1))
    assert progress.read(file)["ddp"].runs == 1


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "mine.json"
    real.parent.mkdir()
    file.parent.mkdir()
    file.symlink_to(real)
    progress.add(file, "ddp", Standing(runs=1))
    assert file.is_symlink()
    assert progress.read(real)["ddp"].runs == 1


def test_it_holds_no_time_of_the_day(file: Path) -> None:
    progress.add(file, "ddp", Standing(runs=1))
    first = file.read_bytes()
    file.unlink()
    progress.add(file, "ddp", Standing(runs=1))
    assert file.read_bytes() == first


SAID = Said(__file__, "progress_files")


@pytest.mark.parametrize("expression", SAID.texts)
def test_a_damaged_file_is_kept_and_a_new_one_begun(file: Path, expression: str) -> None:
    """What is wrong with the text of a file, or with the only entry in one, is said."""

    def told(text: str) -> str:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
        note = progress.add(file, "ddp", Standing(runs=1))
        assert file.with_name("progress.json.damaged").read_text("utf-8") == text
        assert progress.read(file) == {"ddp": Standing(runs=1)}
        return note.replace(str(file), "FILE")

    SAID.check(expression, {"text": told, "entry": lambda **changes: told(data(ddp=entry(**changes)))})


def test_what_was_kept_is_never_overwritten(file: Path) -> None:
    file.parent.mkdir()
    for number in range(3):
        file.write_bytes(b"\xff%d" % number)
        with pytest.raises(ProgressError, match="was damaged"):
            progress.read(file)
    kept = sorted(path for path in file.parent.iterdir() if "damaged" in path.name)
    assert [path.name for path in kept] == [f"progress.json.damaged{end}" for end in ("", ".2", ".3")]
    assert [path.read_bytes() for path in kept] == [b"\xff0", b"\xff1", b"\xff2"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["ddp", "runs", "puzzles", "time"]), inner)
        ),
        max_leaves=8,
    ),
    st.sampled_from(["puzzles", "ddp", "runs", "time", "goal", "passed"]),
)
def test_anything_else_in_a_file_is_an_error_and_nothing_worse(
    fresh: Callable[[], Path], junk: Any, where: str
) -> None:
    file = fresh()
    data: dict[str, Any] = {"format": progress.FORMAT, "version": 1, "puzzles": {"ddp": entry()}}
    owner = {"puzzles": data, "ddp": data["puzzles"]}.get(where, data["puzzles"]["ddp"])
    owner[where] = junk
    file.write_text(json.dumps(data), "utf-8")
    try:
        found = progress.read(file)
    except ProgressError:
        return
    progress.add(file, "ddp", Standing())
    assert progress.read(file) == found | {"ddp": found.get("ddp", Standing())}


@pytest.mark.parametrize("module", [None, types.ModuleType("fcntl")], ids=["absent", "empty"])
@pytest.mark.skipif(sys.platform == "win32", reason="Windows locks with another module")
def test_where_there_are_no_locks_it_is_added_without(
    module: types.ModuleType | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", module)  # a browser's kernel has an empty one
    file = tmp_path / "progress.json"
    for _ in range(2):
        assert progress.add(file, "ddp", Standing(runs=1)) == ""
    assert progress.read(file) == {"ddp": Standing(runs=2)}
