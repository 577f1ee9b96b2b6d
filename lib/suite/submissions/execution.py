"""Runs what a function needs, and nothing else: in a process that may come to harm, unless the code is one's own."""

from __future__ import annotations
import __future__

import ast
import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from types import CodeType, ModuleType
from typing import Any

from lib.suite.submissions.reading.cells import Broken, Cell, SourceError, Statement, broken_line
from lib.suite.submissions.reading.names import stored
from lib.suite.submissions.reading.needed import Needed

__all__ = ["importable", "run"]

FLAGS = __future__.annotations.compiler_flag  # annotations may name what was left out
COROUTINE = 0x80
"""The flag of code that awaits at top level (see `inspect`)."""


def run(needed: Needed, cells: Iterable[Cell], broken: Sequence[Broken]) -> Any:
    """Runs the statements, and gives what the name stands for then; None where it stands for nothing.

    What fails is left out, as long as nothing that is needed lacks for it. SourceError where something does.
    """
    for cell, text in cells:
        remember(cell, text)
    namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    if "display" in needed.missing:  # a notebook has it
        namespace["display"] = print
    failed: list[tuple[frozenset[str], SourceError]] = []
    for statement in needed.statements:
        given = _given(statement.node)
        error = _failure(statement, namespace)
        failed = [(names - given, why) for names, why in failed]
        if error is not None:
            for name in given:
                namespace.pop(name, None)
            failed.append((given or needed.missing, error))
    for names, why in failed:
        if any(name not in namespace for name in names & needed.names):
            raise why
    for one in broken:
        if any(re.search(rf"^\W*(?:\w+\W+)?{re.escape(name)}\b", one.text, re.MULTILINE) for name in needed.missing):
            raise one.error
    return namespace.get(needed.name)


def remember(cell: str, text: str) -> None:
    """Lets a traceback and a message show the lines of a cell, which may lie in no file."""
    lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)
    linecache.cache[cell] = len(text), None, lines, cell


def _given(node: ast.stmt) -> frozenset[str]:
    return frozenset(stored([node])[0])


def _failure(statement: Statement, namespace: dict[str, Any]) -> SourceError | None:
    """Runs one statement; why it failed, if it did."""
    where = PurePath(statement.cell).name
    try:
        flags = FLAGS | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(ast.Module([statement.node], []), statement.cell, "exec", flags, dont_inherit=True)
        _execute(code, namespace)
    except SyntaxError as error:  # such as `await` in a function that is not async; or in a file that it imports
        file = statement.cell if error.filename in (None, "<unknown>") else error.filename
        return broken_line(file, error, linecache.getline(file, error.lineno or 0) or error.text or "")
    except (Exception, SystemExit) as error:
        return SourceError(f"{where}, line {statement.node.lineno}: {type(error).__name__}: {error}")
    return None


def _execute(code: CodeType, namespace: dict[str, Any]) -> None:
    if not code.co_flags & COROUTINE:
        exec(code, namespace)
        return
    waiting = eval(code, namespace)
    try:
        waiting.send(None)
    except StopIteration:
        return
    waiting.close()
    raise RuntimeError("at top level nothing waits for what takes time")


# -- modules that were handed in ----------------------------------------------------------------------------------


def importable(modules: Sequence[Cell], file: str) -> None:
    """Lets what came with a file be imported from now on, unless Python or an installed package has the name. What was
    imported of an earlier file is forgotten."""
    for found in [one for one in sys.meta_path if isinstance(one, _HandedIn)]:
        sys.meta_path.remove(found)
        for name in [name for name, module in sys.modules.items() if getattr(module, "__loader__", None) is found]:
            del sys.modules[name]
    if modules:
        folder = PurePath(file).parent
        sys.meta_path.append(_HandedIn(dict(modules), [folder, *folder.parents]))


class _HandedIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module among texts, in the folder of who imports it, or in one above."""

    def __init__(self, texts: dict[str, str], folders: Sequence[PurePath]) -> None:
        self._texts = {str(PurePath(path)): text for path, text in texts.items()}
        self._folders = folders

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        parts = fullname.split(".")
        for folder in self._folders:
            base = folder.joinpath(*parts)
            for name in (base.with_suffix(".py") if base.suffix else PurePath(f"{base}.py"), base / "__init__.py"):
                if str(name) in self._texts:
                    is_package = name.name == "__init__.py"
                    return importlib.util.spec_from_loader(fullname, self, origin=str(name), is_package=is_package)
            if any(PurePath(one).is_relative_to(base) for one in self._texts):
                return importlib.machinery.ModuleSpec(fullname, self, origin=str(base), is_package=True)
        return None

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None, "found above"
        name = module.__spec__.origin or ""
        text = self._texts.get(name, "")
        remember(name, text)
        exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)
