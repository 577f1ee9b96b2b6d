"""How to take one function out of a notebook or .py without running the rest."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lib.puzzles.records import PUZZLES, puzzle_of_file
from lib.suite.submissions.source import Source, SourceError, function_of

__all__ = ["Notebook", "SourceError", "load_function", "puzzle_of", "puzzles_of", "source_in"]

Notebook = dict[str, Any]
"""A notebook as JSON: its cells, its metadata."""


def load_function(path: str | Path, name: str) -> Callable[..., Any]:
    """The function `name` of a .py (plain or py:percent) or .ipynb, with what it uses; nothing else of the file is run.

    What lies beside the file can be imported. Raises SourceError where the function cannot be had.
    """
    file = Path(path)
    source = source_in(file)
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        return function_of(source, name)
    finally:
        sys.path.pop(0)


def puzzle_of(path: str | Path) -> str:
    """The puzzle that a file is about: by its name, else by the only puzzle whose function it defines."""
    first, *others = puzzles_of(path)
    if others:
        ids = ", ".join([first, *others])
        raise SourceError(f"{Path(path).name} defines the function of several puzzles ({ids}); name one with --puzzle")
    return first


def puzzles_of(path: str | Path) -> tuple[str, ...]:
    """The puzzles that a file is about: that which it is called after, else all whose function it defines, in order.

    SourceError where there are none.
    """
    file = Path(path)
    if (named := puzzle_of_file(file.stem)) is not None:
        return (named.id,)
    source = source_in(file)
    if found := source.puzzles():
        return found
    if (spoken := next(filter(source.spoken_of().__contains__, PUZZLES), None)) is not None:
        raise SourceError(f"{file.name} defines no function {spoken!r}; {source.instead_of(spoken)}", "renamed")
    what = source.instead_of("")
    ids = ", ".join(PUZZLES)
    raise SourceError(
        f"{file.name} defines the function of no puzzle; {what}; name one with --puzzle: {ids}", "unrelated"
    )


def source_in(file: Path) -> Source:
    """What is in a file. SourceError for one that is not there, is not text, or is neither a notebook nor Python."""
    if not file.is_file():
        raise SourceError(f"there is no file {file}")
    try:
        return Source.of(str(file), file.read_text("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise SourceError(f"{file.name} is not text in UTF-8: {error.reason} at byte {error.start}") from None
