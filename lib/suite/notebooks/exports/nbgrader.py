"""Puzzles for nbgrader: the instructor's version of an assignment, as `nbgrader generate_assignment` takes it.

    source/<assignment>/05_fsdp.ipynb       the cells of the puzzle; what is marked in them:
        the gap                              the answer to be filled in, with our own one between BEGIN and END SOLUTION
        the check                            a locked test of 2 points: the puzzle's own size, and the goal
        a new cell below it                  a locked test of 1 point: other sizes, in a region of hidden tests
    nbgrader_config.py                       what stands in the gap of a student's copy, and how long a cell may take

A test fails where it raises, and nbgrader gives no points for it then. What the hidden regions call is in
`lib.suite.grade.plugins.nbgrader_tests`, which says what nbgrader does not protect from.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from lib.files import write_whole
from lib.puzzles.records import PUZZLES, Puzzle, puzzle_of_file
from lib.suite.notebooks.exports.colab import read_notebook, together
from lib.suite.submissions.gap import Answer, BuildError, find
from lib.suite.submissions.load import Notebook
from lib.suite.submissions.locations import reference

__all__ = ["CONFIG", "export", "instructors"]

POINTS: Final = {"check": 2, "other-sizes": 1}
SCHEMA: Final = 3
CONFIG: Final = """\
c = get_config()

# What stands in the gap of a student's copy: it is not solved yet, which is no error.
c.ClearSolutions.code_stub = {"python": 'raise NotSolved("this puzzle")'}
# Seconds for one cell; the tests simulate at several sizes.
c.ExecutePreprocessor.timeout = 120
"""
"""The settings of a course, where it has none."""


def export(
    notebooks: Iterable[Path], output: Path, assignment: str, *, need: str = "first", **hidden: int | str | None
) -> list[Path]:
    """Writes the instructor's version of students' notebooks into the course folder `output`, and the settings of a
    course unless it has some. `need`, and in `hidden` the words `hidden` and `seed`, are those of `puzzles grade`.

    Raises BuildError for a notebook that is no puzzle's, and for an assignment whose name nbgrader would refuse.
    """
    if not assignment or "+" in assignment or Path(assignment).name != assignment or assignment.startswith("."):
        raise BuildError(f"an assignment is called as a folder is, such as week_1; got {assignment!r}")
    made: dict[Path, str] = {}
    for path in notebooks:
        notebook = instructors(together({path: read_notebook(path)}), _record(path), need, hidden)
        made[output / "source" / assignment / path.name] = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    settings = output / "nbgrader_config.py"
    if not settings.exists():
        made[settings] = CONFIG
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    return list(made)


def instructors(notebook: Notebook, record: Puzzle, need: str, hidden: Mapping[str, int | str | None]) -> Notebook:
    """A student's notebook with our answer in it, and with what nbgrader has to know of its cells."""
    answer = _answer(record)
    cells: list[dict[str, Any]] = []
    for cell in notebook["cells"]:
        source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
        if cell["cell_type"] != "code":
            cells.append(cell)
            continue
        bare: dict[str, Any] = {**cell, "outputs": [], "execution_count": None}
        if answer[0] in source.splitlines():
            cells.append(_marked(bare, f"{record.id}-answer", source.replace(*answer)))
        elif _is_check(source):
            cells.append(_marked(bare, f"{record.id}-check", _check(source, record, need), POINTS["check"]))
            if test := _elsewhere(record, need, hidden):
                more: dict[str, Any] = {**bare, "id": f"{cell['id']}-other-sizes"}
                cells.append(_marked(more, f"{record.id}-other-sizes", test, POINTS["other-sizes"]))
        else:
            cells.append(bare)
    ids = [cell["metadata"]["nbgrader"]["grade_id"] for cell in cells if "nbgrader" in cell["metadata"]]
    if ids[:2] != [f"{record.id}-answer", f"{record.id}-check"] or len(set(ids)) < len(ids):
        raise BuildError(f"{record.stem}.ipynb has no gap with its stub, and one check after it, for nbgrader to grade")
    return {**notebook, "cells": cells}


def _record(path: Path) -> Puzzle:
    """The puzzle of a notebook."""
    found = puzzle_of_file(path.stem)
    if found is None:
        raise BuildError(f"{path.name} is no puzzle's, so there is nothing to grade; there are {', '.join(PUZZLES)}")
    return found


def _answer(record: Puzzle) -> tuple[str, str]:
    """The stub of a puzzle, and what takes its place: our own answer, between the marks of nbgrader."""
    path = reference(record.id)
    text = path.read_text("utf-8")
    ours: Answer = next(one for one in find(text, path.name, record.id) if one.puzzle == record.id)
    lines = text.splitlines()[ours.first : ours.last - 1]
    return ours.stub, "\n".join([f"{ours.indent}### BEGIN SOLUTION", *lines, f"{ours.indent}### END SOLUTION"])


def _is_check(source: str) -> bool:
    return "puzzle=" in source and ("Model.check(" in source or "check_function(" in source)


def _check(source: str, record: Puzzle, need: str) -> str:
    """A check as a test: what does not pass is an error, and what is shown is no number of points."""
    *lines, last = source.rstrip("\n").split("\n")
    ending = ast.parse(last).body[0]
    if isinstance(ending, ast.Expr) and not isinstance(ending.value, ast.Name):
        lines.append(f"verdict = {last}")
    goal = "" if need == "correct" or record.is_function else " and verdict.passed"
    unmet = f"{record.id} is not solved yet" + (", or not within the goal" if goal else "")
    lines += [
        f'assert verdict is not None{goal}, "{unmet}"',
        "display(verdict)",
        *_region("require", record, {"need": need}),
    ]
    return "\n".join(lines)


def _elsewhere(record: Puzzle, need: str, hidden: Mapping[str, int | str | None]) -> str:
    """The test of other sizes; empty where there are none."""
    given = {name: value for name, value in hidden.items() if value is not None}
    if given.get("hidden") == 0 or (not given and not record.hidden):
        return ""
    what = "other inputs" if record.is_function else "other sizes"
    return "\n".join([f"# Graded: {what}.", *_region("require_elsewhere", record, {"need": need, **given})])


def _region(function: str, record: Puzzle, words: Mapping[str, int | str | None]) -> list[str]:
    """Hidden tests: nbgrader takes them out of a student's copy, and puts them back before it grades."""
    given = "".join(f", {name}={json.dumps(value)}" for name, value in words.items())
    return [
        "### BEGIN HIDDEN TESTS",
        f"from lib.suite.grade.plugins.nbgrader_tests import {function}",
        "",
        f'{function}("{record.id}"{given})',
        "### END HIDDEN TESTS",
    ]


def _marked(cell: dict[str, Any], name: str, source: str, points: int | None = None) -> dict[str, Any]:
    """A cell as nbgrader wants it: a test that is worth points, or else an answer."""
    marks: dict[str, Any] = {"grade": points is not None, "grade_id": name, "locked": points is not None}
    marks |= {} if points is None else {"points": points}
    marks |= {"schema_version": SCHEMA, "solution": points is None, "task": False}
    kept = {} if points is None else {"deletable": False, "editable": False}
    return {**cell, "source": source, "metadata": {**cell["metadata"], **kept, "nbgrader": marks}}
