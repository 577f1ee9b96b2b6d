"""Honest solutions as students hand them in: named, ordered and put together in ways of their own. Each is correct, and
reaches all goals that the reference reaches."""

import json
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from lib.suite.submissions.source import Source

__all__ = ["VARIANTS", "Variant"]


class Variant(NamedTuple):
    """A solution: the cells of a notebook, or the text of a .py (`is_script`), and modules beside it."""

    name: str
    puzzle: str
    cells: tuple[str, ...]
    modules: tuple[tuple[str, str], ...] = ()
    is_script: bool = False

    @property
    def file(self) -> str:
        return f"{self.puzzle}.py" if self.is_script else f"{self.puzzle}.ipynb"

    def text(self) -> str:
        if self.is_script:
            return "\n\n".join(self.cells)
        cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": cell} for cell in self.cells]
        text = {"cell_type": "markdown", "metadata": {}, "source": ["# My answer\n", f"def {self.puzzle}(model):\n"]}
        raw = {"cell_type": "raw", "metadata": {}, "source": f"def {self.puzzle}(model): raise NotImplementedError"}
        whole = {"cells": [text, *cells, raw], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        return json.dumps(whole, ensure_ascii=False)

    def source(self) -> Source:
        return replace(Source.of(self.file, self.text()), modules=self.modules)


def _given(
    name: str, puzzle: str, *cells: str, script: bool = False, beside: Mapping[str, str] | None = None
) -> Variant:
    """A variant of these cells; without any, of those that the file has under its name."""
    cells = cells or tuple(code for part, code in STUDENT.items() if part.removesuffix(", 2") == name)
    modules = tuple((f"{module}.py", textwrap.dedent(text)) for module, text in (beside or {}).items())
    return Variant(name, puzzle, tuple(textwrap.dedent(cell).strip("\n") + "\n" for cell in cells), modules, script)


STUDENT = {
    name: f"\n{textwrap.indent(code.strip(), ' ' * 4)}\n"
    for name, _, code in (
        part.partition("\n")
        for part in Path(__file__).with_name("data").joinpath("students.txt").read_text("utf-8").split("### ")[1:]
    )
}
"""Code of students by what it is: indented, as a cell or a part of one."""
DDP = STUDENT["ddp"]
ANSWER = DDP.format(name="ddp")
CELL = textwrap.dedent(ANSWER)
PLAIN = CELL.lstrip()
PARTS = STUDENT["parts"]
STORES = STUDENT["stores"]
WITH_PARTS = STUDENT["with_parts"]
RUN = STUDENT["run"]
CHECK = 'Model.check(out, puzzle="ddp")'
PIPE = STUDENT["pipe"]
INCOMING = STUDENT["incoming"]
FSDP = STUDENT["fsdp"]
ONE_F_ONE_B = STUDENT["one_f_one_b"]
TURNS = STUDENT["turns"]
DEVICES = STUDENT["devices"]

VARIANTS: tuple[Variant, ...] = (
    _given("as it is given", "ddp", "from lib import *\nfrom drawing import *", ANSWER, RUN, CHECK),
    _given(
        "a cell that is timed",
        "ddp",
        "%matplotlib inline\n!pip install don't-find-me\nimport torch",
        "%%time\n" + PLAIN,
        "%time out = simulate(ddp)\nddp?",
    ),
    _given(
        "a cell that is captured, among cells that are broken",
        "ddp",
        "# %%bash is below\nthis is not Python",
        "%%capture out\n" + PLAIN,
        "%%html\n<b>def ddp</b>",
        "1 / 0",
        "await nothing",
    ),
    _given("magics inside of the function", "ddp", CELL.replace("del grad", "!date\n    %who\n    del grad")),
    _given(
        "a form of Colab's",
        "ddp",
        "#@title My answer { display-mode: \"form\" }\nSIZE = 4 #@param {type:'integer'}\n" + CELL,
    ),
    _given(
        "a script with marks of cells",
        "ddp",
        "# ---\n# jupyter:\n#   jupytext:\n#     formats: py:percent\n# ---\n# %% [markdown]\n# # Mine",
        "# %%",
        ANSWER,
        '# %%\nif __name__ == "__main__":\n    raise SystemExit("not here")',
        script=True,
    ),
    _given("a script in which another cell is broken", "ddp", "# %%\ndef half(:", "# %%", ANSWER, script=True),
    _given(
        "a script as nbconvert writes it",
        "ddp",
        "#!/usr/bin/env python\n# coding: utf-8\n# In[1]:\nget_ipython().run_line_magic('matplotlib', 'inline')",
        f"get_ipython().run_cell_magic('time', '', {CELL!r})",
        script=True,
    ),
    _given("ends of lines of another system", "ddp", CELL.replace("\n", "\r\n")),
    _given("tabs", "ddp", CELL.replace("    ", "\t")),
    _given(
        "a mark at the beginning of the file, and names that are not English",
        "ddp",
        "\ufeff" + CELL.replace("grad_weights", "größe"),
        script=True,
    ),
    _given(
        "three attempts",
        "ddp",
        "async def ddp(model):\n    raise NotSolved('ddp')",
        "async def ddp(model):\n    await model.allreduce(model)\nsimulate(ddp, puzzle='ddp')",
        ANSWER,
        RUN,
    ),
    _given("a broken attempt above", "ddp", "async def ddp(model):\n    await (", ANSWER),
    _given("helpers below, and one defined twice", "ddp", WITH_PARTS, PARTS, STORES, "def load(): ...", PARTS),
    _given(
        "helpers of another puzzle with the same names",
        "ddp",
        STORES + PARTS + WITH_PARTS,
        RUN,
        "def load(): ...\ndef finish(): raise ValueError\nasync def other(model):\n    load()\n    finish()",
        "simulate(other)",
    ),
    _given("the name is used again for what came out", "ddp", ANSWER, "ddp = simulate(ddp)"),
    _given(
        "one or the other",
        "ddp",
        "FAST = True\nif FAST:\n" + textwrap.indent(PLAIN, "    ") + "else:\n    def ddp(model): ...",
    ),
    _given("another name", "ddp", DDP.format(name="mine"), "ddp = mine"),
    _given("a lambda", "ddp", DDP.format(name="_go"), "ddp = lambda model: _go(model)"),
    _given("decorated, with functools", "ddp", STUDENT["decorated, with functools"], "    @timed" + ANSWER),
    _given(
        "decorated afterwards",
        "ddp",
        "def traced(f):\n    async def g(model):\n        return await f(model)\n    return g",
        ANSWER,
        "ddp = traced(ddp)",
        "simulate(ddp)",
    ),
    _given(
        "a factory",
        "ddp",
        "def make(reduce):\n"
        + textwrap.indent(textwrap.dedent(DDP.format(name="step")), "    ").replace("model.allreduce", "reduce(model)")
        + "    return step",
        "ddp = make(lambda model: model.allreduce)",
    ),
    _given(
        "partial",
        "ddp",
        textwrap.dedent(DDP.format(name="_ddp"))
        .replace("_ddp(model)", "_ddp(order, model)")
        .replace("in reversed(", "in order("),
        "from functools import partial\nddp = partial(_ddp, reversed)",
    ),
    _given(
        "an object that is called",
        "ddp",
        "class Strategy:\n    def __init__(self, name): self.name = name\n"
        + textwrap.indent(textwrap.dedent(DDP.format(name="__call__")), "    ").replace("(model):", "(self, model):"),
        "ddp = Strategy('data parallel')",
    ),
    _given(
        "a method",
        "ddp",
        "class Strategy:\n"
        + textwrap.indent(textwrap.dedent(DDP.format(name="run")), "    ").replace("(model):", "(self, model):"),
        "strategy = Strategy()\nddp = strategy.run",
    ),
    _given(
        "helpers that share what they need through globals",
        "ddp",
        "ORDER = {}\ndef backwards(n):\n    global COUNT\n    COUNT = n\n    return range(n - 1, -1, -1)\nCOUNT = 0",
        "ORDER['back'] = backwards\nORDER.setdefault('there', range)",
        CELL.replace("reversed(range(model.LAYERS))", "ORDER['back'](model.LAYERS)"),
    ),
    _given("a data class, an enumeration and a match", "ddp"),
    _given(
        "helpers in a module beside it",
        "ddp",
        "from my_parts_of_ddp import load, ahead, back, finish\nfrom my_stores_of_ddp import *",
        WITH_PARTS,
        beside={"my_parts_of_ddp": PARTS, "my_stores_of_ddp": STORES},
    ),
    _given(
        "a package beside it",
        "ddp",
        "import my_package_of_ddp.parts as p",
        "ddp = p.ddp",
        beside={"my_package_of_ddp/__init__": "", "my_package_of_ddp/parts": ANSWER},
    ),
    _given(
        "as in lib, by another way of importing",
        "ddp",
        "import lib as L\nfrom lib import Model as M\ntry:\n    import torch\nexcept ImportError:\n    torch = None",
        CELL.replace("(model):", "(model: M) -> 'L.Missing':\n    assert isinstance(model, L.Model)"),
    ),
    _given("a context manager and a generator", "ddp"),
    _given("recursion", "ddp"),
    _given("all batches of the sum in one comprehension", "basic"),
    _given("sums under the name of the layer", "grad_accum"),
    _given("other keys", "fsdp", FSDP),
    _given(
        "other keys, in a module that somebody else wrote",
        "fsdp",
        "from our_fsdp_step import fsdp",
        "simulate(fsdp)",
        beside={"our_fsdp_step": FSDP},
    ),
    _given("a helper above", "gpipe", INCOMING, PIPE.format(name="gpipe")),
    _given("a helper below, after another answer", "gpipe", PIPE.format(name="gpipe"), INCOMING, "gpipe.seen = True"),
    _given(
        "the name is a picture later",
        "gpipe",
        INCOMING + PIPE.format(name="gpipe"),
        "from lib import Trace, simulate\ngpipe = Trace.of(simulate(gpipe, puzzle='gpipe'))",
    ),
    _given("stages as objects", "one_f_one_b", ONE_F_ONE_B, TURNS),
    _given("stages as objects, below", "one_f_one_b", TURNS + ONE_F_ONE_B),
    _given("an order as a text", "breadth_first", "from lib import schedule", STUDENT["an order as a text"]),
    _given(
        "an order that is given to schedule",
        "breadth_first",
        STUDENT["an order that is given to schedule"],
        'breadth_first = lib.schedule(messages="posted")(order)',
        "breadth_first.order(4, 8)",
    ),
    _given(
        "an order from two lists",
        "zero_bubble",
        "from lib import schedule as an_order\nfrom collections import deque",
        STUDENT["an order from two lists"],
    ),
    _given(
        "counted by hand",
        "uneven",
        "from lib import stages\nfrom lib.schedules.pipelines.generators import one_f_one_b as in_turn",
        "COUNTS = [3] * 3\nCOUNTS += [1]",
        "@stages(in_turn)\ndef uneven(layers, ranks):\n    return tuple(COUNTS)",
    ),
    _given("summed behind, with helpers of its own", "zero1"),
    _given(
        "helpers that give functions",
        "local_devices",
        "from itertools import chain\nrows_of = chain.from_iterable",
        "def is_of(process, per_process):\n    return lambda device: device // per_process == process",
        DEVICES,
        "check_function(local_devices, puzzle='local_devices')",
    ),
    _given(
        "a cache and a method",
        "local_devices",
        STUDENT["a cache and a method"],
        "def local_devices(grid, per_process, process):\n"
        "    return {n: place for place, n in enumerate(Grid(grid, per_process).of(process))}",
    ),
    _given(
        "counted from the other side",
        "split_layers",
        "from itertools import accumulate\n%config InlineBackend.figure_format = 'retina'",
        STUDENT["counted from the other side"],
    ),
    _given("a table of styles", "stage_ids"),
)
