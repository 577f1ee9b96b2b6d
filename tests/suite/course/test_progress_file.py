"""The progress file: what it may hold, that adding is the same in any order, and that nothing is ever lost."""

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

from lib import PUZZLES
from lib.suite.course import progress
from lib.suite.course.progress import ProgressError, Standing
from tests.support.said import Said

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
    """The entry of a puzzle in a file."""
    return asdict(Standing(3, True, GOALS[0], 5.6, 1835008.0, 1, 3, 2)) | changes


def data(**entries: Any) -> str:
    """The text of a file."""
    return json.dumps({"format": progress.FORMAT, "version": 1, "puzzles": entries})


def put(file: Path, **entries: Any) -> None:
    """Writes a progress file by hand."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(data(**entries), "utf-8")


# -- adding -----------------------------------------------------------------------------------------------------


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


def test_a_file_of_before_goals_were_called_so(file: Path) -> None:
    old = {("tier" if name == "goal" else name): value for name, value in entry().items()}
    put(file, ddp=old)
    assert progress.read(file)["ddp"].goal == GOALS[0]
    progress.add(file, "ddp", Standing(runs=1))
    assert json.loads(file.read_text("utf-8"))["puzzles"]["ddp"].keys() == entry().keys()


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


def test_a_write_that_fails_leaves_the_file_as_it_was(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress.add(file, "ddp", Standing(runs=1))
    before = file.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        progress.add(file, "ddp", Standing(runs=1))
    assert file.read_bytes() == before
    assert sorted(path.name for path in file.parent.iterdir()) == [".progress.json.lock", "progress.json"]


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


# -- reading ----------------------------------------------------------------------------------------------------


def test_no_file_is_no_progress(file: Path) -> None:
    assert progress.read(file) == {}
    assert not file.parent.exists()


def test_puzzles_of_another_version_are_kept(file: Path) -> None:
    put(file, not_known_here=entry(goal="whatever"))
    progress.add(file, "ddp", Standing(runs=1))
    assert sorted(progress.read(file)) == ["ddp", "not_known_here"]


SAID = Said(Path(__file__).with_name("said") / "progress_files.txt")


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


def test_a_file_of_a_newer_version_is_left_alone(file: Path) -> None:
    file.parent.mkdir()
    text = json.dumps({"format": progress.FORMAT, "version": 2, "anything": []})
    file.write_text(text)
    for act in (lambda: progress.read(file), lambda: progress.add(file, "ddp", Standing(runs=1))):
        with pytest.raises(ProgressError, match=r"of a newer version \(2\) than this package knows \(1\)"):
            act()
    assert file.read_text() == text
    assert not [path for path in file.parent.iterdir() if "damaged" in path.name]


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
