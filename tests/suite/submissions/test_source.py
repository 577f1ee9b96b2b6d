"""A function taken out of a source: with all that it uses, and nothing else; and what is read without running any."""

import linecache
import textwrap
from ast import literal_eval
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lib import PUZZLES, check, simulate
from lib.suite.submissions.function_check import judge_answers
from lib.suite.submissions.load import function_of
from lib.suite.submissions.source import Source
from lib.suite.submissions.table import ask_here
from tests.suite.grade.intake.trees import notebook
from tests.support.puzzles import way
from tests.support.said import Said
from tests.support.variants import VARIANTS, Variant


def source(*cells: str, **modules: str) -> Source:
    """A notebook with these code cells, and modules beside it."""
    texts = [textwrap.dedent(cell) for cell in cells]
    found = Source.of("work.ipynb", notebook(*texts))
    beside = tuple((f"{name}.py", textwrap.dedent(text)) for name, text in modules.items())
    return replace(found, modules=beside)


def answer(*cells: str, **modules: str) -> Any:
    return function_of(source(*cells, **modules), "basic")(None)


NEEDED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "tabs and form feeds": (3, ("def basic(m):\n\tif True:\n\t\treturn 3\n\x0cx = 1\n",)),
    "ends of lines of another system": (3, ("A = '''1\r\n2'''\r\ndef basic(m):\r\n    return len(A)\r\n",)),
}
"""What the function gives, and the cells: here what no text file can hold, all others are in cells.txt."""
OTHERS = {"null": "x = '\0'", "a deep nest": "x = " + "(" * 5000}
"""What stands in another cell."""
for part in Path(__file__).with_name("cells.txt").read_text("utf-8").split("=== ")[1:]:
    title, _, text = part.partition("\n")
    name, _, given = title.partition(" => ")
    if given:
        NEEDED[name] = literal_eval(given), tuple(text.rstrip("\n").split("\n---\n"))
    else:
        OTHERS[name] = text.rstrip("\n")


@pytest.mark.parametrize("name", NEEDED)
def test_what_it_uses_comes_along(name: str) -> None:
    expected, cells = NEEDED[name]
    assert answer(*cells) == expected


@pytest.mark.parametrize("where", ["above", "below"])
@pytest.mark.parametrize("name", OTHERS)
def test_nothing_else_is_run(name: str, where: str) -> None:
    mine = "table = {}\nSIZE = 3\ndef basic(m):\n    return SIZE + len(table)"
    if where == "above" and name.startswith("the name as"):
        assert answer(OTHERS[name], mine) == 3
    else:
        assert answer(*((OTHERS[name], mine) if where == "above" else (mine, OTHERS[name]))) == 3


def test_modules_that_were_handed_in() -> None:
    found = answer(
        "from my_handed_helpers import helper\nimport random\ndef basic(m): return helper(), random.random() != 5",
        my_handed_helpers="from my_handed_tables import TABLE\ndef helper(): return TABLE[0]",
        my_handed_tables="TABLE = [8]",
        random="def random(): return 5",
    )
    assert found == (8, True)


test_what_is_wrong_is_named_with_its_cell_and_line = Said(__file__, "sources").test(lambda: {"answer": answer})


def test_a_broken_cell_above_a_later_definition_counts_for_nothing() -> None:
    assert answer("def basic(m):\n  return (", "def basic(m):\n  return 2") == 2


def test_a_py_whose_other_parts_are_broken() -> None:
    text = "# %%\nx = = 1\n# %% [markdown]\n# Text\n# %%\ndef basic(m):\n    return 1 / m\n"
    function = function_of(Source.of("work.py", text), "basic")
    with pytest.raises(ZeroDivisionError) as caught:
        function(0)
    assert caught.tb.tb_next is not None
    line = caught.tb.tb_next.tb_lineno
    assert (line, linecache.getline("work.py", line)) == (7, "    return 1 / m\n")


@cache
def goals(puzzle: str) -> list[str]:
    verdict = check(simulate(way(puzzle), puzzle=puzzle), puzzle)
    return [goal.name for goal in verdict.goals if goal.reached]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: f"{variant.puzzle}, {variant.name}")
def test_a_correct_variant_is_correct(variant: Variant) -> None:
    source = variant.source()
    assert source.puzzles() == (variant.puzzle,)
    assert not source.untouched(variant.puzzle)
    assert len(source.normalised(variant.puzzle)) == 16
    function = function_of(source, variant.puzzle)
    if PUZZLES[variant.puzzle].is_function:
        assert judge_answers(variant.puzzle, ask_here(function)).correct
        return
    verdict = check(simulate(function, puzzle=variant.puzzle), variant.puzzle)
    assert verdict.correct, verdict.text()
    assert [goal.name for goal in verdict.goals if goal.reached] == goals(variant.puzzle)
