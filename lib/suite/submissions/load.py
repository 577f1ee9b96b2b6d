"""Takes one function out of a notebook or .py, with what it uses, without running the rest.

Student code runs here, so unless the code is your own, use a process that may come to harm.
"""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import linecache
import marshal
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from itertools import islice
from pathlib import Path, PurePath
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from lib.puzzles.puzzle import Puzzle
from lib.puzzles.records import PUZZLES, of_one_notebook, puzzle_of_file
from lib.suite.submissions.locations import is_source
from lib.suite.submissions.source import Source, SourceError, program_of
from lib.suite.submissions.statements import Cell, Statement, broken_line

Notebook = dict[str, Any]  # a notebook as JSON: its cells, its metadata


def load_function(path: str | Path, name: str) -> Callable[..., Any]:
    """Load the function `name` of a .py (plain or py:percent) or .ipynb, with what it uses; nothing else is run. It can
    import from the file's folder. Raises SourceError if the function cannot be loaded."""
    file = Path(path)
    source = source_in(file)
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        return function_of(source, name)
    finally:
        sys.path.pop(0)


def puzzle_of(path: str | Path) -> str:
    """Return the puzzle of a file: by the file's name, else the only puzzle whose function it defines."""
    first, *others = puzzles_of(path)
    if others and (named := _called_after(Path(path))) is not None:
        return named.id
    if others:
        ids = ", ".join([first, *others])
        raise SourceError(f"{Path(path).name} defines the function of several puzzles ({ids}); name one with --puzzle")
    return first


def puzzles_of(path: str | Path) -> tuple[str, ...]:
    """Return the puzzles of a file: those of the notebook it is named after, else all whose function it defines, in
    order. SourceError if there are none."""
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
    """Read a file. SourceError if it does not exist, is not text, or is neither a notebook nor Python."""
    if not file.is_file():
        raise SourceError(f"there is no file {file}")
    try:
        return Source.of(str(file), file.read_text("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise SourceError(f"{file.name} is not text in UTF-8: {error.reason} at byte {error.start}") from None


def function_of(source: Source, name: str) -> Callable[..., Any]:
    """Return the function `name`, with what it uses. This runs the student's code, in this process.
    SourceError if it cannot be loaded."""
    return run_extract(extract(source, name))


# -- one function, compiled ----------------------------------------------------------------------------------------

COMMENT = re.compile(r"^[ \t]*#.*", re.MULTILINE)
MOST_WAYS = 20  # how many statements that may make a name a function are tried, from the last


class Step(NamedTuple):
    """A statement to run: its marshalled code, or why it has none; its cell and line, and the names that it binds."""

    code: bytes | SyntaxError
    cell: str
    line: int
    gives: frozenset[str]


class Way(NamedTuple):
    """The steps after which a name may be a function, with `names`, `missing` and `sure` as in `Needed`; `broken` is
    the error of the first cell that binds something `missing` and is not Python."""

    steps: tuple[Step, ...]
    names: frozenset[str]
    missing: frozenset[str]
    sure: bool
    broken: SourceError | None


@dataclass(frozen=True, slots=True)
class Extract:
    """One function of a file, compiled with all that it uses: data that another process of ours runs without parsing it
    again. `ways` begin with the last definition, and `otherwise` is the error if none gives a function. In `cells`,
    which messages quote, lines of comments are empty, so that equal code gives equal data."""

    name: str
    file: str
    cells: tuple[Cell, ...]
    modules: tuple[Cell, ...]
    ways: tuple[Way, ...]
    otherwise: SourceError


@lru_cache(maxsize=1)  # one function is run at several sizes
def extract(source: Source, name: str) -> Extract:
    """Extract the function `name` from a source, without running any of it. SourceError if that cannot be read."""
    program = program_of(source.cells)
    if (broken := program.broken_after(name)) is not None:
        raise broken
    ways: list[Way] = []
    for needed in islice(program.needed(name), MOST_WAYS):
        broken = program.broken_that_gives(needed.missing)
        ways.append(Way(tuple(map(_step, needed.statements)), needed.names, needed.missing, needed.sure, broken))
        if needed.sure:
            break
    used = {step.cell for way in ways for step in way.steps}
    cells = tuple((name, COMMENT.sub("", text)) for name, text in source.cells if name in used)
    file = PurePath(source.name).name or "it"
    instead = "what it defines cannot be called" if ways and ways[-1].sure else source.instead_of(name)
    otherwise = SourceError(f"{file} defines no function {name!r}; {instead}", "renamed")
    if program.broken and len(source.cells) == 1:
        otherwise = program.broken[0].error
    return Extract(name, source.name, cells, source.modules, tuple(ways), otherwise)


def _step(unit: Statement) -> Step:
    code = unit.names.code
    # Version 2 writes equal code as equal bytes; later versions also record which parts are the same object.
    packed = marshal.dumps(code, 2) if isinstance(code, CodeType) else code or SyntaxError("this is not Python")
    return Step(packed, unit.cell, unit.node.lineno, frozenset(unit.names.gives))


def run_extract(found: Extract) -> Callable[..., Any]:
    """Return the function. This runs the student's code. SourceError if it cannot be loaded."""
    _importable(found.modules, found.file)
    for cell in found.cells:
        _remember(*cell)
    why: SourceError | None = None
    for way in found.ways:
        try:
            function = _run(way, found)
        except SourceError as error:
            if way.sure:
                raise
            why = why or error
            continue
        if callable(function):
            return function
    raise why or found.otherwise


def _run(way: Way, found: Extract) -> Any:
    """Run the steps, and return the value of the name; None if it has none. Steps that fail are skipped; SourceError if
    a needed name is then missing."""
    namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    if "display" in way.missing:  # notebooks have it
        namespace["display"] = print
    failed: list[tuple[frozenset[str], SourceError]] = []
    for step in way.steps:
        with redirect_stdout(StringIO()):  # its cell ran and printed before
            error = _failure(step, namespace)
        if not failed and error is None:
            continue
        failed = [(names - step.gives, why) for names, why in failed]
        if error is not None:
            for name in step.gives:
                namespace.pop(name, None)
            failed.append((step.gives or way.missing, error))
    for names, why in failed:
        if any(name not in namespace for name in names & way.names):
            raise why
    if way.broken is not None:
        raise way.broken
    return namespace.get(found.name)


def _remember(cell: str, text: str) -> None:
    """Let tracebacks and messages show the lines of a cell, which may be in no file."""
    linecache.cache[cell] = len(text), None, StringIO(text, newline="").readlines(), cell


def _failure(step: Step, namespace: dict[str, Any]) -> SourceError | None:
    try:
        if isinstance(step.code, SyntaxError):  # such as `await` in a function that is not async
            raise step.code
        code = marshal.loads(step.code)
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
    except SyntaxError as error:  # its own, or that of an imported file
        file = step.cell if error.filename in (None, "<unknown>") else error.filename
        return broken_line(file, error, linecache.getline(file, error.lineno or 0) or error.text or "")
    except (Exception, SystemExit) as error:
        return SourceError(f"{PurePath(step.cell).name}, line {step.line}: {type(error).__name__}: {error}")


# -- modules that were handed in ----------------------------------------------------------------------------------


def _importable(modules: Sequence[Cell], file: str) -> None:
    """Make a file's modules importable from now on, unless Python or an installed package has the name. Imports of an
    earlier file's modules are undone."""
    for found in [one for one in sys.meta_path if isinstance(one, _HandedIn)]:
        sys.meta_path.remove(found)
        for name in [name for name, module in sys.modules.items() if getattr(module, "__loader__", None) is found]:
            del sys.modules[name]
    if modules:
        folder = PurePath(file).parent
        texts = {str(PurePath(path)): text for path, text in modules}
        sys.meta_path.append(_HandedIn(texts, [folder, *folder.parents]))


class _HandedIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module among texts, in the file's folder or one above."""

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
