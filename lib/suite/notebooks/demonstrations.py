"""What a student's notebook shows before anybody has run it: what its demonstrations put out, and no answers.

A demonstration is a cell whose outcome is the same whatever a student writes and guesses. So its output is that of the
solved notebook, which has been run already. What depends on a gap or on a prediction, even by way of other cells, is
left for the student to find out.
"""

from __future__ import annotations

import ast
from typing import Any

from lib.suite.submissions.gap import parse
from lib.suite.submissions.load import Notebook

__all__ = ["demonstrated"]

ASKS = frozenset({"goal", "hint", "predict"})
"""What is for the student to call when they want to: the goal is figures that they are asked to predict first."""
STUB = "raise NotSolved("


def demonstrated(student: Notebook, solved: Notebook) -> Notebook:
    """A student's notebook with the outputs of its demonstrations, taken from the solved one, which has been run."""
    cells: list[dict[str, Any]] = []
    theirs = set[str]()
    """The names whose values depend on what a student writes."""
    for cell, ran in zip(student["cells"], solved["cells"], strict=True):
        if cell["cell_type"] != "code":
            cells.append(cell)
            continue
        names = _Names(parse(cell["source"], cell["id"]))
        if STUB in cell["source"] or (ASKS | theirs) & names.used:
            theirs |= names.made | names.compared
            cells.append(cell)
        else:
            theirs -= names.made
            # An output and the number of the run that it is of go together: nbval takes one without it as a mistake.
            cells.append({**cell, **{key: ran[key] for key in ("outputs", "execution_count") if ran["outputs"]}})
    return {**student, "cells": cells}


class _Names(ast.NodeVisitor):
    """The names of the notebook that a cell gives values to, and those whose values from before it reads."""

    def __init__(self, tree: ast.AST) -> None:
        self.made = set[str]()
        self.used = set[str]()
        self.compared = set[str]()
        """The runs that predictions are compared with, which from there on give the answer away."""
        self.visit(tree)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.made.add(node.id)
        elif node.id not in self.made:
            self.used.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        for part in (node.value, *node.targets):  # what is read comes first
            self.visit(part)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.used.update(part.id for part in ast.walk(node) if isinstance(part, ast.Name))
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        for part in (node.iter, node.target, *node.body, *node.orelse):
            self.visit(part)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "against":
            given = (part for argument in node.args for part in ast.walk(argument))
            self.compared.update(part.id for part in given if isinstance(part, ast.Name))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """What a function reads of the notebook's is read; what it makes is its own."""
        for decorator in node.decorator_list:
            self.visit(decorator)
        inside = _Names(ast.Module(node.body, []))
        own = {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)} | inside.made
        self.used |= inside.used - own - self.made
        self.made.add(node.name)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815
