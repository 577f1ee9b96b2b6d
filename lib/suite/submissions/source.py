"""What somebody handed in, as text: its cells, which puzzles it answers, and one function of it with what that uses.

The normal form of a function and of what it uses is equal for code that differs in what a copy is changed in first.
Names of variables, arguments, helpers and of a class's own attributes are numbers, in the order in which a function
comes across them; helpers are sorted, so that their order plays no part. Layout, comments, docstrings, annotations,
what is printed and what is asserted are left out, and so is how something is imported. Names that the course gives
(`model.forward`), texts, numbers and the order of statements are what remains.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import chain, groupby
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from lib.errors.wording import counted
from lib.puzzles.records import PUZZLES
from lib.suite.submissions import gap
from lib.suite.submissions.locations import reference
from lib.suite.submissions.needed import COMPOUND, IMPORTS, OURS, Program, Unit, import_paths
from lib.suite.submissions.statements import (
    FUNCTIONS,
    Cell,
    Function,
    SourceError,
    bound,
    code_cells,
    own_returns,
    required,
    statements,
    tidy,
    without_package,
)

TEXT = re.compile(r"""\b(?:puzzle[ \t]*=[ \t]*|NotSolved\([ \t]*)["'](\w+)["']""")


class State(NamedTuple):
    """A state by its word, which is the same everywhere, with a sign that stands for it and what it means. `judged`:
    there was a function to look at."""

    word: str
    sign: str
    about: str
    judged: bool = True


STATES: Final = {
    state.word: state
    for state in (
        State("passed", "✓", "all that is needed"),
        State("missed", "◐", "correct, and over the goal that is needed"),
        State("partly", "◑", "right at the puzzle's own size, and not at all others"),
        State("failed", "✗", "not correct, or it did not come to its end"),
        State("unsolved", "○", "the gap still holds its stub"),
        State("renamed", "≠", "a file is there for it, which does not define its function", judged=False),
        State("unreadable", "⊘", "what was handed in cannot be read", judged=False),
        State("empty", "∅", "what was handed in holds no code", judged=False),
        State("unrelated", "∉", "what was handed in holds none of the puzzles that are asked", judged=False),
        State("absent", "–", "it was not handed in", judged=False),
    )
}
"""From good to bad."""


@dataclass(frozen=True, slots=True)
class Source:
    """The code of what somebody handed in, as text: nothing of it has run.

    `cells` are (what errors call it, text): a .py is one cell, a notebook has one for each code cell. `modules` are
    other .py files handed in with it, (relative path, text), which it may import. `name` is the file's. `needs`: there
    is nothing in it but what one function needs, which are these names, and of them these are given by nothing.
    """

    cells: tuple[Cell, ...]
    modules: tuple[Cell, ...] = ()
    name: str = ""
    needs: tuple[frozenset[str], frozenset[str]] | None = None

    @classmethod
    def of(cls, name: str, text: str) -> Source:
        """Read the text of a .py or .ipynb, by the ending of its name. SourceError where it is neither."""
        suffix, file = PurePath(name).suffix, PurePath(name).name
        if suffix not in (".py", ".ipynb"):
            raise SourceError(f"{file} is neither a notebook (.ipynb) nor Python (.py)")
        if not text.strip():
            raise SourceError(f"{file} is empty", "empty")
        if suffix == ".py":
            return cls(((name, without_package(text)),), name=name)
        cells = code_cells(name, text)
        if not any(cell.strip() for cell in cells):
            raise SourceError(f"{file} is a notebook without code", "empty")
        return cls(tuple((f"{name}, code cell {number}", cell) for number, cell in enumerate(cells, 1)), name=name)

    def puzzles(self) -> tuple[str, ...]:
        """Return the puzzles whose function it defines, in the records' order: also in a cell that is no Python."""
        try:
            program = program_of(self.cells)
        except SourceError:
            return ()
        return tuple(puzzle for puzzle in PUZZLES if self._answers(program, puzzle))

    def _answers(self, program: Program, puzzle: str) -> bool:
        found = program.definition(puzzle)
        if found is None:
            return program.broken_after(puzzle) is not None
        if isinstance(found.node, IMPORTS):
            handed_in = {PurePath(path).stem for path, _ in self.modules}
            names = [one.name for one in found.node.names]
            names = [found.node.module or ""] if isinstance(found.node, ast.ImportFrom) else names
            return any(name.rpartition(".")[2] in handed_in for name in names)
        return not isinstance(found.node, FUNCTIONS) or required(found.node) == _taken(puzzle)

    def spoken_of(self) -> frozenset[str]:
        """Return the puzzles whose notebook it has text of: a stub, or a call about one."""
        return frozenset(name for _, text in self.cells for name in TEXT.findall(text))

    def instead_of(self, puzzle: str) -> str:
        """Say what stands where the function of a puzzle should be: for a source that does not answer the puzzle.
        SourceError where it cannot be read."""
        program = program_of(self.cells)
        if (found := program.definition(puzzle)) is not None:
            where = f"`{puzzle}` ({_place(found)})"
            if isinstance(found.node, FUNCTIONS) and required(found.node) != _taken(puzzle):
                return f"{where} takes {counted(required(found.node), 'argument')}, and is given {_taken(puzzle)}"
            if isinstance(found.node, IMPORTS):
                return f"{where} is imported from what was not handed in"
        # What is meant is likely called after the puzzle, or handed to a call about it.
        call = re.compile(rf"""\b(\w{{1,100}})[ \t]*,[ \t]*puzzle[ \t]*=[ \t]*["']{puzzle}["']""")
        handed = {name for _, text in self.cells for name in call.findall(text)}
        every = [(str(getattr(one.node, "name", "")), one) for one in program.functions()]
        likely = [(name, one) for name, one in every if name in handed or (puzzle and puzzle in name.lower())]
        functions = likely or sorted(every, key=lambda one: not isinstance(one[1].node, FUNCTIONS))
        names = [f"`{name[:60]}` ({_place(one)})" for name, one in functions]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"it has {', '.join(names[:3])}{more}" if names else "it has no function at all"

    def untouched(self, puzzle: str) -> bool:
        """Return whether the gap of a puzzle still holds its stub, and the function comes to it: nothing need run."""
        try:
            found = program_of(self.cells).definition(puzzle)
        except SourceError:
            return False
        if found is None or not isinstance(found.node, FUNCTIONS) or found.node.decorator_list[1:]:
            return False
        text = next(text for name, text in self.cells if name == found.cell)
        # With the line below the last statement: the marker at the end.
        lines = text.replace("\r\n", "\n").split("\n")[found.node.lineno - 1 : (found.node.end_lineno or 0) + 1]
        body = found.node.body
        stub = next((place for place, one in enumerate(body) if isinstance(one, ast.Raise)), None)
        return stub is not None and not any(map(own_returns, body[:stub])) and gap.untouched("\n".join(lines), puzzle)

    def normalised(self, puzzle: str) -> str:
        """Digest the normal form of a puzzle's function and of what it uses. "" if it cannot be read."""
        try:
            return _Modules(self.modules).normal_form(program_of(self.cells), puzzle)
        except SourceError:
            return ""

    def only(self, puzzle: str) -> Source:
        """Return the source with nothing but what the function of a puzzle needs: other lines are empty, so that
        numbers stay. It is faster to run at several sizes. The source itself, where what is needed cannot be told
        without running it, or shares a line or a compound statement with what is not."""
        try:
            program = program_of(self.cells)
            needed = next(program.needed(puzzle), None)
            if needed is None or not needed.sure:
                return self
            # A cell that is no Python may be why something is missing, or hold a later definition.
            if program.broken and (needed.missing or program.broken_after(puzzle) is not None):
                return self
            lines = defaultdict[str, set[int]](set)
            for one in needed.statements:
                first = min([one.node.lineno, *(mark.lineno for mark in getattr(one.node, "decorator_list", ()))])
                lines[one.cell].update(range(first, (one.node.end_lineno or first) + 1))
            kept = tuple(
                (
                    name,
                    "\n".join(line if at in lines[name] else "" for at, line in enumerate(tidy(text).split("\n"), 1)),
                )
                for name, text in self.cells
                if name in lines
            )
            every, broken = statements(kept)
        except SourceError:
            return self
        alone = len(every) == len(needed.statements) and not any(isinstance(one.node, COMPOUND) for one in every)
        return replace(self, cells=kept, needs=(needed.names, needed.missing)) if alone and not broken else self


def _place(statement: Unit) -> str:
    """Say where a statement stands: its cell, if there are several, and its line."""
    cell = statement.cell.rpartition(", ")[2]
    line = f"line {statement.node.lineno}"
    return f"{cell}, {line}" if cell.startswith("code cell ") else line


@lru_cache(maxsize=2)  # the puzzles of one source are asked one after the other
def program_of(cells: tuple[Cell, ...]) -> Program:
    return Program(*statements(cells))


@cache
def _taken(puzzle: str) -> int:
    """Count the arguments that the function of a puzzle takes."""
    text = reference(puzzle).read_text("utf-8")
    found = Program(*statements([(f"{puzzle}.py", text)])).definition(puzzle)
    assert found is not None, "a solution has its function"
    assert isinstance(found.node, FUNCTIONS), "a solution has its function"
    return required(found.node)


# -- the normal form ------------------------------------------------------------------------------------------------

SAYS_NOTHING: Final = (ast.Pass, ast.Assert, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom)
"""Statements for readers alone; an import is known by its names."""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


class _Modules:
    """The modules that were handed in with a source. Each is parsed once, and each name of it looked for once."""

    def __init__(self, modules: Sequence[Cell]) -> None:
        self._texts = {PurePath(cell[0]).stem: cell for cell in reversed(modules)}
        self._programs: dict[str, Program] = {}
        self._found: dict[tuple[str, str], str] = {}

    def normal_form(self, program: Program, name: str) -> str:
        needed = next(program.needed(name), None)
        if needed is None:
            return ""
        nodes = [one.node for one in needed.statements]
        renamer = _Renamer(nodes, self)
        try:
            return _digest("\n".join(sorted(map(renamer.text, nodes))))
        except (RecursionError, MemoryError):
            raise SourceError("this code is nested too deep to be read") from None
        except ValueError:  # a number of more digits than Python writes
            return ""

    def meaning(self, path: str) -> str:
        """Return what stands for something imported: of a module that was handed in, what it does; of ours its name."""
        *modules, name = path.split(".")
        stem = next((one for one in (*modules, name) if one in self._texts), None)
        if stem is None:
            return name if path.partition(".")[0] in OURS else path
        if (stem, name) not in self._found:
            self._found[stem, name] = name  # for modules that import each other
            try:
                if stem not in self._programs:
                    self._programs[stem] = Program(*statements([self._texts[stem]]))
                found = self.normal_form(self._programs[stem], name)
            except SourceError:
                found = ""
            self._found[stem, name] = found or _digest(self._texts[stem][1])
        return self._found[stem, name]


class _Renamer(ast.NodeTransformer):
    """Changes statements into their normal form. Names that the source binds get numbers, anew in each function."""

    def __init__(self, nodes: Sequence[ast.stmt], modules: _Modules) -> None:
        self._modules = modules
        self._numbers: dict[str, str] = {}
        self._counted = 0
        self._bound: set[str] = set()
        self._attributes: set[str] = set()
        self._paths: dict[str, str] = {}
        # Where arguments of the source's own functions stand: a call may name them in any order.
        self._places: dict[str, int] = {}
        for node in chain.from_iterable(map(ast.walk, nodes)):
            self._bound.update(bound(node))
            match node:
                case ast.FunctionDef(args=given) | ast.AsyncFunctionDef(args=given) | ast.Lambda(args=given):
                    rest = [one for one in (given.vararg, given.kwarg) if one is not None]
                    for place, one in enumerate([*given.posonlyargs, *given.args, *given.kwonlyargs, *rest]):
                        self._bound.add(one.arg)
                        self._places[one.arg] = min(place, self._places.get(one.arg, place))
                case ast.ClassDef(body=body):
                    own = chain.from_iterable([one] if isinstance(one, FUNCTIONS) else ast.walk(one) for one in body)
                    self._attributes.update(name for part in own for name in bound(part) if not name.startswith("__"))
                case ast.Attribute(attr=name, ctx=ast.Store()):
                    self._attributes.add(name)
                case ast.Import() | ast.ImportFrom():
                    self._paths.update((name, path) for name in bound(node) for path in import_paths(node, name))
                case _:
                    pass

    def text(self, statement: ast.stmt) -> str:
        """Return the normal form of one statement at top level; the statement stays as it is."""
        self._numbers, self._counted = {}, 0
        copied = gap.parse(ast.unparse(statement), "")  # in a third of the time of a deepcopy
        return "".join(map(ast.unparse, self._block(copied.body)))

    def visit(self, node: ast.AST) -> Any:
        match node:
            case ast.Expr(ast.Constant()) | ast.Expr(ast.Call(ast.Name(id="display" | "print"))):
                return None
            case ast.Lambda():
                return self._function(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self._block([node])[0]
            case ast.For() | ast.AsyncFor():
                node.iter = self.visit(node.iter)
                self._fresh(node.target)
                node.target = self.visit(node.target)
                node.body, node.orelse = self._block(node.body), self._block(node.orelse)
                return node
            case _ if isinstance(node, SAYS_NOTHING):
                return None
            case _:
                for comprehension in getattr(node, "generators", ()):
                    self._fresh(comprehension.target)
                for field in ("name", "rest"):
                    if isinstance(name := getattr(node, field, None), str):
                        setattr(node, field, self._number(name))
                return super().visit(node)

    def _number(self, name: str) -> str:
        if name not in self._numbers:
            self._counted += 1
            self._numbers[name] = f"${self._counted}"
        return self._numbers[name]

    def _fresh(self, target: ast.AST) -> None:
        """Let the variables of a loop be others than those of the loop before, even if both have one name: who renames
        one of them has not written another program."""
        for name in chain.from_iterable(map(bound, ast.walk(target))):
            self._numbers.pop(name, None)

    def _attribute(self, name: str) -> str:
        return self._number(f".{name}") if name in self._attributes else name

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id in self._paths:
            return ast.Name(self._modules.meaning(self._paths[node.id]))
        return ast.Name(self._number(node.id) if node.id in self._bound else node.id)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id in self._paths:  # `math.floor` is `floor` of `math`
            return ast.Name(self._modules.meaning(f"{self._paths[node.value.id]}.{node.attr}"))
        return ast.Attribute(self.visit(node.value), self._attribute(node.attr))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return self.visit(ast.Assign([node.target], node.value or ast.Constant(None), lineno=0))

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self._number(node.arg))

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        name = node.arg and (f"#{self._places[node.arg]}" if node.arg in self._places else self._attribute(node.arg))
        return ast.keyword(name, self.visit(node.value))

    def _function(self, node: Any) -> Any:
        """Change a definition so that its names count from 1: it is the same text wherever it stands."""
        around = self._numbers, self._counted
        self._numbers, self._counted = {}, 0
        if isinstance(node, ast.Lambda):
            self.generic_visit(node)
        else:
            node.args, node.returns, node.body = self.visit(node.args), None, self._block(node.body)
        self._numbers, self._counted = around
        return node

    def _block(self, body: Iterable[ast.stmt]) -> list[ast.stmt]:
        """Change statements, one after the other; of neighbouring definitions the order plays no part."""
        changed: list[ast.stmt] = []
        for are_functions, group in groupby(body, lambda one: isinstance(one, FUNCTIONS)):
            if not are_functions:
                changed += [one for one in map(self.visit, group) if one is not None]
                continue
            functions: list[Function] = [self._function(one) for one in group]
            if len(functions) > 1:
                functions.sort(key=lambda one: "\n".join(map(ast.unparse, [one.args, *one.body])))
            for one in functions:
                one.name = self._attribute(one.name) if one.name in self._attributes else self._number(one.name)
                one.decorator_list = [self.visit(decorator) for decorator in one.decorator_list]
                changed.append(one)
        return changed
