"""The examples in the docstrings of public names run, and give what they say; what pages import is there."""

import ast
import asyncio
import doctest
import re
from importlib import import_module

import pytest

import drawing
import lib
from tests.support.drivers import ROOT

PUBLIC = {
    name: vars(module)[name] if name in vars(module) else getattr(module, name)
    for module in (lib, drawing)
    for name in module.__all__
}
NAMES = {**PUBLIC, "asyncio": asyncio}


@pytest.mark.parametrize(
    "name", [name for name, one in PUBLIC.items() if callable(one) and ">>>" in (one.__doc__ or "")]
)
def test_the_example_of(name: str) -> None:
    one = PUBLIC[name]
    (example,) = doctest.DocTestFinder(recurse=False).find(one, name, globs=dict(NAMES), module=False)
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(example, out=said.append)
    assert not said, "".join(said)


PAGES = [ROOT / "README.md", ROOT / "TEACHING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = re.findall(r"^```python\n(.*?)^```", "\n".join(page.read_text("utf-8") for page in PAGES), re.M | re.S)


def test_what_pages_import_is_there() -> None:
    imports = [node for block in BLOCKS for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ImportFrom)]
    names = [(str(node.module), alias.name) for node in imports for alias in node.names]
    assert [name for name in names if not hasattr(import_module(name[0]), name[1])] == []
    assert ("lib.schedules.gallery", "explore") in names
