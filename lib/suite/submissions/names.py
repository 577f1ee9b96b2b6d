"""Which names a statement at top level gives, and which it takes: at once, or when a function in it is called."""

from __future__ import annotations
import __future__

import ast
import copy
import dis
import inspect
import warnings
from dataclasses import dataclass, field
from types import CodeType

__all__ = [
    "COMPOUND",
    "FLAGS",
    "FUNCTIONS",
    "Function",
    "Names",
    "arguments",
    "bound",
    "names_of",
    "own_returns",
    "pruned",
    "required",
    "root",
]

FLAGS = __future__.annotations.compiler_flag | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
"""As in a notebook's cell; and annotations may name what was left out."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef
COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
"""The statements with others in them that are run at once."""
AT_ONCE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
"""The code objects of functions that nobody has to call."""
PYTHONS = frozenset({"__annotations__", "__name__"})
"""Names that Python gives and takes itself."""


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
    """Return the names of a statement at top level; RecursionError where it is nested too deep.

    Python's own compiler says which names are whose.
    """
    names = Names(star=isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(ast.Module([node], []), "", "exec", FLAGS, dont_inherit=True)
    except SyntaxError:  # `break` without its loop; or a mistake, which is reported where it is run
        names.gives.update(bound(node))
        return names
    _read(code, names, own=True, later=False)
    for some in (names.gives, names.now, names.later):
        some -= PYTHONS
    if isinstance(node, ast.Delete):
        names.now |= names.gives
    _read_effects(node, names)
    return names


def _read(code: CodeType, names: Names, *, own: bool, later: bool) -> None:
    """Read which names code gives and takes. `own`: it is the statement's, and no class's or function's in it."""
    # Each step is written out for readers, and a constant may be a number of any length.
    for step in dis.get_instructions(code.replace(co_consts=(None,) * len(code.co_consts))):
        kind, _, where = step.opname.partition("_")
        if kind == "LOAD" and where in ("NAME", "GLOBAL", "FROM_DICT_OR_GLOBALS"):
            (names.later if later else names.now).add(step.argval)
        elif kind in ("STORE", "DELETE") and (where == "GLOBAL" or (where == "NAME" and own)):
            (names.touches_later if later else names.gives).add(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            is_called = inner.co_flags & inspect.CO_OPTIMIZED and inner.co_name not in AT_ONCE
            _read(inner, names, own=False, later=later or bool(is_called))


def _read_effects(statement: ast.stmt, names: Names) -> None:
    """Read which names a statement calls, and what may be changed by it."""
    todo: list[tuple[ast.AST, bool]] = [(statement, False)]
    while todo:
        node, later = todo.pop()
        taken, touched = (names.later, names.touches_later) if later else (names.now, names.touches)
        called: list[tuple[ast.expr, list[ast.expr]]] = []
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            touched |= {root(node) or ""} & taken
        elif isinstance(node, ast.Call):
            called.append((node.func, [*node.args, *(one.value for one in node.keywords)]))
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            called += [(one, []) for one in node.decorator_list]
        for callee, given in called:
            name = root(callee) or ""
            if isinstance(callee, ast.Attribute):
                touched |= {name} & taken
            if not later and name in taken:
                names.calls.setdefault(name, set()).update(one for one in map(root, given) if one is not None)
        for child in ast.iter_child_nodes(node):
            is_body = isinstance(node, FUNCTIONS) and isinstance(child, ast.stmt)
            is_body = is_body or (isinstance(node, ast.Lambda) and child is node.body)
            todo += [(child, later or is_body)]


def pruned(node: ast.stmt, wanted: frozenset[int] | set[int]) -> ast.stmt:
    """Return a compound statement with those alone in it whose `id` is wanted, or `pass`; any other as it is."""
    if not isinstance(node, COMPOUND):
        return node
    made = copy.copy(node)
    for name in ("body", "orelse", "finalbody"):
        if hasattr(node, name):
            must = name == "body" or not getattr(node, "handlers", True)
            setattr(made, name, _some(getattr(node, name), wanted, must=must))
    for name in ("handlers", "cases"):
        if hasattr(node, name):
            inner = [copy.copy(one) for one in getattr(node, name)]
            for one in inner:
                one.body = _some(one.body, wanted, must=True)
            setattr(made, name, inner)
    return made


def _some(block: list[ast.stmt], wanted: frozenset[int] | set[int], *, must: bool) -> list[ast.stmt]:
    kept = [pruned(one, wanted) for one in block if id(one) in wanted]
    return kept or ([ast.copy_location(ast.Pass(), block[0])] if block and must else [])


def root(node: ast.AST) -> str | None:
    """Return the name that an expression begins with: that of `a` in `a.b[c].d()`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def arguments(node: Function | ast.Lambda) -> list[ast.arg]:
    """Return the arguments of a function, in order."""
    given = node.args
    rest = [one for one in (given.vararg, given.kwarg) if one is not None]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *rest]


def bound(node: ast.AST) -> list[str]:
    """Return the names that a node binds by itself."""
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


def required(node: Function) -> int:
    """Return how many arguments a function has to be given by their place."""
    return len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)


def own_returns(node: ast.AST) -> bool:
    """Return whether a statement of a function's body may end the function without raising, or catches what it
    raises."""
    if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Try):
        return True
    if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
        return False
    return any(map(own_returns, ast.iter_child_nodes(node)))
