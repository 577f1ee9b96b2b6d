"""A submission as text: its cells, the puzzles it answers, and the normal form of one function with what it uses.

The normal form ignores what people first change in a copy. Names that the source binds become numbers, in the order
of their first use in each statement, and top-level statements are sorted. Layout, comments, docstrings, annotations,
prints and asserts are left out, and so is the form of imports. Names that the course gives (`model.forward`), strings,
numbers and the order remain.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import PurePath
from typing import Any, Final, NamedTuple, cast
from unicodedata import normalize

from lib.errors.wording import counted
from lib.files import table
from lib.puzzles.records import PUZZLES
from lib.suite.submissions import gap
from lib.suite.submissions.locations import reference
from lib.suite.submissions.needed import IMPORTS, WORD, Program, import_paths
from lib.suite.submissions.statements import (
    FUNCTIONS,
    MOST_TEXT,
    Cell,
    SourceError,
    bound,
    code_cells,
    parts,
    required,
    statements,
    tidy,
    without_package,
)

TEXT = re.compile(r"""\b(?:puzzle[ \t]*=[ \t]*|NotSolved\([ \t]*)["'](\w+)["']""")


class State(NamedTuple):
    """A state: its word, which is the same everywhere, its sign, and what it means. `judged`: there was a function to
    judge."""

    word: str
    sign: str
    about: str
    judged: bool = True


STATES: Final = {word: State(word, **row) for word, row in table("lib.suite.submissions", "states").items()}
"""The states, from good to bad."""


@dataclass(frozen=True, slots=True)
class Source:
    """The code of a submission, as text that has not run.

    `cells` are (name in errors, text): a .py is one cell, a notebook has one for each code cell. `modules` are other
    .py files handed in with it, (relative path, text), which it may import. `name` is the file's name.
    """

    cells: tuple[Cell, ...]
    modules: tuple[Cell, ...] = ()
    name: str = ""

    @classmethod
    def of(cls, name: str, text: str) -> Source:
        """Read the text of a .py or .ipynb, by the ending of its name. SourceError if it is neither, or has no code."""
        suffix, file = PurePath(name).suffix, PurePath(name).name
        if suffix not in (".py", ".ipynb"):
            raise SourceError(f"{file} is neither a notebook (.ipynb) nor Python (.py)")
        if not text.strip():
            raise SourceError(f"{file} is empty", "empty")
        if suffix == ".py":
            return cls(((name, without_package(tidy(text))),), name=name)
        cells = [*map(tidy, code_cells(name, text))]
        if not any(cell.strip() for cell in cells):
            raise SourceError(f"{file} is a notebook without code", "empty")
        return cls(tuple((f"{name}, code cell {number}", cell) for number, cell in enumerate(cells, 1)), name=name)

    def puzzles(self, among: Collection[str] = PUZZLES) -> tuple[str, ...]:
        """Return those of `among` whose function it defines, in order, even in a cell that is not Python. A source that
        names none of them is not parsed."""
        texts = [text for _, text in self.cells] if sum(len(text) for _, text in self.cells) <= MOST_TEXT else []
        words = {word for text in texts for word in WORD.findall(normalize("NFKC", text))}  # as Python reads names
        named = [puzzle for puzzle in among if puzzle in words]
        try:
            return tuple(puzzle for puzzle in named if self._answers(program_of(self.cells), puzzle))
        except SourceError:
            return ()

    def _answers(self, program: Program, puzzle: str) -> bool:
        if (found := program.definition(puzzle)) is None:
            return program.broken_after(puzzle) is not None
        if isinstance(node := found[0], IMPORTS):
            handed_in = {PurePath(path).stem for path, _ in self.modules}
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
            return any(name.rpartition(".")[2] in handed_in for name in names)
        return not isinstance(node, FUNCTIONS) or required(node) == _taken(puzzle)

    def spoken_of(self) -> frozenset[str]:
        """Return the puzzles whose notebooks' text it contains: a stub, or a call that names one."""
        return frozenset(name for _, text in self.cells for name in TEXT.findall(text))

    def instead_of(self, puzzle: str) -> str:
        """Say what a source that does not answer a puzzle has instead of its function. SourceError if it cannot be
        read."""
        program = program_of(self.cells)
        if (found := program.definition(puzzle)) is not None:
            where = f"`{puzzle}` ({_place(*found)})"
            if isinstance(found[0], FUNCTIONS) and required(found[0]) != _taken(puzzle):
                return f"{where} takes {counted(required(found[0]), 'argument')}, and is given {_taken(puzzle)}"
            if isinstance(found[0], IMPORTS):
                return f"{where} is imported from what was not handed in"
        # The function meant is likely named after the puzzle, or passed to a call that names it.
        call = re.compile(rf"""\b(\w{{1,100}})[ \t]*,[ \t]*puzzle[ \t]*=[ \t]*["']{puzzle}["']""")
        handed = {name for _, text in self.cells for name in call.findall(text)}
        every = [(node.name, node, unit.cell) for unit in program.units for node in unit.definitions()]
        likely = [one for one in every if one[0] in handed or (puzzle and puzzle in one[0].lower())]
        functions = likely or sorted(every, key=lambda one: not isinstance(one[1], FUNCTIONS))
        names = [f"`{name[:60]}` ({_place(node, cell)})" for name, node, cell in functions]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"it has {', '.join(names[:3])}{more}" if names else "it has no function at all"

    def untouched(self, puzzle: str) -> bool:
        """Tell whether the gap of a puzzle, in the last definition of its function, still holds its stub."""
        try:
            node, cell = program_of(self.cells).definition(puzzle) or (None, "")
        except SourceError:
            return False
        if not isinstance(node, FUNCTIONS):
            return False
        # Include the line below the last statement: the end marker.
        lines = dict(self.cells)[cell].split("\n")[node.lineno - 1 : (node.end_lineno or 0) + 1]
        return gap.untouched("\n".join(lines), puzzle)

    def normalised(self, puzzle: str) -> str:
        """Digest the normal form of a puzzle's function and of what it uses, including all of each handed-in module it
        imports. "" if it cannot be read."""
        try:
            if (needed := next(program_of(self.cells).needed(puzzle), None)) is None:
                return ""
            nodes = [one.node for one in needed.statements]
            imports = {
                part for node in nodes if isinstance(node, IMPORTS) for part in re.split(r"\W", ast.unparse(node))
            }
            modules = [cell for cell in self.modules if PurePath(cell[0]).stem in imports]
            nodes += [one.node for one in statements(modules)[0]]
            writer = _Writer(nodes, {PurePath(name).stem for name, _ in modules})
            text = "\n".join(sorted(map(writer.text, nodes)))
            return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]
        except (SourceError, RecursionError, MemoryError, ValueError):  # a number of more digits than Python writes
            return ""


def _place(node: ast.stmt, cell: str) -> str:
    """Say where a statement is: its cell, if there are several, and its line."""
    cell = cell.rpartition(", ")[2]
    return f"{cell}, line {node.lineno}" if cell.startswith("code cell ") else f"line {node.lineno}"


@lru_cache(maxsize=10)  # a student's files are read, and then judged
def program_of(cells: tuple[Cell, ...]) -> Program:
    return Program(*statements(cells))


@cache
def _taken(puzzle: str) -> int:
    text = reference(puzzle).read_text("utf-8")
    node, _ = Program(*statements([(f"{puzzle}.py", text)])).definition(puzzle) or (None, "")
    assert isinstance(node, FUNCTIONS), "a solution has its function"
    return required(node)


# -- the normal form ------------------------------------------------------------------------------------------------


class _Writer:
    """Writes statements in normal form. Names that the source binds get numbers, starting over in each statement."""

    def __init__(self, nodes: Sequence[ast.stmt], handed_in: set[str]) -> None:
        self._numbers: dict[str, str] = {}
        self._paths: dict[str, str] = {}
        every, arguments, attributes = set[str](), set[str](), set[str]()
        for statement in nodes:
            todo: list[tuple[ast.AST, bool]] = [(statement, False)]
            for node, in_class in todo:  # in the order of ast.walk
                names = bound(node)
                every.update(names)
                if in_class:
                    attributes.update(names)
                if isinstance(node, ast.arg):
                    arguments.add(node.arg)
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    attributes.add(node.attr)
                elif isinstance(node, IMPORTS):
                    paths = import_paths(node).items()
                    self._paths |= {name: path for name, path in paths if not handed_in & {*path.split(".")}}
                in_class = in_class or isinstance(node, ast.ClassDef)
                todo += [(part, in_class) for part in parts(node)]
        self._known = {"id": every | arguments, "name": every, "rest": every, "attr": attributes, "arg": arguments}
        self._keywords = arguments | attributes

    def text(self, statement: ast.stmt) -> str:
        """Return the normal form of one top-level statement: each node as its kind and its parts."""
        self._numbers = {}
        return self._written(statement)

    def _written(self, part: Any, known: Collection[str] = ()) -> str:
        """The text of a node, a list of them, or another field, such as a name, which gets a number if it is `known`.
        "" for a statement that is left out."""
        if isinstance(part, list):
            return f"[{','.join(text for one in cast('list[Any]', part) if (text := self._written(one)))}]"
        if isinstance(part, str):
            is_own = part in known and not part.startswith("__")
            return self._numbers.setdefault(part, f"${len(self._numbers)}") if is_own else part
        match part if isinstance(part, (ast.stmt, ast.Name, ast.Attribute, ast.Constant)) else None:
            case ast.Constant(value):
                return repr(value)
            case ast.Name(name):  # `floor`, `math.floor` and `m.floor` become the same text
                return self._paths.get(name) or self._written(name, self._known["id"])
            case ast.Attribute(value, name):
                return f"{self._written(value)}.{self._written(name, self._known['attr'])}"
            case ast.Expr(ast.Constant()) | ast.Expr(ast.Call(ast.Name("display" | "print"))):
                return ""
            case ast.Pass() | ast.Assert() | ast.Global() | ast.Nonlocal() | ast.Import() | ast.ImportFrom():
                return ""
            case ast.AnnAssign(target, value=value):
                part = ast.Assign([target], value or ast.Constant(None))
            case _:
                pass
        if not isinstance(part, ast.AST):
            return repr(part)
        is_keyword = isinstance(part, ast.keyword)
        every = (
            self._written(getattr(part, field, None), self._keywords if is_keyword else self._known.get(field, ()))
            for field in part._fields
            if field not in ("annotation", "returns", "type_comment")
        )
        return f"{type(part).__name__}({','.join(every)})"
