"""Facts: each broken rule names one that there is, with all of its fields, and nothing else loads them."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

from lib.diagnosis import ADVICE, WORDS, facts
from lib.errors.exceptions import Fact, RuleError

ROOT = Path(__file__).parents[2]
ALL = {name: fact for name, fact in vars(facts).items() if isinstance(fact, type) and issubclass(fact, Fact)}


@cache
def raised() -> list[tuple[str, ast.Call]]:
    """Each place of lib that makes a fact, and how."""
    found: list[tuple[str, ast.Call]] = []
    for path in sorted((ROOT / "lib").rglob("*.py")):
        if "import facts" in (text := path.read_text("utf-8")):
            where = path.relative_to(ROOT)
            calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
            found += [(f"{where}:{one.lineno}", one) for one in calls if ast.unparse(one.func).startswith("facts.")]
    return found


def test_each_rule_names_a_fact_that_there_is_with_all_its_fields() -> None:
    assert len(raised()) > 50
    for where, call in raised():
        name = ast.unparse(call.func).removeprefix("facts.")
        assert name in ALL, where
        try:
            inspect.signature(ALL[name]).bind(*call.args, **{str(one.arg): one.value for one in call.keywords})
        except TypeError as error:
            pytest.fail(f"{where}: {name}: {error}")


def test_each_fact_is_raised_somewhere() -> None:
    named = {ast.unparse(call.func).removeprefix("facts.") for _, call in raised()}
    lib = "\n".join(path.read_text("utf-8") for path in (ROOT / "lib").rglob("*.py"))
    assert {name for name in ALL if name not in named and lib.count(f"{name}(") < 2} == set()


def test_each_text_is_asked_for_by_its_name() -> None:
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "lib/diagnosis").rglob("*.py"))
    for ask, table in (("words_of", WORDS), ("because", ADVICE["because"])):
        assert set(re.findall(rf'\b{ask}\("(\w+)"', code)) == table.keys()


def test_a_fact_without_words_says_so() -> None:
    """A store has words of its own for these, and says what it holds."""
    with pytest.raises(NotImplementedError, match="Missing is told by the error that has it"):
        RuleError(facts.Missing(0, 1)).words()
