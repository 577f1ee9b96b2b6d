"""How to take one function out of a notebook or .py without running the rest."""

from __future__ import annotations
import __future__

import ast
import json
import linecache
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.puzzles.records import PUZZLES, puzzle_of_file
from lib.submissions.gap import parse

__all__ = ["Notebook", "SourceError", "code_cells", "load_function", "puzzle_of"]

HARMLESS = frozenset({"dict", "frozenset", "len", "list", "max", "min", "range", "set", "sum", "tuple", "Mesh"})
"""What an assignment at top level may call and still be taken over."""

DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)


Notebook = dict[str, Any]
"""A notebook as JSON: its cells, its metadata."""


class SourceError(ValueError):
    """A file that is not there, is no notebook or Python, or does not define the function asked for."""


def load_function(path: str | Path, name: str) -> Callable[[Any], Any]:
    """The function `name` of a .py (plain or py:percent) or .ipynb.

    Only imports, definitions and assignments that call nothing are run, so nothing is simulated or drawn. An
    assignment that fails is left out. Raises SourceError where the function cannot be had.
    """
    file = Path(path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        for cell in _cells(file):
            for node in _kept(_parsed(cell, name)):
                _execute(cell, node, namespace)
    finally:
        sys.path.pop(0)
    function = namespace.get(name)
    if callable(function):
        return function
    others = ", ".join(key for key, value in namespace.items() if _is_local(value)) or "none"
    raise SourceError(f"{file.name} defines no function {name!r}; its functions: {others}")


def puzzle_of(path: str | Path) -> str:
    """The puzzle that a file is about: by its name, else by the only puzzle whose function it defines."""
    file = Path(path)
    if (named := puzzle_of_file(file.stem)) is not None:
        return named.id
    cells = list(_cells(file))
    found = {p for p in PUZZLES for cell in cells if _defines(cell.text, p)}
    if len(found) == 1:
        return found.pop()
    which = f"several puzzles ({', '.join(sorted(found))})" if found else "no puzzle"
    raise SourceError(f"{file.name} defines the function of {which}; name one with --puzzle: {', '.join(PUZZLES)}")


@dataclass(frozen=True, slots=True)
class _Cell:
    """A piece of source; `name` is what errors call it."""

    name: str
    text: str


def _cells(file: Path) -> Iterator[_Cell]:
    if not file.is_file():
        raise SourceError(f"there is no file {file}")
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"{file.name} is not text in UTF-8: {error.reason} at byte {error.start}") from None
    if file.suffix == ".py":
        yield _Cell(str(file), text)
    elif file.suffix == ".ipynb":
        for number, source in enumerate(code_cells(file, text), 1):
            yield _Cell(f"{file}, code cell {number}", source)
    else:
        raise SourceError(f"{file.name} is neither a notebook (.ipynb) nor Python (.py)")


def code_cells(file: Path, text: str) -> list[str]:
    """The sources of the code cells of a notebook, whose file holds `text`."""
    try:
        cells: list[Any] = json.loads(text)["cells"]
        sources = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
        return [source if isinstance(source, str) else "".join(source) for source in sources]
    except (ValueError, KeyError, TypeError):
        raise SourceError(f"{file.name} is not a notebook: it has no list of cells with their sources") from None


def _parsed(cell: _Cell, name: str) -> list[ast.stmt]:
    """The statements of a cell; of one that is not Python none, unless it defines what is looked for."""
    try:
        try:
            return parse(cell.text, cell.name).body
        except SyntaxError:
            return parse(_without_magics(cell.text), cell.name).body
    except SyntaxError as error:
        if not _defines(cell.text, name) and not cell.name.endswith(".py"):
            return []
        raise _broken(cell, error) from None


def _without_magics(text: str) -> str:
    """IPython's `%magic`, `!command` and `help?` lines as `pass`, so that line numbers stay."""
    return re.sub(r"^(\s*)(?:[%!?].*|.*\?)$", r"\1pass", text, flags=re.MULTILINE)


def _defines(text: str, name: str) -> bool:
    return re.search(rf"^(async +)?def +{re.escape(name)}\b", text, re.MULTILINE) is not None


def _kept(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, DEFINITIONS) or (isinstance(node, ASSIGNMENTS) and not _calls(node)):
            yield node


def _calls(node: ast.AST) -> bool:
    """Whether running a statement would call or await something that is not harmless."""
    if isinstance(node, ast.Lambda):
        return False
    if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in HARMLESS):
        return True
    return isinstance(node, ast.Await) or any(map(_calls, ast.iter_child_nodes(node)))


def _execute(cell: _Cell, node: ast.stmt, namespace: dict[str, Any]) -> None:
    if not cell.name.endswith(".py"):  # a notebook's lines are in no file that linecache could read
        linecache.cache[cell.name] = len(cell.text), None, cell.text.splitlines(keepends=True), cell.name
    flags = __future__.annotations.compiler_flag  # annotations may name what was left out
    try:
        exec(compile(ast.Module([node], []), cell.name, "exec", flags, dont_inherit=True), namespace)
    except SyntaxError as error:  # such as `await` in a function that is not async
        raise _broken(cell, error) from None
    except (Exception, SystemExit) as error:
        if not isinstance(node, ASSIGNMENTS):
            where = f"{Path(cell.name).name}, line {node.lineno}"
            raise SourceError(f"{where}: {type(error).__name__}: {error}") from None


def _broken(cell: _Cell, error: SyntaxError) -> SourceError:
    name = cell.name if error.filename in (None, "<unknown>") else error.filename  # of what it imports, another file
    text = (linecache.getline(name, error.lineno or 0) or error.text or "").strip()
    return SourceError(f"{Path(name).name}, line {error.lineno}: {error.msg}: {text}")


def _is_local(value: object) -> bool:
    return callable(value) and getattr(value, "__module__", None) == "__main__"
