"""The autograder for Gradescope: its zip, and what it writes for a submission, in the folders that Gradescope has."""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.suite.cli.commands import puzzles
from tests.suite.grade.classes import RAISES, solution

pytest.importorskip("jinja2")

CONFIG = """
deadline = 2026-11-01T23:59:00
hidden = 1
seed = "not told"
[points]
correct = 4
hidden = 2
by_hand = 2
[late]
percent = 10
"""


EXPORT = ("--gradescope", "ddp", "fsdp")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as Gradescope makes it of the zip."""
    base = tmp_path_factory.mktemp("gradescope")
    (base / "grade.toml").write_text(CONFIG, "utf-8")
    assert puzzles("export", *EXPORT, "--config", base / "grade.toml", "-o", base / "autograder.zip").exit_code == 0
    with zipfile.ZipFile(base / "autograder.zip") as archive:
        archive.extractall(base / "source")
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    setup, project = base / "source/setup.sh", tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    needed = [re.split("[<>;]", one)[0] for one in project["optional-dependencies"]["grade"]]
    assert [name for name in needed if name not in setup.read_text("utf-8")] == []
    assert modes["setup.sh"] == modes["run_autograder"] == 0o755
    assert not any(name.endswith(".ipynb") or "lib/replay/" in name for name in modes)
    return base


def graded(root: Path, files: dict[str, str], created: str = "2026-10-31T14:22:32.365935-07:00") -> dict[str, Any]:
    """results.json of a submission, from the script that Gradescope starts."""
    for name in ("submission", "results", "work"):
        folder = root / name
        if folder.exists():
            for path in sorted(folder.rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
        folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (root / "submission" / name).write_text(text, "utf-8")
    metadata = {"created_at": created, "assignment": {"due_date": "2026-11-01T23:59:00.000000-07:00"}}
    (root / "submission_metadata.json").write_text(json.dumps(metadata), "utf-8")
    environment = {**os.environ, "AUTOGRADER": str(root), "PUZZLES_PYTHON": sys.executable}
    subprocess.run(["bash", root / "source" / "run_autograder"], env=environment, check=True, capture_output=True)
    return json.loads((root / "results" / "results.json").read_text("utf-8"))


def test_a_submission_gets_points_and_words_for_each_puzzle(root: Path) -> None:
    results = graded(root, {"03_ddp.py": solution("ddp"), "fsdp (1).py": RAISES.replace("ddp", "fsdp")})
    ddp, fsdp = results["tests"]
    assert (ddp["score"], ddp["max_score"], ddp["status"]) == (6, 6, "passed")
    assert (fsdp["score"], fsdp["max_score"], fsdp["status"]) == (0, 6, "failed")
    assert "mine" in fsdp["output"]
    assert results["score"] == 6
    assert [(one["name"], one["order"]) for one in results["leaderboard"]] == [
        ("ddp time", "asc"),
        ("ddp memory", "asc"),
    ]
    assert "not told" not in json.dumps(results)


@pytest.mark.thorough
def test_the_same_bytes_every_time(root: Path) -> None:
    assert puzzles("export", *EXPORT, "--config", root / "grade.toml", "-o", root / "again.zip").exit_code == 0
    assert (root / "again.zip").read_bytes() == (root / "autograder.zip").read_bytes()


@pytest.mark.thorough
def test_being_late_costs_what_the_file_says(root: Path) -> None:
    results = graded(root, {"ddp.py": solution("ddp")}, "2026-11-02T10:00:00.000000-07:00")
    assert results["score"] == pytest.approx(5.4)
    assert "late by 1 day: 10 percent less" in results["tests"][0]["output"]


@pytest.mark.thorough
def test_nothing_that_is_handed_in_stops_it_or_names_points_of_its_own(root: Path) -> None:
    forged = 'async def ddp(model):\n    raise ValueError("x\\n\\n\\n{\\"score\\": 99}\\n\\n\\n")\n'
    files = {"ddp.py": forged, "results.json": '{"score": 99}', "Bob_4_assignsubmission_file_fsdp.py": "x = ("}
    results = graded(root, files)
    assert results["score"] == 0
    assert len(results["tests"]) == 2
