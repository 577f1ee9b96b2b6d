"""Honest solutions as students hand them in: named, ordered and put together in ways of their own. Each is correct, and
reaches all goals that the reference reaches."""

import json
import re
import textwrap
from collections.abc import Iterator
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


def _parts(name: str) -> Iterator[tuple[str, str]]:
    """The parts of a file of texts: what stands after `###`, and the text below."""
    for part in Path(__file__).with_name("data").joinpath(name).read_text("utf-8").split("### ")[1:]:
        head, _, text = part.partition("\n")
        yield head, text.strip("\n")


STUDENT = dict(_parts("students.txt"))
"""Code of students by what it is, of a function that may have any name."""


def _whole(text: str) -> str:
    """A text with the code that it names: a line `<<ddp mine>>` stands for that of students.txt under `mine`."""

    def code(found: re.Match[str]) -> str:
        indent, key, name = found.groups()
        return textwrap.indent(STUDENT[key].replace("{name}", name or ""), indent)

    return re.sub(r"^( *)<<(\w+)(?: (\w+))?>>$", code, text.strip("\n"), flags=re.MULTILINE) + "\n"


def _variants() -> Iterator[Variant]:
    for head, text in _parts("variants.txt"):
        name, puzzle, *script = head.split(" | ")
        first, *others = re.split(r"^-- (.*)\n", text + "\n", flags=re.MULTILINE)
        parts = [*zip(others[::2], others[1::2], strict=True)]
        cells = [first, *(code for label, code in parts if label == "cell")]
        modules = [(label.removeprefix("module "), _whole(code)) for label, code in parts if label != "cell"]
        yield Variant(name, puzzle, tuple(map(_whole, cells)), tuple(modules), bool(script))
    ddp = _whole("<<ddp ddp>>")
    yield Variant("ends of lines of another system", "ddp", (ddp.replace("\n", "\r\n"),))
    yield Variant("tabs", "ddp", (ddp.replace("    ", "\t"),))
    mark = "\ufeff" + ddp.replace("grad_weights", "größe")
    yield Variant("a mark at the beginning of the file, and names that are not English", "ddp", (mark,), is_script=True)


VARIANTS = tuple(_variants())
