"""`puzzles schedule`: what it prints, what it writes, and what its exit status says."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lib import PUZZLES
from lib.cli import app as cli
from lib.schedules.formats.orders import read_file
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.generators import gpipe, interleaved, one_f_one_b
from lib.schedules.pipelines.lowering import with_messages
from lib.submissions.locations import home

INTERLEAVED = interleaved(4, 8)
LAST_OFF_BY_ONE = "0F0,0F1,0B0,0B1\n1F1,1B0,1F2,1B1\n"


def schedule(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, ["schedule", *map(str, arguments)])


def test_the_list_has_all_of_them_with_their_figures() -> None:
    result = schedule("list")
    assert result.exit_code == 0
    for row in SCHEDULES.values():
        assert row.name in result.output
        assert row.paper.split()[-1] in result.output
    for figures in ("33 │  27.3%", "28.5 │  15.8%", "25.5 │   5.9%"):
        assert figures in result.output
    assert "messages are posted" in result.output


def test_a_size_that_a_schedule_cannot_have_is_said_in_its_row() -> None:
    result = schedule("list", "--ranks", "4", "--batches", "3")
    assert result.exit_code == 0
    assert "dualpipe_v" in result.output


def test_a_schedule_is_shown_in_time_with_its_figures() -> None:
    result = schedule("show", "interleaved", "--ranks", "2", "--batches", "2", "--chunks", "2")
    assert result.exit_code == 0
    assert result.output.splitlines()[0].startswith("rank 0  0F0 0F1 2F0 2F1")
    assert "2 ranks, 4 stages, 2 microbatches, 16 actions." in result.output
    assert "messages are posted and take no time" in result.output


def test_what_is_wrong_in_a_file_is_pointed_at(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(LAST_OFF_BY_ONE)
    for command in ("show", "import", "export"):
        result = schedule(command, path)
        assert result.exit_code == 1
        assert "rank 1, position 1 (row 2, column 2): 1B0 needs 1F0 before it" in result.stderr
        assert "off by one: rank 1 does 1F1 to 1F2" in result.stderr
    assert "rank 1  1F1 1B0 <-- here 1F2 1B1" in schedule("show", path).stdout


def test_an_order_of_ten_thousand_ranks_is_neither_printed_nor_drawn(tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    path.write_text("".join(f"{rank}F0,{rank}F1,{rank}B0,{rank}B1\n" for rank in range(5001)))
    result = schedule("show", path)
    assert result.exit_code == 0
    assert "20,004 actions are too many to print: at most 10,000 are shown." in result.output
    assert "Peaks 2 to 2 microbatches of activations." in result.output
    result = schedule("import", path, "-o", tmp_path / "run.svg")
    assert result.exit_code == 1
    assert "many.csv has too many actions for a picture: at most 20,000 are drawn" in result.stderr


@pytest.mark.parametrize(
    ("form", "expected"),
    [("csv", INTERLEAVED), ("csv-comms", with_messages(INTERLEAVED)), ("json", INTERLEAVED)],
)
def test_what_is_exported_comes_back(form: str, expected: object, tmp_path: Path) -> None:
    path = tmp_path / "new" / f"order.{form.partition('-')[0]}"
    result = schedule("export", "interleaved", "--format", form, "-o", path)
    assert result.exit_code == 0, result.output
    assert f"Wrote {path}" in result.output.replace("\n", "")
    assert read_file(path).order == expected
    result = schedule("import", path, "-o", tmp_path / "run.svg")
    assert result.exit_code == 0, result.output
    assert "is legal." in result.output
    assert "Time 28.5:" in result.output
    assert (tmp_path / "run.svg").read_text().startswith("<svg")


def test_without_a_file_it_is_printed_and_nothing_else() -> None:
    result = schedule("export", "one_f_one_b", "--ranks", "2", "--batches", "2")
    assert result.output == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


def test_a_students_program_goes_to_torch() -> None:
    """The reference solution of gpipe stands for it: it is a program with messages, and no order."""
    source = home() / "solutions" / f"{PUZZLES['gpipe'].stem}.py"
    size = PUZZLES["gpipe"].size
    result = schedule("export", source)
    assert result.exit_code == 0, result.output
    rows = [row.split(",") for row in result.output.splitlines()]
    assert rows == [[str(action) for action in actions] for actions in gpipe(size.ranks, size.batches)]


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    path.write_text('{"format": "llm-training-puzzles order", "version": 1, "ranks": [["0F0", "0B0", "0UPDATE"]]}')
    result = schedule("export", path, "-o", tmp_path / "order.csv")
    assert "1 action left out: torch's executor updates no weights" in result.output
    assert read_file(tmp_path / "order.csv").order == one_f_one_b(1, 1)


def test_the_gallery_is_a_page_with_orders_of_ones_own(tmp_path: Path) -> None:
    page, order = tmp_path / "gallery.html", tmp_path / "mine.csv"
    order.write_text("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", "utf-8")
    result = schedule("gallery", f"slow={order}", "--ranks", "2", "--batches", "2", "-o", page)
    assert result.exit_code == 0
    assert "messages are posted and take no time" in result.output
    assert '"slow"' in page.read_text("utf-8")
    wrong = schedule("gallery", f"slow={order}", "--ranks", "4", "--batches", "2", "-o", page)
    assert wrong.exit_code != 0
    assert "slow is an order for 2 ranks; the gallery has 4" in " ".join(wrong.output.split()).replace("│ ", "")


def test_a_list_at_a_size_that_is_too_large_says_so_in_each_row() -> None:
    result = CliRunner().invoke(cli.app, ["schedule", "list", "--ranks", "99999999"], env={"COLUMNS": "400"})
    assert result.exit_code == 0
    assert "".join(result.output.split()).count("toomany") == len(SCHEDULES)
