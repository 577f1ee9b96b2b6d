"""The builder: from one small source to both notebooks, the same bytes every time, and nobody's work overwritten.

Before anybody has run a notebook it shows demonstrations, and nothing that a student is to find out.
"""

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from lib.files import ready
from lib.suite.submissions.gap import BuildError
from tests.support.said import Said
from tools.notebooks import build as notebooks
from tools.notebooks import kernels
from tools.notebooks.build import demonstrated

TITLE = "# %% [markdown]\n# # 1. One device\n\n"
SOURCE = (
    TITLE
    + """\
# %%
import sys

from lib import Model, simulate

# %% tags=["function"] editable=true
def basic(model: Model) -> None:
    # --- your code (about 1 line) ---
    model.get_activation([0])
    # --- end of your code ---


# %%
print("one")
sys.stdout.flush()
print("two")
models = simulate(basic)
await_it = 1 + 1
await_it

# %%
demonstration = 6 * 7
demonstration
"""
)


def with_source(tmp_path: Path) -> Path:
    ready(tmp_path / "solutions" / "basics" / "basic.py").write_text(SOURCE, "utf-8")
    return tmp_path


root = pytest.fixture(with_source, name="root")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is built of it: the only time that this file starts a kernel."""
    return notebooks.build(with_source(tmp_path_factory.mktemp("root")))


def cells(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text)["cells"]
    return found


def test_one_source_makes_two_notebooks(built: dict[str, str]) -> None:
    assert list(built) == ["puzzles/basics/01_basic.ipynb", "solutions/basics/01_basic.ipynb"]
    for text in built.values():
        assert text.endswith("}\n")
        assert json.loads(text)["metadata"] == notebooks.METADATA
        assert [cell["id"] for cell in cells(text)] == ["basic-0", "basic-1", "basic-2", "basic-3", "basic-4"]
        assert [cell["metadata"] for cell in cells(text)] == [{}, {}, {"tags": ["function"]}, {}, {}]


def test_the_students_copy_has_the_gap_and_the_outputs_of_demonstrations(built: dict[str, str]) -> None:
    student = [cell for cell in cells(built["puzzles/basics/01_basic.ipynb"]) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in student] == [None, None, None, 4]
    assert [bool(cell["outputs"]) for cell in student] == [False, False, False, True]
    (result,) = student[3]["outputs"]
    assert (result["execution_count"], result["data"]) == (4, {"text/plain": ["42"]})
    assert "".join(student[1]["source"]).splitlines()[1:] == [
        "    # --- your code (about 1 line) ---",
        '    raise NotSolved("basic")',
        "    # --- end of your code ---",
    ]
    assert student[0]["source"][-1] == "from lib import Model, NotSolved, simulate"


def test_the_solved_copy_has_been_run(built: dict[str, str]) -> None:
    solved = [cell for cell in cells(built["solutions/basics/01_basic.ipynb"]) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in solved] == [1, 2, 3, 4]
    stream, result = solved[2]["outputs"]
    assert stream == {"name": "stdout", "output_type": "stream", "text": ["one\n", "two\n"]}
    assert (result["execution_count"], result["data"]) == (3, {"text/plain": ["2"]})


def test_writing_twice_changes_nothing(built: dict[str, str], root: Path) -> None:
    assert notebooks.stale(built, root) == list(built)
    assert notebooks.write(built, root) == list(built)
    assert notebooks.stale(built, root) == []
    assert notebooks.write(built, root) == []
    assert sorted(path.name for path in root.rglob("*.*")) == ["01_basic.ipynb", "01_basic.ipynb", "basic.py"]
    (root / "puzzles" / "basics" / "01_basic.ipynb").write_text("{}")
    assert notebooks.stale(built, root) == ["puzzles/basics/01_basic.ipynb"]


def test_stored_outputs_are_those_of_a_run_and_show_what_is_not_current(built: dict[str, str], root: Path) -> None:
    notebooks.write(built, root)
    assert notebooks.build(root, stored=True) == built
    solved = root / "solutions" / "basics" / "01_basic.ipynb"
    for old, new in (('"42"', '"43"'), ('"execution_count": 4', '"execution_count": 5'), ("basic-4", "basic-9")):
        assert old in built["solutions/basics/01_basic.ipynb"]
        solved.write_text(built["solutions/basics/01_basic.ipynb"].replace(old, new), "utf-8")
        assert notebooks.stale(notebooks.build(root, stored=True), root) != [], old
    solved.write_text(built["solutions/basics/01_basic.ipynb"].replace('"42"', '"<P at 0x7f0123456789>"'), "utf-8")
    with pytest.raises(BuildError, match="which is different on every machine or run"):
        notebooks.build(root, stored=True)
    for text in ("{", "[]"):
        solved.write_text(text, "utf-8")
        assert notebooks.stale(notebooks.build(root, stored=True), root) == list(built)
    solved.unlink()
    assert notebooks.stale(notebooks.build(root, stored=True), root) == list(built)


def test_work_is_noticed(built: dict[str, str], root: Path) -> None:
    notebooks.write(built, root)
    mine = root / "puzzles" / "basics" / "01_basic.ipynb"
    assert notebooks.worked_on(built, root) == []
    pristine = mine.read_text("utf-8")
    for old, new in (
        ('    raise NotSolved(\\"basic\\")', "    pass"),
        ('    raise NotSolved(\\"basic\\")', '    x = 1\\n    raise NotSolved(\\"basic\\")'),
        ('"execution_count": null', '"execution_count": 7'),
    ):
        assert old in pristine
        mine.write_text(pristine.replace(old, new), "utf-8")
        assert notebooks.worked_on(built, root) == ["puzzles/basics/01_basic.ipynb"]


def test_outputs_are_joined_only_with_their_neighbours() -> None:
    out = {"output_type": "stream", "name": "stdout", "text": "a"}
    picture = {"output_type": "display_data", "data": {}}
    joined = kernels.joined([dict(out), dict(out), picture, dict(out)])
    assert [output.get("text") for output in joined] == ["aa", None, "a"]


def refused(name: str, text: str) -> str:
    """Why a source stops the build, before anything runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = ready(Path(folder, "solutions", name))
        path.write_text(text, "utf-8")
        with pytest.raises(BuildError) as caught:
            notebooks.build(Path(folder))
        assert [path for path in Path(folder).rglob("*") if path.is_file()] == [path]
        return str(caught.value).partition("; there are")[0].replace(folder, "FOLDER")


def rejected(**output: Any) -> str:
    """What is said of an output that no two machines share."""
    with pytest.raises(BuildError) as caught:
        kernels.reject(output, "here")
    return str(caught.value).replace(str(Path(notebooks.__file__).parents[2]), "PATH")


test_a_bad_source_stops_the_build = Said(__file__, "sources").test(lambda: globals())


ROOT = Path(__file__).parents[3]
STUDENTS = sorted((ROOT / "puzzles").rglob("*.ipynb"))
GAP = 'def ddp(model):\n    raise NotSolved("ddp")'


def shown(*sources: str) -> str:
    """The numbers of the cells whose output a student sees; in the solved notebook each has put its number out."""
    student = [{"cell_type": "code", "id": f"c{n}", "source": s, "outputs": []} for n, s in enumerate(sources)]
    solved = [{**cell, "execution_count": n, "outputs": [{"text": str(n)}]} for n, cell in enumerate(student)]
    cells = demonstrated({"cells": student}, {"cells": solved})["cells"]
    return " ".join(output["text"] for cell in cells for output in cell["outputs"]) or "none"


test_an_output_is_shown_where_nothing_of_the_students_is_in_it = Said(__file__, "demonstrations").test(
    lambda: globals()
)


@pytest.mark.parametrize("path", STUDENTS, ids=lambda path: path.stem)
def test_students_notebooks_can_be_read_before_they_are_run(path: Path) -> None:
    cells: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all((cell["execution_count"] is None) == (not cell["outputs"]) for cell in code)
    unsolved = rf"NotSolved\(|predict\(|goal\(|simulate\({path.stem[3:]},"
    for cell in code:
        source = "".join(cell["source"])
        if re.search(unsolved, source):
            assert cell["outputs"] == [], source
