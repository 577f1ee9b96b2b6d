"""What a student sees in a notebook: their own lines, the message, the picture up to there, and nothing else."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.diagnosis.corpus import Case, cases

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

from tools.notebooks.kernels import execute  # before nbformat: see tools.notebooks

import nbformat.v4 as v4  # isort: skip

from tests.drawing.shown import drawn

CORPUS = {case.name.partition("_")[2]: case for case in cases()}
SHOWN = (
    "allreduce_not_awaited", "helper_never_ran", "sleeps", "shard_into_forward", "no_group", "both_receive_first",
    "deleted_too_early", "one_argument_too_few", "misspelt_name", "sum_of_gradients", "endless_loop", "two_parameters",
    "fake_gradient", "not_solved_left",
)  # fmt: skip
"""One of each class of error, and those that Python or asyncio raise."""

SETUP = "import drawing\nfrom lib import *\nout = []"
CELLS = {
    "no colon": ("async def ddp(model)\n    pass", "SyntaxError"),
    "await in a plain function": ("def ddp(model):\n    await model.receive(0)", "SyntaxError"),
    "not indented": ("def ddp(model):\npass", "IndentationError"),
    "after a cell that cannot be read": ('simulate(ddp, puzzle="ddp")', "PuzzleError"),
    "no such puzzle": ('simulate(lambda model: None, puzzle="dpd")', "ValueError"),
    "interrupted": ("def wait(model):\n    raise KeyboardInterrupt\n\n\nsimulate(wait)", "KeyboardInterrupt"),
    "the notebook's own exit": ("def leave(model):\n    exit()\n\n\nsimulate(leave)", "RankFailed"),
    "nothing of ours": ("1 / 0", "ZeroDivisionError"),
}
RAISES = {"tags": ["raises-exception"]}


def calls(case: Case) -> list[str]:
    """The cells of a case as a notebook has them: the function, the run, the check."""
    sizes = "".join(f", {name}={number}" for name, number in case.sizes.items())
    run = f'out = simulate({case.puzzle}, puzzle="{case.puzzle}"{sizes})'
    return [case.source, run, "if out:\n    Model.check(out)"]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What each case and each cell puts out. `execute` fails where stderr, an address or a path of ours is among it."""
    cells, names = [v4.new_code_cell(SETUP)], [""]
    for name in SHOWN:
        sources = [*calls(CORPUS[name]), "out = []"]
        cells += [v4.new_code_cell(source, metadata=RAISES) for source in sources]
        names += [name] * len(sources)
    for name, (source, _) in CELLS.items():
        cells.append(v4.new_code_cell(source, metadata=RAISES))
        names.append(name)
    path = tmp_path_factory.mktemp("notebook") / "mistakes.ipynb"
    (notebook,) = execute({path: v4.new_notebook(cells=cells)})
    assert isinstance(notebook, dict), notebook
    found: dict[str, list[Any]] = {name: [] for name in names}
    for name, cell in zip(names, notebook["cells"], strict=True):
        found[name].extend(cell["outputs"])
    return found


def printed(output: Any) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output["traceback"]))


@pytest.mark.parametrize("name", SHOWN)
def test_a_mistake_shows_the_students_frames_and_the_whole_message(name: str, outputs: dict[str, list[Any]]) -> None:
    case, (first, *rest) = CORPUS[name], outputs[name]
    if first["output_type"] == "stream":  # a stub that was left in place is not an error
        assert first["text"] == f"{case.message}\n"
        assert rest == []
        return
    assert first["output_type"] == "error"
    frames, _, message = printed(first).partition(f"\n{first['ename']}: ")
    for where, line in zip(frames.splitlines()[::2], frames.splitlines()[1::2], strict=True):
        assert re.fullmatch(r"  Cell In\[\d+\], line \d+(, in \w+)?", where)
        assert line.strip() in case.source or line.strip() in "\n".join(calls(case))
    if first["ename"] == "CheckError":
        assert [line.strip() for line in message.splitlines()[2:]] == [
            line.strip() for line in case.message.partition("  passes - ")[0].splitlines()[2:]
        ]
    else:
        assert message == case.message
    for output in rest:
        assert drawn(output["data"])


def test_the_picture_comes_where_something_had_happened(outputs: dict[str, list[Any]]) -> None:
    without = {name for name in SHOWN if len(outputs[name]) == 1}
    early = {"shard_into_forward", "one_argument_too_few", "two_parameters"}
    assert without == early | {"fake_gradient", "not_solved_left"}


@pytest.mark.parametrize("name", CELLS)
def test_what_is_no_puzzle_error_has_no_line_of_ours_either(name: str, outputs: dict[str, list[Any]]) -> None:
    source, kind = CELLS[name]
    (output,) = outputs[name]
    assert output["ename"] == kind
    text = printed(output)
    assert "site-packages" not in text
    assert f"{Path('lib')}/" not in text
    shown = [line.strip() for line in text.splitlines()]
    assert any(line.removeprefix("----> 1 ") in source and line for line in shown)
    assert len(shown) <= 10


def test_the_function_from_before_a_broken_cell_is_not_run(outputs: dict[str, list[Any]]) -> None:
    (output,) = outputs["after a cell that cannot be read"]
    assert printed(output).partition("\n    ")[2] == (
        'simulate(ddp, puzzle="ddp")\n'
        "PuzzleError: the last cell that defines ddp did not run, so this would be the ddp from before it\n"
        "  expected: a cell that Python can read, and that defines ddp\n"
        "  got:      IndentationError in line 2 of that cell: expected an indented block after function definition on "
        "line 1\n            pass\n"
        "  fix:      repair that line, and run the cell again before this one"
    )


def test_an_interrupted_run_shows_where_it_was(outputs: dict[str, list[Any]]) -> None:
    assert re.sub(r"In\[\d+\]", "In[n]", printed(outputs["interrupted"][0])) == (
        "  Cell In[n], line 5\n    simulate(wait)\n"
        "  Cell In[n], line 2, in wait\n    raise KeyboardInterrupt\n"
        "KeyboardInterrupt\n"
        "You stopped the run, in the code of rank 0. "
        "If it ought to be quick, a loop here never ends: look at what ends it."
    )
