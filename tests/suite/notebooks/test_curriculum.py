"""What `puzzles check` says of hints, of what comes before what, and of alternatives."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lib import PUZZLES
from lib.puzzles.records import Puzzle
from lib.suite.notebooks import verify
from lib.suite.submissions.locations import reference
from tests.support.said import Said

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


SAID = Said(Path(__file__).with_name("said") / "curriculum.txt")


@pytest.mark.parametrize("expression", SAID.texts)
def test_what_is_wrong_is_said(root: Path, monkeypatch: pytest.MonkeyPatch, expression: str) -> None:
    def told() -> str:
        return "\n".join(map(": ".join, problems(root)))

    def first(**changes: Any) -> str:
        use(monkeypatch, replace(RECORD, **changes))
        return told()

    def second(**changes: Any) -> str:
        use(monkeypatch, second=replace(LATER, **changes))
        return told()

    def beside(name: str, text: str) -> str:
        (root / "solutions" / "alternatives" / name).write_text(text, "utf-8")
        return told()

    SAID.check(expression, {**globals(), "first": first, "second": second, "beside": beside})
