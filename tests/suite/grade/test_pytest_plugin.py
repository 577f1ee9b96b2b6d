"""Puzzles as tests of pytest: which there are, what they say, and that nothing of what is graded is imported."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import lib.suite.grade.grading  # here, so that a test does not import it in a pytest that forgets its modules
import lib.suite.grade.intake.collecting
from lib.suite.submissions.locations import reference
from tests.suite.grade.classes import STUB

assert lib.suite.grade.grading
assert lib.suite.grade.intake.collecting

pytest_plugins = ["pytester"]

OURS = reference("ddp").read_text("utf-8")
TALKS = """\
async def ddp(model):
    raise ValueError("\\x1b[31m red \\x00")
"""
EVIL = "__import__('pathlib').Path({!r}).touch()\n"


@pytest.fixture(autouse=True)
def inner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the inner pytest prints is looked at: it has 80 columns, and none of the outer one's plugins and colours. It
    starts no server of its own."""
    shared = request.getfixturevalue("shared")
    monkeypatch.setattr("lib.suite.isolation.isolation.Isolation", lambda: shared)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("PYTEST_PLUGINS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def grade(pytester: pytest.Pytester, *options: str | Path) -> pytest.RunResult:
    """A pytest of its own that grades, without what our own settings say."""
    return pytester.runpytest_inprocess(
        "-p", "lib.suite.grade.pytest_plugin", "-p", "no:asyncio", "-p", "no:xdist", *options
    )


def outcomes(result: pytest.RunResult) -> dict[str, str]:
    rows = [line.split() for line in result.outlines if "::" in line and "%]" in line]
    return {row[0]: row[1] for row in rows}


def test_a_test_for_each_puzzle_at_each_size(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("ann.py").write_text(OURS, "utf-8")
    pytester.path.joinpath("bob.py").write_text(STUB, "utf-8")
    pytester.path.joinpath("empty.ipynb").touch()
    pytester.path.joinpath("notes.py").write_text("NOTES = 1\n", "utf-8")
    result = grade(pytester, "--puzzles", "-v")
    assert outcomes(result) == {
        "ann.py::test_puzzle[ddp]": "PASSED",
        "ann.py::test_puzzle[ddp-2x3x2]": "PASSED",
        "ann.py::test_puzzle[ddp-8x1x8]": "PASSED",
        "bob.py::test_puzzle[ddp]": "FAILED",
        "bob.py::test_puzzle[ddp-2x3x2]": "SKIPPED",
        "bob.py::test_puzzle[ddp-8x1x8]": "SKIPPED",
        "empty.ipynb::test_puzzle": "FAILED",
    }
    result.stdout.fnmatch_lines(
        [
            "*_ test_puzzle[[]ddp[]] in bob.py _*",
            "ddp is not solved: it still holds its stub.",
            "*_ test_puzzle in empty.ipynb _*",
            "empty.ipynb is empty*",
            "FAILED bob.py::test_puzzle[[]ddp[]] - *ddp is not solved: it still holds *",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_what_is_asked_is_said_by_options_and_a_file(pytester: pytest.Pytester) -> None:
    slow = OURS.replace("lines) ---\n", f"lines) ---\n    for _ in range(9):\n        {WASTE}\n")
    pytester.path.joinpath("slow.py").write_text(slow, "utf-8")
    pytester.path.joinpath("grade.toml").write_text(
        'puzzles = ["ddp"]\n[puzzle.ddp]\nneed = "correct"\nhidden = [{ ranks = 3, layers = 2, batches = 3 }]\n',
        "utf-8",
    )
    asked = ["--puzzles", "-v", "--puzzles-config", "grade.toml", "slow.py"]
    assert outcomes(grade(pytester, *asked)) == {
        "slow.py::test_puzzle[ddp]": "PASSED",
        "slow.py::test_puzzle[ddp-3x2x3]": "PASSED",
    }
    result = grade(pytester, *asked, "--puzzles-need", "first", "-k", "ddp and not ddp-")
    assert outcomes(result) == {"slow.py::test_puzzle[ddp]": "FAILED"}
    result.stdout.fnmatch_lines(["Correct, but not within the goal yet.", 'needed is the goal "passes"'])


WASTE = "model.forward(0, activations[0], weights[0])"


def test_an_assignment_that_makes_no_sense_is_said(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("ann.py").write_text(OURS, "utf-8")
    pytester.path.joinpath("grade.toml").write_text("puzles = []\n", "utf-8")
    for options, text in {
        ("--puzzles", "--puzzles-config", "grade.toml"): "*puzles*",
        ("--puzzles", "--puzzles-config", "none.toml"): "*No such file*none.toml*",
        ("--puzzles-need", "best"): "*belong to --puzzles, which is not given*",
    }.items():
        result = grade(pytester, *options)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([text])
    result = grade(pytester, "--puzzles", "--puzzles-need", "fast")
    result.stdout.fnmatch_lines(["ddp has no goal 'fast'", "*one of first, best, correct*"])


def test_nothing_of_what_is_graded_is_imported(pytester: pytest.Pytester) -> None:
    trap = pytester.path / "imported"
    evil = EVIL.format(str(trap))
    for folder in (pytester.path, pytester.path / "bob"):
        folder.mkdir(exist_ok=True)
        for name in ("conftest.py", "__init__.py", "test_own.py", "helper.py"):
            folder.joinpath(name).write_text(evil, "utf-8")
        folder.joinpath("test_own.txt").write_text(f">>> {evil}", "utf-8")
        folder.joinpath("test_ddp.py").write_text(evil + OURS + evil, "utf-8")
    result = grade(pytester, "--puzzles", "-k", "not x", ".")
    result.assert_outcomes(passed=2, deselected=4)
    assert not trap.exists()
    grade(pytester, "--puzzles", "bob/test_ddp.py", "bob/test_own.py", "-k", "not x").assert_outcomes(
        passed=1, failed=1, deselected=2
    )
    assert not trap.exists()
    grade(pytester, "bob/test_own.py")
    assert trap.exists()


def test_modules_come_along_and_other_peoples_answers_do_not(pytester: pytest.Pytester) -> None:
    answer = OURS.partition("async def ddp")[2].partition("# %%")[0]
    pytester.path.joinpath("mine.py").write_text(f"from lib import Model\n\nasync def answer{answer}", "utf-8")
    pytester.path.joinpath("ann.py").write_text(
        "from mine import answer\n\nasync def ddp(model):\n    await answer(model)\n"
    )
    pytester.path.joinpath("bob.py").write_text("import ann\n\nasync def ddp(model):\n    await ann.ddp(model)\n")
    result = grade(pytester, "--puzzles", "-k", "not x", "-v")
    assert outcomes(result) == {"ann.py::test_puzzle[ddp]": "PASSED", "bob.py::test_puzzle[ddp]": "FAILED"}


def test_what_a_student_says_is_written_out(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("ann.py").write_text(TALKS, "utf-8")
    result = grade(pytester, "--puzzles", "--junitxml=out.xml", "--color=yes")
    assert "\x1b[31m red" not in result.stdout.str()
    result.stdout.fnmatch_lines(["*⟨U+001B⟩*red*⟨U+0000⟩*"])
    cases = {case.get("name"): case for case in ET.parse(pytester.path / "out.xml").iter("testcase")}
    assert "ValueError" in (cases["test_puzzle[ddp]"][0].text or "")


def test_without_the_option_all_is_as_ever(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("conftest.py").write_text("import pytest\n\n@pytest.fixture\ndef one():\n    return 1\n")
    pytester.path.joinpath("test_own.py").write_text("def test_one(one):\n    assert one == 1\n")
    pytester.path.joinpath("test_ddp.py").write_text(OURS, "utf-8")
    pytester.path.joinpath("test_own.txt").write_text(">>> 1\n1\n")
    grade(pytester).assert_outcomes(passed=2)
