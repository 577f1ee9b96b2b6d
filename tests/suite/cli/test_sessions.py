"""Sessions of commands in one folder: what is said, with which status each ends, and which files are left."""

import shlex
from pathlib import Path

import pytest

from lib.suite.course import progress
from lib.suite.submissions.locations import reference
from tests.suite.cli.commands import STUB, puzzles, words

pytestmark = pytest.mark.usefixtures("warm")
STUCK = "async def fsdp(model):\n    await model.receive((model.rank + 1) % model.RANKS)\n"
MINE = reference("basic").read_text("utf-8")
FILES = {
    "good.py": "\n".join(line for line in MINE.splitlines() if not line.strip().startswith("del ")),  # keeps everything
    "mine.py": MINE,
    "wrong.py": "def basic(model):\n    pass\n",
    "error.py": "def basic(model):\n    1 / 0\n",
    "syntax.py": "def basic(model):\n    x = = 3\n",
    "nothing.py": "x = 3\n",
    "empty.py": "",
    "gpipe.py": reference("gpipe").read_text("utf-8"),
    "unsolved.py": STUB,
    "ring.py": STUCK,
    "ada/basic.py": STUCK.replace("fsdp", "basic"),
    "bob/basic.py": STUCK.replace("fsdp", "basic"),
    "off.csv": "0F0,0F1,0B0,0B1\n1F1,1B0,1F2,1B1\n",
    "slow.csv": "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n",
}
SESSIONS = Path(__file__).with_name("sessions.txt").read_text("utf-8").split("\n=== ")[1:]


def names(folder: Path) -> set[str]:
    """Of all files, but for the student's progress."""
    files = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name for name in files if not name.startswith("state/")}


@pytest.mark.parametrize(
    "session",
    [
        pytest.param(one, marks=[pytest.mark.thorough] if one.startswith("(thorough)") else [], id=one.split("\n")[0])
        for one in SESSIONS
    ],
)
def test_a_session(session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUZZLES_PROGRESS", str(tmp_path / "state" / "progress.json"))
    monkeypatch.setattr(progress, "_said", set[str]())
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    before = said = ""
    for line in session.strip().split("\n")[1:]:
        status, command, *asked = (part.strip() for part in line.split("|"))
        if status == "made":
            assert names(tmp_path) - FILES.keys() == set(command.split())
            continue
        result = puzzles(*shlex.split(command))
        before, said = said, words(result)
        assert result.exit_code == int(status), (command, said)
        for text in asked:
            if text == "=":
                assert said == before, command
            else:
                assert (text.removeprefix("! ") in said) != text.startswith("! "), (command, text, said)
