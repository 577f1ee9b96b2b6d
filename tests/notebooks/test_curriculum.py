"""What `puzzles check` says of hints, of what comes before what, and of alternatives."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lib import PUZZLES
from lib.notebooks import verify
from lib.puzzles.records import Puzzle
from lib.submissions.locations import reference

HINTS = ("What does this puzzle ask of you?", "One idea that helps with it.", "Here is nearly the whole code.")
RECORD = replace(PUZZLES["basic"], hints=HINTS, hidden=())
LATER = replace(PUZZLES["grad_accum"], hints=HINTS, hidden=())
GOOD = '''"""What it does.

What it is good for, and what it costs.
"""

from lib import Model


'''


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A curriculum of one puzzle, whose notebooks nobody looks at."""
    (tmp_path / "solutions" / "alternatives").mkdir(parents=True)
    for puzzle in ("basic", "grad_accum"):
        shutil.copy(reference(puzzle), tmp_path / "solutions")
    for step in ("_generated", "_unsolved"):
        monkeypatch.setattr(verify, step, lambda *_: [])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    use(monkeypatch)
    return tmp_path


def use(monkeypatch: pytest.MonkeyPatch, first: Puzzle = RECORD, second: Puzzle = LATER) -> None:
    """Makes two records the only ones."""
    monkeypatch.setattr(verify, "PUZZLES", {first.id: first, second.id: second})


def problems(root: Path) -> list[tuple[str, str, str]]:
    return [(finding.stem, finding.check, finding.problem) for finding in verify.verify(root) if finding.problem]


def body() -> str:
    """The function of the reference solution of `basic`."""
    text = reference("basic").read_text("utf-8")
    return text[text.index("def basic(") : text.index("\n\n\n", text.index("def basic("))] + "\n"


def test_in_order(root: Path) -> None:
    (root / "solutions" / "alternatives" / "basic_same.py").write_text(GOOD + body(), "utf-8")
    assert problems(root) == []
    assert {finding.check for finding in verify.verify(root)} >= {"hints", "alternatives"}


@pytest.mark.parametrize(
    ("hints", "problem"),
    [
        (HINTS[:2], "it has 2 hints, and not 3: a question, an idea, nearly the code"),
        ((), "it has 0 hints, and not 3: a question, an idea, nearly the code"),
        (("", *HINTS[1:]), "hint 1 says nothing: ''"),
        ((HINTS[0], "TODO", HINTS[2]), "hint 2 says nothing: 'TODO'"),
        ((HINTS[0], HINTS[1], HINTS[1]), "two of its hints are the same"),
        ((HINTS[1], HINTS[0], HINTS[2]), "its first hint asks nothing: it has no question mark"),
    ],
)
def test_hints(root: Path, monkeypatch: pytest.MonkeyPatch, hints: tuple[str, ...], problem: str) -> None:
    use(monkeypatch, replace(RECORD, hints=hints))
    assert problems(root) == [("01_basic", "hints", problem)]


@pytest.mark.parametrize(
    ("first", "second", "stem", "problem"),
    [
        ({}, {"needs": ("basics",)}, PUZZLES["grad_accum"].stem, "it needs 'basics', and there is no such puzzle"),
        ({"needs": ("grad_accum",)}, {}, "01_basic", "it needs 'grad_accum', which does not come before it"),
        ({"needs": ("basic",)}, {}, "01_basic", "it needs 'basic', which does not come before it"),
        ({"teaches": " "}, {}, "01_basic", "it does not say what it teaches"),
    ],
)
def test_needs(
    root: Path, monkeypatch: pytest.MonkeyPatch, first: dict[str, Any], second: dict[str, Any], stem: str, problem: str
) -> None:
    use(monkeypatch, replace(RECORD, **first), replace(LATER, **second))
    assert problems(root) == [(stem, "record", problem)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GOOD + "def basic(model: Model) -> None: ...\n", "basic_x.py: "),
        (GOOD + "def basic(model: Model) -> None:\n    model.loss(3)\n", "basic_x.py: rank 0: "),
        (GOOD + "def basics(model: Model) -> None: ...\n", "basic_x.py: basic_x.py defines no function 'basic'"),
        (GOOD + "def basic(model: Model)\n", "basic_x.py: basic_x.py, line 9: expected ':'"),
        ("{body}", "basic_x.py: its docstring is a sentence on what it does, then what it is good for and costs"),
        ('"""One."""\n{body}', "basic_x.py: its docstring is a sentence on what it does, then what"),
    ],
)
def test_alternatives(root: Path, text: str, problem: str) -> None:
    path = root / "solutions" / "alternatives" / "basic_x.py"
    path.write_text(text.replace("{body}", "from lib import Model\n\n\n" + body()), "utf-8")
    ((stem, check, said),) = problems(root)
    assert (stem, check) == ("01_basic", "alternatives")
    assert said.startswith(problem)


@pytest.mark.parametrize("name", ["basics_x.py", "basic_x.txt", "notes.md", "basic.py"])
def test_what_no_puzzle_expects(root: Path, name: str) -> None:
    (root / "solutions" / "alternatives" / name).write_text("")
    problem = "nobody expects this file: remove it, or give it a record"
    assert problems(root) == [(f"solutions/alternatives/{name}", "record", problem)]
