"""What somebody handed in, as text: its cells, which puzzles it answers, and one function of it."""

from __future__ import annotations
import __future__

import ast
import hashlib
import json
import linecache
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from lib.puzzles.records import PUZZLES
from lib.submissions.gap import parse, untouched

__all__ = ["Source", "SourceError", "code_cells", "function_of"]

HARMLESS = frozenset({"dict", "frozenset", "len", "list", "max", "min", "range", "set", "sum", "tuple", "Mesh"})
"""What an assignment at top level may call and still be taken over."""

DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)


class SourceError(ValueError):
    """A file that is not there, is no notebook or Python, or does not define the function asked for."""


@dataclass(frozen=True, slots=True)
class Source:
    """The code of what somebody handed in, as text: nothing of it has run.

    `cells` are (what errors call it, text): a .py is one cell, a notebook has one for each code cell. `modules` are
    other .py files handed in with it, (relative path, text), which it may import.
    """

    cells: tuple[tuple[str, str], ...]
    modules: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, name: str, text: str) -> Source:
        """The source in the text of a .py or .ipynb, by the ending of its name. SourceError where it is neither."""
        suffix = PurePath(name).suffix
        if suffix == ".py":
            return cls(((name, text),))
        if suffix == ".ipynb":
            cells = code_cells(name, text)
            return cls(tuple((f"{name}, code cell {number}", cell) for number, cell in enumerate(cells, 1)))
        raise SourceError(f"{PurePath(name).name} is neither a notebook (.ipynb) nor Python (.py)")

    def puzzles(self) -> tuple[str, ...]:
        """The puzzles whose function it defines, in the order of the records."""
        return tuple(puzzle for puzzle in PUZZLES if any(_defines(text, puzzle) for _, text in self.cells))

    def untouched(self, puzzle: str) -> bool:
        """Whether the gap of a puzzle still holds its stub, so that nothing need run."""
        return untouched("\n".join(text for _, text in self.cells), puzzle)

    def normalised(self, puzzle: str) -> str:
        """A digest of the code of a function, equal for other layout, comments, docstrings and names of variables;
        "" if it cannot be parsed."""
        found: list[str] = []
        try:
            for cell, text in self.cells:
                for node in _parsed(cell, text, puzzle):
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == puzzle:
                        found = [ast.dump(node)]
        except (SourceError, ValueError, RecursionError, MemoryError):
            return ""
        return hashlib.sha256(found[0].encode("utf-8", "replace")).hexdigest()[:16] if found else ""


def code_cells(name: str, text: str) -> list[str]:
    """The sources of the code cells of a notebook, whose file holds `text`. SourceError where it is none."""
    try:
        cells: list[Any] = json.loads(text)["cells"]
        sources = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
        return [source if isinstance(source, str) else "".join(source) for source in sources]
    except (ValueError, KeyError, TypeError, RecursionError):
        shown = PurePath(name).name
        raise SourceError(f"{shown} is not a notebook: it has no list of cells with their sources") from None


def function_of(source: Source, name: str) -> Callable[..., Any]:
    """The function `name`, with what it uses. This runs what somebody wrote: in a process that may come to harm.

    SourceError where it cannot be had.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell, text in source.cells:
        for node in _kept(_parsed(cell, text, name)):
            _execute(cell, text, node, namespace)
    function = namespace.get(name)
    if callable(function):
        return function
    others = ", ".join(key for key, value in namespace.items() if _is_local(value)) or "none"
    file = PurePath(source.cells[0][0].partition(", code cell ")[0]).name if source.cells else "this"
    raise SourceError(f"{file} defines no function {name!r}; its functions: {others}")


def _parsed(cell: str, text: str, name: str) -> list[ast.stmt]:
    """The statements of a cell; of one that is not Python none, unless it defines what is looked for."""
    try:
        try:
            return parse(text, cell).body
        except SyntaxError:
            return parse(_without_magics(text), cell).body
    except SyntaxError as error:
        if not _defines(text, name) and not cell.endswith(".py"):
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


def _execute(cell: str, text: str, node: ast.stmt, namespace: dict[str, Any]) -> None:
    linecache.cache[cell] = len(text), None, text.splitlines(keepends=True), cell  # it may lie in no file
    flags = __future__.annotations.compiler_flag  # annotations may name what was left out
    try:
        exec(compile(ast.Module([node], []), cell, "exec", flags, dont_inherit=True), namespace)
    except SyntaxError as error:  # such as `await` in a function that is not async
        raise _broken(cell, error) from None
    except (Exception, SystemExit) as error:
        if not isinstance(node, ASSIGNMENTS):
            where = f"{PurePath(cell).name}, line {node.lineno}"
            raise SourceError(f"{where}: {type(error).__name__}: {error}") from None


def _broken(cell: str, error: SyntaxError) -> SourceError:
    name = cell if error.filename in (None, "<unknown>") else error.filename  # of what it imports, another file
    text = (linecache.getline(name, error.lineno or 0) or error.text or "").strip()
    return SourceError(f"{PurePath(name).name}, line {error.lineno}: {error.msg}: {text}")


def _is_local(value: object) -> bool:
    return callable(value) and getattr(value, "__module__", None) == "__main__"
