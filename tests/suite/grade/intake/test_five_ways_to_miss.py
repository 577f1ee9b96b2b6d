"""An empty hand-in, one untouched, one that cannot be read, a renamed function, a file of no puzzle: five words."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lib.suite.cli.app import app
from lib.suite.course.subject import attempt
from lib.suite.grade.gradebook import Refused
from lib.suite.grade.grading import missing
from lib.suite.grade.intake.collecting import collect
from lib.suite.grade.intake.submission import chosen
from lib.suite.submissions.source import STATES
from tests.suite.grade.classes import read_back
from tests.suite.grade.intake.trees import folder, notebook, stub

RENAMED = "from lib import Model\n\n\nasync def my_ddp(model):\n    return model\n"
OTHER_NAME = 'def helper(): ...\n\n\nasync def mine(model): ...\n\n\nmodels = simulate(mine, puzzle="ddp")\n'
HANDED_IN: Mapping[str, tuple[str, str | bytes, str]] = {
    "empty": ("03_ddp.ipynb", b"", "is empty"),
    "empty Python": ("03_ddp.py", b"", "is empty"),
    "blank": ("03_ddp.ipynb", notebook("", "  \n"), "is a notebook without code"),
    "unsolved": ("03_ddp.ipynb", notebook("from lib import NotSolved", stub("ddp")), "still holds its stub"),
    "unreadable": ("03_ddp.ipynb", notebook(RENAMED)[:-20], "is cut off"),
    "picture": ("03_ddp.ipynb", b"\x89PNG\r\n", "is a picture (PNG)"),
    "renamed": ("03_ddp.ipynb", notebook("x = 1", RENAMED), "`my_ddp` (code cell 2, line 4)"),
    "by its text": ("week1.ipynb", notebook(RENAMED, 'check(my_ddp, puzzle="ddp")'), "`my_ddp` (code cell 1, line 4)"),
    "by another name": ("homework.py", OTHER_NAME, "it has `mine` (line 4);"),
    "unrelated": ("essay.ipynb", notebook("print('my essay')"), "none of the puzzles"),
}
STATE = {name: name for name in STATES} | {
    "empty Python": "empty",
    "blank": "empty",
    "picture": "unreadable",
    "by its text": "renamed",
    "by another name": "renamed",
}

pytest_plugins = ["pytester"]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The class graded by the command, and its rows in the terminal, JSON, CSV and pages, by student."""
    out = tmp_path_factory.mktemp("five")
    files = {
        f"{name} One_{n}_assignsubmission_file_/{HANDED_IN[name][0]}": HANDED_IN[name][1]
        for n, name in enumerate(HANDED_IN)
    }
    command = ["grade", str(folder(out / "in", files)), "--out", str(out / "report"), "-p", "ddp", "-j", "1"]
    result = CliRunner().invoke(app, command, terminal_width=300)
    assert result.exit_code == 1, result.output
    made = read_back((out / "report" / "gradebook.json").read_text("utf-8"))
    rows = list(csv.DictReader((out / "report" / "scores.csv").read_text("utf-8-sig").splitlines()))
    found: dict[str, dict[str, Any]] = {}
    for student, row in zip(made.students, rows, strict=True):
        sent = (out / "report" / "feedback" / f"{Path(row['feedback']).stem}.txt").read_text("utf-8")
        page = (out / "report" / "feedback" / row["feedback"]).read_text("utf-8")
        found[student.name.removesuffix(" One")] = {
            "json": student.scores[0].state,
            "csv": row["ddp"],
            "text": sent,
            "page": page,
            "terminal": result.output,
            "notes": row["notes"],
        }
    return found


@pytest.mark.parametrize("how", HANDED_IN)
def test_each_has_its_word_everywhere(how: str, book: dict[str, dict[str, Any]]) -> None:
    state, found = STATES[STATE[how]], book[how]
    assert found["json"] == found["csv"] == state.word
    assert f"Distributed data parallel: {state.word}" in found["text"]
    assert f"</b> {state.word}</span>" in found["page"]
    assert state.word in found["terminal"]


@pytest.mark.parametrize("how", [how for how in HANDED_IN if how != "unsolved"])
def test_nobody_is_told_that_nothing_was_handed_in(how: str, book: dict[str, dict[str, Any]]) -> None:
    found, why = book[how], HANDED_IN[how][2]
    for place in ("text", "page"):
        assert why in found[place]
        assert "not handed in" not in found[place]
    if how != "unrelated":  # a file of one's own is a note, and no mistake
        assert why in found["notes"]
        assert why in " ".join(found["terminal"].split())


@pytest.mark.usefixtures("warm")
def test_the_run_command_has_the_same_words(tmp_path: Path) -> None:
    for how, (name, content, why) in HANDED_IN.items():
        path = next(folder(tmp_path / how, {name: content}).iterdir())
        found = attempt(path, "ddp" if "ddp" in name else None, 10)
        assert found.state == STATE[how], (how, found)
        assert why.rstrip(";") in found.text() or how in ("unsolved", "unreadable", "picture", "unrelated"), found


def test_a_renamed_function_is_refused_once_where_the_puzzle_is_nowhere_else(tmp_path: Path) -> None:
    right = "async def ddp(model):\n    return model\n"
    (both,) = collect(
        [folder(tmp_path / "a", {"Ana/03_ddp.ipynb": notebook(RENAMED), "Ana/final.py": right})]
    ).submissions
    assert not chosen(both, ["ddp"]).refused
    (other,) = collect(
        [folder(tmp_path / "b", {"Ana/05_fsdp.py": 'async def fsdp(m): ...\nx = dict(puzzle="ddp")\n'})]
    ).submissions
    assert not chosen(other, ["ddp", "fsdp"]).refused  # called after another puzzle
    (alone,) = collect([folder(tmp_path / "c", {"Ana/03_ddp.ipynb": notebook(RENAMED)})]).submissions
    (row,) = chosen(alone, ["ddp", "fsdp"]).refused
    assert (row.student, row.state, row.puzzle) == ("Ana", "renamed", "ddp")
    assert json.loads(json.dumps(row.why)) == (
        "defines no function `ddp`: it has `my_ddp` (code cell 1, line 4); call yours `ddp`, and hand it in again"
    )


def test_teaching_has_the_table_of_states() -> None:
    text = (Path(__file__).parents[4] / "TEACHING.md").read_text("utf-8")
    assert "\n".join(f"| {state.word} | {state.about} |" for state in STATES.values()) in text


def test_pytest_fails_for_a_renamed_function_in_a_folder_too(pytester: pytest.Pytester) -> None:
    files = {"03_ddp.ipynb": notebook(RENAMED), "ddp_helpers.py": "x = 1\n", "essay.ipynb": notebook("1")}
    folder(pytester.path, files)
    result = pytester.runpytest_inprocess("--puzzles", "-q", "-p", "no:randomly", ".")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*03_ddp.ipynb defines no function `ddp`: it has `my_ddp` (code cell 1, line 4)*"])


@pytest.mark.parametrize(
    ("file", "states"),
    [
        ("03_ddp.ipynb", {"ddp": "unreadable", "fsdp": "absent"}),
        ("final.ipynb", {"ddp": "unreadable", "fsdp": "unreadable"}),  # it may be any
        ("07_gpipe.ipynb", {"ddp": "absent", "fsdp": "absent"}),
    ],
)
def test_a_damaged_file_counts_for_what_it_may_have_been(file: str, states: dict[str, str]) -> None:
    row = Refused(f"class/Ana/{file}", "is cut off", "Ana")
    found = {puzzle: missing(puzzle, [row], others=False, anything=True).state for puzzle in states}
    assert found == states
    assert missing("ddp", [], others=True, anything=True).state == "absent"
    assert missing("ddp", [], others=False, anything=True).state == "unrelated"
    assert missing("ddp", [], others=False, anything=False).state == "absent"
