"""`puzzles explore`: what it leaves in its folder."""

import csv
import json
from pathlib import Path

import pytest

from tests.suite.cli.commands import puzzles

pytest.importorskip("jinja2")


def run(*arguments: str) -> tuple[int, str]:
    result = puzzles("explore", *arguments)
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


def test_a_range_of_limits_is_all_of_them(tmp_path: Path) -> None:
    assert run("-o", str(tmp_path), "--schedules", "one_f_one_b", "--batches", "8", "--limits", "none,2-4")[0] == 0
    rows = csv.DictReader((tmp_path / "points.csv").read_text("utf-8").splitlines())
    assert [row["limit"] for row in rows] == ["", "2.0", "3.0", "4.0"]


def test_a_package_that_is_missing_is_said_before_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.extras.find_spec", lambda name: None)
    code, text = run("-o", str(tmp_path / "out"))
    assert code == 1
    assert 'puzzles explore needs the extra "explore": pip install' in text
    assert not (tmp_path / "out").exists()
