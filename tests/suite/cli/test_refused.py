"""Commands that make no sense: each says why, ends with a failure, and writes nothing."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lib import Trace, simulate
from lib.suite.cli.app import app
from lib.suite.submissions.locations import reference
from tests.support.functions import good

pytest.importorskip("jinja2")
pytestmark = pytest.mark.usefixtures("warm")
LINES = Path(__file__).with_name("refused.txt").read_text("utf-8").splitlines()[1:]
FILES = {
    "mine.py": reference("basic").read_text("utf-8"),
    "unsolved.py": 'from lib import NotSolved\n\n\ndef basic(model):\n    raise NotSolved("basic")\n',
    "stuck.py": "async def basic(model):\n    await model.receive((model.rank + 1) % model.RANKS)\n",
    "nothing.py": "x = 3\n",
    "bad.json": '{"format": ',
    "notes.txt": "",
    "class/ana/ddp.py": reference("ddp").read_text("utf-8"),
    "notes/eva/notes.py": "print('hello')\n",
    "papers/1.pdf": "%PDF",
    "papers/2.pdf": "%PDF",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with FILES, a run of a size that no puzzle has, and two folders."""
    monkeypatch.setenv("PUZZLES_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    for name in ("folder.py", "empty"):
        (tmp_path / name).mkdir()
    Trace.of(simulate(good, layers=1, batches=1)).save("small.json")
    return tmp_path


@pytest.mark.parametrize("line", LINES)
def test_it_says_why_and_writes_nothing(folder: Path, line: str) -> None:
    status, command, words = line.split(" | ")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    result = CliRunner().invoke(app, shlex.split(command))
    said = " ".join(re.sub("[│╭╮╰╯─]", " ", result.output).split())
    assert (result.exit_code, words in said) == (int(status), True), result.output
    assert "Traceback" not in said
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
