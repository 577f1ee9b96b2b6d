"""A function taken out of a source: with all that it uses, and nothing else; and what is read without running any."""

import textwrap
from ast import literal_eval
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


def source(*cells: str) -> Source:
    """A notebook with these code cells."""
    return Source.of("work.ipynb", notebook(*map(textwrap.dedent, cells)))


def answer(*cells: str) -> Any:
    return function_of(source(*cells), "basic")(None)


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


test_what_is_wrong_is_named_with_its_cell_and_line = Said(__file__, "sources").test(lambda: {"answer": answer})


def test_a_broken_cell_above_a_later_definition_counts_for_nothing() -> None:
    assert answer("def basic(m):\n  return (", "def basic(m):\n  return 2") == 2


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
