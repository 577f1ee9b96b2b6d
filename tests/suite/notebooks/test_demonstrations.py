"""What is shown before anybody has run it: demonstrations, and nothing that a student is to find out."""

import json
from pathlib import Path
from typing import Any

import pytest

from lib.suite.notebooks.build import demonstrated
from tests.support.said import Said

ROOT = Path(__file__).parents[3]
STUDENTS = sorted((ROOT / "puzzles").glob("*.ipynb"))
GAP = 'def ddp(model):\n    raise NotSolved("ddp")'


def shown(*sources: str) -> str:
    """The numbers of the cells whose output a student sees; in the solved notebook each has put its number out."""
    student = [{"cell_type": "code", "id": f"c{n}", "source": s, "outputs": []} for n, s in enumerate(sources)]
    solved = [{**cell, "execution_count": n, "outputs": [{"text": str(n)}]} for n, cell in enumerate(student)]
    cells = demonstrated({"cells": student}, {"cells": solved})["cells"]
    return " ".join(output["text"] for cell in cells for output in cell["outputs"]) or "none"


test_an_output_is_shown_where_nothing_of_the_students_is_in_it = Said(
    Path(__file__).with_name("said") / "demonstrations.txt"
).test(lambda: globals())


def test_an_output_has_the_number_of_the_run_that_it_is_of() -> None:
    ran = {"cell_type": "code", "id": "a", "source": "1", "execution_count": 4}
    output = {"output_type": "execute_result", "execution_count": 4, "data": {}}
    student = {"cells": [{**ran, "execution_count": None, "outputs": []}]}
    (cell,) = demonstrated(student, {"cells": [{**ran, "outputs": [output]}]})["cells"]
    assert cell["execution_count"] == 4
    assert cell["outputs"] == [output]
    assert student["cells"][0]["outputs"] == []


@pytest.mark.parametrize("path", STUDENTS, ids=lambda path: path.stem)
def test_students_notebooks_can_be_read_before_they_are_run(path: Path) -> None:
    cells: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all((cell["execution_count"] is None) == (not cell["outputs"]) for cell in code)
    assert any(cell["outputs"] for cell in code)
    for cell in code:
        source = "".join(cell["source"])
        if "NotSolved(" in source or "predict(" in source or "goal(" in source or "puzzle=" in source:
            assert cell["outputs"] == [], source
