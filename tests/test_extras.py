"""What an installation without extras can do, and how it says which extra is missing."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lib.extras import EXTRAS, need_extra
from lib.suite.submissions.locations import home, reference

IMPORTED_AS = {"vl-convert-python": "vl_convert"}
BARE = """
import json, sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

hidden, commands = json.load(sys.stdin)
sys.meta_path.insert(0, Hidden())
from typer.testing import CliRunner
from lib.suite.cli.app import app
found = [CliRunner().invoke(app, command.split()) for command in commands]
print(json.dumps([(result.exit_code, result.output) for result in found]))
"""
WORKS = ("", "list", "run ddp", "hint ddp", "draw gpipe -o gpipe.svg", "compare ddp wsdp --layers 6 -o both.svg")
MISSING = {
    "grade .": "grade",
    "compare basic grad_accum -o both.html": "grade",
    "compare basic grad_accum -o both.png": "png",
    "compare basic grad_accum -o both.pdf": "png",
    "gallery gpipe": "grade",
    "draw gpipe -o gpipe.png": "png",
    "watch basic.py": "cli",
    "lab": "notebook",
    "check": "notebook",
}


def test_the_table_is_what_pyproject_says() -> None:
    project = tomllib.loads((home() / "pyproject.toml").read_text("utf-8"))["project"]
    for extra, libraries in EXTRAS.items():
        # What only one system has is not missed where it is not there.
        named = [one.partition(">")[0] for one in project["optional-dependencies"][extra] if ";" not in one]
        assert {IMPORTED_AS.get(name, name) for name in named} == set(libraries), extra


def test_without_extras_what_needs_none_works_and_what_is_missing_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "basic.py").write_text(reference("basic").read_text("utf-8"), "utf-8")
    hidden = sorted({library for every in EXTRAS.values() for library in every} | {"markupsafe"})
    given = json.dumps([hidden, [*WORKS, *MISSING, "replay ddp"]])
    call = [sys.executable, "-c", BARE]
    done = subprocess.run(call, cwd=tmp_path, input=given, capture_output=True, text=True, check=True, timeout=100)
    told = [(status, " ".join(output.replace("│", " ").split())) for status, output in json.loads(done.stdout)]
    for command, (status, output) in zip(WORKS, told, strict=False):
        assert status == 0, (command, output)
        assert "pip install" not in output, command
    for (command, extra), (status, output) in zip(MISSING.items(), told[len(WORKS) :], strict=False):
        assert (status, output.count("pip install")) == (1, 1), (command, output)
        assert f'pip install "llm-training-puzzles[{extra}]"' in output, (command, output)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".html", ".png", ".pdf")]
    # With torch comes the choice of a build for CPUs or for CUDA: what is said names the libraries themselves.
    status, output = told[-1]
    assert (status, output.count("pip install")) == (1, 1)
    assert "-m pip install torch numpy`" in output


def test_only_libraries_that_are_named_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joblib", None)
    need_extra("grade", "a page needs", "jinja2")
    with pytest.raises(
        ModuleNotFoundError, match=r'^a class needs the extra "grade": pip install "llm-training-puzzles\[grade\]"$'
    ):
        need_extra("grade", "a class needs")
