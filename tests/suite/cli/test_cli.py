"""The `puzzles` command: what it prints, what it writes, and what its exit status says; commands for students."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from lib import PUZZLES, Mesh, Trace, hint
from lib.files import ROOT
from lib.puzzles.records import by_chapter
from lib.suite.cli import app as cli
from lib.suite.cli import console as terminal
from lib.suite.course import progress
from lib.suite.course.progress import Standing, known
from lib.suite.submissions import locations
from lib.suite.submissions.locations import reference
from tests.suite.cli.commands import STUB, puzzles, words
from tests.suite.cli.test_sessions import FILES
from tests.support.drivers import python
from tests.support.profiles import sample

pytestmark = pytest.mark.usefixtures("warm")

STUCK = "async def basic(model):\n    await model.receive((model.rank + 1) % model.RANKS)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a few students' files."""
    for name, text in {"good": FILES["good.py"], "stuck": STUCK}.items():
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_names_every_command() -> None:
    result = puzzles("--help")
    assert result.exit_code == 0
    assert "Usage" in result.output
    named = "list run goal hint reveal watch check draw review why what-if compare profile build lab demo"
    for command in named.split():
        assert f" {command} " in result.output
        assert puzzles(command, "-h").exit_code == 0


def test_list_has_every_puzzle() -> None:
    result = puzzles("list")
    assert result.exit_code == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.output.splitlines() if "│" in line]
    named = [row[1] for row in rows if row[0] or row[3].endswith(" solved")]
    assert named == [
        name for chapter, records in by_chapter(parts=True) for name in (chapter.title, *(one.id for one in records))
    ]
    for record in PUZZLES.values():
        for goal in record.goals:
            assert f"{goal.memory:,}" in result.output
    assert max(map(len, result.output.splitlines())) <= terminal.WIDTH


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """As in `puzzles run ddp | head -1`."""
    ours, theirs = os.pipe()
    os.close(ours)
    code = "from lib.suite.cli.app import app; app(['run', 'ddp'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=theirs, stderr=subprocess.PIPE, check=False)
    os.close(theirs)
    assert done.stderr == b""


def test_run_on_another_mesh_has_no_goals(folder: Path) -> None:
    mesh = "data=2,stage=4; host_size=4; processes=2; ranks=3,2,1,0,4,5,6,7"
    result = puzzles("run", "pipeline_fsdp", "--batches", "8", "--mesh", mesh, "--save", "run.json")
    assert (result.exit_code, result.output.splitlines()[0]) == (0, "Correct!")
    trace = Trace.load("run.json")
    order = [3, 2, 1, 0, 4, 5, 6, 7]
    assert trace.mesh == Mesh({"data": 2, "stage": 4}, ranks=order, host_size=4, processes=2)
    assert trace.puzzle is None


def test_a_profile_is_shown_beside_the_schedule_that_it_was_to_be(folder: Path) -> None:
    from tests.schedules.formats.test_kineto import profile_of

    files = profile_of(folder, "one_f_one_b")
    result = puzzles("profile", *files, "--schedule", "gpipe", "-o", "both.svg")
    assert result.exit_code == 0, result.output
    assert "profile departs from the order of GPipe on ranks 0-3:" in result.output
    assert "rank 3, position 1: GPipe has 3F1, profile has 3B0" in result.output
    assert "Drew both.svg" in result.output
    result = puzzles("profile", *files, "--schedule", "one_f_one_b")
    assert "Every rank of profile passes its microbatches in the order of 1F1B." in result.output
    assert puzzles("schedule", "export", "one_f_one_b", "--batches", "6", "-o", "run.csv").exit_code == 0
    result = puzzles("profile", *files, "--schedule", "run.csv")
    assert "Every rank of profile passes its microbatches in the order of run." in result.output
    for number, file in enumerate(files):
        file.rename(folder / f"a_run_rank{number}.json")
    renamed = sorted(folder.glob("a_run_*"))
    assert puzzles("profile", *renamed).output.startswith("a_run: 0.27 ms")
    text = renamed[0].read_text("utf-8").replace("0F5", f"0F{10**12}")
    renamed[0].write_text(text, "utf-8")
    result = puzzles("profile", *renamed, "--schedule", "gpipe")
    assert (result.exit_code, "a_run names microbatch" in result.output) == (1, True)


def test_comparing_figures_draws_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "drawing", None)
    result = puzzles("compare", "good.py", "good.py")
    assert result.exit_code == 0
    assert "good.py and good.py do the same" in result.output


@pytest.mark.thorough
def test_demo_draws_every_reference_and_records_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUZZLES_PROGRESS", str(folder / "progress.json"))
    result = puzzles("demo", "-o", "pictures")
    assert result.exit_code == 0
    assert not (folder / "progress.json").exists()
    drawn = sorted(path.name for path in (folder / "pictures").iterdir())
    assert drawn == [f"{record.stem}.svg" for record in PUZZLES.values() if not record.is_function]
    assert result.output.count("Correct!") == len(drawn)


def test_lab_opens_the_students_own_copies_at_the_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[list[str], Path, dict[str, str]]] = []
    trusted: list[Path] = []

    def become(program: str, command: list[str], environment: dict[str, str]) -> NoReturn:
        called.append((command, Path.cwd(), environment))
        raise SystemExit(3)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "execve", become)
    monkeypatch.setattr(cli, "trust", lambda notebooks: trusted.extend(notebooks))  # pyright: ignore
    monkeypatch.setenv("PUZZLES_FOLDER", str(tmp_path / "mine"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    result = puzzles("lab", "--no-browser", "--port", "8899")
    assert result.exit_code == 3, result.output
    assert "Made your copies of the notebooks in" in result.output
    ((command, where, environment),) = called
    assert where == tmp_path / "mine"
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert "--LabApp.default_url=/lab/tree/00_index.ipynb" in command
    assert (where / "00_index.ipynb").is_file()
    assert set(trusted) == set(where.rglob("*.ipynb"))
    assert command[-3:] == ["--no-browser", "--port", "8899"]
    assert shutil.which("puzzles", path=environment["PATH"].partition(os.pathsep)[0]) is not None
    assert puzzles("lab").output == ""  # nothing new


def test_a_run_finds_the_students_own_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUZZLES_FOLDER", str(tmp_path / "mine"))
    monkeypatch.chdir(tmp_path)
    name = f"{PUZZLES['basic'].path}.ipynb"
    assert "basic is not solved yet" in puzzles("run", name).output
    mine = tmp_path / "mine" / name
    solved = mine.read_text("utf-8").replace('raise NotSolved(\\"basic\\")', "return 1 / 0")
    mine.write_text(solved, "utf-8")
    assert "ZeroDivisionError" in puzzles("run", name).output
    given = puzzles("run", f"{locations.home()}/puzzles/{name}").output
    assert "basic is not solved yet" in given
    assert f"yours is mine/{name}" in given


def test_nothing_is_built_in_a_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "is_checkout", lambda: False)
    result = puzzles("build")
    assert result.exit_code == 1
    assert "Notebooks are built in a checkout" in result.stderr


def test_build_names_what_is_not_current_and_spares_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tools.notebooks import build as notebooks

    files = {"puzzles/basics/01_basic.ipynb": '{"cells": []}\n'}
    monkeypatch.setattr(notebooks, "build", lambda root: files)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setattr(cli, "home", lambda: tmp_path)
    result = puzzles("build", "--check")
    assert result.exit_code == 1
    assert "puzzles/basics/01_basic.ipynb" in result.stderr
    assert "puzzles build" in result.stderr
    assert list(tmp_path.iterdir()) == []
    assert puzzles("build").output == "Wrote puzzles/basics/01_basic.ipynb\n1 notebooks are current.\n"
    assert puzzles("build", "--check").exit_code == 0
    mine = tmp_path / "puzzles" / "basics" / "01_basic.ipynb"
    mine.write_text('{"cells": [{"cell_type": "code", "source": "mine"}]}')
    result = puzzles("build")
    assert result.exit_code == 1
    assert "Somebody has worked in these" in result.stderr
    assert "mine" in mine.read_text()
    assert puzzles("build", "--force").exit_code == 0
    assert mine.read_text() == files["puzzles/basics/01_basic.ipynb"]


@pytest.fixture
def student(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, a progress file of its own, and a solution that passes."""
    monkeypatch.setenv("PUZZLES_PROGRESS", str(tmp_path / "state" / "progress.json"))
    monkeypatch.setattr(progress, "_said", set[str]())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(reference("basic").read_text("utf-8"), "utf-8")
    (tmp_path / "unsolved.py").write_text(STUB, "utf-8")
    return tmp_path


def test_alone_it_says_how_far_you_are(student: Path) -> None:
    result = puzzles()
    assert result.exit_code == 0
    for puzzle in PUZZLES:
        assert f" {puzzle} " in result.output
    assert f"0 of {len(PUZZLES)} solved. Next: basic (One device), " in words(result)
    assert "01_basic.ipynb" in result.output
    assert not (student / "state").exists()


def test_what_was_reached_is_in_the_table(student: Path) -> None:
    puzzles("run", "mine.py")
    progress.record("grad_accum", Standing(3, False, None, 20.0, 3_000_000.0, 2))
    result = puzzles()
    rows = {
        line.split("│")[2].strip(): [cell.strip() for cell in line.split("│")[3:-1]]
        for line in result.output.splitlines()
        if line.startswith("│")
    }
    assert rows["basic"] == ["solved", "as good as the classic", "17", "2,621,440", ""]
    assert rows["grad_accum"] == ["tried", "", "20", "3,000,000", "2 of 3"]
    assert rows["ddp"] == ["", "", "", "", ""]
    assert f"1 of {len(PUZZLES)} solved. Next: {list(PUZZLES)[1]}" in words(result)
    table = [line for line in result.output.splitlines() if line[:1] in "┏┃┡│├└"]
    assert max(map(len, table)) <= terminal.WIDTH


def test_fix_shows_the_line_that_the_message_of_a_run_does_not_have(student: Path) -> None:
    line = "grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)"
    text = reference("ddp").read_text("utf-8")
    assert text.count(f"        {line}\n") == 1
    (student / "ddp.py").write_text(text.replace(f"        {line}\n", ""), "utf-8")
    told, mended = puzzles("run", "ddp.py", "--puzzle", "ddp"), puzzles("fix", "ddp.py", "--puzzle", "ddp")
    assert told.exit_code == mended.exit_code == 1
    assert "puzzles fix FILE" in words(told)
    assert "model.allreduce" not in told.output
    assert "model.allreduce" in mended.output


def test_when_recording_is_off_it_says_so(student: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUZZLES_PROGRESS", "off")
    assert "Progress is not recorded: PUZZLES_PROGRESS is off." in puzzles().output


def test_run_and_check_record_your_own_function_only(student: Path) -> None:
    puzzles("run", "mine.py", "--save", "mine.json")
    puzzles("check", "mine.py")
    assert known()["basic"].runs == 2
    others = ["run basic", "run mine.json", "run unsolved.py", "run mine.py --layers 3", "draw mine.py"]
    for other in [*others, f"run {reference('basic')}", "compare mine.py basic"]:
        puzzles(*other.split())
    assert {puzzle: standing.runs for puzzle, standing in known().items()} == {"basic": 2}


def test_the_command_and_the_notebook_count_together(student: Path) -> None:
    hint("ddp", 1)
    assert puzzles("hint", "ddp").output.count("Hint ") == 2


def test_a_notebook_of_their_own_that_passes_is_asked(student: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUZZLES_PROGRESS", "off")
    monkeypatch.setenv("PUZZLES_FOLDER", str(student))
    mine = student / f"{PUZZLES['basic'].stem}.ipynb"
    for source, status in ((STUB, 1), (reference("basic").read_text("utf-8"), 0)):
        mine.write_text(json.dumps({"cells": [{"cell_type": "code", "source": source}]}), "utf-8")
        assert puzzles("reveal", "basic").exit_code == status


@pytest.mark.parametrize("puzzle", sample(PUZZLES))
def test_every_puzzle_can_be_revealed(student: Path, puzzle: str) -> None:
    progress.record(puzzle, Standing(1, True, None, 1.0, 1.0))
    result = puzzles("reveal", puzzle)
    assert result.exit_code == 0
    assert f"**{puzzle}, official**" in result.output


@pytest.mark.parametrize("command", ["run basic", "check basic", "why ddp"])
def test_a_short_command_imports_neither_what_converts_nor_what_draws(command: str) -> None:
    """Each takes a third of the time of a command that prints a few lines."""
    code = (
        f"import sys; from lib.suite.cli.app import app; app({command.split()}, standalone_mode=False); "
        "print([name for name in ('pydantic', 'rich', 'chalk', 'asyncio') if name in sys.modules])"
    )
    assert python(code).splitlines()[-1] == "[]"
