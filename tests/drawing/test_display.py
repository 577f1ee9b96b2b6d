"""What a notebook shows by itself, and how it shows the mistakes of a student."""

import json
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawing.canvas.picture import without_titles
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
out = simulate(lambda model: model.load_weights(0), ranks=2)
out[0].trace
##
check(out[0].trace)
##
import chalk
chalk.vcat([draw_group(Weight(0, 2, 0)), chalk.rectangle(1, 1)])
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


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "<weight of layer 0>"),
        (1, "<optimizer state of layer 0>"),
        (2, "<timeline of 2 ranks, 2 layers, 1 batch: end 0, peak 0 on rank 0>"),
        (3, "not one correct training step yet"),
        (4, "<chalk diagram>"),
    ],
)
def test_values_traces_verdicts_and_diagrams_show_one_picture(cells: list[Any], number: int, text: str) -> None:
    bundle, error, _, _ = cells[number]
    assert error is None
    assert drawn(bundle).startswith("<svg ")
    assert bundle["text/plain"] == text
    assert number != 4 or 'height="203"' in drawn(bundle)  # the natural height of what was composed
    assert cells[5][0] == {"text/plain": "'nothing of ours'"}


def test_a_wrong_answer_shows_the_students_lines_and_the_picture(cells: list[Any]) -> None:
    """Of a plain function; the mistakes in runs are in tests/diagnosis/test_notebook.py."""
    _, error, printed, (picture,) = cells[6]
    assert error == "CheckError"
    assert "process_map([[[0, 1]]], 1) is not right" in printed
    assert not any(ours in printed for ours in ("/lib/", "asyncio", "storage.py"))
    assert "The data shard of each process, by the published rule" in drawn(picture)
    assert picture["text/plain"].endswith("shard 0, not None. Not right: device 1.>")


def test_frames_of_students_are_theirs_alone_and_the_text_of_an_error_is_short() -> None:
    def deep(model: Model, levels: int = 40) -> Any:
        return deep(model, levels - 1) if levels else model.activations["absent"]

    with pytest.raises(PuzzleError) as caught:
        simulate(deep, ranks=2)
    error, frames = caught.value, caught.value.__traceback__
    assert {Path(frame.f_code.co_filename).name for frame, _ in student_frames(frames)} == {"test_display.py"}
    assert len([*traceback.walk_tb(frames)]) > len([*student_frames(frames)]) + 2
    text = error_text(error, frames)
    assert sum(line.startswith("  test_display.py, line ") for line in text.splitlines()) == 8
    assert "  ...\n" in text
    assert text.splitlines()[-1].startswith("  fix:")
    assert "\x1b[" in error_text(error, frames, colour=True)


@given(st.text("ab é", max_size=80), st.text("ab ", max_size=63), st.integers(0, 63))
def test_a_title_says_how_many_letters_it_shares_with_the_one_before(rest: str, last: str, kept: int) -> None:
    line = last[:kept] + rest
    svg = "".join(f"<path><title>{title}</title></path>" for title in (last, line) if title)
    *_, told = without_titles(svg)[1].split("\n")
    if last and line:
        shared = max(count for count in range(len(last) + 1) if line[:count] == last[:count])
        assert told == chr(63 + shared) + line[shared:]
