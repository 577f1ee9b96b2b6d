"""Gaps: found where they are whole, refused with file and line where they are not, and cut out without a trace."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import PUZZLES
from lib.suite.submissions.gap import Answer, BuildError, parse, untouched
from lib.suite.submissions.locations import PAGES, home, source_of
from tests.support.said import Said
from tools.notebooks.gaps import find, student

WHOLE = """\
from drawing import draw
from lib import Mesh, Model, simulate


# %%
def basic(model: Model) -> None:
    given = 1
    # --- your code (about 3 lines) ---
    for layer in range(2):
        # a comment, and a blank line, do not count

        given += layer
    secret = given
    # --- end of your code ---
    print(given)


# %%
out = await simulate(basic)
"""


def test_a_whole_gap() -> None:
    assert find(WHOLE, "01_basic.py", "basic") == [Answer("basic", 8, 14, "    ", "basic")]


def test_the_student_gets_everything_but_the_answer() -> None:
    expected = WHOLE.splitlines()
    expected[1] = "from lib import Mesh, Model, NotSolved, simulate"
    expected[8:13] = ['    raise NotSolved("basic")']
    assert student(WHOLE, find(WHOLE, "01_basic.py", "basic"), "01_basic.py").splitlines() == expected


def test_a_source_without_a_gap_is_left_as_it_is() -> None:
    text = "# %% [markdown]\n# # Introduction\n"
    assert find(text, "00_introduction.py", "introduction") == []
    assert student(text, [], "00_introduction.py") == text


def test_an_exercise_is_called_as_its_function() -> None:
    text = "from lib import simulate\n\n\n"
    for name in ("first", "second"):
        text += f"def {name}(model):\n    # --- your code (about 1 line) ---\n    model.loss(1)\n"
        text += "    # --- end of your code ---\n\n\n"
    answers = find(text, "00_introduction.py", None)
    assert [answer.puzzle for answer in answers] == ["first", "second"]
    assert student(text, answers, "00_introduction.py").count("raise NotSolved(") == 2
    with pytest.raises(BuildError, match="two answers to 'first'"):
        find(text.replace("second", "first"), "00_introduction.py", None)
    outside = "# --- your code (about 1 line) ---\nprint(1)\n# --- end of your code ---\n"
    with pytest.raises(BuildError, match="this exercise lies in no function"):
        find(outside, "00_introduction.py", None)


def test_an_import_over_several_lines_becomes_one() -> None:
    text = WHOLE.replace("import Mesh, Model, simulate", "import (\n    LINKS,\n    Model,\n    simulate,\n)")
    lines = student(text, find(text, "x.py", "basic"), "x.py").splitlines()
    assert lines[1] == "from lib import LINKS, Model, NotSolved, simulate"
    assert lines[5] == "def basic(model: Model) -> None:"


def test_two_puzzles_in_one_file() -> None:
    second = WHOLE.replace("def basic", "def ddp").replace("your code (", "your code: ddp (")
    answers = find(WHOLE + second, "x.py", "basic")
    assert [answer.puzzle for answer in answers] == ["basic", "ddp"]
    text = student(WHOLE + second, answers, "x.py")
    assert text.count("raise NotSolved") == 2
    assert "secret" not in text
    assert untouched(text, "basic")
    assert untouched(text, "ddp")


BEGIN, END = "    # --- your code (about 3 lines) ---", "    # --- end of your code ---"
GAP = f"{BEGIN}\n    a = 1\n    b = 2\n    c = 3\n{END}\n"


def changed(old: str, new: str) -> str:
    assert old in WHOLE
    broken = WHOLE.replace(old, new, 1)
    return student(broken, find(broken, "x.py", "basic"), "x.py")


test_what_is_wrong_with_a_gap = Said(__file__, "gaps").test(lambda: globals())


names = st.from_regex(r"[a-z]{3,8}_", fullmatch=True)


@given(st.lists(names, min_size=1, max_size=6, unique=True), st.integers(0, 2), st.integers(0, 3))
def test_whatever_the_answer_only_its_lines_go(lines: list[str], deep: int, blank: int) -> None:
    indent = "    " * (deep + 1)
    frame = ["from lib import Model", "async def basic(model):"]
    frame += ["    " * (level + 1) + f"if model: # {level}" for level in range(deep)]
    begin = f"{indent}# --- your code (about {len(lines)} line{'s' * (len(lines) > 1)}) ---"
    answer = [f"{indent}{name} = await model" for name in lines] + [""] * blank
    text = "\n".join([*frame, begin, *answer, f"{indent}# --- end of your code ---", "    return 1", ""])
    made = student(text, find(text, "x.py", "basic"), "x.py")
    assert parse(made, "x.py")
    assert not any(f"{name} =" in made for name in lines)
    assert untouched(made, "basic")
    assert not untouched(text, "basic")
    kept = [line for line in text.splitlines()[1:] if line not in answer]
    assert [line for line in made.splitlines()[1:] if line and "NotSolved" not in line] == kept


SOURCES = [home() / "solutions" / place for place in dict.fromkeys(map(source_of, (*PAGES, *PUZZLES)))]


def lines_without_import(text: str) -> int:
    """How many there are but for `from lib import`, where NotSolved may need a line more."""
    (line,) = (node for node in parse(text, "x.py").body if isinstance(node, ast.ImportFrom) and node.module == "lib")
    return len(text.splitlines()) - len(range(line.lineno, (line.end_lineno or 0) + 1))


@pytest.mark.parametrize("source", SOURCES, ids=[source.stem for source in SOURCES])
def test_no_student_gets_one_of_our_answers(source: Path) -> None:
    text, name = source.read_text("utf-8"), source.stem
    answers = find(text, source.name, None if name in PAGES else name)
    made = student(text, answers, source.name)
    asked = [one.id for one in PUZZLES.values() if one.notebook == name]
    assert name in PAGES or [answer.puzzle for answer in answers] == asked
    for answer in answers:
        assert untouched(made, answer.puzzle)
        body = text.splitlines()[answer.first : answer.last - 1]
        assert "\n".join(body) not in made
    taken = sum(answer.last - answer.first - 2 for answer in answers)
    assert lines_without_import(made) == lines_without_import(text) - taken
