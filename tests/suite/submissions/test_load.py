"""load_function: one function out of a file, and nothing else of it run."""

import json
import tempfile
from pathlib import Path

import pytest

from lib.suite.submissions.load import SourceError, load_function, puzzle_of
from tests.support.said import Said


def notebook(folder: Path, *cells: str, name: str = "work.ipynb") -> Path:
    """A notebook file with these code cells, the sources as lists of lines as Jupyter writes them."""
    made = [{"cell_type": "code", "metadata": {}, "source": cell.splitlines(keepends=True)} for cell in cells]
    text = {"cell_type": "markdown", "metadata": {}, "source": ["# def basic(model):\n"]}
    path = folder / name
    path.write_text(json.dumps({"cells": [text, *made], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


def written(folder: Path, text: str, name: str = "work.py") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_a_file_that_is_imported_and_is_not_python_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_helpers_with_a_slip.py").write_text("x = 1\ny = = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SourceError, match=r"^my_helpers_with_a_slip\.py, line 2: invalid syntax: y = = 2$"):
        load_function(
            notebook(tmp_path, "import my_helpers_with_a_slip\ndef basic(m):\n    my_helpers_with_a_slip.go()"), "basic"
        )


def loaded(text: str) -> str:
    """Why a function cannot be had of a text, in a file and in the only cell of a notebook."""
    with tempfile.TemporaryDirectory() as folder:
        files = written(Path(folder), text), notebook(Path(folder), text)
        return "\n".join(map(failure, files))


def as_notebook(text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return failure(written(Path(folder), text, "broken.ipynb"))


def failure(path: Path) -> str:
    with pytest.raises(SourceError) as caught:
        load_function(path, "basic")
    return str(caught.value)


test_why_a_function_cannot_be_had = Said(__file__, "loads").test(lambda: globals())


def test_files_that_will_not_do(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no file"):
        load_function(tmp_path / "absent.py", "basic")
    with pytest.raises(SourceError, match="there is no file"):
        load_function(tmp_path, "basic")
    with pytest.raises(SourceError, match=r"work\.txt is neither a notebook \(\.ipynb\) nor Python \(\.py\)"):
        load_function(written(tmp_path, "", "work.txt"), "basic")
    (tmp_path / "bytes.py").write_bytes(b"x = '\xff'")
    with pytest.raises(SourceError, match=r"bytes\.py is not text in UTF-8: invalid start byte at byte 5"):
        load_function(tmp_path / "bytes.py", "basic")


def test_which_puzzle_a_file_is_about(tmp_path: Path) -> None:
    assert puzzle_of("puzzles/05_fsdp.ipynb") == "fsdp"
    assert puzzle_of(written(tmp_path, "async  def ddp(model):\n    ...\n")) == "ddp"
    assert puzzle_of(notebook(tmp_path, "def helper(): ...", "def wsdp(m): ...", name="05_fsdp-Copy1.ipynb")) == "wsdp"
    with pytest.raises(
        SourceError,
        match=r"work\.py defines the function of no puzzle; it has `helper` \(line 1\); name one with --puzzle: ",
    ):
        puzzle_of(written(tmp_path, "def helper(): ...\n"))
    with pytest.raises(SourceError, match=r"of several puzzles \(ddp, fsdp\)"):
        puzzle_of(written(tmp_path, "def fsdp(model): ...\ndef ddp(model): ...\n"))


def test_a_class_of_ours_that_makes_something_is_not_changed_by_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a notebook makes of it below, when the answer has passed, is not a part of a function that uses it."""
    below = "verdict = print('ran')\nif not verdict:\n    batch = PhysicalBatch.filled(2, 8, 4, [0, 1], 8)\n"
    mine = "from lib.cluster.layouts import PhysicalBatch\na = print('ran')\ndef mine(): return a or PhysicalBatch\n"
    assert load_function(written(tmp_path, mine + below), "mine")().__name__ == "PhysicalBatch"
    assert capsys.readouterr().out == ""
