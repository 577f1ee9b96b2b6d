"""Parses the text of cells into statements, and finds the names that a statement binds and uses.

A notebook's own commands are left out, and code that is not Python is set aside.
"""

from __future__ import annotations
import __future__

import ast
import dis
import inspect
import json
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain, groupby
from pathlib import PurePath
from types import CodeType
from typing import Any, cast

from lib.suite.submissions.gap import CELL, parse

MOST_TEXT = 2_000_000  # characters that are read: the sources of all puzzles, with their texts, have a quarter of that
MOST_CODE = 250_000  # characters outside comment lines: those sources have 150,000
MOST_CELLS = 5_000  # each is parsed by itself, even if empty
LONGEST = 160  # characters of a line that a message shows
SHORT = 2_000  # most characters of a cell whose parse is cached
PACKED = re.compile(r"[\s#]*[A-Za-z0-9+/=]{76,}\s*")
"""A line of packed bytes, even if indented or commented out."""
RUN_PYTHON = frozenset({"capture", "debug", "mprun", "memit", "prun", "python", "python3", "time", "timeit"})
"""The cell magics (`%%time`) that are followed by Python."""
COMMAND = re.compile(r"(\s*)(?:%time\b\s*(?P<timed>[^-\s].*)|[%!?].*)")
FROM_COMMAND = re.compile(r"(\s*[^\s#'\"=!%][^#'\"=!]*=)\s*(?:!|%[a-zA-Z]).*")
QUESTION = re.compile(r"(\s*)(?:[^\s#'\"][^#'\"]*)?\?{1,2}\s*")
MOST_COMMANDS = 50  # in a cell: each costs another parse
FLAGS = __future__.annotations.compiler_flag | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
"""As in a notebook's cell, except that annotations may use names that were left out."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef
AT_ONCE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})  # functions that run without a call
LOADS = {dis.opmap[name]: 0 for name in ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS") if name in dis.opmap}
LOADS[dis.opmap["LOAD_GLOBAL"]] = 1
"""The instructions that load a name, and by how many bits its index is shifted."""
STORES = {dis.opmap[f"{do}_{where}"]: where for do in ("STORE", "DELETE") for where in ("NAME", "GLOBAL")}
PYTHONS = frozenset({"__annotations__", "__name__"})  # names that Python binds and uses itself

Cell = tuple[str, str]  # its name in errors, and its text


class SourceError(ValueError):
    """A file that does not exist, is neither a notebook nor Python, or does not define the function asked for. `state`
    is that of such a submission (see `lib.suite.submissions.source`)."""

    def __init__(self, message: str, state: str = "unreadable") -> None:
        super().__init__(message)
        self.state = state


@dataclass(frozen=True)
class Statement:
    """A top-level statement, and its cell."""

    node: ast.stmt
    cell: str

    @cached_property
    def names(self) -> Names:
        """Return the names that it binds and uses; RecursionError if it is nested too deeply. Python's own compiler
        resolves their scopes."""
        node = self.node
        names = Names(star=isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                names.code = code = compile(ast.Module([node], []), self.cell, "exec", FLAGS, dont_inherit=True)
        except SyntaxError as error:  # `break` without its loop; or a mistake, reported when it runs
            names.gives.update(bound(node))
            names.code = error
            return names
        _read(code, names, own=True, later=False)
        for some in (names.gives, names.now, names.later):
            some -= PYTHONS
        if isinstance(node, ast.Delete):
            names.now |= names.gives
        _read_effects(node, names)
        return names

    def definitions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
        """Yield the functions and classes that it defines, in order."""
        todo: list[ast.AST] = [self.node]
        while todo:
            node = todo.pop()
            if isinstance(node, DEFINITIONS):
                yield node
            elif not isinstance(node, ast.expr):
                todo += reversed([*ast.iter_child_nodes(node)])


@dataclass(frozen=True, slots=True)
class Broken:
    """A cell, or a part of one, that is not Python. `before` is the number of statements before it."""

    text: str
    before: int
    error: SourceError


def notebook_cells(name: str, text: str) -> list[tuple[str, str]]:
    """Return the cells of a notebook, whose file holds `text`: the kind of each, and its source. SourceError if it is
    none."""
    why = "is not a notebook: it has no list of cells with their sources"
    try:
        data = json.loads(text, strict=False)
        sheets = [data] if "cells" in data else data["worksheets"]  # format 3, which calls a source `input`
        every = [cell for sheet in sheets for cell in sheet["cells"]]
        cells: list[tuple[Any, Any]] = [(one["cell_type"], one.get("source", one.get("input"))) for one in every]
        if all(isinstance(source, str | list) for _, source in cells):
            return [(kind, "".join(source)) for kind, source in cells]
    except json.JSONDecodeError as error:
        wrong = f"line {error.lineno} is not the JSON that it should be ({error.msg})"
        why = f"is not a notebook, or a damaged one: {wrong}; open it in Jupyter, and save it"
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
            why = "is cut off: it ends in the middle of the notebook"
    except RecursionError:
        why = "is not a notebook: it is nested too deeply"
    except (ValueError, KeyError, TypeError, AttributeError):  # a ValueError for a number of 5,000 digits
        pass
    raise SourceError(f"{PurePath(name).name} {why}")


def code_cells(name: str, text: str) -> list[str]:
    """Return the sources of a notebook's code cells, without a package in it. SourceError if it is not a notebook."""
    return [without_package(source) for kind, source in notebook_cells(name, text) if kind == "code"]


def without_package(text: str) -> str:
    """Blank out the package in a notebook for Colab (`lib.suite.course.exports`): runs of lines of packed bytes, longer
    than anybody would type. Nothing can hide there: what is blanked out is not run either."""
    if len(text) <= MOST_CODE:
        return text
    kept: list[str] = []
    for packed, lines in groupby(text.split("\n"), key=lambda line: PACKED.fullmatch(line) is not None):
        several = list(lines)
        kept += [""] * len(several) if packed and sum(map(len, several)) > MOST_CODE else several
    return "\n".join(kept)


def statements(cells: Iterable[Cell]) -> tuple[list[Statement], list[Broken]]:
    """Return the statements of all cells, and the cells that are not Python. SourceError for too much code."""
    found: list[Statement] = []
    broken: list[Broken] = []
    room, code = MOST_TEXT, MOST_CODE
    for number, (name, text) in enumerate(cells):
        file = PurePath(name).name
        if number == MOST_CELLS:
            raise SourceError(f"{file}: there are more than {MOST_CELLS:,} cells, so nobody reads them")
        room -= len(text)
        if room >= 0:
            code -= sum(len(line) for line in text.split("\n") if not line.lstrip().startswith("#"))
        if room < 0 or code < 0:
            raise SourceError(f"{file} has more than {MOST_CODE:,} characters of code, so nobody reads it")
        for piece, part in (_pieces if len(text) > SHORT else _known)(name, tidy(text)):
            if isinstance(part, SourceError):  # a raised error keeps much alive, so make a new one
                broken.append(Broken(piece, len(found), SourceError(str(part))))
            else:
                found += part
    return found, broken


def broken_line(cell: str, error: SyntaxError, line: str) -> SourceError:
    """Return the error for a line that is not Python."""
    return SourceError(f"{PurePath(cell).name}, line {error.lineno}: {error.msg}: {line.strip()[:LONGEST]}")


def tidy(text: str) -> str:
    """Return a text with Python's line ends, and without lone surrogates."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def _pieces(name: str, text: str) -> list[tuple[str, list[Statement] | SourceError]]:
    """A whole cell; or, if it is not Python, its parts as marked by `# %%`, each with its statements."""
    whole = _parsed(name, text)
    lines = text.split("\n")
    marks = [n for n, line in enumerate(lines) if CELL.match(line)] if isinstance(whole, SourceError) else []
    if not marks:
        return [(text, whole)]
    parts = [("\n".join(lines[n:end]), n) for n, end in zip([0, *marks], [*marks, len(lines)], strict=True)]
    return [(part, _parsed(name, part, above)) for part, above in parts]


_known = lru_cache(maxsize=256)(_pieces)
"""Caches cells, as most are the same for a whole class."""


def _parsed(name: str, text: str, above: int = 0) -> list[Statement] | SourceError:
    """The statements of a text, or why it has none. `above` is the number of lines above it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes and the like are not our business
            try:
                tree = parse(text, name)
            except SyntaxError:
                tree = _parsed_as_notebook(text, name)
            body = (ast.increment_lineno(tree, above) if above else tree).body
            return [Statement(node, name) for one in body for node in _unscripted(one)]
    except SyntaxError as error:
        lines, number = text.split("\n"), error.lineno or 0
        error.lineno = number + above
        return broken_line(name, error, lines[number - 1] if 0 < number <= len(lines) else error.text or "")
    except (RecursionError, MemoryError):
        why = "it is nested too deep"
    except (ValueError, OverflowError) as error:  # a null character, a lone surrogate
        why = str(error)[:LONGEST]
    return SourceError(f"{PurePath(name).name} cannot be read: {why}")


# -- commands of a notebook ----------------------------------------------------------------------------------------


def _parsed_as_notebook(text: str, name: str) -> ast.Module:
    """The tree of a notebook's cell, with `pass` for `%magic`, `!command` and `help?`: lines keep their numbers.
    Python's own parser stops at such a line where it begins a statement."""
    lines = text.split("\n")
    first = next((n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), 0)
    if magic := re.match(r"\s*%%(\w*)", lines[first]):
        if magic[1] not in RUN_PYTHON:
            return ast.Module([], [])
        lines[first] = ""
        first = next((n for n in range(first, len(lines)) if lines[n].strip()), first)
    indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    lines = [line.removeprefix(indent) for line in lines]  # a notebook accepts a cell that is indented as a whole
    for _ in range(MOST_COMMANDS):
        try:
            return parse("\n".join(lines), name)
        except SyntaxError as error:
            at = (error.lineno or 0) - 1
            while 0 < at < len(lines) and lines[at - 1].endswith("\\"):  # a continuation of the line above
                at -= 1
            if not 0 <= at < len(lines) or (plain := _command(lines[at])) is None:
                raise
            while lines[at].endswith("\\") and at + 1 < len(lines):  # it continues on the next line
                lines[at], at, plain = plain, at + 1, ""
            lines[at] = plain
    raise SyntaxError(f"there are more than {MOST_COMMANDS} commands of a notebook in a cell", (name, 1, 1, lines[0]))


def _command(line: str) -> str | None:
    if found := COMMAND.fullmatch(line):
        return found[1] + (found["timed"] or "pass")
    if found := FROM_COMMAND.fullmatch(line):
        return f"{found[1]} []"
    if line.rstrip().endswith("?") and (found := QUESTION.fullmatch(line)):
        return f"{found[1]}pass"
    return None


def _unscripted(node: ast.stmt) -> list[ast.stmt]:
    """The statements inside a cell that nbconvert wrote as get_ipython().run_cell_magic("time", "", "...")."""
    match node:
        case ast.Expr(
            ast.Call(
                ast.Attribute(attr="run_cell_magic"),
                [ast.Constant(str() as magic), ast.Constant(str()), ast.Constant(str() as text)],
            )
        ) if magic in RUN_PYTHON and not isinstance(inner := _parsed("", text), SourceError):
            for part in chain.from_iterable(ast.walk(one.node) for one in inner):
                if hasattr(part, "lineno"):
                    ast.copy_location(part, node)
            return [one.node for one in inner]
        case _:
            return [node]


# -- names -------------------------------------------------------------------------------------------------------


@dataclass
class Names:
    """The names of a statement, without functions' local ones and those in annotations.

    `gives`: it binds them. `now` and `later`: it uses them, at once or when a function in it is called. `touches` and
    `touches_later`: it may change their values, as in `table[3] = 4`, `rows.append(x)` or `global count`. `calls`: it
    calls them at once, also as decorators, and `hands` are passed to what it calls. `star`: it imports all names of a
    module. `code` is the compiled statement, or why it does not compile.
    """

    gives: set[str] = field(default_factory=set[str])
    now: set[str] = field(default_factory=set[str])
    later: set[str] = field(default_factory=set[str])
    touches: set[str] = field(default_factory=set[str])
    touches_later: set[str] = field(default_factory=set[str])
    calls: set[str] = field(default_factory=set[str])
    hands: set[str] = field(default_factory=set[str])
    star: bool = False
    code: CodeType | SyntaxError | None = None


def _read(code: CodeType, names: Names, *, own: bool, later: bool) -> None:
    """Read which names code binds and uses. `own`: it is the statement's, not that of a class or function in it."""
    takes, gives, argument = names.later if later else names.now, names.touches_later if later else names.gives, 0
    # Ten times as fast as `dis`, which formats each instruction for readers.
    for step, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument = argument << 8 | low
        if step == dis.EXTENDED_ARG:
            continue
        if step in LOADS:
            takes.add(code.co_names[argument >> LOADS[step]])
        elif step in STORES and (own or STORES[step] == "GLOBAL"):
            gives.add(code.co_names[argument])
        argument = 0
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            is_called = inner.co_flags & inspect.CO_OPTIMIZED and inner.co_name not in AT_ONCE
            _read(inner, names, own=False, later=later or bool(is_called))


def _read_effects(statement: ast.stmt, names: Names) -> None:
    """Read which names a statement calls, and which it may change."""
    todo: list[tuple[ast.AST, bool]] = [(statement, False)]
    while todo:
        node, later = todo.pop()
        taken, touched = (names.later, names.touches_later) if later else (names.now, names.touches)
        called: list[tuple[ast.expr, list[ast.expr]]] = []
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            if not isinstance(node.ctx, ast.Load):
                touched |= {root(node) or ""} & taken
        elif isinstance(node, ast.Call):
            called.append((node.func, [*node.args, *(one.value for one in node.keywords)]))
        elif isinstance(node, DEFINITIONS):
            called += [(one, []) for one in node.decorator_list]
        for callee, given in called:
            name = root(callee) or ""
            if isinstance(callee, ast.Attribute):
                touched |= {name} & taken
            if not later and name in taken:
                names.calls.add(name)
                names.hands.update(one for one in map(root, given) if one is not None)
        below = [one for one in parts(node) if not isinstance(one, ast.Name)]  # a name alone does nothing
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            todo += [(one, later or one is node.body or isinstance(one, ast.stmt)) for one in below]
        else:
            todo += [(one, later) for one in below]


# -- syntax trees --------------------------------------------------------------------------------------------------

SIGNS = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
LEAVES = {type(None), str, int, bool, ast.Constant, *(sign for kind in SIGNS for sign in kind.__subclasses__())}


def parts(node: ast.AST) -> list[ast.AST]:
    """Return a node's children, except constants and operators, which are half of all nodes."""
    found: list[ast.AST] = []
    for part in vars(node).values():
        if isinstance(part, list):
            found += [one for one in cast("list[Any]", part) if type(one) not in LEAVES]
        elif type(part) not in LEAVES:
            found.append(part)
    return found


def root(node: ast.AST) -> str | None:
    """Return the name that an expression begins with: `a` in `a.b[c].d()`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def bound(node: ast.AST) -> list[str]:
    """Return the names that a node binds by itself."""
    if isinstance(node, ast.expr):
        return [node.id] if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) else []
    match node:
        case ast.Import(aliases) | ast.ImportFrom(names=aliases):
            return [alias.asname or alias.name.partition(".")[0] for alias in aliases if alias.name != "*"]
        case ast.MatchMapping(rest=str(name)):
            return [name]
        case (
            ast.FunctionDef(name=str(name))
            | ast.AsyncFunctionDef(name=str(name))
            | ast.ClassDef(name=str(name))
            | ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
        ):
            return [name]
        case _:
            return []


def required(node: Function) -> int:
    """Return the number of positional arguments that a function requires."""
    return len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
