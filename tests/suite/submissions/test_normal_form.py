"""The normal form of a source: the same for what a copy is changed in first, and another one for other code."""

import ast
import textwrap
import tomllib
from pathlib import Path

import pytest

from lib.puzzles.records import PUZZLES
from lib.suite.course.solutions import files_of
from lib.suite.submissions.load import source_in
from lib.suite.submissions.source import Source
from tests.support.profiles import sample

FIRST = '''
    from math import floor
    SIZE = 4

    def half(value, by=2):
        """Half of it."""
        return floor(value / by)

    class Counter:
        def __init__(self, start):
            self.count = start

        def up(self, by=1):
            self.count += by
            return self

    async def ddp(model: "Model") -> None:
        counter = Counter(start=0)

        def inner(a, b):
            return a - b

        def other(x):
            return [x + i for i in range(x) if i]

        for layer in range(model.LAYERS):  # each
            counter.up(by=half(layer, by=SIZE))
            out = model.forward(layer, inner(b=layer, a=counter.count), other(layer))
        try:
            await model.allreduce(out, layer)
        except ValueError as error:
            raise error
'''
CHANGES = tomllib.loads(Path(__file__).with_name("normal_form.toml").read_text("utf-8"))


def changed(*pairs: tuple[str, str]) -> str:
    text = FIRST
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def form(*cells: str, name: str = "ddp") -> str:
    return Source(tuple((f"{n}", textwrap.dedent(cell)) for n, cell in enumerate(cells))).normalised(name)


@pytest.mark.parametrize("name", CHANGES["same"])
def test_what_makes_no_difference(name: str) -> None:
    assert form(changed(*CHANGES["same"][name])) == form(FIRST) != ""


@pytest.mark.parametrize("name", CHANGES["other"])
def test_what_makes_a_difference(name: str) -> None:
    assert form(changed(*CHANGES["other"][name])) != form(FIRST)


def test_the_order_and_the_cells_of_helpers_make_no_difference() -> None:
    tree = ast.parse(textwrap.dedent(FIRST))
    parts = [ast.unparse(node) for node in tree.body]
    assert form(*reversed(parts)) == form(FIRST)


def test_what_is_not_used_makes_no_difference() -> None:
    assert form("import torch\nx = = 3", "def unused(): ...", FIRST, "simulate(ddp)", "SOME = 3") == form(FIRST)


def test_a_module_counts_as_what_it_does() -> None:
    code = "from helpers import step\nasync def ddp(model):\n    await step(model)"
    forms = {
        Source((("x.py", code.replace("helpers", stem)),), ((f"{stem}.py", text),)).normalised("ddp")
        for stem, text in (
            ("helpers", "async def step(model):\n    await model.allreduce(1, 2)"),
            ("my_own", "async def step(m):  # mine\n    await m.allreduce(1, 2)"),
        )
    }
    assert len(forms) == 1
    other = Source((("x.py", code),), (("helpers.py", "async def step(model): ..."),)).normalised("ddp")
    assert other not in forms


@pytest.mark.parametrize("puzzle", sample(PUZZLES))
def test_all_our_solutions_have_forms_of_their_own(puzzle: str) -> None:
    files = files_of(puzzle).values()
    forms = {source_in(path).normalised(puzzle) for path in files}
    assert len(forms - {""}) == len(files) > 0


def test_what_cannot_be_read_has_none() -> None:
    assert form("def ddp(m): return (") == form("x = 1") == form("x = 1\0") == ""
