"""Our own answers to function puzzles, each with one thing in it changed, as somebody may get it wrong."""

import ast
import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference

__all__ = ["Change", "changes"]

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
OTHERS = {"min": "max", "max": "min", "any": "all", "all": "any"}
"""Functions that are taken for each other."""


class Change(NamedTuple):
    """One thing that was changed: what stood there, what stands there now, and the function that comes of it."""

    before: str
    after: str
    function: Callable[..., Any]

    def __str__(self) -> str:
        return f"{self.before}  ->  {self.after}"


def changes(puzzle: str) -> Iterator[Change]:
    """Every change of our answer to a puzzle, from its first line to its last. Messages of errors are left alone."""
    path = reference(puzzle)
    ours = load_function(path, puzzle)
    tree = ast.parse(path.read_text("utf-8"))
    answer = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == puzzle)
    errors = [node.exc for node in ast.walk(answer) if isinstance(node, ast.Raise) and node.exc is not None]
    said = {id(part) for error in errors for part in ast.walk(error)}
    for place, node in enumerate(ast.walk(answer)):
        for made in () if id(node) in said else _instead(node):
            changed = copy.deepcopy(answer)
            target = next(other for n, other in enumerate(ast.walk(changed)) if n == place)
            before = ast.unparse(node).splitlines()[0]
            after = "(gone)" if made is None else ast.unparse(made).splitlines()[0]
            _put(changed, target, ast.Pass() if made is None else made)
            module = ast.fix_missing_locations(ast.Module([changed], []))
            names = dict(ours.__globals__)
            exec(compile(module, f"{puzzle}, changed", "exec"), names)
            yield Change(before, after, names[puzzle])


def _instead(node: ast.AST) -> Iterator[Any]:
    """What may stand where a node stands; None for nothing at all."""
    match node:
        case ast.Compare(ops=[ast.Lt()], comparators=[ast.Constant(value=1)]):
            yield ast.Compare(node.left, [ast.Eq()], [ast.Constant(0)])
            for other in COMPARED[ast.Lt]:
                yield ast.Compare(node.left, [other()], node.comparators)
        case ast.Compare():
            for place, op in enumerate(node.ops):
                for other in COMPARED[type(op)]:
                    yield ast.Compare(node.left, [*node.ops[:place], other(), *node.ops[place + 1 :]], node.comparators)
        case ast.BinOp() if type(node.op) in COMPUTED:
            yield ast.BinOp(node.left, COMPUTED[type(node.op)](), node.right)
        case ast.BoolOp():
            yield ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
            for place in range(len(node.values)):
                left = node.values[:place] + node.values[place + 1 :]
                yield left[0] if len(left) == 1 else ast.BoolOp(node.op, left)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.IfExp():
            yield node.body
            yield node.orelse
        case ast.Constant(value=str(value)):
            yield ast.Constant(f"not {value}")
        case ast.Call(func=ast.Name(id=name)) if name in OTHERS:
            yield ast.Call(ast.Name(OTHERS[name], ast.Load()), node.args, node.keywords)
            for place in range(len(node.args) if len(node.args) > 1 else 0):
                left = node.args[:place] + node.args[place + 1 :]
                yield left[0] if len(left) == 1 else ast.Call(node.func, left, node.keywords)
        case ast.Call(func=ast.Name(id="sorted" | "reversed" | "set"), args=[first]):
            yield first
        case ast.comprehension():
            for place in range(len(node.ifs)):
                yield ast.comprehension(node.target, node.iter, node.ifs[:place] + node.ifs[place + 1 :], node.is_async)
        case ast.If() | ast.While():
            for truth in (True, False) if isinstance(node, ast.If) else (False,):
                yield type(node)(ast.Constant(truth), node.body, node.orelse)
        case ast.Return(value=value) if not isinstance(value, ast.Constant | None):
            yield ast.Return(ast.Constant(None))
        case (
            ast.For()
            | ast.Assign()
            | ast.AugAssign()
            | ast.Expr(value=ast.Call())
            | ast.Raise()
            | ast.Continue()
            | ast.Break()
        ):
            yield None
        case _:
            return


def _put(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, field in ast.iter_fields(parent):
            if field is old:
                setattr(parent, name, new)
                return
            if isinstance(field, list):
                for place, item in enumerate(field):
                    if item is old:
                        field[place] = new
                        return
    raise AssertionError("a node stands somewhere")
