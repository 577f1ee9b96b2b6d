"""Which names a statement at top level gives, and which it takes: at once, or when a function in it is called."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

__all__ = [
    "COMPOUND",
    "COMPREHENSIONS",
    "FUNCTIONS",
    "Function",
    "Names",
    "arguments",
    "bound",
    "names_of",
    "own_parts",
    "own_returns",
    "required",
    "root",
    "stored",
]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef
COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
"""The statements with others in them that are run at once."""
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Scopes = tuple[frozenset[str], ...]


@dataclass
class Names:
    """The names of a statement that are not a function's own.

    `gives`: it binds them. `now` and `later`: it takes them, at once or when a function in it is called. `touches` and
    `touches_later`: it may change what they stand for, as in `table[3] = 4`, `rows.append(x)` or `global count`.
    `calls`: it calls them at once, also as decorators; with `calls` the names given to each. `star`: it takes over all
    names of a module. Names in annotations are nobody's.
    """

    gives: set[str] = field(default_factory=set[str])
    now: set[str] = field(default_factory=set[str])
    later: set[str] = field(default_factory=set[str])
    touches: set[str] = field(default_factory=set[str])
    touches_later: set[str] = field(default_factory=set[str])
    calls: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    star: bool = False


def names_of(node: ast.stmt) -> Names:
    """The names of a statement at top level; RecursionError where it is nested too deep.

    Of a compound statement those of its head alone: what is in it are statements of their own."""
    reader = _Reader()
    for part in own_parts(node):
        reader.read(part, (), False)
    return reader.names


def own_parts(node: ast.stmt) -> Iterator[ast.AST]:
    """A statement without the statements in it; a definition is whole."""
    if not isinstance(node, COMPOUND):
        yield node
        return
    for name, value in ast.iter_fields(node):
        if name in ("body", "orelse", "finalbody"):
            continue
        for part in value if isinstance(value, list) else [value]:  # pyright: ignore[reportUnknownVariableType]
            if isinstance(part, ast.ExceptHandler):
                yield ast.ExceptHandler(part.type, part.name, [])
            elif isinstance(part, ast.match_case):
                yield ast.match_case(part.pattern, part.guard, [])
            elif isinstance(part, ast.AST):
                yield part


def root(node: ast.AST) -> str | None:
    """The name that an expression begins with: that of `a` in `a.b[c].d()`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def arguments(node: Function | ast.Lambda) -> list[ast.arg]:
    """The arguments of a function, in order."""
    given = node.args
    rest = [one for one in (given.vararg, given.kwarg) if one is not None]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *rest]


def stored(body: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """The names that a body stores, and those that it says are not its own (`global`, `nonlocal`)."""
    own: set[str] = set()
    others: set[str] = set()
    todo = list(body)
    while todo:
        node = todo.pop()
        own.update(bound(node))
        if isinstance(node, ast.Global | ast.Nonlocal):
            others.update(node.names)
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            todo += _around(node)
        elif isinstance(node, COMPREHENSIONS):
            todo += [one for one in ast.walk(node) if isinstance(one, ast.NamedExpr)]
        elif isinstance(node, ast.NamedExpr):
            own.add(node.target.id)
            todo.append(node.value)
        else:
            todo += ast.iter_child_nodes(node)
    return own - others, others


def bound(node: ast.AST) -> list[str]:
    """The names that a node binds by itself."""
    if isinstance(node, ast.Name):
        return [node.id] if not isinstance(node.ctx, ast.Load) else []
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names if alias.name != "*"]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return [node.name] if node.name else []
    if isinstance(node, ast.MatchMapping):
        return [node.rest] if node.rest else []
    return []


def _around(node: ast.AST) -> list[ast.AST]:
    """What a definition evaluates where it stands: decorators, defaults, bases."""
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *node.keywords]
    assert isinstance(node, (*FUNCTIONS, ast.Lambda)), "these are all definitions"
    defaults = [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]
    return [*(() if isinstance(node, ast.Lambda) else node.decorator_list), *defaults]


class _Reader:
    """Goes through a statement with the names of the functions around."""

    def __init__(self) -> None:
        self.names = Names()

    def read(self, node: ast.AST, scopes: Scopes, later: bool) -> None:
        """Reads a node. `scopes` are the names of the functions around it; `later`: it is run when one is called."""
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            self._function(node, scopes, later)
        elif isinstance(node, ast.ClassDef):
            self._class(node, scopes, later)
        elif isinstance(node, COMPREHENSIONS):
            self._comprehension(node, scopes, later)
        elif isinstance(node, ast.AnnAssign):
            self._all(
                [one for one in (node.value, node.target) if one is not None and self._counts(node)], scopes, later
            )
        elif isinstance(node, ast.Name):
            self._name(node, scopes, later)
        elif isinstance(node, ast.NamedExpr):
            self.names.gives.update(() if scopes else (node.target.id,))
            self.read(node.value, scopes, later)
        else:
            self._bind(node, scopes)
            self._effects(node, scopes, later)
            self._all(ast.iter_child_nodes(node), scopes, later)

    @staticmethod
    def _counts(node: ast.AnnAssign) -> bool:
        return node.value is not None or not isinstance(node.target, ast.Name)

    def _all(self, nodes: Iterable[ast.AST], scopes: Scopes, later: bool) -> None:
        for node in nodes:
            self.read(node, scopes, later)

    def _name(self, node: ast.Name, scopes: Scopes, later: bool) -> None:
        if any(node.id in scope for scope in scopes):
            return
        if isinstance(node.ctx, ast.Load):
            (self.names.later if later else self.names.now).add(node.id)
        elif not scopes:
            self.names.gives.add(node.id)
            if isinstance(node.ctx, ast.Del):
                self.names.now.add(node.id)
        else:  # of a function that says it is global
            self.names.touches_later.add(node.id)

    def _bind(self, node: ast.AST, scopes: Scopes) -> None:
        if not scopes:
            self.names.gives.update(bound(node))
            self.names.star |= isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)

    def _effects(self, node: ast.AST, scopes: Scopes, later: bool) -> None:
        touched = self.names.touches_later if later else self.names.touches
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            self._touch(root(node), scopes, touched)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self._name(ast.Name(node.target.id, ast.Load()), scopes, later)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                self._touch(root(node.func), scopes, touched)
            self._call(node.func, scopes, later, [*node.args, *(one.value for one in node.keywords)])

    def _touch(self, name: str | None, scopes: Scopes, touched: set[str]) -> None:
        if name is not None and not any(name in scope for scope in scopes):
            touched.add(name)

    def _call(self, callee: ast.AST, scopes: Scopes, later: bool, given: Sequence[ast.AST] = ()) -> None:
        name = root(callee)
        if name is not None and not later and not any(name in scope for scope in scopes):
            roots = (root(one) for one in given)
            self.names.calls.setdefault(name, set()).update(one for one in roots if one is not None)

    def _decorators(self, node: Function | ast.ClassDef, scopes: Scopes, later: bool) -> None:
        for one in node.decorator_list:
            self._call(one, scopes, later)
            if isinstance(one, ast.Attribute):
                self._touch(root(one), scopes, self.names.touches_later if later else self.names.touches)

    def _function(self, node: Function | ast.Lambda, scopes: Scopes, later: bool) -> None:
        self._all(_around(node), scopes, later)
        if not isinstance(node, ast.Lambda):
            self._bind(node, scopes)
            self._decorators(node, scopes, later)
        self._body(node, scopes)

    def _body(self, node: Function | ast.Lambda, scopes: Scopes) -> None:
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
        own, others = stored(body)
        own |= {one.arg for one in arguments(node)} | _type_parameters(node)
        hidden = _declared_global(body)  # these are of no function, even where one around has such a name
        around = tuple(scope - hidden for scope in scopes) if hidden else scopes
        self._all(body, (*around, frozenset(own - others)), True)

    def _class(self, node: ast.ClassDef, scopes: Scopes, later: bool) -> None:
        self._all(_around(node), scopes, later)
        self._bind(node, scopes)
        self._decorators(node, scopes, later)
        around = (*scopes, frozenset(_type_parameters(node)))
        own: set[str] = set()
        for part in node.body:  # a name is the class's own from where it is stored on, and never that of its methods
            if isinstance(part, FUNCTIONS):
                head = (*around, frozenset(own))
                self._all(_around(part), head, later)
                self._decorators(part, head, later)
                self._body(part, around)
            else:
                stores = stored([part])[0]
                for name in _read_first(part) & stores - own:  # as in `x = x`
                    self._name(ast.Name(name, ast.Load()), around, later)
                self.read(part, (*around, frozenset(own | stores)), later)
            own |= stored([part])[0]

    def _comprehension(self, node: ast.AST, scopes: Scopes, later: bool) -> None:
        assert isinstance(node, COMPREHENSIONS), "asked before"
        self.read(node.generators[0].iter, scopes, later)
        targets, _ = stored([one.target for one in node.generators])
        inside = (*scopes, frozenset(targets))
        for number, one in enumerate(node.generators):
            self._all([*([one.iter] if number else ()), *one.ifs], inside, later)
        values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._all(values, inside, later)
        if not scopes:  # `:=` gives its name to whatever is around
            walrus = (one.target.id for one in ast.walk(node) if isinstance(one, ast.NamedExpr))
            self.names.gives.update(walrus)


def _read_first(node: ast.AST) -> set[str]:
    """The names that an assignment in a class takes before it stores them, as in `x = x`."""
    value = getattr(node, "value", None)
    return {one.id for one in ast.walk(value) if isinstance(one, ast.Name)} if isinstance(value, ast.AST) else set()


def _declared_global(body: Iterable[ast.AST]) -> frozenset[str]:
    found: set[str] = set()
    todo = list(body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Global):
            found.update(node.names)
        elif not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            todo += ast.iter_child_nodes(node)
    return frozenset(found)


def _type_parameters(node: ast.AST) -> set[str]:
    """The names in the brackets of `def f[T](...)`, where Python has them."""
    return {one.name for one in getattr(node, "type_params", ())}


def required(node: Function) -> int:
    """How many arguments a function has to be given by their place."""
    return len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)


def own_returns(node: ast.AST) -> bool:
    """Whether a statement of a function's body may end the function without raising, or catches what it raises."""
    if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Try):
        return True
    if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
        return False
    return any(map(own_returns, ast.iter_child_nodes(node)))
