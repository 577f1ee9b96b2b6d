"""Assignments for nbgrader: what it reads in the cells, what a student gets, and which tests fail of what."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lib import PUZZLES
from lib.puzzles.records import of_one_notebook
from lib.suite.course.exports import chosen, export_nbgrader
from lib.suite.submissions.gap import BuildError
from tests.suite.course.test_graded import failed_cells

ANSWERS = re.compile(r" *### BEGIN SOLUTION\n.*?### END SOLUTION\n", re.DOTALL)
STUB = '    raise NotSolved("this puzzle")\n'
"""What the settings that are exported put in the place of an answer."""


def source(cell: dict[str, Any]) -> str:
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


def marked(notebook: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The cells that nbgrader knows, by their names."""
    cells = [cell for cell in notebook["cells"] if "nbgrader" in cell["metadata"]]
    return {cell["metadata"]["nbgrader"]["grade_id"]: cell for cell in cells}


def test_every_puzzle_can_be_an_assignment(tmp_path: Path) -> None:
    """The keys and names are those that nbgrader 0.9 accepts for schema version 3; the same bytes every time."""
    written = export_nbgrader(chosen([*PUZZLES]), tmp_path, "week_1")
    assert [path.relative_to(tmp_path).as_posix() for path in written] == [
        *dict.fromkeys(f"source/week_1/{record.stem}.ipynb" for record in PUZZLES.values()),
        "nbgrader_config.py",
    ]
    notebooks = {record.stem: of_one_notebook(record) for record in PUZZLES.values()}
    for path, records in zip(written, notebooks.values(), strict=False):
        notebook = json.loads(path.read_text("utf-8"))
        cells = marked(notebook)
        more = {record.id: ["other-sizes"] if record.hidden else [] for record in records}
        assert set(cells) == {f"{one}-{name}" for one, rest in more.items() for name in ("answer", "check", *rest)}
        for name, cell in cells.items():
            marks = cell["metadata"]["nbgrader"]
            graded = marks["grade"]
            assert {*marks} == {"grade", "grade_id", "locked", "schema_version", "solution", "task"} | (
                {"points"} if graded else set()
            )
            assert (marks["solution"], marks["locked"], marks["task"]) == (not graded, graded, False)
            assert re.fullmatch(r"[a-zA-Z0-9_\-]+", name)
            assert cell["cell_type"] == "code"
            assert source(cell).count("### BEGIN HIDDEN TESTS") == source(cell).count("### END HIDDEN TESTS") == graded
        text = "\n".join(map(source, notebook["cells"]))
        assert len(ANSWERS.findall(text)) == len(records)
        assert not any("raise NotSolved(" in source(cells[f"{record.id}-answer"]) for record in records)
        assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
        assert not any(cell.get("outputs") for cell in notebook["cells"])
    before = [path.read_bytes() for path in written]
    (tmp_path / "nbgrader_config.py").write_text("# theirs\n", "utf-8")
    assert export_nbgrader(chosen([*PUZZLES]), tmp_path, "week_1") == written[:-1]
    assert [path.read_bytes() for path in written[:-1]] == before[:-1]
    assert written[-1].read_text("utf-8") == "# theirs\n"


def copies(tmp_path: Path, puzzle: str, **answers: str) -> dict[str, Path]:
    """Notebooks as nbgrader runs them: each with a text in the gap, and with the hidden tests."""
    path, *_ = export_nbgrader(chosen([puzzle]), tmp_path, "week_1", seed="7")
    text = json.loads(path.read_text("utf-8"))
    found = {"ours": path}
    for name, answer in answers.items():
        cells = [{**cell, "source": ANSWERS.sub(lambda _, a=answer: a, source(cell))} for cell in text["cells"]]
        found[name] = tmp_path / f"{name}.ipynb"
        found[name].write_text(json.dumps({**text, "cells": cells}), "utf-8")
    return found


def test_the_tests_fail_for_what_is_unsolved_right_at_one_size_or_only_seems_right(tmp_path: Path) -> None:
    path, *_ = export_nbgrader(chosen(["ddp"]), tmp_path, "week_1")
    found = ANSWERS.search(source(marked(json.loads(path.read_text("utf-8")))["ddp-answer"]))
    assert found is not None
    forged = f"    Model.check = staticmethod(lambda *_, **__: type('Verdict', (), {{'passed': True}}))\n{STUB}"
    notebooks = copies(tmp_path, "ddp", untouched=STUB, one_size=found[0].replace("model.LAYERS", "2"), forged=forged)
    failed = failed_cells(*notebooks.values(), PUZZLES_GRADING="0")
    tests = {
        name: [re.findall(r"\b(require\w*)\(", source) for _, _, source in failed[str(path)]]
        for name, path in notebooks.items()
    }
    assert tests == {
        "ours": [],
        "untouched": [["require"], ["require_elsewhere"]],
        "one_size": [["require_elsewhere"]],
        "forged": [["require"], ["require_elsewhere"]],
    }


def test_what_cannot_be_an_assignment_is_said(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="nothing to grade"):
        export_nbgrader(chosen(["introduction"]), tmp_path, "week_1")
    for name in ("", "a+b", "../up", "a/b", ".hidden"):
        with pytest.raises(BuildError, match="is called as a folder is"):
            export_nbgrader(chosen(["ddp"]), tmp_path, name)
    mine = tmp_path / "03_ddp.ipynb"
    mine.write_text('{"cells": [{"cell_type": "code", "source": "1", "metadata": {}}], "metadata": {}}', "utf-8")
    with pytest.raises(BuildError, match="no gap with its stub"):
        export_nbgrader([mine], tmp_path, "week_1")


def test_goals_and_sizes_are_asked_as_by_puzzles_grade(tmp_path: Path) -> None:
    path, *_ = export_nbgrader(chosen(["ddp"]), tmp_path, "week_1", need="correct", hidden=3, seed="secret")
    cells = marked(json.loads(path.read_text("utf-8")))
    assert "verdict.passed" not in source(cells["ddp-check"])
    assert 'require("ddp", need="correct")' in source(cells["ddp-check"])
    assert 'require_elsewhere("ddp", need="correct", hidden=3, seed="secret")' in source(cells["ddp-other-sizes"])
    path, *_ = export_nbgrader(chosen(["ddp"]), tmp_path, "week_1", hidden=0)
    assert list(marked(json.loads(path.read_text("utf-8")))) == ["ddp-answer", "ddp-check"]
