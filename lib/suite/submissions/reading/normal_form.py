"""The normal form of a function and of what it uses: equal for code that differs in what a copy is changed in first.

Names of variables, arguments, helpers and of a class's own attributes are numbers, in the order in which a function
comes across them; helpers are sorted, so that their order plays no part. Layout, comments, docstrings, annotations,
what is printed and what is asserted are left out, and so is how something is imported. Names that the course gives
(`model.forward`), texts, numbers and the order of statements are what remains.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import chain, groupby
from pathlib import PurePath
from typing import Any, Final

from lib.suite.submissions.reading.cells import Cell, SourceError, statements
from lib.suite.submissions.reading.names import COMPREHENSIONS, FUNCTIONS, Function, arguments, bound, stored
from lib.suite.submissions.reading.needed import OURS, SHOWS, Program, import_paths

__all__ = ["normal_form"]

MOST_MODULES: Final = 5
"""How many modules, each imported by the one before, are looked into."""
MOST_READ: Final = 1_000_000
"""Characters of modules that are read for all that is imported together: a module counts each time."""


def normal_form(program: Program, name: str, modules: Sequence[Cell] = ()) -> str:
    """Digest the normal form of a function; "" where there is none. SourceError for code nested too deep."""
    return _Modules(modules).normal_form(program, name, 0)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


class _Modules:
    """The modules that were handed in with a source. Each is parsed once, and each name of it looked for once."""

    def __init__(self, modules: Sequence[Cell]) -> None:
        self._modules = modules
        self._programs: dict[str, Program] = {}
        self._found: dict[tuple[str, str, int], str] = {}
        self._left = MOST_READ

    def normal_form(self, program: Program, name: str, depth: int) -> str:
        for needed in program.needed(name):
            try:
                renamer = _Renamer([one.node for one in needed.statements], self, depth)
                return _digest("\n".join(sorted(renamer.text(one.node) for one in needed.statements)))
            except (RecursionError, MemoryError):
                raise SourceError("this code is nested too deep to be read") from None
        return ""

    def digest_of(self, path: str, depth: int) -> str | None:
        """What stands for a path with dots that is imported; None where it is of no module that was handed in."""
        parts = path.split(".")
        given = ((module, text) for module, text in self._modules if PurePath(module).stem in parts)
        module, text = next(given, (None, ""))
        if module is None or depth >= MOST_MODULES:
            return None
        key = module, parts[-1], depth
        if key not in self._found:
            self._found[key] = self._read(module, text, parts[-1], depth) or _digest(text)
        return self._found[key]

    def _read(self, module: str, text: str, name: str, depth: int) -> str:
        self._left -= len(text)
        if self._left < 0:
            return ""
        try:
            if module not in self._programs:
                self._programs[module] = Program(*statements([(module, text)]))
            return self.normal_form(self._programs[module], name, depth + 1)
        except SourceError:
            return ""


class _Renamer(ast.NodeTransformer):
    """Changes statements into their normal form. Names that the source binds get numbers, anew in each function."""

    def __init__(self, nodes: Sequence[ast.stmt], modules: _Modules, depth: int) -> None:
        self._modules, self._depth = modules, depth
        self._numbers: dict[str, str] = {}
        self._counted = 0
        self._bound: set[str] = set()
        self._attributes: set[str] = set()
        self._paths: dict[str, str] = {}
        # Where arguments of the source's own functions stand: a call may name them in any order.
        self._places: dict[str, int] = {}
        for node in chain.from_iterable(map(ast.walk, nodes)):
            self._bound |= set(bound(node))
            if isinstance(node, (*FUNCTIONS, ast.Lambda)):
                for place, argument in enumerate(arguments(node)):
                    self._bound.add(argument.arg)
                    self._places[argument.arg] = min(place, self._places.get(argument.arg, place))
            elif isinstance(node, ast.ClassDef):
                self._attributes |= {name for name in stored(node.body)[0] if not name.startswith("__")}
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                self._attributes.add(node.attr)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                for name in bound(node):
                    self._paths.update((name, _short(path)) for path in import_paths(node, name))

    def text(self, statement: ast.stmt) -> str:
        """The normal form of one statement at top level; the statement stays as it is."""
        self._numbers, self._counted = {}, 0
        return "".join(map(ast.unparse, self._block([deepcopy(statement)])))

    def visit(self, node: ast.AST) -> Any:
        if _says_nothing(node):
            return None
        if isinstance(node, ast.Lambda):
            return self._function(node)
        if isinstance(node, FUNCTIONS):
            return self._block([node])[0]
        if isinstance(node, ast.For | ast.AsyncFor):
            node.iter = self.visit(node.iter)
            self._fresh([node.target])
            node.target = self.visit(node.target)
            node.body, node.orelse = self._block(node.body), self._block(node.orelse)
            return node
        if isinstance(node, COMPREHENSIONS):
            self._fresh(one.target for one in node.generators)
        elif isinstance(node, ast.MatchMapping):
            node.rest = node.rest and self._number(node.rest)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            node.name = node.name and self._number(node.name)
        elif isinstance(node, ast.ClassDef):
            node.name = self._number(node.name)
        return super().visit(node)

    def _number(self, name: str) -> str:
        if name not in self._numbers:
            self._counted += 1
            self._numbers[name] = f"${self._counted}"
        return self._numbers[name]

    def _fresh(self, targets: Iterable[ast.AST]) -> None:
        """Lets the variables of a loop be others than those of the loop before, even if both have one name: who renames
        one of them has not written another program."""
        for name in stored(targets)[0]:
            self._numbers.pop(name, None)

    def _foreign(self, path: str) -> str:
        """What stands for something that is imported: of a module that was handed in, what it does."""
        return self._modules.digest_of(path, self._depth) or path

    def _attribute(self, name: str) -> str:
        return self._number(f".{name}") if name in self._attributes else name

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id in self._paths:
            return ast.Name(self._foreign(self._paths[node.id]))
        return ast.Name(self._number(node.id) if node.id in self._bound else node.id)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id in self._paths:  # `math.floor` is `floor` of `math`
            return ast.Name(self._foreign(_short(f"{self._paths[node.value.id]}.{node.attr}")))
        return ast.Attribute(self.visit(node.value), self._attribute(node.attr))

    def visit_Constant(self, node: ast.Constant) -> ast.Name:
        shown = hex(node.value) if isinstance(node.value, int) else repr(node.value)  # a number may have any length
        return ast.Name(f"{type(node.value).__name__}:{shown}")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return ast.Tuple([self.visit(one) for one in node.values])

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        return self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        value = node.value or ast.Constant(None)
        return self.visit(ast.Assign([node.target], value, lineno=0))

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self._number(node.arg))

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        name = node.arg and (f"#{self._places[node.arg]}" if node.arg in self._places else self._attribute(node.arg))
        return ast.keyword(name, self.visit(node.value))

    def _function(self, node: Any) -> Any:
        """A definition whose names count from 1, so that it is the same text wherever it stands."""
        around = self._numbers, self._counted
        self._numbers, self._counted = {}, 0
        if isinstance(node, ast.Lambda):
            self.generic_visit(node)
        else:
            node.args, node.returns, node.body = self.visit(node.args), None, self._block(node.body)
        self._numbers, self._counted = around
        return node

    def _block(self, body: Iterable[ast.stmt]) -> list[ast.stmt]:
        """Statements, one after the other; of neighbouring definitions the order plays no part."""
        changed: list[ast.stmt] = []
        for are_functions, group in groupby(body, lambda one: isinstance(one, FUNCTIONS)):
            if not are_functions:
                changed += [one for one in map(self.visit, group) if one is not None]
                continue
            functions: list[Function] = [self._function(one) for one in group]
            for one in sorted(functions, key=lambda one: "\n".join(map(ast.unparse, [one.args, *one.body]))):
                one.name = self._attribute(one.name) if one.name in self._attributes else self._number(one.name)
                one.decorator_list = [self.visit(decorator) for decorator in one.decorator_list]
                changed.append(one)
        return changed


def _short(path: str) -> str:
    """What something is called, however it is imported: what is ours has one name wherever it is taken from."""
    return path.rpartition(".")[2] if path.partition(".")[0] in OURS else path


def _says_nothing(node: ast.AST) -> bool:
    """Whether a statement is there for readers alone: a docstring, `pass`, what is printed, what is asserted. An import
    is known by its names."""
    if isinstance(node, ast.Pass | ast.Assert | ast.Global | ast.Nonlocal | ast.Import | ast.ImportFrom):
        return True
    if not isinstance(node, ast.Expr):
        return False
    called = node.value.func if isinstance(node.value, ast.Call) else None
    return isinstance(node.value, ast.Constant) or (isinstance(called, ast.Name) and called.id in SHOWS)
