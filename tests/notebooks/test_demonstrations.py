"""What is shown before anybody has run it: demonstrations, and nothing that a student is to find out."""

import json
from pathlib import Path
from typing import Any

import pytest

from lib.notebooks.demonstrations import demonstrated

ROOT = Path(__file__).parents[2]
STUDENTS = sorted((ROOT / "puzzles").glob("*.ipynb"))
GAP = 'def ddp(model):\n    raise NotSolved("ddp")'


def shown(*sources: str) -> list[str]:
    """The cells whose output a student sees, where every cell of the solved notebook has put its number out."""
    student = [{"cell_type": "code", "id": f"c{n}", "source": s, "outputs": []} for n, s in enumerate(sources)]
    solved = [{**cell, "execution_count": n, "outputs": [{"text": str(n)}]} for n, cell in enumerate(student)]
    cells = demonstrated({"cells": student}, {"cells": solved})["cells"]
    return [output["text"] for cell in cells for output in cell["outputs"]]


@pytest.mark.parametrize(
    ("sources", "numbers"),
    [
        (["demo = 1", GAP, "out = simulate(ddp)", "draw(out)", "other = 2\nother"], "04"),
        ([GAP, "out = simulate(ddp)", "out = simulate(known)\ndraw(out)", "draw(out)"], "23"),
        ([GAP, "out = simulate(ddp)", "out += [1]", "out"], ""),
        ([GAP, "out = out = ddp", "for out in out: pass"], ""),
        (["guess = predict(end=...)", "out = simulate(late)", "guess.against(out)", "draw(out)"], "1"),
        (["guess = predict(end=...)", "guess", 'goal("ddp")', 'hint("ddp", 0)'], ""),
        ([GAP, "out = ddp", "def show(out):\n    return out", "show(1)"], "23"),
        ([GAP, "out = ddp", "def show():\n    return out", "show()"], ""),
        ([GAP, "out = ddp", "async def show():\n    out = 1\n    await out", "await show()"], "23"),
        ([GAP + "\n\n\nout = simulate(ddp)", "review(out)", "for out in (1, 2):\n    print(out)"], "2"),
        ([GAP, "@ddp\ndef show():\n    return 1", "show()", "@known\ndef show():\n    return 1"], "3"),
        (["model = 1", "guess = predict(end=...)\nguess.against([model])", "draw([model])"], "0"),
    ],
)
def test_an_output_is_shown_where_nothing_of_the_students_is_in_it(sources: list[str], numbers: str) -> None:
    assert "".join(shown(*sources)) == numbers


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
