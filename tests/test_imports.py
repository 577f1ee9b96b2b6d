"""What `import lib` brings with it, and what it offers."""

import ast
import re
from pathlib import Path

import pytest

import drawing
import lib
import lib.errors.exceptions
from tests.support.drivers import ROOT, python

HEAVY = ["chalk", "IPython", "numpy", "torch", "asyncio", "pydantic", "drawing", "PIL", "typer", "rich", "matplotlib"]


def test_import_lib_brings_nothing_heavy() -> None:
    code = f"import sys, lib; print([name for name in {HEAVY} if name in sys.modules])"
    assert python(code) == "[]\n"


def test_a_whole_run_under_simulate_needs_no_asyncio() -> None:
    code = (
        "import sys\n"
        "from lib import Model, Trace, check, simulate\n"
        "async def step(model):\n"
        "    weight, state = model.load_weights(0)\n"
        "    inp = model.get_activation([model.rank])\n"
        "    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)\n"
        "    grad = await model.allreduce(grad, 0)\n"
        "    model.set_final_weight(0, model.update(0, grad, weight, state)[0])\n"
        "print(check(Trace.of(simulate(step, ranks=2, layers=1, batches=2))).correct)\n"
        "print([name for name in ['asyncio', 'numpy', 'chalk'] if name in sys.modules])\n"
    )
    assert python(code) == "True\n[]\n"


def test_a_model_has_its_check_however_it_was_imported() -> None:
    code = (
        "import sys; from lib.simulator.model import Model\n"
        "Model.check([]); print('lib.checker.verdict' in sys.modules)"
    )
    assert python(code) == "No run: simulate(...) has not come to its end\nFalse\n"


def test_all_is_what_is_imported_for_others() -> None:
    tree = ast.parse(Path(lib.__file__).read_text("utf-8"))
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lib")
        for alias in node.names
        if not (alias.asname or "").startswith("_")
    }
    assert set(lib.__all__) == imported
    assert len(set(lib.__all__)) == len(lib.__all__)
    for name in lib.__all__:
        assert getattr(lib, name) is not None


def test_a_star_import_brings_just_that() -> None:
    code = "before = set(dir()); from lib import *; print(sorted(set(dir()) - before - {'before'}))"
    assert python(code) == f"{sorted(lib.__all__)}\n"


def test_no_room_or_module_is_called_like_something_public() -> None:
    """`import lib.check` would put the module in the place of the function."""
    modules = {path.stem for path in (ROOT / "lib").iterdir() if path.is_dir() or path.suffix == ".py"}
    assert modules.isdisjoint(lib.__all__)
    drawings = {path.stem for path in (ROOT / "drawing").iterdir() if path.is_dir() or path.suffix == ".py"}
    assert drawings.isdisjoint(drawing.__all__)


def test_a_check_imports_what_records_progress_only_where_there_is_a_puzzle(tmp_path: Path) -> None:
    code = (
        "import os, sys; os.environ['PUZZLES_PROGRESS'] = {!r}\n"
        "from lib import CheckError, Model, simulate\n"
        "for puzzle in (None, 'basic'):\n"
        "    try: Model.check(simulate(lambda model: None, puzzle='basic'), puzzle=puzzle)\n"
        "    except CheckError: print('lib.suite.course.progress' in sys.modules)\n"
    )
    assert python(code.format(str(tmp_path / "progress.json"))) == "False\nTrue\n"
    assert (tmp_path / "progress.json").is_file()


def test_the_errors_are_the_tree_that_they_draw() -> None:
    drawn = [line for line in (lib.errors.exceptions.__doc__ or "").splitlines() if re.match(r" {4}[A-Z│├└ ]", line)]
    found: list[tuple[int, str]] = []
    for line in drawn:
        name = re.search(r"[A-Z]\w+", line)
        assert name is not None
        found.append((line.index(name[0]) // 4 - 1, name[0]))
    parents: list[str] = []
    for depth, name in found:
        parents[depth:] = [name]
        if depth:
            assert issubclass(getattr(lib.errors.exceptions, name), _class(parents[depth - 1]))
    drawn_names = {name for depth, name in found if depth}
    every = {name: getattr(lib.errors.exceptions, name) for name in lib.errors.exceptions.__all__}
    assert drawn_names == {name for name, one in every.items() if isinstance(one, type) and issubclass(one, Exception)}


def _class(name: str) -> type:
    import builtins

    found = getattr(lib.errors.exceptions, name, None) or getattr(builtins, name)
    assert isinstance(found, type)
    return found


@pytest.mark.parametrize("name", sorted(name for name in lib.errors.exceptions.__all__ if name.endswith("Error")))
def test_a_puzzle_error_is_an_assertion_error_or_misuse_a_value_error(name: str) -> None:
    error = getattr(lib.errors.exceptions, name)
    assert (
        issubclass(error, ValueError) if name in ("TraceError", "OrderFileError") else issubclass(error, AssertionError)
    )
