"""verify: one small puzzle that is in order, and each thing that can be wrong with it named; then two of them."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from lib import PUZZLES
from lib.puzzles.puzzle import AtSize, Goal, Puzzle
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.load import Notebook
from lib.suite.submissions.locations import reference
from tests.support.said import Said
from tools.notebooks import build as notebooks
from tools.notebooks import verify
from tools.notebooks.build import Source, read_sources

ANSWER = """\
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
"""
SOURCE = f"""\
# %% [markdown]
# # $heading

# %%
from lib import Model, simulate

# %%
def basic(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    activations[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    # --- your code (about 6 lines) ---
{ANSWER}    # --- end of your code ---


# %%
simulate(basic)
"""
EASY = Goal("passes", 17.0, 10**8)
RECORD = replace(PUZZLES["basic"], goals=(EASY,), hidden=(AtSize(1, 3, 1),), minutes=10)

Change = Callable[[str], str]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both folders of a curriculum of one puzzle, with kernels that say what real ones would."""
    (tmp_path / "solutions" / "basics").mkdir(parents=True)
    (tmp_path / "puzzles" / "basics").mkdir(parents=True)
    (tmp_path / "solutions" / "__pycache__").mkdir()  # which nobody minds
    put(tmp_path, SOURCE)

    def execute(notebooks: Mapping[Path, Notebook], *, warm: bool) -> list[Notebook | BuildError]:
        return [{"outputs": "basic is not solved yet"} for _ in notebooks]

    def build(root: Path, *, stored: bool) -> dict[str, str]:
        return {
            name: (root / name).read_text()
            for name in ("puzzles/basics/01_basic.ipynb", "solutions/basics/01_basic.ipynb")
        }

    monkeypatch.setattr(verify, "execute", execute)
    monkeypatch.setattr(verify, "build", build)
    monkeypatch.setattr(verify, "PUZZLES", {"basic": RECORD})
    return tmp_path


def put(root: Path, text: str) -> None:
    path = root / "solutions" / "basics" / "basic.py"
    path.write_text(text, "utf-8")
    (source,) = read_sources(root / "solutions")
    assert isinstance(source, Source)
    (root / "puzzles" / "basics" / "01_basic.ipynb").write_text(json.dumps(source.student()), "utf-8")
    (root / "solutions" / "basics" / "01_basic.ipynb").write_text(json.dumps(source.solved()), "utf-8")


def problems(root: Path) -> list[tuple[str, str]]:
    """What verify finds wrong: the check and what it says."""
    return [(finding.check, finding.problem) for finding in verify.verify(root) if finding.problem]


def test_a_puzzle_in_order(root: Path) -> None:
    findings = verify.verify(root)
    assert [(finding.stem, finding.check) for finding in findings] == [("01_basic", name) for name in verify.CHECKS]
    assert problems(root) == []


def test_a_record_without_a_source(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "build", notebooks.build)
    (root / "solutions" / "basics" / "basic.py").unlink()
    found = problems(root)
    assert found[0] == ("record", "solutions/basics/basic.py is missing")
    assert found[1][0] == "generated"
    assert found[1][1].endswith("solutions holds no <chapter>/<puzzle>.py to build from")
    assert found[2][0] == "reference"
    assert found[2][1].startswith("there is no file")


SAID = Said(__file__, "verify")


@pytest.mark.parametrize("expression", SAID.texts)
def test_what_is_wrong_is_said(root: Path, monkeypatch: pytest.MonkeyPatch, expression: str) -> None:
    def told() -> str:
        return "\n".join(map(": ".join, problems(root)))

    def record(**changes: Any) -> str:
        monkeypatch.setattr(verify, "PUZZLES", {"basic": replace(RECORD, **changes)})
        return told()

    def source(old: str, new: str) -> str:
        text = SOURCE.replace(old, new)
        put(root, text.replace("about 6 lines", "about 1 line") if old == ANSWER else text)
        return told()

    def file(name: str, old: str = "", new: str = "") -> str:
        text = (root / name).read_text("utf-8") if old else ""
        (root / name).write_text(text.replace(old, new), "utf-8")
        return told()

    def comes_of(step: str, result: Any) -> str:
        """What is said where building, or running the untouched notebook, gives this."""
        monkeypatch.setattr(verify, step, Mock(side_effect=[result]))
        return told()

    SAID.check(expression, {**globals(), "record": record, "source": source, "file": file, "comes_of": comes_of})


HINTS = ("What does this puzzle ask of you?", "One idea that helps with it.", "Here is nearly the whole code.")
FIRST = replace(PUZZLES["basic"], hints=HINTS, hidden=())
LATER = replace(PUZZLES["grad_accum"], hints=HINTS, hidden=())
GOOD = '''"""What it does.

What it is good for, and what it costs.
"""

from lib import Model


'''


@pytest.fixture
def curriculum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A curriculum of one puzzle, whose notebooks nobody looks at."""
    (tmp_path / "solutions" / "alternatives").mkdir(parents=True)
    (tmp_path / "solutions" / "basics").mkdir()
    for puzzle in ("basic", "grad_accum"):
        shutil.copy(reference(puzzle), tmp_path / "solutions" / "basics")
    for step in ("_generated", "_unsolved"):
        monkeypatch.setattr(verify, step, lambda *_: [])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    use(monkeypatch)
    return tmp_path


def use(monkeypatch: pytest.MonkeyPatch, first: Puzzle = FIRST, second: Puzzle = LATER) -> None:
    monkeypatch.setattr(verify, "PUZZLES", {first.id: first, second.id: second})


def found(curriculum: Path) -> list[tuple[str, str, str]]:
    return [(finding.stem, finding.check, finding.problem) for finding in verify.verify(curriculum) if finding.problem]


def body() -> str:
    text = reference("basic").read_text("utf-8")
    return text[text.index("def basic(") : text.index("\n\n\n", text.index("def basic("))] + "\n"


def test_two_puzzles_in_order(curriculum: Path) -> None:
    (curriculum / "solutions" / "alternatives" / "basic_same.py").write_text(GOOD + body(), "utf-8")
    assert found(curriculum) == []
    assert {finding.check for finding in verify.verify(curriculum)} >= {"hints", "alternatives"}


OF_SEVERAL = Said(__file__, "curriculum")


@pytest.mark.parametrize("expression", OF_SEVERAL.texts)
def test_what_is_wrong_with_several_is_said(curriculum: Path, monkeypatch: pytest.MonkeyPatch, expression: str) -> None:
    def told() -> str:
        return "\n".join(map(": ".join, found(curriculum)))

    def first(**changes: Any) -> str:
        use(monkeypatch, replace(FIRST, **changes))
        return told()

    def second(**changes: Any) -> str:
        use(monkeypatch, second=replace(LATER, **changes))
        return told()

    def beside(name: str, text: str) -> str:
        (curriculum / "solutions" / "alternatives" / name).write_text(text, "utf-8")
        return told()

    OF_SEVERAL.check(expression, {**globals(), "first": first, "second": second, "beside": beside})
