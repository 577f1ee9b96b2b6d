"""A puzzle that is put in between two others: what a person writes, and what the builder does of itself."""

import shutil
import subprocess
import sys
from pathlib import Path

from lib import PUZZLES
from lib.files import ROOT, child_environment, ready
from lib.suite.submissions.locations import source_of
from tools.notebooks.build import left_behind

RECORD = """
[between]
title = "One in between"
needs = ["basic"]
teaches = "what is between one device and several batches"
minutes = 20
discuss = "Why?\\n\\n*Listen for:* that it is so, and who says it."
hints = ["What is in between?", "Something that is between.", "It is nearly the code of one device."]
ranks = 1
layers = 2
batches = 4
goals = [{ name = "passes", time = 17.0, memory = 3_200_000 }]
hidden = []

"""
BUILD = """
import sys
from pathlib import Path
from lib import PUZZLES
from tools.notebooks import build, kernels, verify

build.execute = lambda notebooks: list(notebooks.values())  # what they put out is not asked here
root = Path.cwd()
print(*build.left_behind(root), sep=chr(10))
print(*build.write(build.build(root), root), sep=chr(10))
problems = [verify._record_problem(root, record) for record in PUZZLES.values()]
assert not any(problems), problems
assert verify._extra(root) == build.left_behind(root) == [sys.argv[1]]
"""


SOURCE = """\
# %% [markdown]
# # $heading

# %%
from lib import Model

# %%
def NAME(model):
    # --- your code (about 1 line) ---
    model.status()
    # --- end of your code ---
"""


def test_a_puzzle_put_in_between_is_a_record_and_a_source(tmp_path: Path) -> None:
    for name in ("lib", "docs", "solutions/parts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*-pytest-*", "_notebooks"))
    for path in (*(ROOT / "solutions").glob("*.py"), ROOT / "pyproject.toml", ROOT / "constraints.txt"):
        shutil.copy(path, tmp_path / path.relative_to(ROOT))
    for puzzle, record in PUZZLES.items():
        if not record.part_of:
            path = ready(tmp_path / "solutions" / source_of(puzzle))
            path.write_text(SOURCE.replace("NAME", puzzle), "utf-8")
    mine = ready(tmp_path / "puzzles" / f"{PUZZLES['gpipe'].path}.ipynb")
    mine.write_text("{}")

    records = tmp_path / "lib" / "puzzles" / f"{PUZZLES['grad_accum'].chapter}.toml"
    records.write_text(records.read_text("utf-8").replace("[grad_accum]\n", f"{RECORD}[grad_accum]\n"), "utf-8")
    (tmp_path / "solutions" / "basics" / "between.py").write_text(SOURCE.replace("NAME", "between"), "utf-8")
    environment = {**child_environment(), "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", BUILD, mine.relative_to(tmp_path).as_posix()]
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True)
    assert (tmp_path / "puzzles" / "basics" / "02_between.ipynb").is_file()
    after = [puzzle for puzzle, record in PUZZLES.items() if record.chapter == "basics"][1:]
    for number, puzzle in enumerate(after, 3):
        path = tmp_path / "puzzles" / "basics" / f"{number:02d}_{puzzle}.ipynb"
        assert f"# 1.{number} {PUZZLES[puzzle].title}" in path.read_text("utf-8")
    assert (tmp_path / "puzzles" / f"{PUZZLES['interleaved'].path}.ipynb").is_file()  # as before
    page = (tmp_path / "docs/puzzles.md").read_text("utf-8")
    about = RECORD.split("teaches = ")[1].splitlines()[0][1:-1]
    assert f"| 1.2 | between | 1, 2, 4 | {about} | core |\n| 1.3 | grad" in page
    assert "1.2 One in between" in (tmp_path / "puzzles" / "00_index.ipynb").read_text("utf-8")


def test_notebooks_of_old_numbers_are_left_behind(tmp_path: Path) -> None:
    for name in ("puzzles/99_ddp.ipynb", f"puzzles/{PUZZLES['ddp'].path}.ipynb", "puzzles/98_unknown.ipynb"):
        ready(tmp_path / name).write_text("")
    assert left_behind(tmp_path) == ["puzzles/99_ddp.ipynb"]
