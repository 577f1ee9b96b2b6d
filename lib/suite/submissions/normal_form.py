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

from lib.suite.submissions.needed import OURS, Program, import_paths
from lib.suite.submissions.statements import FUNCTIONS, Cell, Function, SourceError, bound, statements

SAYS_NOTHING: Final = (ast.Pass, ast.Assert, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom)
"""Statements for readers alone; an import is known by its names."""


def normal_form(program: Program, name: str, modules: Sequence[Cell] = ()) -> str:
    """Digest the normal form of a function; "" where there is none. SourceError for code nested too deep."""
    return _Modules(modules).normal_form(program, name)


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
        return "".join(map(ast.unparse, self._block([deepcopy(statement)])))

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
            for one in sorted(functions, key=lambda one: "\n".join(map(ast.unparse, [one.args, *one.body]))):
                one.name = self._attribute(one.name) if one.name in self._attributes else self._number(one.name)
                one.decorator_list = [self.visit(decorator) for decorator in one.decorator_list]
                changed.append(one)
        return changed
