"""Every form in which a notebook leaves us and comes back, by every reader: each says the same of the same answer.

A new form, way back or reader is a row of a table here. How Colab and JupyterLab save is as in files of theirs: Colab
writes format 4.0, puts the id of a cell into its metadata beside its own marks, and escapes `<`, `>` and `&`.
"""

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lib.files import child_environment
from lib.puzzles.records import PUZZLES
from lib.suite.cli.app import app
from lib.suite.cli.entries import chosen, entries_of
from lib.suite.cli.learner import Watcher
from lib.suite.course.exports import edition, instructors, set_up, together
from lib.suite.course.subject import attempt, subjects
from lib.suite.grade.assignment import Config
from lib.suite.grade.grading import grade
from lib.suite.grade.intake.collecting import collect
from lib.suite.submissions.gap import find
from lib.suite.submissions.locations import notebook_in, reference
from lib.suite.submissions.source import Source
from tests.support.profiles import THOROUGH

ROOT = Path(__file__).parents[3]
Notebook = dict[str, Any]
PUZZLE = "ddp"


@cache
def students(puzzle: str) -> Notebook:
    """The student's notebook of a puzzle, as it is built."""
    path = notebook_in(ROOT / "puzzles", puzzle)
    return json.loads(path.read_text("utf-8"))


def joined(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


# -- how it leaves us ------------------------------------------------------------------------------------------------


def in_colab(*puzzles: str) -> Notebook:
    paths = {Path(f"{PUZZLES[puzzle].stem}.ipynb"): students(puzzle) for puzzle in puzzles}
    return edition(together(paths), "week1.ipynb", package())


@cache
def package() -> str:
    return set_up()


def in_nbgrader() -> Notebook:
    """What `nbgrader generate_assignment` makes of the instructor's version: no solution, no hidden tests."""
    record = PUZZLES[PUZZLE]
    found = instructors(together({Path("ddp.ipynb"): students(PUZZLE)}), record, "first", {})
    cells: list[dict[str, Any]] = []
    for cell in found["cells"]:
        text = re.sub(r"(?s)### BEGIN SOLUTION.*?### END SOLUTION", 'raise NotSolved("this puzzle")', joined(cell))
        text = re.sub(r"(?s)### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS", "", text)
        cells.append({**cell, "source": text})
    return {**found, "cells": cells}


FORMS: dict[str, Callable[[], Notebook]] = {
    "plain": lambda: students(PUZZLE),
    "colab": lambda: in_colab(PUZZLE),
    "colab, three in one": lambda: in_colab("fsdp", PUZZLE, "gpipe"),
    "nbgrader": in_nbgrader,
}


# -- how it comes back ------------------------------------------------------------------------------------------------


def solved(notebook: Notebook) -> Notebook:
    """With our own answer over each stub."""
    cells: list[dict[str, Any]] = []
    for cell in notebook["cells"]:
        text = joined(cell)
        if found := re.search(r"(async )?def (\w+)\(model.*\n(?s:.)*?( *)raise NotSolved\(.*\)", text):
            text = text.replace(found[0].rpartition("\n")[2], textwrap.indent(answer(found[2]), found[3]))
        cells.append({**cell, "source": text})
    return {**notebook, "cells": cells}


@cache
def answer(puzzle: str) -> str:
    text = reference(puzzle).read_text("utf-8")
    (found,) = [one for one in find(text, "ours", puzzle) if one.puzzle == puzzle]
    return textwrap.dedent("\n".join(text.splitlines()[found.first : found.last - 1]))


def in_lines(cell: dict[str, Any]) -> list[str]:
    return joined(cell).splitlines(keepends=True)


def from_colab(notebook: Notebook) -> str:
    cells: list[dict[str, Any]] = []
    for cell in solved(notebook)["cells"]:
        metadata = {**cell["metadata"], "id": cell["id"]}
        saved = {"cell_type": cell["cell_type"], "source": in_lines(cell), "metadata": metadata}
        if cell["cell_type"] == "code":
            metadata |= {"colab": {"base_uri": "https://localhost:8080/", "height": 321}, "outputId": "38b77c7f-dea0"}
            metadata |= {"executionInfo": {"status": "ok", "timestamp": 1700000000000, "user_tz": -60, "elapsed": 812}}
            text = {"output_type": "stream", "name": "stdout", "text": ["Correct!\n"]}
            html = {"text/plain": ["<IPython.core.display.HTML object>"], "text/html": ["<svg>", "x" * 9000, "</svg>"]}
            saved |= {
                "execution_count": 3,
                "outputs": [text, {"output_type": "display_data", "data": html, "metadata": {}}],
            }
        cells.append(saved)
    metadata = {
        "colab": {
            "provenance": [],
            "toc_visible": True,
            "gpuType": "T4",
            "authorship_tag": "ABX9TyPyZQX3MXpVCjeT4Cz3rXTr",
        },
        "kernelspec": {"name": "python3", "display_name": "Python 3"},
        "language_info": {"name": "python"},
        "accelerator": "GPU",
    }
    text = json.dumps({"nbformat": 4, "nbformat_minor": 0, "metadata": metadata, "cells": cells}, indent=2)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def from_jupyterlab(notebook: Notebook) -> str:
    cells = [{**cell, "source": in_lines(cell)} for cell in solved(notebook)["cells"]]
    for number, cell in enumerate(cells):
        cell["metadata"] = {**cell["metadata"], "editable": True, "slideshow": {"slide_type": ""}, "trusted": True}
        if cell["cell_type"] == "code":
            cell |= {"execution_count": number + 1, "outputs": []}
    mode = {"codemirror_mode": {"name": "ipython", "version": 3}, "file_extension": ".py", "pygments_lexer": "ipython3"}
    metadata = {**notebook["metadata"], "language_info": {"name": "python", "version": "3.11.7", **mode}, "widgets": {}}
    found = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def executed(notebook: Notebook) -> str:
    """With the outputs that the solved notebook of the repository has."""
    file = notebook_in(ROOT / "solutions", PUZZLE)
    ran = {cell["id"]: cell for cell in json.loads(file.read_text("utf-8"))["cells"]}
    cells: list[dict[str, Any]] = []
    for number, cell in enumerate(solved(notebook)["cells"], 1):
        outputs = ran.get(cell["id"], {}).get("outputs", [])
        more = {"outputs": outputs, "execution_count": number} if cell["cell_type"] == "code" else {}
        cells.append({**cell, **more})
    return json.dumps({**notebook, "cells": cells})


WAYS_BACK: dict[str, Callable[[Notebook], str]] = {
    "untouched": json.dumps,
    "solved": lambda notebook: json.dumps(solved(notebook)),
    "saved by Colab": from_colab,
    "saved by JupyterLab": from_jupyterlab,
    "executed": executed,
}


@pytest.fixture
def handed_in(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes a form that came back a way, as a student's only file."""

    def write(form: str, way: str) -> Path:
        name = "Copy of week1.ipynb" if "three" in form else f"{PUZZLES[PUZZLE].stem}.ipynb"
        path = tmp_path / "class" / "Ana Bot_1_assignsubmission_file" / name
        path.parent.mkdir(parents=True)
        path.write_text(WAYS_BACK[way](FORMS[form]()), "utf-8")
        return path

    return write


# -- who reads it -----------------------------------------------------------------------------------------------------


def of_command(*words: str) -> str:
    result = CliRunner().invoke(app, words)
    return "passed" if result.exit_code == 0 else "unsolved" if "not solved yet" in result.output else result.output


def by_run(path: Path) -> str:
    return attempt(path, PUZZLE, 30).state


def by_compare(path: Path) -> str:
    (entry,) = entries_of(chosen([str(path)], PUZZLE))
    return {"correct": "passed", "not solved": "unsolved"}.get(entry.state, entry.message)


def by_grade(path: Path) -> str:
    config = Config().with_options(puzzles=[PUZZLE])
    book = grade(collect([path.parents[1]]), config.assignment(), path.parents[2] / "report")
    assert not book.refused
    (student,) = book.students
    return student.scores[0].state


def of_pytest(path: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.notebooks", f"--rootdir={path.parent}"]
    command += ["-c", os.devnull, *options, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=child_environment(PUZZLES_PROGRESS="off"))
    return "passed" if done.returncode == 0 else "unsolved" if "is not solved" in done.stdout else done.stdout


READERS: dict[str, Callable[[Path], str]] = {
    "run": by_run,
    "check": lambda path: of_command("check", str(path), "--puzzle", PUZZLE),
    "watch": lambda path: "passed" if Watcher(path, PUZZLE, 30).begin() else "unsolved",
    "review": lambda path: of_command("review", str(path), "--puzzle", PUZZLE),
    "compare": by_compare,
    "gallery": lambda path: by_compare(path.parents[1]),  # a class
    "grade": by_grade,
}
if THOROUGH:  # at a commit: tests/suite/grade/test_pytest_plugin.py
    READERS["pytest --puzzles"] = lambda path: of_pytest(path, "--puzzles", "-k", f"test_puzzle[{PUZZLE}]")
EVERY = [(form, way) for form in FORMS for way in WAYS_BACK]
SOME = EVERY[::3]  # each form and each way back
HARDEST = [("colab, three in one", "saved by Colab")]


@pytest.mark.parametrize(("form", "way"), EVERY if THOROUGH else SOME, ids=str)
def test_the_same_function_is_read_of_every_form(form: str, way: str, handed_in: Callable[[str, str], Path]) -> None:
    path = handed_in(form, way)
    source = Source.of("a.ipynb", path.read_text("utf-8"))
    plain = Source.of("a.ipynb", WAYS_BACK[way](students(PUZZLE)))
    assert source.puzzles() == (("ddp", "fsdp", "gpipe") if "three" in form else ("ddp",))
    assert subjects(str(path)) == (("ddp", "fsdp", "gpipe") if "three" in form else (None,))
    if (form, way) != ("nbgrader", "untouched"):  # its stub is not that of the puzzle: it raises when it runs
        assert source.untouched(PUZZLE) == (way == "untouched")
        assert source.normalised(PUZZLE) == plain.normalised(PUZZLE) != ""
    (submission,) = collect([path]).submissions
    ((_, read),) = submission.sources()
    assert isinstance(read, Source)
    assert [text for _, text in read.cells] == [text for _, text in source.cells]
    assert sum(len(text) for _, text in read.cells) < 60_000  # no limit is near


@pytest.mark.timeout(120)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("form", "way"), EVERY if THOROUGH else HARDEST, ids=str)
def test_every_reader_says_the_same(form: str, way: str, reader: str, handed_in: Callable[[str, str], Path]) -> None:
    assert READERS[reader](handed_in(form, way)) == ("unsolved" if way == "untouched" else "passed")


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("form", "way"), [one for one in EVERY if one[0] != "nbgrader"], ids=str)
def test_nbval_has_nothing_against_it(form: str, way: str, handed_in: Callable[[str, str], Path]) -> None:
    """Not even untouched: ordinary nbval looks for errors, and a stub is none."""
    assert of_pytest(handed_in(form, way), "--nbval-lax", "--nbval-current-env") == "passed"


def test_a_file_with_several_puzzles_is_run_with_all_of_them(handed_in: Callable[[str, str], Path]) -> None:
    path = handed_in("colab, three in one", "saved by Colab")
    result = CliRunner().invoke(app, ["run", "--json", str(path)])
    runs = json.loads(result.output)["runs"]
    assert {run["puzzle"]: run["state"] for run in runs} == dict.fromkeys(("ddp", "fsdp", "gpipe"), "passed")
    assert result.exit_code == 0
    of_one = CliRunner().invoke(app, ["check", str(path)])
    assert of_one.exit_code == 1
    assert "several puzzles (ddp, fsdp, gpipe); name one with" in " ".join(of_one.output.split())
    path.write_text(path.read_text("utf-8").replace("def gpipe(", "def my_gpipe("), "utf-8")
    result = CliRunner().invoke(app, ["run", "--json", str(path)])
    assert [run["state"] for run in json.loads(result.output)["runs"]] == ["passed", "passed", "renamed"]
    assert result.exit_code == 1


# -- what students do to the set-up cell ------------------------------------------------------------------------------


def with_package(change: Callable[[str], str]) -> Source:
    notebook = solved(in_colab(PUZZLE))
    cells = [
        {**cell, "source": change(joined(cell)) if "PACKAGE" in joined(cell) else joined(cell)}
        for cell in notebook["cells"]
    ]
    return Source.of("a.ipynb", json.dumps({**notebook, "cells": cells}))


EDITS: dict[str, Callable[[str], str]] = {
    "title": lambda text: text.replace("# @title Set up: run this cell first", "# my set-up"),
    "indented": lambda text: textwrap.indent(text, "    "),
    "commented out": lambda text: textwrap.indent(text, "# "),
    "Windows": lambda text: text.replace("\n", "\r\n"),
    "a line lost": lambda text: re.sub(r"\n[A-Za-z0-9+/]{120}\n", "\n", text, count=1),
    "code after it": lambda text: f"{text}\nimport os\n",
    "twice": lambda text: f"{text}\n{text}",
    "an older one": lambda text: re.sub(r"(?m)^[A-Za-z0-9+/]{120}$", lambda line: f"{line[0]}\n{line[0]}", text),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_is_done_to_the_set_up_cell_changes_nothing(edit: str) -> None:
    source = with_package(EDITS[edit])
    assert source.puzzles() == (PUZZLE,)
    assert source.normalised(PUZZLE) == with_package(str).normalised(PUZZLE) != ""


def test_as_python_it_is_read_too(tmp_path: Path) -> None:
    """Colab's "Download .py"."""
    text = "\n\n".join(joined(cell) for cell in solved(in_colab(PUZZLE))["cells"] if cell["cell_type"] == "code")
    (tmp_path / "03_ddp.py").write_text(text, "utf-8")
    assert by_run(tmp_path / "03_ddp.py") == "passed"


def test_nothing_that_runs_hides_in_a_package() -> None:
    """Bytes that are left out of the text are left out of what runs as well, and never reach a parser."""
    packed = "\n".join(["QUJD" * 30] * 3000)
    hidden = f'CODE = """\n{packed}\n"""\n\ndef basic(model):\n    return CODE\n'
    source = Source.of("a.py", hidden)
    assert source.cells[0][1].count("QUJD") == 0
    assert source.cells[0][1].count("\n") == hidden.count("\n")  # lines keep their numbers
    few = replace(source, cells=Source.of("a.py", hidden.replace(packed, packed[:100_000])).cells)
    assert few.cells[0][1].count("QUJD") > 20_000  # so much somebody may have written
