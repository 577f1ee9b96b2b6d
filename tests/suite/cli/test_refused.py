"""Commands that make no sense: each says why, ends with a failure, and writes nothing."""

import shlex
from pathlib import Path

import pytest

from lib import Trace, simulate
from lib.suite.submissions.locations import reference
from tests.suite.cli.commands import STUB, puzzles, words
from tests.support.functions import good

pytest.importorskip("jinja2")
pytestmark = pytest.mark.usefixtures("warm")
LINES = Path(__file__).with_name("refused.txt").read_text("utf-8").splitlines()[1:]
FILES = {
    "mine.py": reference("basic").read_text("utf-8"),
    "unsolved.py": STUB,
    "stuck.py": "async def basic(model):\n    await model.receive((model.rank + 1) % model.RANKS)\n",
    "nothing.py": "x = 3\n",
    "bad.json": '{"format": ',
    "notes.txt": "",
    "class/ana/ddp.py": reference("ddp").read_text("utf-8"),
    "notes/eva/notes.py": "print('hello')\n",
    "papers/1.pdf": "%PDF",
    "papers/2.pdf": "%PDF",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FILES, a run of a size that no puzzle has, and two folders. As nothing is written, all commands share it."""
    folder = tmp_path_factory.mktemp("refused")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    for name in ("folder.py", "empty"):
        (folder / name).mkdir()
    Trace.of(simulate(good, layers=1, batches=1)).save(folder / "small.json")
    return folder


@pytest.mark.parametrize("line", LINES)
def test_it_says_why_and_writes_nothing(folder: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUZZLES_PROGRESS", str(folder / "progress.json"))
    monkeypatch.chdir(folder)
    status, command, said = line.split(" | ")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    result = puzzles(*shlex.split(command))
    assert (result.exit_code, said in words(result)) == (int(status), True), result.output
    assert "Traceback" not in result.output
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
