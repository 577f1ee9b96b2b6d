"""The examples in the docstrings of public names run, and give what they say."""

import asyncio
import doctest

import pytest

import drawing
import lib

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
