"""`puzzles schedule`: what it prints, what it writes, and what its exit status says."""

from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lib import PUZZLES
from lib.schedules.formats.orders import read_file
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.generators import gpipe, interleaved, one_f_one_b
from lib.schedules.pipelines.lowering import with_messages
from lib.suite.cli import app as cli
from lib.suite.submissions.locations import reference
from tests.suite.cli.commands import puzzles

INTERLEAVED = interleaved(4, 8)
schedule = partial(puzzles, "schedule")


@pytest.mark.parametrize(("form", "expected"), [("csv", INTERLEAVED), ("csv-comms", with_messages(INTERLEAVED))])
def test_what_is_exported_comes_back(form: str, expected: object, tmp_path: Path) -> None:
    path = tmp_path / "new" / "order.csv"
    result = schedule("export", "interleaved", "--format", form, "-o", path)
    assert result.exit_code == 0, result.output
    assert f"Wrote {path}" in result.output.replace("\n", "")
    assert read_file(path).order == expected
    result = schedule("import", path, "-o", tmp_path / "run.svg")
    assert result.exit_code == 0, result.output
    assert "is legal." in result.output
    assert "Time 28.5:" in result.output
    assert (tmp_path / "run.svg").read_text().startswith("<svg")


def test_a_students_program_goes_to_torch() -> None:
    """The reference solution of gpipe stands for it: it is a program with messages, and no order."""
    source = reference("gpipe")
    size = PUZZLES["gpipe"].size
    result = schedule("export", source)
    assert result.exit_code == 0, result.output
    rows = [row.split(",") for row in result.output.splitlines()]
    assert rows == [[str(action) for action in actions] for actions in gpipe(size.ranks, size.batches)]


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("0F0,0B0,0UPDATE\n")
    result = schedule("export", path, "-o", tmp_path / "order.csv")
    assert "1 action left out: torch's executor updates no weights" in result.output
    assert read_file(tmp_path / "order.csv").order == one_f_one_b(1, 1)


def test_a_list_at_a_size_that_is_too_large_says_so_in_each_row() -> None:
    result = CliRunner().invoke(cli.app, ["schedule", "list", "--ranks", "99999999"], env={"COLUMNS": "400"})
    assert result.exit_code == 0
    assert "".join(result.output.split()).count("toomany") == len(SCHEDULES)
