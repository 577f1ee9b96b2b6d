"""What `puzzles run` and the others say with their exit status: 0 only for what reaches its first goal, come what may.

Whatever a function does, it ends in words and a failure, and in time.
"""

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from lib.puzzles.records import PUZZLES
from lib.suite.course.progress import Standing, known
from lib.suite.submissions.locations import reference
from tests.suite.cli.commands import STUB, puzzles, words

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in, with nobody else in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def passing(name: str = "basic") -> str:
    return reference(name).read_text("utf-8")


def test_what_is_not_handed_in_is_not_the_copy_of_whoever_looks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUZZLES_FOLDER", str(folder / "my_puzzles"))
    (folder / "my_puzzles").mkdir()
    cells = [{"cell_type": "code", "source": passing()}]
    (folder / "my_puzzles" / "01_basic.ipynb").write_text(json.dumps({"cells": cells}), "utf-8")
    assert puzzles("run", "bob/01_basic.ipynb").exit_code == 1
    (named,) = json.loads(puzzles("run", "--json", "01_basic.ipynb").stdout)["runs"]
    assert (named["passed"], named["error"]) == (False, "there is no file 01_basic.ipynb")


def test_json_is_all_that_is_said(folder: Path) -> None:
    (folder / "good.py").write_text("print('loaded')\n" + passing(), "utf-8")
    (folder / "loud.py").write_text("def basic(model):\n    print('hello')\n    1 / 0\n", "utf-8")
    (folder / "open.py").write_text(STUB, "utf-8")
    result = puzzles("run", "--json", "good.py", "loud.py", "open.py", "absent.py", "basic")
    said = json.loads(result.stdout)
    assert result.stderr == ""
    assert (result.exit_code, said["passed"]) == (1, False)
    assert (said["format"], said["version"]) == ("llm-training-puzzles run", 1)
    right, loud, still_open, absent, ours = said["runs"]
    assert right == {**ours, "file": "good.py"}
    assert (right["state"], right["correct"], right["passed"], right["puzzle"]) == ("passed", True, True, "basic")
    assert (right["time"], right["memory"], right["rank"], right["sent"]) == (17.0, 2_621_440, 0, 0)
    assert right["goals"] == [goal._replace(reached=True)._asdict() for goal in PUZZLES["basic"].goals]
    assert (right["best"], right["error"], right["faults"]) == ("as good as the classic", None, [])
    assert (loud["state"], loud["printed"], loud["correct"]) == ("failed", "hello\n", None)
    assert loud["error"].startswith("rank 0: ZeroDivisionError")
    assert (still_open["state"], still_open["error"].splitlines()[0]) == ("unsolved", "basic is not solved yet")
    assert (absent["state"], absent["puzzle"], absent["error"]) == ("failed", None, "there is no file absent.py")
    one = puzzles("run", "--json", "good.py")
    assert (one.exit_code, json.loads(one.stdout)["runs"]) == (0, [right])


def test_no_goal_is_reached_by_what_is_wrong(folder: Path) -> None:
    """It takes no time and no memory, which is within every limit."""
    (folder / "mine.py").write_text("def basic(model):\n    pass\n", "utf-8")
    (wrong,) = json.loads(puzzles("run", "--json", "mine.py").stdout)["runs"]
    assert [goal["reached"] for goal in wrong["goals"]] == [False, False]
    assert (wrong["correct"], wrong["passed"], wrong["best"], wrong["time"]) == (False, False, None, None)
    assert wrong["faults"][0].startswith("no update and no final weight")


LIMIT = "0.5"
ENDLESS = f"did not end within {LIMIT} seconds"
TABLES = tomllib.loads(Path(__file__).with_name("exit_status.toml").read_text("utf-8"))
BODIES, COMMANDS = TABLES["bodies"], TABLES["commands"]
IMPORTS = "import asyncio, atexit, os, re, signal, subprocess, sys, threading, time\n\n\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals and limits are those of other systems")
@pytest.mark.parametrize("body", BODIES)
def test_whatever_a_function_does_it_fails_in_words(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUZZLES_PROGRESS", str(folder / "progress.json"))
    (folder / "mine.py").write_text(f"{IMPORTS}async def basic(model):\n    {body}\n", "utf-8")
    said = BODIES[body]
    result = puzzles("run", "mine.py", "--limit", LIMIT if said == ENDLESS else "9")
    assert result.exit_code == 1, result.output
    assert said in words(result)
    assert words(result)
    assert "Traceback" not in result.output
    assert len(result.output) < 10_000
    assert not known().get("basic", Standing()).passed


LEAVES = {"sys.exit(0)": "SystemExit: 0", "os._exit(0)": "ended Python itself (exit status 0)"}


@pytest.mark.parametrize(("line", "said"), [*LEAVES.items(), ("time.sleep(99)", ENDLESS)])
def test_what_stands_beside_the_function_is_not_run_and_what_is_imported_may_do_as_little(
    folder: Path, line: str, said: str
) -> None:
    """Only imports, definitions and plain assignments are run, and of imports those that are used."""
    (folder / "helper.py").write_text(f"import os, sys, time\n{line}\n", "utf-8")
    (folder / "mine.py").write_text(f"import helper\n{IMPORTS}{line}\n\n\n{passing()}", "utf-8")
    assert puzzles("run", "mine.py", "--puzzle", "basic").exit_code == 0
    using = passing().replace("model.storage()", "model.storage()\n    assert helper")
    assert using != passing()
    (folder / "mine.py").write_text(f"import helper\n{using}", "utf-8")
    result = puzzles("run", "mine.py", "--limit", LIMIT if said == ENDLESS else "9", "--puzzle", "basic")
    assert (result.exit_code, said in words(result)) == (1, True), result.output


DEAR = [
    pytest.param(one, marks=pytest.mark.thorough) for one in ("while True: pass", "sum(range(10**18))", "os._exit(0)")
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("body", ["time.sleep(99)", *DEAR])  # the first costs nothing
def test_no_command_waits_for_ever(folder: Path, command: str, body: str) -> None:
    (folder / "mine.py").write_text(f"import os, time\n\n\ndef basic(model):\n    {body}\n", "utf-8")
    result = puzzles(*COMMANDS[command].split(), "--limit", LIMIT)
    assert result.exit_code == 1
    assert ("ended Python itself" if "exit" in body else ENDLESS) in words(result)
    assert "mine.py, line 5" in words(result) or "exit" in body, result.output


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files there")
@pytest.mark.parametrize("name", ["mine.py", "mine.ipynb", "mine.json"])
def test_a_file_that_is_none_keeps_nobody_waiting(folder: Path, name: str) -> None:
    os.mkfifo(folder / name)
    assert puzzles("run", name, "--puzzle", "basic").exit_code == 1
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    assert puzzles("run", name, "--puzzle", "basic").exit_code == 1


@pytest.mark.parametrize("name", ["mine.ipynb", "mine.json"])
def test_a_file_of_brackets_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_text("[" * 200_000, "utf-8")
    result = puzzles("run", name, "--puzzle", "basic")
    assert (result.exit_code, "Traceback" in result.output, bool(words(result))) == (1, False, True)
    assert puzzles("run", name).exit_code == 1


def test_a_notebook_ends_like_a_file(folder: Path) -> None:
    lines = ["import time\n", "def basic(model):\n", "    time.sleep(99)\n"]
    cell: dict[str, Any] = {"cell_type": "code", "source": lines}
    (folder / "01_basic.ipynb").write_text(json.dumps({"cells": [cell]}), "utf-8")
    result = puzzles("run", "01_basic.ipynb", "--limit", LIMIT)
    assert (result.exit_code, ENDLESS in words(result)) == (1, True)
    assert "01_basic.ipynb, code cell 1, line 3, in basic: time.sleep(99)" in words(result)
    cell["source"] = "def basic(model):\n    sum(range(10**18))\n"
    (folder / "01_basic.ipynb").write_text(json.dumps({"cells": [cell]}), "utf-8")
    assert "01_basic.ipynb, code cell 1, line 2, in basic" in words(puzzles("run", "01_basic.ipynb", "--limit", LIMIT))
