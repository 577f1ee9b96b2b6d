"""Notebooks that are graded as they run: which cells fail, in all of ours, and by nbval whatever somebody saved."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lib.errors import graded
from lib.files import child_environment
from lib.suite.submissions.locations import notebook_in, reference
from tests.support.drivers import ROOT
from tests.support.profiles import THOROUGH

RUN = """
import json, sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

shell = InteractiveShell.instance()
from drawing import display  # where there is a shell, as in a notebook
from lib.errors import graded

display.register()
found = {}
for name in sys.argv[1:]:
    shell.reset(new_session=True)
    graded._stubs.clear()
    graded._left.clear()
    failed = found[name] = []
    for cell in json.loads(Path(name).read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            with capture_output():
                result = shell.run_cell(source, store_history=True)
            error = result.error_before_exec or result.error_in_exec
            if error is not None:
                failed.append((type(error).__name__, str(error).splitlines()[0], source))
print(json.dumps(found))
"""
"""Runs the cells of notebooks, all in one shell, and prints those that fail."""


def failed_cells(*notebooks: Path, **variables: str) -> dict[str, list[tuple[str, str, str]]]:
    """The cells that fail where notebooks are graded: with which error, its first line, and the cell."""
    environment = child_environment(**{"PUZZLES_GRADING": "1", "PUZZLES_PROGRESS": "off", **variables})
    command = [sys.executable, "-c", RUN, *map(str, notebooks)]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def test_an_untouched_notebook_fails_where_each_gap_is_run_and_a_solved_one_nowhere() -> None:
    notebooks = sorted((ROOT / "puzzles").rglob("[0-9]*.ipynb"))[:: 1 if THOROUGH else 11]
    solved = [notebook_in(ROOT / "solutions", name) for name in ("introduction", "ddp", "find_the_bug")]
    found = failed_cells(*notebooks, *solved)
    assert [found[str(path)] for path in solved] == [[], [], []]
    for notebook in notebooks:
        cells = [cell for cell in json.loads(notebook.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
        stubs = "".join("".join(cell["source"]) for cell in cells).count('raise NotSolved("')
        failed = found[str(notebook)]
        assert len(failed) == stubs, (notebook.stem, failed)
        for kind, message, source in failed:
            assert kind == "NotSolved"
            puzzle = message.removesuffix(" is not solved yet")
            assert f"= simulate({puzzle}, " in source or f"= check_function({puzzle}, " in source


SOURCE = reference("ddp").read_text("utf-8")
ANSWER = SOURCE.partition("lines) ---\n")[2].partition("    # --- end of your code")[0]
CORRECT: list[Any] = [{"output_type": "stream", "name": "stdout", "text": "Correct!\n"}]
ERROR: list[Any] = [{"output_type": "error", "ename": "CheckError", "evalue": "no", "traceback": ["no"]}]
KEPT = ("from drawing import draw", "async def ddp", "out = []", "draw(out)", "Model.check(out")
"""How the cells of a notebook begin that need to be run; each costs time."""


def handed_in(folder: Path, name: str, change: Callable[[str], str], outputs: list[Any], count: int | None) -> None:
    """A student's notebook of ddp with an answer, and with outputs of theirs in every cell."""
    notebook = json.loads(notebook_in(ROOT / "puzzles", "ddp").read_text("utf-8"))
    cells: list[Any] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and source.startswith(KEPT):
            cells.append({**cell, "source": change(source), "outputs": outputs, "execution_count": count})
    folder.joinpath(f"{name}.ipynb").write_text(json.dumps({**notebook, "cells": cells}), "utf-8")


def in_the_gap(code: str) -> Callable[[str], str]:
    return lambda source: source.replace('    raise NotSolved("ddp")\n', code)


def test_nbval_fails_in_the_cell_of_the_cause_whatever_outputs_were_saved(tmp_path: Path) -> None:
    """Also where saved outputs have no number, which nbval takes as a mistake, or are an error that is none now."""
    handed_in(tmp_path, "correct", in_the_gap(ANSWER), ERROR, None)
    handed_in(tmp_path, "forged", lambda source: source, CORRECT, 1)
    handed_in(tmp_path, "wrong", in_the_gap(""), CORRECT, 1)
    slow = f"    for _ in range(4):\n        model.forward(0, activations[0], weights[0])\n{ANSWER}"
    marked = in_the_gap(slow)
    handed_in(tmp_path, "missed", lambda source: f"# NBVAL_CHECK_OUTPUT\n{marked(source)}", CORRECT, 1)
    plugins = ("lib.suite.grade.pytest_plugin", "tools.notebooks.kernels", "no:cacheprovider", "no:asyncio")
    options = [word for plugin in plugins for word in ("-p", plugin)]
    nbval = ["--nbval-lax", "--nbval-current-env", "--color=no", "-q", "-rf"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *nbval, f"--rootdir={tmp_path}", "-c", os.devnull, str(tmp_path)],
        capture_output=True,
        text=True,
        env=child_environment(**{graded.VARIABLE: "1"}),
        cwd=tmp_path,
    )
    names = [line.split()[1:4] for line in ran.stdout.splitlines() if line.startswith("FAILED")]
    failed = sorted(" ".join(name) for name in names)
    assert failed == ["forged.ipynb::Cell 2 -", "missed.ipynb::Cell 4 -", "wrong.ipynb::Cell 4 -"], ran.stdout
    assert "Correct, but not within the goal yet." in ran.stdout
    assert "this is not one correct training step" in ran.stdout


@pytest.mark.parametrize("given", [{}, {"nbval_lax": True}])
def test_who_asks_for_no_grading_gets_nbval_as_it_is(given: dict[str, bool], pytester: pytest.Pytester) -> None:
    from lib.suite.grade import pytest_plugin

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(graded.VARIABLE, raising=False)
        config = pytester.parseconfig("-p", "lib.suite.grade.pytest_plugin")
        vars(config.option).update(given)
        before = set(config.pluginmanager.get_plugins())
        pytest_plugin.pytest_configure(config)
        assert set(config.pluginmanager.get_plugins()) == before


pytest_plugins = ["pytester"]
