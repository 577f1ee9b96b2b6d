"""verify: one small puzzle that is in order, and each thing that can be wrong with it named."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lib import PUZZLES
from lib.notebooks import build as notebooks
from lib.notebooks import verify
from lib.notebooks.build import Source, read_sources
from lib.puzzles.records import Goal, Hidden
from lib.submissions.gap import BuildError
from lib.submissions.load import Notebook

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
RECORD = replace(PUZZLES["basic"], goals=(EASY,), hidden=(Hidden(1, 3, 1),), minutes=20)

Change = Callable[[str], str]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both folders of a curriculum of one puzzle, with kernels that say what real ones would."""
    (tmp_path / "solutions").mkdir()
    (tmp_path / "puzzles").mkdir()
    put(tmp_path, SOURCE)

    def execute(notebooks: Mapping[Path, Notebook], *, warm: bool) -> list[Notebook | BuildError]:
        return [{"outputs": "basic is not solved yet"} for _ in notebooks]

    def build(root: Path, *, stored: bool) -> dict[str, str]:
        return {name: (root / name).read_text() for name in ("puzzles/01_basic.ipynb", "solutions/01_basic.ipynb")}

    monkeypatch.setattr(verify, "execute", execute)
    monkeypatch.setattr(verify, "build", build)
    monkeypatch.setattr(verify, "PUZZLES", {"basic": RECORD})
    return tmp_path


def put(root: Path, text: str) -> None:
    """Writes a source and the notebooks that it gives."""
    path = root / "solutions" / "01_basic.py"
    path.write_text(text, "utf-8")
    (source,) = read_sources(root / "solutions")
    assert isinstance(source, Source)
    (root / "puzzles" / "01_basic.ipynb").write_text(json.dumps(source.student()), "utf-8")
    (root / "solutions" / "01_basic.ipynb").write_text(json.dumps(source.solved()), "utf-8")


def problems(root: Path) -> list[tuple[str, str]]:
    """What verify finds wrong: the check and what it says."""
    return [(finding.check, finding.problem) for finding in verify.verify(root) if finding.problem]


def test_a_puzzle_in_order(root: Path) -> None:
    findings = verify.verify(root)
    assert [(finding.stem, finding.check) for finding in findings] == [("01_basic", name) for name in verify.CHECKS]
    assert problems(root) == []


def test_a_record_without_a_source(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "build", notebooks.build)
    (root / "solutions" / "01_basic.py").unlink()
    found = problems(root)
    assert found[0] == ("record", "solutions/01_basic.py is missing")
    assert found[1][0] == "generated"
    assert found[1][1].endswith("solutions holds no NN_name.py to build from")
    assert found[2][0] == "reference"
    assert found[2][1].startswith("there is no file")


def test_what_nobody_expects(root: Path) -> None:
    (root / "puzzles" / "notes.txt").write_text("")
    (root / "solutions" / "__pycache__").mkdir()
    assert problems(root) == [("record", "nobody expects this file: remove it, or give it a record")]


def test_a_title_that_is_not_the_records(root: Path) -> None:
    put(root, SOURCE.replace("$heading", "1. Two devices"))
    title = "solutions/01_basic.py has no line '# # $heading', for its number and its title"
    assert problems(root) == [("record", title)]


def test_goals_get_harder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "PUZZLES", {"basic": replace(RECORD, goals=(EASY, Goal("easier", 18.0, 10)))})
    assert ("record", "goal 'easier' asks for less than 'passes'") in problems(root)
    monkeypatch.setattr(verify, "PUZZLES", {"basic": replace(RECORD, goals=())})
    assert ("record", "it has no goals") in problems(root)


def test_a_reference_that_misses_a_goal(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "PUZZLES", {"basic": replace(RECORD, goals=(EASY, Goal("best", 17.0, 1000)))})
    assert problems(root) == [("reference", "time 17 and memory 4,718,592 miss 'best': time 17 and memory 1,000")]


@pytest.mark.parametrize(
    ("old", "new", "check", "problem"),
    [
        (ANSWER, "    pass\n", "reference", "layers 0 and 1"),
        (ANSWER, "    model.loss(3)\n", "reference", "rank 0:"),
        (ANSWER, "    raise NotSolved('basic')\n", "reference", "NotSolved"),
        ("model.LAYERS)):", "2)):", "hidden sizes", "1 ranks, 3 layers, 1 batches: "),
    ],
    ids=["incomplete", "error", "unsolved", "one size only"],
)
def test_a_reference_that_is_wrong(root: Path, old: str, new: str, check: str, problem: str) -> None:
    lines = 6 if old != ANSWER else 1
    put(root, SOURCE.replace(old, new).replace("about 6 lines", f"about {lines} lines"))
    found = dict(problems(root))
    assert problem in found[check]


def test_a_notebook_that_is_not_current(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "build", lambda *_, **__: {"puzzles/01_basic.ipynb": "new"})  # pyright: ignore[reportUnknownLambdaType]
    problem = "puzzles/01_basic.ipynb: not what solutions/01_basic.py gives; run `puzzles build`"
    assert problems(root) == [("generated", problem)]


def test_sources_that_cannot_be_built(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(root: Path, *, stored: bool) -> dict[str, str]:
        raise BuildError("01_basic.py, line 3: why")

    monkeypatch.setattr(verify, "build", build)
    assert problems(root) == [("generated", "01_basic.py, line 3: why")]


def test_a_students_notebook_that_is_solved(root: Path) -> None:
    path = root / "puzzles" / "01_basic.ipynb"
    text = path.read_text("utf-8")
    path.write_text(text.replace('raise NotSolved(\\"basic\\")', "pass"), "utf-8")
    assert problems(root) == [("unsolved", "basic in the student's notebook does not raise NotSolved")]


def test_an_untouched_notebook_that_fails(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def say(result: Any) -> None:
        monkeypatch.setattr(verify, "execute", lambda notebooks, warm: [result] * len(notebooks))  # pyright: ignore

    say(BuildError("01_basic.ipynb fails: NameError: name 'x' is not defined"))
    assert problems(root) == [("unsolved", "01_basic.ipynb fails: NameError: name 'x' is not defined")]
    say({"outputs": "Correct!"})
    assert problems(root) == [("unsolved", "run from top to bottom it does not say that basic is not solved yet")]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"minutes": 90}, "minutes are 90: say a multiple of 5 near 19, the estimate"),
        ({"minutes": 19}, "minutes are 19: say a multiple of 5 near 19, the estimate"),
        ({"discuss": "*Listen for:* that it is so, and who says it."}, "what to discuss is a question, and then"),
        ({"discuss": "Why?"}, "what to discuss is a question, and then"),
        ({"discuss": "Why? *Listen for:* this."}, "what to discuss is a question, and then"),
    ],
)
def test_what_is_said_for_whoever_teaches(
    root: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], problem: str
) -> None:
    monkeypatch.setattr(verify, "PUZZLES", {"basic": replace(RECORD, **change)})
    ((stem, check, said),) = [
        (one.stem, one.check, one.problem)
        for one in verify._teaching(root)
        if one.problem  # pyright: ignore
    ]
    assert (stem, check) == ("01_basic", "teaching")
    assert said.startswith(problem)
