"""What is read of a source without running it, of any text at all: an answer, or a SourceError, and soon."""

import ast
import json
import random
import textwrap
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.suite.submissions.load import extract
from lib.suite.submissions.source import Source, SourceError
from tests.support.profiles import THOROUGH, examples
from tests.support.variants import VARIANTS, Variant


def most(number: int) -> int:
    """How many there are of something under TESTS=thorough, where what takes long for so many is seen; else a few."""
    return number if THOROUGH else number // 10


MANY = ", ".join(f"x{n}" for n in range(20))
HOSTILE = {
    "brackets": "x = " + "(" * 100_000,
    "signs": "x = " + "-" * 100_000 + "1",
    "a sum": "x = " + "+".join(["1"] * 50_000),
    "dots": "x = a" + ".b" * 50_000,
    "calls": "x = a" + "()" * 50_000,
    "branches": "if a: pass\n" + "elif a: pass\n" * 15_000,
    "lambdas": "x = " + "lambda: " * 20_000 + "1",
    "nothing": "x = 1\0",
    "half a character": "x = '\ud800'\nasync def ddp(m): pass\n",
    "half a character in a name": "\ud800 = 1",
    "a long number": "x = " + "9" * 100_000,
    "a long number in hexadecimal": "x = 0x" + "f" * 100_000 + "\nasync def ddp(m): x",
    "many statements": "x = 1\n" * most(6_000) + "async def ddp(m): x",
    "many texts": "'''" * 50_000,
    "many commands": "%x\n" * most(50_000) + "x = = 1",
    "many cells": "# %%\nx = = 1\n" * most(5_000),
    "many helpers": "".join(f"def f{i}(): f{i + 1}()\n" for i in range(most(4_000))) + "async def ddp(m): f0()",
    "a question": "x = = 1\n" + " " * most(500_000) + "#?",
    "a question in dashes": "x = = 1\n" + "-" * 200_000 + "'?",
    "chains that change names": "\n".join(f"x{n} = []" for n in range(most(900)))
    + "\ndef f0(): "
    + " = ".join(f"x{n}.a" for n in range(most(900)))
    + " = 0\n"
    + "".join(f"def f{n + 1}(): f{n}\n" for n in range(most(3_900)))
    + f"async def ddp(m): f{most(3_900)}()",
    "chains that are given names": f"{MANY} = [[]] * 20\ndef f0(): pass\n"
    + "".join(f"def f{n + 1}(): f{n}\n" for n in range(1_200))
    + f"f1200({MANY})\n" * 2_500
    + f"async def ddp(m): return {MANY}",
    "functions in one of many names": f"async def ddp(m):\n    {', '.join(f'a{n}' for n in range(most(15_000)))} = m\n"
    + "    ["
    + "lambda: 0," * most(10_000)
    + "]",
    "too long": "x = 1\n" * 1_000_000,
    "only an end": "\\",
    "an endless text": "x = '''",
}


def read(source: Source) -> None:
    """Asks everything that is asked without running anything."""
    assert set(source.puzzles()) <= {"ddp"}
    source.untouched("ddp")
    assert len(source.normalised("ddp")) in (0, 16)
    with suppress(SourceError):
        extract(source, "ddp")


@pytest.mark.parametrize("name", HOSTILE)
def test_what_nobody_writes(name: str) -> None:
    read(Source((("x.ipynb, code cell 1", HOSTILE[name]),)))
    read(Source.of("x.py", HOSTILE[name]))


MANY_CELLS = [*((f"cell {n}", "x = = 1" if n % 2 else "#") for n in range(4_000)), ("last", "async def ddp(m): m()")]
EACH_OTHER = [
    (f"{one}.py", f"from {other} import f\nasync def ddp(m): return f(m)\ndef f(m): return [{'f(m), ' * 30}]\n")
    for one, other in (("first", "second"), ("second", "first"))
]
ONE_BY_ONE = [
    (
        f"m{n}.py",
        f"from m{n + 1} import {MANY}\n"
        + "".join(f"def y{name}(): return {MANY}\n{name} = y{name}\n" for name in MANY.split(", ")),
    )
    for n in range(most(20))
]


@pytest.mark.parametrize(
    "source",
    [
        Source(tuple(MANY_CELLS), name="many.ipynb"),
        Source((("x", "#"),) * 100_000),
        Source((("x.py", "from first import ddp"),), tuple(EACH_OTHER)),
        Source((("x.py", f"from m0 import {MANY}\nasync def ddp(m): return {MANY}"),), tuple(ONE_BY_ONE)),
    ],
    ids=["cells", "empty cells", "modules that import each other", "modules one by one"],
)
def test_many_cells_and_modules(source: Source) -> None:
    read(source)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[" * 100_000, '{"cells":' * 50_000, "null", "\ud800", "9" * 100_000, '{"cells": {"a": 1}}'),
        *(json.dumps({"cells": [{"cell_type": "code", "source": odd}]}) for odd in (None, [1], {"a": 1}, 3, "\ud800")),
        *('{"cells": "abc"}', '{"cells": [["cell_type"]]}', '{"cells": [null]}', '{"cells": [{"cell_type": {}}]}'),
    ],
)
def test_what_is_hardly_a_notebook(text: str) -> None:
    try:
        source = Source.of("x.ipynb", text)
    except SourceError:
        return
    read(source)


@given(st.lists(st.text(max_size=200), max_size=4), st.booleans())
def test_any_text(texts: list[str], beside: bool) -> None:
    cells = tuple((f"x.ipynb, code cell {number}", text) for number, text in enumerate(texts, 1))
    Source(cells, (("helpers.py", "".join(texts)),) if beside else ()).normalised("ddp")


PARTS = ("def ddp(m):", "async def ddp(m): x", "    return x", "x = 1", "x += ddp", "del x", "class x: y = x", "if x:")
MORE = ("    x = y", "try:", "except x:", "from x import *", "import x", "ddp = x(ddp)", "@x", "x.y = 3", "global x")
ODD = ("'''", "(", "x?", "%%time", "!ls", "\\", "\x0c", "match x:", "    case y:")


@examples(200)
@given(st.lists(st.sampled_from(PARTS + MORE + ODD), max_size=12))
def test_any_lines(lines: list[str]) -> None:
    for text in ("\n".join(lines), "\r\n# %%\r\n".join(lines)):
        read(Source((("x.ipynb, code cell 1", text),)))


@pytest.mark.parametrize("variant", VARIANTS[::4], ids=lambda variant: variant.name)
def test_solutions_in_which_something_is_out_of_place(variant: Variant) -> None:
    """Trees whose nodes are others of the same tree."""
    rng = random.Random(variant.name)
    text = "\n".join(textwrap.dedent(cell) for _, cell in variant.source().cells)
    for _ in range(15):
        try:
            tree = ast.parse(text)
        except SyntaxError:
            first, last = sorted(rng.randrange(len(text)) for _ in range(2))
            Source((("x.py", text[:first] + text[last:]),)).normalised(variant.puzzle)
            continue
        expressions = [node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.Subscript | ast.BinOp)]
        for node in rng.sample(expressions, min(5, len(expressions))):
            names = [name for name, value in ast.iter_fields(node) if isinstance(value, ast.expr)]
            setattr(node, rng.choice(names), ast.Name(rng.choice(["ddp", "model", "x", "ddp2"]), ast.Load()))
        body = [
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module)
        ]
        rng.shuffle(rng.choice(body).body)
        source = Source((("x.py", ast.unparse(tree)),))
        source.puzzles()
        source.untouched(variant.puzzle)
        assert len(source.normalised(variant.puzzle)) in (0, 16)
