"""A kind of dim is a row and a kind of layer a class: with made-up ones a run is simulated, checked, saved, drawn and
explained as with those that there are. In a process of its own, as the tables are read when modules are imported."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_made_up_dim_and_layer_are_taken_by_everything(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.values.made_up_layer", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)
    assert (done.stdout, done.stderr) == ("made up, and right\n", "")
