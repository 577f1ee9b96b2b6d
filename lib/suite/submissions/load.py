"""How to take one function out of a notebook or .py, with what it uses, and without running the rest.

What somebody wrote runs here: in a process that may come to harm, unless the code is one's own.
"""

from __future__ import annotations

import ast
import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import linecache
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from functools import lru_cache
from io import StringIO
from pathlib import Path, PurePath
from types import CodeType, ModuleType
from typing import Any

from lib.puzzles.puzzle import Puzzle
from lib.puzzles.records import PUZZLES, of_one_notebook, puzzle_of_file
from lib.suite.submissions.locations import is_source
from lib.suite.submissions.needed import Needed
from lib.suite.submissions.source import Source, SourceError, program_of
from lib.suite.submissions.statements import FLAGS, Broken, Cell, Statement, broken_line, names_of, statements

Notebook = dict[str, Any]  # a notebook as JSON: its cells, its metadata


def load_function(path: str | Path, name: str) -> Callable[..., Any]:
    """Load the function `name` of a .py (plain or py:percent) or .ipynb, with what it uses; nothing else is run. What
    lies beside the file can be imported. Raises SourceError where the function cannot be had."""
    file = Path(path)
    source = source_in(file)
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        return function_of(source, name)
    finally:
        sys.path.pop(0)


def puzzle_of(path: str | Path) -> str:
    """Return the puzzle that a file is about: by its name, else by the only puzzle whose function it defines."""
    first, *others = puzzles_of(path)
    if others and (named := _called_after(Path(path))) is not None:
        return named.id
    if others:
        ids = ", ".join([first, *others])
        raise SourceError(f"{Path(path).name} defines the function of several puzzles ({ids}); name one with --puzzle")
    return first


def puzzles_of(path: str | Path) -> tuple[str, ...]:
    """Return the puzzles that a file is about: those of the notebook that it is called after, else all whose function
    it defines, in order. SourceError where there are none."""
    file = Path(path)
    if (named := _called_after(file)) is not None:
        return (named.id,) if named.part_of else tuple(one.id for one in of_one_notebook(named))
    source = source_in(file)
    if found := source.puzzles():
        return found
    if (spoken := next(filter(source.spoken_of().__contains__, PUZZLES), None)) is not None:
        raise SourceError(f"{file.name} defines no function {spoken!r}; {source.instead_of(spoken)}", "renamed")
    what = f"{file.name} defines the function of no puzzle; {source.instead_of('')}"
    raise SourceError(f"{what}; name one with --puzzle: {', '.join(PUZZLES)}", "unrelated")


def _called_after(file: Path) -> Puzzle | None:
    return puzzle_of_file(f"0_{file.stem}" if is_source(file) else file.stem)


def source_in(file: Path) -> Source:
    """Read a file. SourceError for one that is not there, is not text, or is neither a notebook nor Python."""
    if not file.is_file():
        raise SourceError(f"there is no file {file}")
    try:
        return Source.of(str(file), file.read_text("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise SourceError(f"{file.name} is not text in UTF-8: {error.reason} at byte {error.start}") from None


def function_of(source: Source, name: str) -> Callable[..., Any]:
    """Return the function `name`, with what it uses. This runs what somebody wrote, where that may come to harm.
    SourceError where it cannot be had."""
    if source.needs is not None:
        _importable(source.modules, source.name)
        found = _run(Needed(name, _alone(source.cells), *source.needs, sure=True), source.cells, ())
        if callable(found):
            return found
    program = program_of(source.cells)
    if (broken := program.broken_after(name)) is not None:
        raise broken
    _importable(source.modules, source.name)
    why: SourceError | None = None
    for needed in program.needed(name):
        try:
            found = _run(needed, source.cells, program.broken)
        except SourceError as error:
            if needed.sure:
                raise
            why = why or error
            continue
        if callable(found):
            return found
    if why is None and program.broken and len(source.cells) == 1:
        why = program.broken[0].error
    if why is not None:
        raise why
    file = PurePath(source.name).name or "it"
    raise SourceError(f"{file} defines no function {name!r}; {source.instead_of(name)}", "renamed")


# -- running what is needed ----------------------------------------------------------------------------------------


def _run(needed: Needed, cells: Iterable[Cell], broken: Sequence[Broken]) -> Any:
    """Run the statements, and return what the name stands for then; None where it stands for nothing. What fails is
    left out, as long as nothing that is needed lacks for it. SourceError where something does."""
    for cell, text in cells:
        _remember(cell, text)
    namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    if "display" in needed.missing:  # a notebook has it
        namespace["display"] = print
    failed: list[tuple[frozenset[str], SourceError]] = []
    for statement in needed.statements:
        with redirect_stdout(StringIO()):  # its cell was run before, and has printed
            error = _failure(statement, namespace)
        if not failed and error is None:
            continue
        given = frozenset(names_of(statement.node).gives)
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


@lru_cache(maxsize=1)  # one child is asked for one function at several sizes
def _alone(cells: tuple[Cell, ...]) -> tuple[Statement, ...]:
    """The statements of cells in which nothing stands but what is needed."""
    return tuple(statements(cells)[0])


@lru_cache(maxsize=200)
def _code(statement: Statement) -> CodeType:
    return compile(ast.Module([statement.node], []), statement.cell, "exec", FLAGS, dont_inherit=True)


def _remember(cell: str, text: str) -> None:
    """Lets a traceback and a message show the lines of a cell, which may lie in no file."""
    lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)
    linecache.cache[cell] = len(text), None, lines, cell


def _failure(statement: Statement, namespace: dict[str, Any]) -> SourceError | None:
    """Runs one statement; why it failed, if it did."""
    try:
        code = _code(statement)
        if not code.co_flags & inspect.CO_COROUTINE:
            exec(code, namespace)
            return None
        waiting = eval(code, namespace)
        try:
            waiting.send(None)
        except StopIteration:
            return None
        waiting.close()
        raise RuntimeError("at top level nothing waits for what takes time")
    except SyntaxError as error:  # such as `await` in a function that is not async; or in a file that it imports
        file = statement.cell if error.filename in (None, "<unknown>") else error.filename
        return broken_line(file, error, linecache.getline(file, error.lineno or 0) or error.text or "")
    except (Exception, SystemExit) as error:
        where = f"{PurePath(statement.cell).name}, line {statement.node.lineno}"
        return SourceError(f"{where}: {type(error).__name__}: {error}")


# -- modules that were handed in ----------------------------------------------------------------------------------


def _importable(modules: Sequence[Cell], file: str) -> None:
    """Lets what came with a file be imported from now on, unless Python or an installed package has the name. What was
    imported of an earlier file is forgotten."""
    for found in [one for one in sys.meta_path if isinstance(one, _HandedIn)]:
        sys.meta_path.remove(found)
        for name in [name for name, module in sys.modules.items() if getattr(module, "__loader__", None) is found]:
            del sys.modules[name]
    if modules:
        folder = PurePath(file).parent
        texts = {str(PurePath(path)): text for path, text in modules}
        sys.meta_path.append(_HandedIn(texts, [folder, *folder.parents]))


class _HandedIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module among texts, in the folder of who imports it, or in one above."""

    def __init__(self, texts: dict[str, str], folders: Sequence[PurePath]) -> None:
        self._texts, self._folders = texts, folders

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        for folder in self._folders:
            base = folder.joinpath(*fullname.split("."))
            module, package = PurePath(f"{base}.py"), base / "__init__.py"
            for name in (module, package):
                if str(name) in self._texts:
                    return importlib.util.spec_from_loader(fullname, self, origin=str(name), is_package=name == package)
            if any(PurePath(one).is_relative_to(base) for one in self._texts):
                return importlib.machinery.ModuleSpec(fullname, self, origin=str(base), is_package=True)
        return None

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None, "found above"
        name = module.__spec__.origin or ""
        text = self._texts.get(name, "")
        _remember(name, text)
        exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)
