"""What a notebook shows by itself, and how it shows the mistakes of a student."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drawing.display import error_text, student_frames
from lib import Model, PuzzleError, simulate
from tests.drawing.shown import drawn

ROOT = Path(__file__).parents[2]

CELLS = re.split(
    "##\n",
    """
from drawing import draw_group, picture_of
from lib import Model, OptState, Trace, Weight, check, simulate

Weight(0, 2, 0)
##
OptState(0, 2, 0)
##
async def wrong(model):
    model.forward(0, model.get_activation([0]), model.load_weights(0)[0])
    await model.receive(1 - model.rank)
##
def spoiled(model):
    return {}["nothing here"]
##
out = simulate(lambda model: model.load_weights(0), ranks=2)
out[0].trace
##
check(out[0].trace)
##
import chalk
chalk.vcat([draw_group(Weight(0, 2, 0)), chalk.rectangle(1, 1)])
##
simulate(wrong, ranks=2)
##
simulate(spoiled, ranks=2)
##
Model().weights[3]
##
1 / 0
##
"nothing of ours"
##
from lib import check_function

def process_map(grid, per_process):
    return {0: 0}

check_function(process_map, puzzle="process_map")
""",
)

HARNESS = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

shell = InteractiveShell.instance(colors="nocolor")
shell.run_cell("0")
found = []
for cell in json.loads(sys.argv[1]):
    with capture_output() as captured:
        result = shell.run_cell(cell, store_history=True)
    value = None if result.result is None else shell.display_formatter.format(result.result)[0]
    error = result.error_in_exec
    shown = [output.data for output in captured.outputs]
    found.append([value, None if error is None else type(error).__name__, captured.stdout, shown])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, str], str | None, str, list[Any]]]:
    """For each cell: what its value shows, the error it ended in, what it printed, and what it displayed."""
    env = {**os.environ, "IPYTHONDIR": str(tmp_path_factory.mktemp("ipython")), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", HARNESS, json.dumps(CELLS)]
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=True, text=True)
    return [tuple(cell) for cell in json.loads(run.stdout.splitlines()[-1])]


def test_values_traces_verdicts_and_diagrams_show_one_picture(cells: list[Any]) -> None:
    texts = []
    for number in (0, 1, 4, 5, 6):
        bundle, error, _, _ = cells[number]
        assert error is None
        assert drawn(bundle).startswith("<svg ")
        texts.append(bundle["text/plain"])
    assert texts == [
        "<weight of layer 0>",
        "<optimizer state of layer 0>",
        "<timeline of 2 ranks, 2 layers, 1 batch: end 0, peak 0 on rank 0>",
        "not one correct training step yet",
        "<chalk diagram>",
    ]


def test_a_composed_diagram_has_a_natural_height(cells: list[Any]) -> None:
    assert 'height="203"' in drawn(cells[6][0])


def test_a_mistake_shows_the_students_lines_and_the_picture(cells: list[Any]) -> None:
    _, error, printed, shown = cells[7]
    assert error == "DeadlockError"
    assert printed.startswith(
        "  Cell In[8], line 1\n    simulate(wrong, ranks=2)\n"
        "DeadlockError: deadlock: these ranks wait for each other: 0 -> 1 -> 0\n"
    )
    assert "/lib/" not in printed
    assert "asyncio" not in printed
    (picture,) = shown
    assert "deadlock: these ranks wait for each other" in drawn(picture)
    assert picture["text/plain"].endswith("stopped at 1, peak 393,216 on rank 0>")


def test_the_cause_of_a_rank_that_failed_is_shown_too(cells: list[Any]) -> None:
    _, error, printed, shown = cells[8]
    assert error == "RankFailed"
    assert 'in spoiled\n    return {}["nothing here"]' in printed
    assert shown == []


def test_an_absent_key_shows_no_line_of_the_library(cells: list[Any]) -> None:
    _, error, printed, _ = cells[9]
    assert error == "AbsentKey"
    assert "Model().weights[3]" in printed
    assert "storage.py" not in printed


def test_a_wrong_answer_shows_the_mesh_on_which_it_is_wrong(cells: list[Any]) -> None:
    _, error, printed, shown = cells[12]
    assert error == "CheckError"
    assert "process_map([[[0, 1]]], 1) is not right" in printed
    (picture,) = shown
    assert "The data shard of each process, by the published rule" in drawn(picture)
    assert picture["text/plain"].endswith("shard 0, not None. Not right: device 1.>")


def test_other_errors_and_values_are_left_alone(cells: list[Any]) -> None:
    assert cells[10][1] == "ZeroDivisionError"
    assert "Traceback" in cells[10][2]
    assert cells[11][0] == {"text/plain": "'nothing of ours'"}


def failure(function: Callable[[Model], Any]) -> PuzzleError:
    with pytest.raises(PuzzleError) as caught:
        simulate(function, ranks=2)
    return caught.value


def test_frames_of_students_are_theirs_alone() -> None:
    error = failure(lambda model: model.forward(0, model.get_activation([0]), 3))  # pyright: ignore
    files = {Path(frame.f_code.co_filename).name for frame, _ in student_frames(error.__traceback__)}
    assert files == {"test_display.py"}
    assert len(list(traceback.walk_tb(error.__traceback__))) > 3


def test_the_text_of_an_error_is_short() -> None:
    def deep(model: Model, levels: int = 40) -> Any:
        return deep(model, levels - 1) if levels else model.activations["absent"]

    error = failure(deep)
    text = error_text(error, error.__traceback__)
    assert sum(line.startswith("  test_display.py, line ") for line in text.splitlines()) == 8
    assert "  ...\n" in text
    assert text.splitlines()[-1].startswith("  fix:")
    assert "\x1b[" in error_text(error, error.__traceback__, colour=True)
