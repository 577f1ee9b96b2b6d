"""A student's own copies: made, followed, renamed, and never written over."""

import json
from pathlib import Path

import pytest

from lib import PUZZLES
from lib.suite.submissions import locations
from lib.suite.submissions.load import SourceError
from lib.suite.submissions.locations import MEMORY, Workplace, is_worked_on, located, mine, notebook_of, prepared, yours

STUB = '    # --- your code (about 1 line) ---\n    raise NotSolved("{}")\n    # --- end of your code ---'
BASIC, DDP = f"{PUZZLES['basic'].path}.ipynb", f"{PUZZLES['ddp'].path}.ipynb"
EVERY = ["00_index.ipynb", BASIC, DDP]


def notebook(*cells: str, outputs: str = "") -> str:
    """A notebook file whose first cell is text, the others code that put something out."""
    made = [
        {"cell_type": "code", "source": cell, "outputs": [{"text": outputs}] if outputs else []}
        if number
        else {"cell_type": "markdown", "source": [cell]}
        for number, cell in enumerate(cells)
    ]
    return json.dumps({"cells": made, "nbformat": 4})


def puzzle(name: str, text: str = "a puzzle", outputs: str = "") -> str:
    return notebook(text, f"async def {name}(model):\n{STUB.format(name)}", outputs=outputs)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the map and two puzzles, and the current directory."""
    (tmp_path / "puzzles" / "basics").mkdir(parents=True)
    (tmp_path / "puzzles" / "00_index.ipynb").write_text(notebook("the map", "1 + 1"), "utf-8")
    (tmp_path / "puzzles" / BASIC).write_text(puzzle("basic"), "utf-8")
    (tmp_path / "puzzles" / DDP).write_text(puzzle("ddp"), "utf-8")
    monkeypatch.setattr(locations, "home", lambda: tmp_path)
    monkeypatch.setattr(locations, "is_checkout", lambda: True)
    monkeypatch.delenv("PUZZLES_FOLDER")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.ipynb"))


def solve(path: Path) -> str:
    text = path.read_text("utf-8").replace("raise NotSolved", "model.solved")
    path.write_text(text, "utf-8")
    return text


def test_what_is_missing_is_made_and_what_is_there_stays(root: Path) -> None:
    found = prepared(root)
    assert found == Workplace(root / "my_puzzles", made=EVERY)
    assert [*found.news()] == ["Made your copies of the notebooks in my_puzzles: work there, they are yours."]
    assert (found.folder / BASIC).read_bytes() == (root / "puzzles" / BASIC).read_bytes()
    work = solve(found.folder / BASIC)
    (found.folder / DDP).unlink()
    assert prepared(root) == Workplace(found.folder, made=[DDP])
    assert (found.folder / BASIC).read_text("utf-8") == work
    assert [*prepared(root).news()] == []


def test_an_update_reaches_copies_without_work_and_spares_the_others(root: Path) -> None:
    folder = prepared(root).folder
    work = solve(folder / BASIC)
    ran = puzzle("ddp", outputs="ran by the student")
    (folder / DDP).write_text(ran, "utf-8")
    for name in ("basic", "ddp"):
        (root / "puzzles" / f"{PUZZLES[name].path}.ipynb").write_text(puzzle(name, "better words"), "utf-8")
    found = prepared(root)
    assert found == Workplace(folder, refreshed=[DDP], kept=[BASIC])
    assert (folder / BASIC).read_text("utf-8") == work
    assert (folder / DDP).read_text("utf-8") == puzzle("ddp", "better words")
    first, second = found.news()
    assert first == f"Brought up to date, as you had not changed them: {DDP}."
    assert second.startswith(f"{BASIC} has changed since you began it. Yours is left as it is; the new one is puzzles/")
    assert prepared(root) == Workplace(folder, kept=[BASIC])  # until they see to it
    (folder / BASIC).rename(folder / "basics" / "01_basic_old.ipynb")
    assert prepared(root) == Workplace(folder, made=[BASIC])
    assert (folder / "basics" / "01_basic_old.ipynb").read_text("utf-8") == work


def test_what_a_student_ran_is_no_work_but_is_kept_while_the_puzzle_is_the_same(root: Path) -> None:
    folder = prepared(root).folder
    ran = puzzle("ddp", outputs="ran by the student")
    (folder / DDP).write_text(ran, "utf-8")
    assert prepared(root) == Workplace(folder)
    (root / "puzzles" / DDP).write_text(puzzle("ddp", outputs="another picture"), "utf-8")
    (root / "puzzles" / BASIC).write_text(puzzle("basic", outputs="another picture"), "utf-8")
    assert prepared(root) == Workplace(folder, refreshed=[BASIC])
    assert (folder / DDP).read_text("utf-8") == ran
    assert prepared(root) == Workplace(folder)


OLD = ("03_ddp.ipynb", "basics/77_ddp.ipynb", "mesh/02_ddp.ipynb")
"""Where a copy lay in earlier layouts, and where it may lie after the order of the puzzles changes."""


@pytest.mark.parametrize("worked", [False, True])
@pytest.mark.parametrize("old", OLD)
def test_a_new_number_or_folder_is_followed_with_the_work(root: Path, old: str, worked: bool) -> None:
    folder = prepared(root).folder
    (folder / "mesh").mkdir()
    text = solve(folder / DDP) if worked else (folder / DDP).read_text("utf-8")
    (folder / DDP).rename(folder / old)
    found = prepared(root)
    assert found == Workplace(folder, renamed=[(old, DDP)])
    assert [*found.news()] == [f"Moved {old} to {DDP}: that is where the puzzle is now."]
    assert names(folder) == EVERY
    assert (folder / DDP).read_text("utf-8") == text


def test_work_on_a_puzzle_that_is_part_of_another_by_now_stays_and_is_found(root: Path) -> None:
    folder = prepared(root).folder
    old = folder / "10_zero1.ipynb"
    old.write_text(puzzle("zero1"), "utf-8")
    work = solve(old)
    prepared(root)
    assert old.read_text("utf-8") == work
    assert mine("zero1", folder) == old
    assert located(Path("10_zero1.ipynb")) == old


def test_of_two_copies_of_one_puzzle_neither_is_lost(root: Path) -> None:
    folder = prepared(root).folder
    (folder / "99_ddp.ipynb").write_text("an older one of theirs", "utf-8")
    assert prepared(root) == Workplace(folder)
    assert (folder / "99_ddp.ipynb").read_text("utf-8") == "an older one of theirs"
    assert mine("ddp", folder) == folder / DDP


def test_work_in_the_puzzles_themselves_is_taken_along_and_is_work(root: Path) -> None:
    work = solve(root / "puzzles" / BASIC)
    folder = prepared(root).folder
    assert (folder / BASIC).read_text("utf-8") == work
    (root / "puzzles" / BASIC).write_text(puzzle("basic"), "utf-8")  # git restored it
    assert prepared(root) == Workplace(folder, kept=[BASIC])
    assert (folder / BASIC).read_text("utf-8") == work


@pytest.mark.parametrize("damage", ["", "[]", '{"basic": 1}', '{"basic": {"file": "x"}}', "{"])
def test_without_a_memory_every_difference_counts_as_work(root: Path, damage: str) -> None:
    folder = prepared(root).folder
    (folder / MEMORY).write_text(damage, "utf-8")
    (root / "puzzles" / BASIC).write_text(puzzle("basic", "better words"), "utf-8")
    assert prepared(root) == Workplace(folder, kept=[BASIC])
    assert (folder / BASIC).read_text("utf-8") == puzzle("basic")


@pytest.mark.parametrize("text", ["", "{}", '{"cells": [{"cell_type": "code"}]}', '{"cells": 3}', "\x00"])
def test_a_copy_that_is_no_notebook_is_left_alone(root: Path, text: str) -> None:
    folder = prepared(root).folder
    (folder / BASIC).write_text(text, "utf-8")
    (root / "puzzles" / BASIC).write_text(puzzle("basic", "better words"), "utf-8")
    assert prepared(root) == Workplace(folder)
    assert (folder / BASIC).read_text("utf-8") == text


def test_where_the_copies_lie(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert yours(root / "puzzles") == root / "my_puzzles"
    assert notebook_of("ddp") == root / "my_puzzles" / DDP
    assert names(root / "my_puzzles") == EVERY  # in a checkout it is made
    monkeypatch.setenv("PUZZLES_FOLDER", str(root / "elsewhere"))
    assert prepared(root).folder == root / "elsewhere"


def test_beside_a_wheel_they_lie_where_somebody_works(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locations, "is_checkout", lambda: False)
    student = root / "home"
    student.mkdir()
    monkeypatch.chdir(student)
    assert notebook_of("ddp") == student / "my_puzzles" / DDP
    assert [*student.iterdir()] == []  # to ask makes nothing
    folder = prepared(student).folder
    assert folder == student / "my_puzzles"
    assert yours(folder) == folder  # as in a terminal of JupyterLab's
    (folder / "deeper").mkdir()
    assert yours(folder / "deeper") == folder


def test_a_notebook_is_found_by_its_name(root: Path) -> None:
    for name in (DDP, Path(DDP).name, "03_ddp.ipynb", "my_puzzles/03_ddp.ipynb", "puzzles/03_ddp.ipynb"):
        assert located(Path(name)) == root / "my_puzzles" / DDP
    assert located(Path("puzzles", DDP)) == Path("puzzles", DDP)
    assert located(Path("bob", DDP)) == Path("bob", DDP)  # what somebody has not handed in is not our own
    assert located(Path("nothing.ipynb")) == Path("nothing.ipynb")
    assert located(Path("mine.py")) == Path("mine.py")


def test_without_notebooks_there_is_nothing_to_copy(root: Path) -> None:
    for path in (root / "puzzles").rglob("*.ipynb"):
        path.unlink()
    with pytest.raises(SourceError, match="there are no notebooks yet: make them with `puzzles build`"):
        prepared(root)


def test_work_is_a_gap_that_is_no_stub(root: Path) -> None:
    path = root / "puzzles" / BASIC
    assert not is_worked_on(path.read_text("utf-8"), path)
    assert is_worked_on(solve(path), path)
    assert not is_worked_on(notebook("the map", "1 + 1"), root / "00_index.ipynb")
