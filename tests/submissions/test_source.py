"""A function taken out of a source: with all that it uses, and nothing else; and what is read without running any."""

from __future__ import annotations

import json
import linecache
import textwrap
from dataclasses import replace
from typing import Any

import pytest

from lib.submissions.source import Source, SourceError, function_of

BOOM = 'raise RuntimeError("this has run")'


def source(*cells: str, **modules: str) -> Source:
    """A notebook with these code cells, and modules beside it."""
    texts = [textwrap.dedent(cell) for cell in cells]
    found = Source.of("work.ipynb", notebook(*texts))
    beside = tuple((f"{name}.py", textwrap.dedent(text)) for name, text in modules.items())
    return replace(found, modules=beside)


def notebook(*cells: str) -> str:
    made = [{"cell_type": "code", "metadata": {}, "source": cell} for cell in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def answer(*cells: str, **modules: str) -> Any:
    """What the function `basic` of a notebook gives."""
    return function_of(source(*cells, **modules), "basic")(None)


NEEDED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "a helper below the function": (3, ("def basic(m): return helper()", "def helper(): return 3")),
    "a helper of a helper": (
        3,
        ("def a(): return b()\ndef b(): return c()\ndef c(): return 3\ndef basic(m): return a()",),
    ),
    "helpers that call each other": (
        True,
        (
            "def even(n): return n == 0 or odd(n - 1)\n"
            "def odd(n): return n > 0 and even(n - 1)\ndef basic(m): return even(4)",
        ),
    ),
    "the last definition": (2, ("def basic(m): return 1", "def basic(m): return 2")),
    "a helper that is defined again below": (
        2,
        ("def helper(): return 1", "def basic(m): return helper()", "def helper(): return 2"),
    ),
    "a helper as it was when the function was last run": (
        1,
        (
            "def helper(): return 1\ndef basic(m): return helper()",
            "out = simulate(basic)",
            "def helper(): return 2\ndef ddp(m): return helper()\nsimulate(ddp)",
        ),
    ),
    "a helper in a cell that was run before those above": (
        2,
        ("def basic(m): return helper()", "simulate(basic)", "def helper(): return 2"),
    ),
    "a constant": (3, ("SIZE = 3", "def basic(m): return SIZE")),
    "a constant of a constant": (7, ("A = 3\nB = A + 4\nA = 100", "def basic(m): return B")),
    "a constant from a function": (
        [0, 1, 4],
        (
            "def made(n): return [square(i) for i in range(n)]\ndef square(i): return i * i\nTABLE = made(3)",
            "def basic(m): return TABLE",
        ),
    ),
    "an unpacked constant": (5, ("A, (B, *C) = 1, (2, 3, 4)", "def basic(m): return A + C[-1]")),
    "an annotated constant": (5, ("A: Unknown = 5\nB: Unknown", "def basic(m: Unknown) -> Unknown: return A")),
    "a constant that grows": (
        [1, 2, 3],
        ("SIZES = [1]\nSIZES += [2]", "SIZES.append(3)", "def basic(m): return SIZES"),
    ),
    "an item of a table": (
        {3: 4, 5: 6},
        ("table = {}\ntable[3] = 4", "def basic(m): return table", "table.update({5: 6})"),
    ),
    "an item taken away": ([2], ("table = [1, 2]\ndel table[0]", "def basic(m): return table")),
    "an attribute": (4, ("class Box: pass\nbox = Box()\nbox.size = 4", "def basic(m): return box.size")),
    "a table filled in a loop": (
        [0, 1, 4],
        (
            "table = []\nfor i in range(9):\n    if i > 2: break\n    table.append(i * i)\n    plot(i)\n",
            "def basic(m): return table",
        ),
    ),
    "a table filled by a function": (
        [1, 2],
        ("table = []\ndef fill(into):\n    into += [1, 2]\nfill(table)", "def basic(m): return table"),
    ),
    "a table filled by a function of its own": (
        {"a": 1},
        ("TABLE = {}\ndef put(k, v):\n    TABLE[k] = v\nput('a', 1)", "def basic(m): return TABLE"),
    ),
    "a global set by a function": (
        9,
        ("def init():\n    global SIZE\n    SIZE = 9\ninit()", "def basic(m): return SIZE"),
    ),
    "a register": (
        7,
        (
            "KNOWN = {}\ndef register(f):\n    KNOWN[f.__name__] = f\n    return f",
            "@register\ndef seven(): return 7",
            "def basic(m): return KNOWN['seven']()",
        ),
    ),
    "a single dispatch": (
        "number",
        (
            "from functools import singledispatch\n@singledispatch\ndef kind(x): return 'thing'",
            "@kind.register(int)\ndef _(x): return 'number'",
            "def basic(m): return kind(3)",
        ),
    ),
    "a walrus": (6, ("if (n := 5) > 3: print(n)", "def basic(m): return n + 1")),
    "a walrus in a list": (2, ("[last := i for i in range(3)]", "def basic(m): return last")),
    "an import of its own": (2, ("import math as m2, json", "def basic(m): return m2.floor(2.5)")),
    "a part of a package": ("b", ("import os.path", "def basic(m): return os.path.basename('a/b')")),
    "an import that may fail": (
        None,
        ("try:\n    import nothing_like_it as np\nexcept ImportError:\n    np = None", "def basic(m): return np"),
    ),
    "what a failed import decides": (
        False,
        (
            "try:\n    import nothing_like_it\n    HAS = True\nexcept ImportError:\n    HAS = False",
            "def basic(m): return HAS",
        ),
    ),
    "everything of a module": (
        3,
        ("from nothing_like_it import *", "from math import *", "def basic(m): return floor(3.5)"),
    ),
    "a definition in an if": (
        1,
        ("FAST = True\nif FAST:\n    def basic(m): return 1\nelse:\n    def basic(m): return 2",),
    ),
    "a definition in a try": (1, (f"try:\n    def basic(m): return 1\nexcept Exception:\n    {BOOM}",)),
    "a definition in a with": (
        1,
        ("from contextlib import nullcontext\nwith nullcontext():\n    def basic(m): return 1",),
    ),
    "a definition under main": (1, ("if __name__ == '__main__':\n    def basic(m): return 1\n    simulate(basic)",)),
    "a match": (4, ("match (1, 4):\n    case (1, n):\n        pass", "def basic(m): return n")),
    "another name": (1, ("def mine(m): return 1\nbasic = mine",)),
    "a decorated name": (
        2,
        ("def twice(f):\n    return lambda m: 2 * f(m)\ndef basic(m): return 1\nbasic = twice(basic)",),
    ),
    "a decorator of its own": (
        2,
        (
            "from functools import wraps\ndef twice(f):\n    @wraps(f)\n"
            "    def g(m): return 2 * f(m)\n    return g\n@twice\ndef basic(m): return 1",
        ),
    ),
    "a decorator with arguments": (
        3,
        (
            "def times(n):\n    def deco(f):\n        return lambda m: n * f(m)\n"
            "    return deco\n@times(3)\ndef basic(m): return 1",
        ),
    ),
    "a cache": (
        8,
        (
            "import functools\n@functools.lru_cache(maxsize=None)\n"
            "def f(n): return n if n < 2 else f(n-1) + f(n-2)\ndef basic(m): return f(6)",
        ),
    ),
    "a partial": (5, ("from functools import partial\ndef add(a, b, m): return a + b\nbasic = partial(add, 2, 3)",)),
    "a lambda": (1, ("basic = lambda m: 1",)),
    "an instance": (
        4,
        ("class Strategy:\n    size = 4\n    def __call__(self, m): return self.size\nbasic = Strategy()",),
    ),
    "a method": (
        4,
        (
            "class Strategy:\n    def __init__(self): self.size = 4\n"
            "    def run(self, m): return self.size\nbasic = Strategy().run",
        ),
    ),
    "a method of an instance": (
        6,
        (
            "class Strategy:\n    def run(self, m): return helper()\ns = Strategy()\nbasic = s.run",
            "def helper(): return 6",
        ),
    ),
    "what a factory gives": (5, ("def make(n):\n    def inner(m): return n\n    return inner\nbasic = make(5)",)),
    "a closure that counts": (
        3,
        (
            "def counter():\n    n = 0\n    def up():\n        nonlocal n\n        n += 1\n"
            "        return n\n    return up\nup = counter()\n"
            "def basic(m): return up() + up()",
        ),
    ),
    "a default": (4, ("SIZE = 4\ndef basic(m, size=SIZE): return size\nSIZE = 5",)),
    "a default of a keyword": (4, ("SIZE = 4\ndef basic(m, *, size=SIZE): return size",)),
    "a data class": (
        5,
        (
            "from dataclasses import dataclass, field\n@dataclass\nclass Step:\n"
            "    layer: int\n    more: list = field(default_factory=list)\n"
            "def basic(m): return Step(5).layer",
        ),
    ),
    "an enumeration": (
        2,
        ("from enum import Enum\nclass Pass(Enum):\n    F = 1\n    B = 2\ndef basic(m): return Pass.B.value",),
    ),
    "a named tuple": (
        2,
        (
            "from typing import NamedTuple\nclass P(NamedTuple):\n    a: int\n"
            "    b: int = 2\ndef basic(m): return P(1).b",
        ),
    ),
    "a class that builds on another": (1, ("class A:\n    x = 1\nclass B(A): pass\ndef basic(m): return B().x",)),
    "a class with names of its own": (3, ("x = 1\nclass A:\n    x = x + 1\n    y = x + 1\ndef basic(m): return A.y",)),
    "a context manager": (
        ["in", "out"],
        (
            "from contextlib import contextmanager\nlog = []\n@contextmanager\ndef kept():\n"
            "    log.append('in')\n    yield\n    log.append('out')\ndef basic(m):\n"
            "    with kept(): pass\n    return log",
        ),
    ),
    "a generator": ([1, 2], ("def steps():\n    yield 1\n    yield 2\ndef basic(m): return [*steps()]",)),
    "a global of its own": (2, ("count = 0\ndef basic(m):\n    global count\n    count += 2\n    return count",)),
    "what is looked up by its name": (
        3,
        ("def helper(): return 3", "def basic(m): return eval('helper()')", "import nothing_like_it"),
    ),
    "seeded random numbers": (
        True,
        ("import random\nrandom.seed(3)\ndef basic(m): return random.random() == random.Random(3).random()",),
    ),
    "a shuffled list": (
        True,
        (
            "import random\nrandom.seed(3)\nrows = [*range(50)]\nrandom.shuffle(rows)\n"
            "def basic(m): return rows != [*range(50)]",
        ),
    ),
    "an awaited constant": (3, ("async def three(): return 3\nTHREE = await three()", "def basic(m): return THREE")),
    "a comprehension with a name of the notebook's": (
        [0, 1],
        (f"x = {'{'}BOOM: 1{'}'}", "def basic(m): return [x for x in range(2)]"),
    ),
    "a name that was deleted later": (
        1,
        ("def helper(): return 1\ndef basic(m): return helper()\nsimulate(basic)", "del helper"),
    ),
    "what displays": (None, ("def basic(m): display(3)",)),
    "tabs and form feeds": (3, ("def basic(m):\n\tif True:\n\t\treturn 3\n\x0cx = 1\n",)),
    "ends of lines of another system": (3, ("A = '''1\r\n2'''\r\ndef basic(m):\r\n    return len(A)\r\n",)),
    "names that are not English": (3, ("größe = 3\ndef basic(m): return größe",)),
    "a title of Colab's": (
        3,
        ("#@title Mine { run: \"auto\" }\nn = 3 #@param {type:'integer'}\ndef basic(m): return n",),
    ),
    "a cell magic": (3, ("%%time\nasync def other(m): ...\ndef basic(m):\n    return 3",)),
    "a cell magic below a comment": (3, ("# mine\n%%capture out\ndef basic(m):\n    return 3",)),
    "line magics": (
        1,
        (
            "%load_ext autoreload\n%autoreload 2\n!pip install it's\nfiles = !ls\nx = %pwd\n"
            "?len\nlen??\ndef basic(m):\n    return (7\n        % 2)",
        ),
    ),
    "a magic in a function": (3, ("def basic(m):\n    !ls\n    %timeit 1\n    return 3",)),
    "a magic in several lines": (3, ("!pip install \\\n   it's \\\n   more\ndef basic(m): return 3",)),
    "a timed definition": (4, ("%time SIZE = 4\n%time await something()\ndef basic(m): return SIZE",)),
    "a text that looks like a magic": (
        "\n%time\n!ls\n",
        ("%matplotlib inline\ndef basic(m): return '''\n%time\n!ls\n'''",),
    ),
    "a cell that is indented": (
        3,
        ("    def basic(m):\n        return 3\n".replace("    def", "  def").replace("        ", "      "),),
    ),
    "a cell of a script of nbconvert's": (
        3,
        ("get_ipython().run_cell_magic('time', '', 'def basic(m):\\n    return 3\\n')",),
    ),
}
"""What the function gives, and the cells."""


@pytest.mark.parametrize("name", NEEDED)
def test_what_it_uses_comes_along(name: str) -> None:
    expected, cells = NEEDED[name]
    assert answer(*cells) == expected


OTHERS = {
    "a broken cell": "this is not Python",
    "an import": "import nothing_like_it",
    "an error": BOOM,
    "a class that does something": f"class Other:\n    {BOOM}",
    "a definition that does something": f"def boom(f): {BOOM}\n@boom\ndef other(): ...",
    "a default that does something": f"def boom(): {BOOM}\ndef other(x=boom()): ...",
    "a plot": "import matplotlib.pyplot as plt\nplt.plot(SIZE)",
    "a run": "out = simulate(basic, puzzle='basic')\ndraw(out)",
    "a run by itself": "basic(None)",
    "an awaited run": "await basic(None)",
    "a run with the constant": "print(table, SIZE)",
    "a test": "assert table == SIZE",
    "a table that is looked at": f"x = table.get(boom())\ndef boom(): {BOOM}",
    "main": f"if __name__ == '__main__':\n    {BOOM}",
    "an end": "raise SystemExit(3)",
    "an endless loop": "while True: pass",
    "another function of the same table": f"def other(): table[0] = 1\ndef more():\n    other()\n    {BOOM}",
    "a magic": "%%bash\nrm -rf everything",
    "a file": "%%writefile basic.py\ndef basic(m): return 9",
    "the name as something else": "basic = Trace.of(simulate(basic))\nfrom lib import Trace, simulate",
    "the name as a number": "basic = 3",
    "the name in a loop": "for basic in range(3): pass",
    "null": "x = '\0'",
    "a deep nest": "x = " + "(" * 5000,
}


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


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (("x = 1", "def basic(m):\n  return ("), "work.ipynb, code cell 2, line 2: '(' was never closed: return ("),
        (
            ("def basic(m): return helper()", "def helper():\n  x = = 2"),
            "work.ipynb, code cell 2, line 2: invalid syntax",
        ),
        (
            ("def basic(m): return SIZE", "SIZE = 1 / 0"),
            "work.ipynb, code cell 2, line 1: ZeroDivisionError: division by",
        ),
        (("import nothing_like_it as np\nA = np.zeros(3)", "def basic(m): return A"), "line 1: ModuleNotFoundError"),
        (("from nothing_like_it import *", "def basic(m): return zeros"), "line 1: ModuleNotFoundError"),
        (
            ("def helper(): ...", "class A: ..."),
            "no function 'basic'; it has `helper` (code cell 1, line 1), `A` (code cell 2, line 1)",
        ),
    ],
    ids=range(6),
)
def test_what_is_wrong_is_named_with_its_cell_and_line(cells: tuple[str, ...], message: str) -> None:
    with pytest.raises(SourceError) as caught:
        answer(*cells)
    assert message in str(caught.value)


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
