"""`puzzles watch`, for real: a process of its own, and notebooks that are saved."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lib import PUZZLES
from lib.suite.cli import learner
from lib.suite.cli.learner import Watcher, keep_watching
from lib.suite.course.progress import Standing, read
from lib.suite.course.solutions import answer
from lib.suite.course.subject import Attempt
from lib.suite.submissions.load import SourceError
from lib.suite.submissions.locations import home, notebook_in
from tests.suite.cli.commands import puzzles

PATIENCE = 90
"""Seconds to wait for what must come. Nothing here takes longer than one of them, unless the machine is busy."""
# In a background job of a shell SIGINT is ignored, and so it would be in all that the tests start there.
WATCH = """
import signal
from lib.suite.cli.app import app
signal.signal(signal.SIGINT, signal.default_int_handler)
app()
"""


@contextmanager
def session(*arguments: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], Callable[[str], None]]]:
    """A `puzzles watch` that runs, and what waits until it says a text, after what was waited for before."""
    process = subprocess.Popen(
        [sys.executable, "-c", WATCH, "watch", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(home()), "PUZZLES_PROGRESS": str(folder / "state" / "progress.json")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert process.stdout is not None
    lines, said = process.stdout, ""

    def until(text: str) -> None:
        nonlocal said
        while text not in said:
            line = lines.readline()
            assert line, f"it never said {text!r}, but\n{said}"
            said += line
        said = said.partition(text)[2]

    with process:
        try:
            yield process, until
        finally:
            process.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A student's folder with two notebooks and the introduction, as they are handed out."""
    for name in ("introduction", "basic", "grad_accum"):
        shutil.copy(notebook_in(home() / "puzzles", name), tmp_path)
    return tmp_path


def solve(notebook: Path, puzzle: str, code: str | None = None) -> None:
    """Writes code (the official answer) over the stub of a notebook, and saves it as Jupyter does: in one go."""
    data = json.loads(notebook.read_text("utf-8"))
    for cell in data["cells"]:
        text = "".join(cell["source"])
        lines = text.splitlines(keepends=True)
        if f"def {puzzle}(" in text and any("# --- your code" in line for line in lines):
            first = next(n for n, line in enumerate(lines) if "# --- your code" in line)
            last = next(n for n, line in enumerate(lines) if "# --- end of your code" in line)
            lines[first + 1 : last] = [textwrap.indent((code or answer(puzzle)) + "\n", "    ")]
            cell["source"] = "".join(lines)
    temporary = notebook.with_name(f".~{notebook.name}")
    temporary.write_text(json.dumps(data), "utf-8")
    os.replace(temporary, notebook)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are different there")
def test_a_folder_from_the_first_puzzle_to_the_next(folder: Path) -> None:
    with session(".", folder=folder) as (process, until):
        until("Watching 2 puzzles in .")
        until("basic is not solved yet: 01_basic.ipynb. For a hint: puzzles hint basic")
        solve(folder / "01_basic.ipynb", "basic")
        until("Correct!")
        until(f"basic is solved. Next: {list(PUZZLES)[1]}, ")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    found = read(folder / "state" / "progress.json")
    assert found["basic"] == Standing(1, True, "as good as the classic", 17.0, 2_621_440.0)


@pytest.mark.usefixtures("warm")
def test_once_says_by_its_status_whether_it_is_solved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    result = puzzles("watch", "--once", "01_basic.ipynb")
    assert result.exit_code == 1
    assert "For a hint: puzzles hint basic" in result.output
    solve(folder / "01_basic.ipynb", "basic")
    assert puzzles("watch", "--once", "01_basic.ipynb").exit_code == 0
    result = puzzles("watch", "--once", ".")
    assert result.exit_code == 1
    assert result.output.startswith("basic: passes\n")
    assert "grad_accum is not solved yet" in result.output
    solve(folder / f"{PUZZLES['grad_accum'].stem}.ipynb", "grad_accum")
    result = puzzles("watch", "--once", ".")
    assert result.exit_code == 0
    assert result.output.endswith("Every puzzle here passes.\n")


class Paper:
    """What is said, to be read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []
        monkeypatch.setattr(learner, "say", self.lines.append)
        monkeypatch.setattr(learner, "title", lambda text: self.lines.append(f"-- {text}"))  # pyright: ignore

    def taken(self) -> list[str]:
        lines = [*self.lines]
        self.lines.clear()
        return lines


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What comes of running a file, by its name."""
    found: dict[str, str] = {}

    def attempt(path: Path, puzzle: str, limit: float) -> Attempt:
        return Attempt(puzzle, found.get(path.name, "unsolved"))

    monkeypatch.setattr(learner, "attempt", attempt)
    return found


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Paper:
    return Paper(monkeypatch)


def test_what_passed_once_and_was_broken_again_is_not_passed(
    folder: Path, paper: Paper, states: dict[str, str]
) -> None:
    watcher = Watcher(folder / "01_basic.ipynb")
    states["01_basic.ipynb"] = "passed"
    assert watcher.begin()
    states["01_basic.ipynb"] = "missed"
    assert not watcher.changed([folder / "01_basic.ipynb"])
    assert "basic is correct, but not within its first goal yet. For a hint: puzzles hint basic" in paper.taken()


@pytest.mark.usefixtures("warm")
def test_what_a_save_can_go_through(folder: Path, paper: Paper) -> None:
    notebook = folder / "01_basic.ipynb"
    whole = notebook.read_bytes()
    watcher = Watcher(notebook, limit=9)

    def says(*texts: str) -> None:
        said = "\n".join(paper.taken())
        assert [text for text in texts if text not in said] == [], said

    watcher.begin()
    says("basic is not solved yet")
    for part, why in ((whole[: len(whole) // 2], "is cut off"), (b"", "is empty")):
        notebook.write_bytes(part)
        watcher.changed([notebook])
        says(f"01_basic.ipynb {why}")
    notebook.unlink()
    watcher.changed([notebook])
    says("01_basic.ipynb is not there any more")
    notebook.write_bytes(whole)
    for code, texts in (
        (None, ["basic is not solved yet"]),
        ("while True: pass", ["basic did not end within 0.5 seconds", "in basic: while True: pass"]),
        ("x = = 3", ["invalid syntax: x = = 3"]),
        ("print('I am here')\nundefined", ["I am here", "NameError: name 'undefined' is not defined"]),
    ):
        watcher.limit = 0.5 if code == "while True: pass" else 9
        if code is not None:
            solve(notebook, "basic", code)
        assert not watcher.changed([notebook])
        says(*texts)
    solve(notebook, "basic")
    assert watcher.changed([notebook])
    says("basic is solved.")


def test_a_notebook_that_is_renamed_in_a_folder_and_a_folder_that_goes(
    folder: Path, paper: Paper, states: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = folder / "01_basic.ipynb", folder / "mine.ipynb"

    def changes(*_: object, **options: Any) -> Iterator[set[tuple[int, str]]]:
        assert options["watch_filter"](1, str(new))
        yield set()
        os.replace(old, new)
        yield {(3, str(old)), (1, str(new))}
        shutil.rmtree(folder)
        yield set()

    monkeypatch.setattr("watchfiles.watch", changes)
    with pytest.raises(SourceError, match="is not there any more, so there is nothing to watch"):
        keep_watching(Watcher(folder))
    said = paper.taken()
    assert said[1] == "-- basic (01_basic.ipynb)"
    assert "01_basic.ipynb is not there any more. It is run again when it comes back." in said
    assert said[-2:] == ["-- basic (mine.ipynb)", f"basic is not solved yet: {new}. For a hint: puzzles hint basic"]


def test_files_of_no_puzzle_are_passed_over(folder: Path, paper: Paper, states: dict[str, str]) -> None:
    (folder / "helper.py").write_text("def help(): ...\n")
    (folder / "broken.py").write_text("def (")
    watcher = Watcher(folder)
    assert list(watcher.files()) == ["basic", "grad_accum"]
    assert not watcher.changed([folder / "helper.py", folder / "broken.py", folder / "00_introduction.ipynb"])
    (folder / "helper.py").unlink()
    (folder / "01_basic.ipynb").unlink()
    watcher.changed([folder / "helper.py", folder / "01_basic.ipynb"])
    assert paper.taken() == ["01_basic.ipynb is not there any more. It is run again when it comes back."]
    assert not watcher.concerns(folder / ".~01_basic.ipynb")
    assert not watcher.concerns(folder / "notes.txt")


def test_the_puzzle_of_a_file_can_be_said(folder: Path, paper: Paper, states: dict[str, str]) -> None:
    both = folder / "both.py"
    both.write_text("def basic(model): ...\n\n\nasync def ddp(model): ...\n")
    states["both.py"] = "passed"
    assert Watcher(both).begin()
    assert paper.taken() == ["basic: passes", "ddp: passes", "Every puzzle here passes."]
    watcher = Watcher(both)
    states["both.py"] = "failed"
    assert not watcher.changed([both])
    assert [line for line in paper.taken() if line.startswith("--")] == ["-- basic (both.py)", "-- ddp (both.py)"]
    watcher = Watcher(both, "ddp")
    watcher.begin()
    assert paper.taken()[0] == "-- ddp (both.py)"


def test_without_watchfiles_it_says_what_to_install(
    folder: Path, paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(ImportError, match=r"watching needs the extra \"cli\""):
        keep_watching(Watcher(folder))
