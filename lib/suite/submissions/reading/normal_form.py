"""The normal form of a function and of what it uses: equal for code that differs in what a copy is changed in first.

Names of variables, arguments, helpers and of a class's own attributes are numbers, in the order in which one comes
across them from the function on; a helper stands where it is first used, so that the order of helpers plays no part.
Layout, comments, docstrings, annotations, what is printed and what is asserted are left out, and so is how something is
imported. Names that the course gives (`model.forward`), texts, numbers and the order of statements are what remains.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import PurePath
from typing import Any, cast

from lib.suite.submissions.reading.cells import Cell, SourceError, Statement, statements
from lib.suite.submissions.reading.names import COMPREHENSIONS, FUNCTIONS, Function, arguments, names_of, root, stored
from lib.suite.submissions.reading.needed import OURS, SHOWS, Needed, Program, import_paths

__all__ = ["normal_form"]

MOST_MODULES = 5
"""How many modules, each imported by the one before, are looked into."""
MOST_READ = 1_000_000
"""Characters of modules that are read for all that is imported together: a module counts each time."""
SKIPPED = frozenset({"annotation", "ctx", "kind", "returns", "type_comment", "type_ignores", "type_params"})
Scope = dict[str, str]


def normal_form(program: Program, name: str, modules: Sequence[Cell] = ()) -> str:
    """The digest of the normal form of a function; "" where there is none. SourceError for code nested too deep."""
    return _normal_form(program, name, _Modules(modules), 0)


def _normal_form(program: Program, name: str, modules: _Modules, depth: int) -> str:
    for needed in program.needed(name):
        try:
            text = _Writer(needed, modules, depth).text()
        except (RecursionError, MemoryError):
            raise SourceError("this code is nested too deep to be read") from None
        return _digest(text)
    return ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


class _Modules:
    """The modules that were handed in with a source. Each is parsed once, and each name of it looked for once."""

    def __init__(self, modules: Sequence[Cell]) -> None:
        self._modules = modules
        self._programs: dict[str, Program] = {}
        self._found: dict[tuple[str, str, int], str] = {}
        self._left = MOST_READ

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
            return _normal_form(self._programs[module], name, self, depth + 1)
        except SourceError:
            return ""


class _Writer:
    """Writes statements as text, each when something that it gives is first used."""

    def __init__(self, needed: Needed, modules: _Modules, depth: int) -> None:
        self._name = needed.name
        self._modules = modules
        self._depth = depth
        self._statements = list(needed.statements)
        self._giving: dict[str, list[int]] = {}
        self._paths: dict[str, str] = {}
        self._definitions: dict[str, ast.stmt] = {}
        for place, one in enumerate(self._statements):
            for name in stored([one.node])[0]:
                self._giving.setdefault(name, []).append(place)
            self._learn(one)
        self._attributes = frozenset(chain.from_iterable(map(_own_attributes, self._statements)))
        self._written: set[int] = set()
        self._numbers: dict[str, str] = {}
        self._counted = 0
        self._waiting: list[str] = []
        self._inner: dict[tuple[int, str], tuple[Function, tuple[Scope, ...]]] = {}
        self._pending: set[tuple[int, str]] = set()
        self._methods = {name: node for one in self._statements for name, node in _methods(one)}
        self._pieces: list[str] = []

    def text(self) -> str:
        """The normal form."""
        self._module_name(self._name)
        while self._waiting:
            for place in self._giving.get(self._waiting.pop(0), []):
                self._top(place)
        for place in range(len(self._statements)):  # what gives nothing, and is there for what it does
            self._top(place)
        return "\n".join(self._pieces)

    def _learn(self, statement: Statement) -> None:
        node = statement.node
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in names_of(node).gives:
                self._paths.update((name, _short(path)) for path in import_paths(node, name))
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            self._definitions[node.name] = node

    def _top(self, place: int) -> None:
        if place in self._written:
            return
        self._written.add(place)
        node = self._statements[place].node
        if isinstance(node, ast.Import | ast.ImportFrom):
            return
        self._pieces.append("".join(self._statement(node, ())))

    # -- names --------------------------------------------------------------------------------------------------------

    def _number(self) -> str:
        self._counted += 1
        return f"${self._counted}"

    def _module_name(self, name: str) -> str:
        """What stands for a name at top level."""
        if name in self._paths:
            return self._foreign(self._paths[name])
        if name not in self._giving:
            return name
        if name not in self._numbers:
            self._numbers[name] = self._number()
            self._waiting.append(name)
        return self._numbers[name]

    def _foreign(self, path: str) -> str:
        """What stands for something that is imported: of a module that was handed in, what it does."""
        return self._modules.digest_of(path, self._depth) or path

    def _resolved(self, name: str, scopes: tuple[Scope, ...]) -> str:
        for scope in reversed(scopes):
            if name in scope:
                found = scope[name]
                if not found:
                    found = scope[name] = self._number()
                return found
        return self._module_name(name)

    def _local(self, name: str | None, scopes: tuple[Scope, ...]) -> str:
        return "" if name is None else self._resolved(name, scopes)

    def _attribute(self, name: str) -> str:
        if name not in self._attributes:
            return name
        return self._numbers.setdefault(f".{name}", f"${len(self._numbers)}.")

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _block(self, body: Iterable[ast.stmt], scopes: tuple[Scope, ...]) -> Iterator[str]:
        for one in body:
            yield from self._statement(one, scopes)

    def _statement(self, node: ast.stmt, scopes: tuple[Scope, ...]) -> Iterator[str]:
        if _says_nothing(node):
            return
        if isinstance(node, ast.Import | ast.ImportFrom):  # in a function
            for name in stored([node])[0]:
                for scope in scopes[-1:]:
                    scope[name] = next(map(_short, import_paths(node, name)), name)
            return
        if isinstance(node, FUNCTIONS) and scopes and not node.decorator_list and self._is_once(node, scopes[-1]):
            key = id(scopes[-1]), node.name  # it is written where it is used
            self._inner[key] = node, scopes
            self._pending.add(key)
            return
        yield from self._node(node, scopes)
        yield ";"

    def _is_once(self, node: Function, scope: Scope) -> bool:
        return scope.get(f"once {node.name}") == "yes"

    def _node(self, node: ast.AST, scopes: tuple[Scope, ...]) -> Iterator[str]:
        """The text of any node."""
        if isinstance(node, ast.Name):
            yield from self._name_of(node.id, scopes)
        elif isinstance(node, FUNCTIONS):
            yield self._resolved(node.name, scopes)
            yield from self._function(node, scopes)
        elif isinstance(node, ast.Lambda):
            yield from self._function(node, scopes)
        elif isinstance(node, ast.ClassDef):
            yield from self._class(node, scopes)
        elif isinstance(node, ast.Attribute):
            yield from self._attribute_of(node, scopes)
        elif isinstance(node, ast.Constant):
            yield f"{type(node.value).__name__}:{hex(node.value) if isinstance(node.value, int) else repr(node.value)}"
        elif isinstance(node, ast.AnnAssign):
            yield from self._node(ast.Assign([node.target], node.value or ast.Constant(None)), scopes)
        elif isinstance(node, COMPREHENSIONS):
            yield from self._comprehension(node, scopes)
        elif isinstance(node, ast.Call):
            yield from self._call(node, scopes)
        elif isinstance(node, ast.For | ast.AsyncFor):
            yield from self._loop(node, scopes)
        else:
            yield from self._any(node, scopes)

    def _any(self, node: ast.AST, scopes: tuple[Scope, ...]) -> Iterator[str]:
        yield f"{type(node).__name__}("
        for field, value in ast.iter_fields(node):
            if field in SKIPPED:
                continue
            yield f"{field[0]}:"
            if isinstance(value, list):
                parts = cast("list[Any]", value)
                if field in ("body", "orelse", "finalbody"):
                    yield from self._block(parts, scopes)
                    continue
                for part in parts:
                    yield from (
                        self._node(part, scopes)
                        if isinstance(part, ast.AST)
                        else [self._plain(node, field, part, scopes)]
                    )
                    yield ","
            elif isinstance(value, ast.AST):
                yield from self._node(value, scopes)
            else:
                yield self._plain(node, field, value, scopes)
        yield ")"

    def _loop(self, node: ast.For | ast.AsyncFor, scopes: tuple[Scope, ...]) -> Iterator[str]:
        """A loop. Its variable is another one than that of the loop before, even if both have one name: who renames
        one of them has not written another program."""
        yield f"{type(node).__name__}("
        yield from self._node(node.iter, scopes)
        for name in stored([node.target])[0] & scopes[-1].keys() if scopes else ():
            scopes[-1][name] = ""
        yield ","
        yield from self._node(node.target, scopes)
        for body in (node.body, node.orelse):
            yield ":"
            yield from self._block(body, scopes)
        yield ")"

    def _plain(self, node: ast.AST, field: str, value: Any, scopes: tuple[Scope, ...]) -> str:
        """The text of a field that is no node: a name, in most cases."""
        if field in ("name", "rest") and isinstance(
            node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar | ast.MatchMapping
        ):
            return self._local(value, scopes)
        return self._attribute(value) if field == "kwd_attrs" else repr(value)

    def _name_of(self, name: str, scopes: tuple[Scope, ...]) -> Iterator[str]:
        yield self._resolved(name, scopes)
        key = next((id(scope) for scope in reversed(scopes) if name in scope), 0), name
        if key in self._pending:
            self._pending.remove(key)
            yield "="
            yield from self._function(*self._inner[key])

    def _attribute_of(self, node: ast.Attribute, scopes: tuple[Scope, ...]) -> Iterator[str]:
        name = root(node)
        local = name is None or any(name in scope for scope in scopes)
        if not local and name in self._paths and isinstance(node.value, ast.Name):  # `math.floor` is `floor` of `math`
            yield self._foreign(_short(f"{self._paths[name]}.{node.attr}"))
            return
        yield from self._node(node.value, scopes)
        yield f".{self._attribute(node.attr)}"

    def _call(self, node: ast.Call, scopes: tuple[Scope, ...]) -> Iterator[str]:
        called = self._called(node.func, scopes)
        yield "call("
        yield from self._node(node.func, scopes)
        for one in node.args:
            yield ","
            yield from self._node(one, scopes)
        for one in node.keywords:
            yield f",{self._keyword(one.arg, called)}="
            yield from self._node(one.value, scopes)
        yield ")"

    def _called(self, node: ast.expr, scopes: tuple[Scope, ...]) -> ast.AST | None:
        """The definition of what is called, where it is one of the source's own."""
        if isinstance(node, ast.Attribute):
            return self._methods.get(node.attr)
        if not isinstance(node, ast.Name):
            return None
        for scope in reversed(scopes):
            if node.id in scope:
                return self._inner.get((id(scope), node.id), (None, ()))[0]
        return self._definitions.get(node.id)

    def _keyword(self, name: str | None, called: ast.AST | None) -> str:
        """What stands for the name of an argument: its place, in a function of the source's own."""
        if name is None:
            return "**"
        if isinstance(called, ast.ClassDef):
            called = next((one for one in called.body if isinstance(one, FUNCTIONS) and one.name == "__init__"), called)
        if isinstance(called, FUNCTIONS):
            names = [one.arg for one in arguments(called)]
            return f"#{names.index(name)}" if name in names else name
        return self._attribute(name) if isinstance(called, ast.ClassDef) else name

    def _function(self, node: Function | ast.Lambda, scopes: tuple[Scope, ...]) -> Iterator[str]:
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
        own, others = stored(body)
        scope: Scope = dict.fromkeys(sorted(own - others), "")
        for name in _defined_once(body) - others:
            scope[f"once {name}"] = "yes"
        given = node.args
        yield "async(" if isinstance(node, ast.AsyncFunctionDef) else "def("
        for one in () if isinstance(node, ast.Lambda) else node.decorator_list:
            yield from self._node(one, scopes)
            yield "@"
        for one in [*given.defaults, *(one for one in given.kw_defaults if one is not None)]:
            yield from self._node(one, scopes)
            yield ","
        for one in arguments(node):
            scope[one.arg] = self._number()
            yield f"{scope[one.arg]},"
        yield f"{len(given.posonlyargs)},{len(given.kwonlyargs)},{given.vararg is None},{given.kwarg is None})("
        inside = (*scopes, scope)
        if isinstance(node, ast.Lambda):
            yield from self._node(node.body, inside)
        else:
            yield from self._block(node.body, inside)
        yield ")"

    def _class(self, node: ast.ClassDef, scopes: tuple[Scope, ...]) -> Iterator[str]:
        yield f"class {self._resolved(node.name, scopes)}("
        for one in [*node.decorator_list, *node.bases, *node.keywords]:
            yield from self._node(one, scopes)
            yield ","
        scope: Scope = {name: self._attribute(name) for name in sorted(stored(node.body)[0])}
        for one in node.body:
            if isinstance(one, FUNCTIONS):  # a method does not see the names of its class
                yield self._attribute(one.name)
                yield from self._function(one, scopes)
            else:
                yield from self._statement(one, (*scopes, scope))
        yield ")"

    def _comprehension(self, node: ast.AST, scopes: tuple[Scope, ...]) -> Iterator[str]:
        assert isinstance(node, COMPREHENSIONS), "asked before"
        targets, _ = stored([one.target for one in node.generators])
        inside = (*scopes, dict.fromkeys(sorted(targets), ""))
        yield f"{type(node).__name__}("
        for one in node.generators:
            yield "await" if one.is_async else "for"
            for part in [one.target, one.iter, *one.ifs]:
                yield from self._node(part, inside)
                yield ","
        for part in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            yield from self._node(part, inside)
            yield ","
        yield ")"


def _short(path: str) -> str:
    """What something is called, however it is imported: what is ours has one name wherever it is taken from."""
    return path.rpartition(".")[2] if path.partition(".")[0] in OURS else path


def _says_nothing(node: ast.stmt) -> bool:
    """Whether a statement is there for readers alone: a docstring, `pass`, what is printed, what is asserted."""
    if isinstance(node, ast.Pass | ast.Assert | ast.Global | ast.Nonlocal):
        return True
    if not isinstance(node, ast.Expr):
        return False
    called = node.value.func if isinstance(node.value, ast.Call) else None
    return isinstance(node.value, ast.Constant) or (isinstance(called, ast.Name) and called.id in SHOWS)


def _defined_once(body: Iterable[ast.AST]) -> set[str]:
    """The functions that a body defines, whose names it does not store otherwise."""
    nodes = list(body)
    defined = [one.name for one in nodes if isinstance(one, FUNCTIONS)]
    others = [one for one in nodes if not isinstance(one, FUNCTIONS)]
    return {name for name in defined if defined.count(name) == 1} - stored(others)[0]


def _own_attributes(statement: Statement) -> Iterator[str]:
    """The attributes that a statement gives names to: those of its classes, and those that it stores."""
    for node in ast.walk(statement.node):
        if isinstance(node, ast.ClassDef):
            yield from (name for name in stored(node.body)[0] if not name.startswith("__"))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def _methods(statement: Statement) -> Iterator[tuple[str, Function]]:
    """The methods of the classes in a statement."""
    for node in ast.walk(statement.node):
        if isinstance(node, ast.ClassDef):
            yield from ((one.name, one) for one in node.body if isinstance(one, FUNCTIONS))
