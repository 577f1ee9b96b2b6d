"""A student's function in a process of its own: whatever it does, we hear what came of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lib.course.attempt import MAX_PRINTED, attempt
from lib.course.progress import Standing, load
from lib.submissions.locations import reference

HEAD = "from lib import Model, NotSolved\nimport os\n\n\n"


@pytest.fixture
def write(tmp_path: Path, file: Path) -> Path:
    """The file to write a function into."""
    return tmp_path / "01_basic.py"


def tried(path: Path, body: str, limit: float = 30) -> tuple[str, str, str]:
    path.write_text(f"{HEAD}def basic(model):\n    {body}\n", "utf-8")
    found = attempt(path, "basic", limit)
    assert found.puzzle == "basic"
    return found.state, found.text, found.printed


def test_a_solution_passes_and_is_recorded(file: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(reference("ddp").read_text("utf-8"), "utf-8")
    found = attempt(mine, "ddp")
    assert found.state == "passed"
    assert found.text.startswith("Correct!\nTime 5.6 steps")
    assert load() == {"ddp": Standing(1, True, "as good as our reference", 5.6, 1_572_864.0)}


def test_our_own_solution_is_nobodys_progress(file: Path) -> None:
    assert attempt(reference("ddp"), "ddp").state == "passed"
    assert load() == {}


def test_a_stub_is_unsolved(write: Path) -> None:
    assert tried(write, 'raise NotSolved("basic")') == ("unsolved", "", "")
    assert load() == {}


def test_what_is_no_training_step_fails_with_its_verdict(write: Path) -> None:
    state, text, printed = tried(write, "print('here'); model.get_activation([0])")
    assert state == "failed"
    assert text.startswith("Not one correct training step.")
    assert printed == "here\n"
    assert load() == {"basic": Standing(runs=1)}


def test_a_loop_that_never_ends_is_stopped_and_located(write: Path) -> None:
    state, text, printed = tried(write, "print('before')\n    while True:\n        model.rank", limit=1)
    assert state == "failed"
    assert text.startswith("basic did not end within 1 seconds, so it was stopped\n")
    assert "where:    01_basic.py, line 7, in basic: while True:" in text or "line 8, in basic: model.rank" in text
    assert printed == "before\n"


def test_one_long_operation_is_stopped_from_outside(write: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.course.attempt.GRACE", 1.0)
    state, text, _ = tried(write, "sum(range(10**13))", limit=1)
    assert (state, text.splitlines()[0]) == ("failed", "basic did not end within 1 seconds, so it was stopped")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("undefined", "NameError: name 'undefined' is not defined"),
        ("model.loss(3)", "rank 0:"),
        ("os._exit(4)", "basic ended Python itself (exit status 4)"),
        ("raise SystemExit(5)", "basic ended Python itself (exit status 5)"),
        ("x = = 3", "01_basic.py, line 6: invalid syntax: x = = 3"),
        ("basic(model)", "RecursionError"),
    ],
)
def test_what_fails_says_why_without_a_traceback(write: Path, body: str, message: str) -> None:
    state, text, _ = tried(write, body)
    assert state == "failed"
    assert message in text
    assert "Traceback" not in text


def test_what_it_prints_is_kept_up_to_a_limit(write: Path) -> None:
    state, _, printed = tried(write, "for n in range(10**5): print('all work and no play', n)")
    assert state == "failed"
    assert printed.startswith("all work and no play 0\n")
    assert printed.endswith("(and more)")
    assert len(printed) < MAX_PRINTED + 20


def test_a_file_called_as_a_module_of_pythons_is_in_nobodys_way(write: Path) -> None:
    for name in ("random", "json", "lib"):
        (write.parent / f"{name}.py").write_text("raise RuntimeError\n", "utf-8")
    write.write_text("def basic(model):\n    model.get_activation([0])\n", "utf-8")
    assert attempt(write, "basic", 30).text.startswith("Not one correct training step.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"cells": [', "01_basic.ipynb is not a notebook"),
        ("", "01_basic.ipynb is not a notebook"),
        ('{"cells": []}', "01_basic.ipynb defines no function 'basic'; its functions: none"),
    ],
)
def test_a_notebook_that_is_half_saved(file: Path, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "01_basic.ipynb"
    path.write_text(text)
    found = attempt(path, "basic", 30)
    assert found.state == "failed"
    assert message in found.text


def test_a_file_that_is_gone(file: Path, tmp_path: Path) -> None:
    found = attempt(tmp_path / "01_basic.ipynb", "basic", 30)
    assert (found.state, found.text) == ("failed", f"there is no file {tmp_path / '01_basic.ipynb'}")


@pytest.mark.parametrize("result", ["", "[]", '{"state": "solved", "text": "", "printed": ""}', '{"state": "passed"}'])
def test_a_forged_result_is_none(write: Path, result: str) -> None:
    code = f"import sys; open(sys.argv[4], 'w').write({result!r}); os._exit(0)"
    assert tried(write, code)[:2] == ("failed", "basic ended Python itself (exit status 0)")
