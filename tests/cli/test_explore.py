"""`puzzles explore`: what it leaves in its folder."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lib.cli.app import app

pytest.importorskip("jinja2")


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["explore", *arguments])
    return result.exit_code, result.output


def test_a_sweep_leaves_a_page_a_table_and_a_notebook(tmp_path: Path) -> None:
    given = ["-o", str(tmp_path), "--schedules", "gpipe,one_f_one_b,zb_v", "--batches", "4,8", "--limits", "none,4"]
    code, text = run(*given)
    assert code == 0
    assert "ZB-V, 8 microbatches" in text
    rows = list(csv.DictReader((tmp_path / "points.csv").read_text("utf-8").splitlines()))
    assert len(rows) == 3 * 2 * 2
    assert {row["why"] for row in rows} >= {""}
    page = (tmp_path / "index.html").read_text("utf-8")
    assert "front_1.svg" in page
    assert "point_1_1.svg" in page
    for name in ("front_1.svg", "point_1_1.svg"):
        assert (tmp_path / name).read_text("utf-8").startswith("<svg")
    notebook = json.loads((tmp_path / "fronts.ipynb").read_text("utf-8"))
    code_cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert code_cells
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert run(*given)[0] == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--batches", "4,x"], "--batches takes numbers"),
        (["--batches", "2.5"], "--batches takes whole numbers"),
        (["--costs", "1,2"], "--costs takes three numbers"),
        (["--schedules", "gpip"], "there is no schedule 'gpip'"),
    ],
)
def test_what_makes_no_sense_is_said(arguments: list[str], says: str, tmp_path: Path) -> None:
    code, text = run("-o", str(tmp_path / "out"), *arguments)
    assert code != 0
    assert says in " ".join(text.split())
    assert not (tmp_path / "out").exists()
