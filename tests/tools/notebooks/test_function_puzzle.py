"""A puzzle whose answer is a plain function, from its record and its source to a student who solves it.

It is made up, and the only puzzle of a copy of this package: all that handles puzzles is asked about it there.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lib.files import ROOT
from tests.support.said import Said

SOURCE = """\
# %% [markdown]
# <!-- part: setup -->

# %% [markdown]
# <!-- part: top -->

# %% [markdown]
# # $heading
#
# A rank of a mesh has a place on each axis.

# %%
from lib import check_function, goal

# %%
goal("rank_of")

# %% [markdown]
# <!-- part: hints -->


# %%
def rank_of(places, sizes):
    # --- your code (about 4 lines) ---
    rank = 0
    for place, size in zip(places, sizes):
        rank = rank * size + place
    return rank
    # --- end of your code ---


# %%
check_function(rank_of, puzzle="rank_of")


# %% tags=["judge"]
def rank_of_inputs(draw):
    sizes = [draw.integer(1, 5) for _ in range(draw.integer(1, 4))]
    return [draw.integer(0, size - 1) for size in sizes], sizes


# %% [markdown]
# <!-- part: links -->
"""
ANSWER = SOURCE[SOURCE.index("    rank = 0") : SOURCE.index("    # --- end")]
WRONG = "return places[-1] + (places[0] * sizes[-1] if len(places) > 1 else 0)"  # right on one axis and on two
OTHER = '"""Counts down.\n\nFor those who like to."""\n\n\ndef rank_of(places, sizes):\n'

COMMANDS = """
import gc, json, os, subprocess, sys
import jupytext, nbclient
import drawing, tools.notebooks.verify, lib.suite.submissions.function_check
from lib.suite.cli.app import app

gc.freeze()
for line in sys.stdin:
    with open("stdout", "wb") as out, open("stderr", "wb") as err:
        if not hasattr(os, "fork"):
            command = [sys.executable, "-c", "from lib.suite.cli.app import app; app()", *json.loads(line)]
            status = subprocess.run(command, stdout=out, stderr=err).returncode
        elif pid := os.fork():
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        else:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0), os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
            try:
                app(json.loads(line))
            except SystemExit as ended:
                sys.stdout.flush(), sys.stderr.flush(), os._exit(ended.code or 0)
    print(status, flush=True)
"""
"""Runs `puzzles` with the arguments of each line, and prints the exit status."""

Puzzles = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for name in ("lib", "drawing", "solutions/parts"):
        # With what Python has compiled, which holds for a copy of the same time.
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("*-pytest-*", "_notebooks"))
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, root)
    shutil.copytree(Path(__file__).with_name("function_puzzle"), root / "lib" / "puzzles", dirs_exist_ok=True)
    (root / "solutions" / "mapping").mkdir()
    (root / "solutions" / "mapping" / "rank_of.py").write_text(SOURCE, "utf-8")
    (root / "solutions" / "alternatives").mkdir()
    other = ANSWER.replace("zip(places, sizes)", "zip(list(places), list(sizes))")
    (root / "solutions" / "alternatives" / "rank_of_other.py").write_text(OTHER + other, "utf-8")
    return root


@pytest.fixture(scope="module")
def puzzles(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Puzzles]:
    """The command of that copy, in a folder of a student's. Each run is a process: most are copies of one."""
    folder = tmp_path_factory.mktemp("student")
    environment = {**os.environ, "PYTHONPATH": str(tree), "PUZZLES_PROGRESS": str(folder / "progress.json")}
    environment["PYTHONDONTWRITEBYTECODE"] = ""  # each process would compile all of the copy again
    process = subprocess.Popen(
        [sys.executable, "-c", COMMANDS],
        cwd=folder,
        env=environment,
        encoding="utf-8",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    orders, answers = process.stdin, process.stdout

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        print(json.dumps(arguments), file=orders, flush=True)
        status = int(answers.readline())
        texts = (folder.joinpath(name).read_text("utf-8") for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess(arguments, status, *texts)

    with process:
        yield run


@pytest.fixture(scope="module")
def built(puzzles: Puzzles, tree: Path) -> Path:
    """The student's notebook, made by the builder, which gives it its number."""
    result = puzzles("build")
    assert result.returncode == 0, result.stderr
    return tree / "puzzles" / "mapping" / "01_rank_of.ipynb"


def solve(notebook: Path, path: Path, code: str) -> Path:
    data = json.loads(notebook.read_text("utf-8"))
    for cell in data["cells"]:
        text = "".join(cell["source"])
        cell["source"] = text.replace('    raise NotSolved("rank_of")', textwrap.indent(textwrap.dedent(code), "    "))
    path.write_text(json.dumps(data), "utf-8")
    return path


def test_the_notebooks(built: Path, tree: Path) -> None:
    student, solved = built.read_text("utf-8"), (tree / "solutions" / "mapping" / "01_rank_of.ipynb").read_text("utf-8")
    assert "# 1.1 Which rank is it?" in student
    assert 'raise NotSolved(\\"rank_of\\")' in student
    assert "rank * size" not in student
    assert "rank_of_inputs" not in student + solved
    assert "Which rank is it?: a function that is right on 3 given inputs and 60 others" in solved
    assert "Correct! Right on all of 63 inputs." in solved


def test_the_curriculum_is_in_order_and_says_what_is_not(built: Path, tree: Path, puzzles: Puzzles) -> None:
    result = puzzles("check")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "All is in order." in result.stdout
    source = tree / "solutions" / "mapping" / "rank_of.py"
    text = source.read_text("utf-8")
    try:
        source.write_text(text.replace("rank * size + place", "rank + size * place"), "utf-8")
        result = puzzles("check", "--stored")
        assert result.returncode == 1
        assert "01_rank_of, reference: rank_of(" in result.stderr
    finally:
        source.write_text(text, "utf-8")


def test_an_untouched_notebook_is_not_solved(built: Path, puzzles: Puzzles) -> None:
    for command in (["run", str(built)], ["check", str(built)]):
        result = puzzles(*command)
        assert result.returncode == 1
        assert result.stdout.startswith("rank_of is not solved yet\n")
    result = puzzles("watch", "--once", str(built))
    assert result.returncode == 1
    assert "rank_of is not solved yet" in result.stdout
    assert puzzles("reveal", "rank_of").stdout.startswith("rank_of has not been checked yet.")


SAID = Said(__file__, "function_puzzle")


@pytest.mark.parametrize("expression", SAID.texts)
def test_the_smallest_input_that_goes_wrong(built: Path, puzzles: Puzzles, tmp_path: Path, expression: str) -> None:
    def told(code: str) -> str:
        result = puzzles("run", str(solve(built, tmp_path / "01_rank_of.ipynb", code)))
        assert result.returncode == 1
        return result.stdout.rstrip("\n")

    SAID.check(expression, {"told": told, "WRONG": WRONG})


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("while True: pass", "rank_of did not end within 1 seconds, so it was stopped"),
        ("__import__('os')._exit(3)", "rank_of ended Python itself (exit status 3)"),
        ("return [[]] * 10**9", ""),
        ("print('here'); return 0", "here\n"),
        ("x = []; x.append(x); return x", "RecursionError"),
        ("raise SystemExit", "raises SystemExit"),
    ],
)
def test_whatever_it_does_it_ends_and_does_not_pass(
    built: Path, puzzles: Puzzles, tmp_path: Path, code: str, said: str
) -> None:
    mine = solve(built, tmp_path / "mine.ipynb", code)
    result = puzzles("watch", "--once", "--limit", "1", str(mine))
    assert result.returncode == 1
    assert said in result.stdout
    assert "Traceback" not in result.stdout + result.stderr


def test_there_is_nothing_to_draw(built: Path, puzzles: Puzzles) -> None:
    for command in ("draw", "review"):
        result = puzzles(command, "rank_of")
        assert result.returncode == 1
        assert "is a plain function" in result.stderr


def test_solved_at_last(built: Path, puzzles: Puzzles, tmp_path: Path) -> None:
    assert puzzles("hint", "rank_of").stdout.startswith("Hint 1, a question")
    listed = puzzles("list").stdout
    assert "a function" in listed
    assert "Who is where" in listed
    assert "0 of 1 solved" in listed
    assert "0 of 1 solved. Next: rank_of (Which rank is it?)" in puzzles().stdout
    mine = solve(built, tmp_path / "01_rank_of.ipynb", ANSWER)
    for command in (["run", str(mine)], ["check", str(mine)], ["watch", "--once", str(mine)]):
        result = puzzles(*command)
        assert result.returncode == 0, result.stdout + result.stderr
        assert "Correct! Right on all of 63 inputs." in result.stdout
    said = puzzles("reveal", "rank_of").stdout
    assert "rank = rank * size + place" in said
    assert "**other**: Counts down." in said
    assert "1 of 1 solved. There is nothing left to solve." in puzzles().stdout
    assert "1 of 1 solved" in puzzles("list").stdout
    assert puzzles("demo").returncode == 0
