"""The page's kernel, in CPython: all that solved notebooks put out is what the repository stores, with the package that
the page has, without IPython and chalk; and the answers of single cells."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lib.suite.course.exports import package
from lib.suite.submissions.locations import notebooks_below
from tests.support.outputs import joined
from tests.support.said import Said
from tools.browser import chalk_standin, kernel
from tools.browser.build import GALLERY

ROOT = Path(__file__).parents[2]
SOLVED = notebooks_below(ROOT / "solutions")
PROGRAM = """
import asyncio, json, sys
import chalk_standin, kernel
assert "IPython" not in sys.modules and "chalk" not in sys.modules
chalk_standin.install()
outputs = []
shell = kernel.Kernel(outputs.append)
from lib.suite.course.progress import passed_here

async def run(cells):
    shell.restart()
    passed_here.clear()  # a page has one notebook
    for source in cells:
        outputs.clear()
        fine = await shell.run(source)
        yield [fine, json.loads(json.dumps(outputs))]

async def main():
    for cells in json.load(sys.stdin):
        print(json.dumps([one async for one in run(cells)]), file=sys.__stdout__)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the page unpacks, called as it is there: what is in it was not written by a student."""
    folder = tmp_path_factory.mktemp("page") / "site-packages"
    folder.mkdir()
    for module in (kernel, chalk_standin):
        path = Path(str(module.__file__))
        (folder / path.name).write_bytes(path.read_bytes())
    for name, data in package(GALLERY).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def run(site: Path, *notebooks: Sequence[str]) -> list[list[tuple[bool, list[dict[str, Any]]]]]:
    """What the cells of notebooks put out, one notebook after the other in one process, as in a page."""
    code = f"import sys; sys.path[:] = [{str(site)!r}, *(one for one in sys.path if one not in ('', {str(ROOT)!r}))]\n"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code + PROGRAM],
        cwd=site,
        input=json.dumps(notebooks),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.timeout(600)
def test_solved_notebooks_put_out_what_the_repository_stores(site: Path) -> None:
    notebooks = [json.loads(path.read_text("utf-8"))["cells"] for path in SOLVED]
    codes = [[cell for cell in cells if cell["cell_type"] == "code"] for cells in notebooks]
    results = run(site, *(["".join(cell["source"]) for cell in cells] for cells in codes))
    pairs = [
        (f"{path.name} {cell['id']}", joined(cell["outputs"]), result)
        for path, cells, notebook in zip(SOLVED, codes, results, strict=True)
        for cell, result in zip(cells, notebook, strict=True)
    ]
    assert [name for name, _, (fine, _) in pairs if not fine] == []
    assert [name for name, stored, (_, outputs) in pairs if joined(outputs) != stored] == []
    assert len(pairs) > 500


def answers(site: Path, *cells: str) -> list[tuple[bool, list[dict[str, Any]]]]:
    """Whether each cell of a notebook came to its end, and what it put out."""
    return [(fine, joined(outputs)) for fine, outputs in run(site, cells)[0]]


def text(outputs: list[dict[str, Any]]) -> str:
    (output,) = outputs
    return (
        "\n".join(output["traceback"]) if "traceback" in output else output.get("text") or output["data"]["text/plain"]
    )


SLOW = """
told, send = [], get_ipython().send
get_ipython().send = lambda output: told.append(output.get("text")) or send(output)
class Slow:
    def __repr__(self):
        print("while it is made")
        return f"told so far: {told}"
"""


def test_what_a_cell_printed_is_sent_before_its_value_is_made_into_a_text_or_picture(site: Path) -> None:
    _, (_, (printed, value)) = answers(site, SLOW, "print('before')\nSlow()")
    assert printed["text"] == "before\nwhile it is made\n"
    assert text([value]) == "told so far: ['before\\n']"


def test_a_cell_shows_what_it_prints_and_the_value_at_its_end(site: Path) -> None:
    cells = (
        "import asyncio\nprint('one')\nawait asyncio.sleep(0, 'two')",
        "_ + '!'",
        "_;",
        "None",
        "display([3], 'four')",
        "In[2], len(In)",
        "",
    )
    found = answers(site, *cells)
    assert all(fine for fine, _ in found)
    printed, *rest = (outputs for _, outputs in found)
    assert printed[0] == {"output_type": "stream", "name": "stdout", "text": "one\n"}
    assert text(printed[1:]) == "'two'"
    assert text(rest[0]) == "'two!'"
    assert rest[1] == rest[2] == rest[5] == []
    assert [text([one]) for one in rest[3]] == ["[3]", "'four'"]
    assert text(rest[4]) == "(\"_ + '!'\", 7)"


def test_an_error_shows_the_lines_of_the_student_and_no_others(site: Path) -> None:
    cells = (
        "from drawing import draw\nfrom lib import simulate\n\ndef early(model):\n"
        "    model.weights[0], state = model.load_weights(0)\n"
        "    model.forward(0, model.get_activation([0]), model.weights[0])\n"
        "    model.update(0, model.fake_grad(0, [0]), model.weights[0], state)",
        "simulate(early, ranks=2, layers=1, batches=2)",
        "def f():\n    return 1 / 0\n\nf()",
    )
    (_, (fine, outputs), (also, divided)) = answers(site, *cells)
    assert not fine
    assert not also
    lines = outputs[0]["traceback"]
    assert [line for line in lines if line.startswith("  Cell In[")][:2] == [
        "  Cell In[2], line 1",
        "  Cell In[1], line 7, in early",
    ]
    assert not any(".py" in line for line in lines)
    assert outputs[1]["output_type"] == "display_data"  # the picture of the run up to there
    assert divided[0]["traceback"] == [
        "  Cell In[3], line 4",
        "    f()",
        "  Cell In[3], line 2, in f",
        "    return 1 / 0",
        "ZeroDivisionError: division by zero",
    ]


SAID = Said(Path(__file__).with_name("page_cannot.txt"))


@pytest.mark.parametrize("expression", SAID.texts)
def test_what_a_page_cannot_do_is_said(site: Path, expression: str) -> None:
    def told(cell: str) -> str:
        ((fine, outputs),) = answers(site, cell)
        assert not fine
        return text(outputs).splitlines()[-1]

    SAID.check(expression, {"told": told})


def test_what_nobody_has_any_more_goes_while_nothing_is_to_be_done(site: Path) -> None:
    cells = (
        "import gc, weakref\ngc.disable()\nclass Loop:\n    pass\n",
        "loop = Loop()\nloop.own = loop\nfound = weakref.ref(loop)\ndel loop",
        "before = found() is None\nget_ipython().rest()\nbefore, found() is None",
    )
    assert text(answers(site, *cells)[2][1]) == "(False, True)"


def test_prints_without_end_are_cut(site: Path) -> None:
    ((fine, outputs),) = answers(site, "for number in range(200_000):\n    print(number)")
    assert fine
    assert len(text(outputs)) == kernel.MOST + len(
        "\n... and more: of what a cell prints, 500,000 characters are shown\n"
    )
