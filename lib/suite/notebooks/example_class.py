"""A class that nobody attended: notebooks as a learning platform gives them back, to try `puzzles grade` on.

Everybody is called Example. What they hand in stands in example_class.toml and is made of what ships: the references,
the other ways to do a puzzle, and one of these in which one thing was changed, as students change them. The same bytes
every time.
"""

from __future__ import annotations

import ast
import json
import textwrap
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

from lib.files import write_whole
from lib.puzzles.records import PUZZLES
from lib.suite.course.solutions import FOLDER, answer
from lib.suite.submissions.locations import home

__all__ = ["ASKED", "STUDENTS", "write_class"]

ASKED: Final = ("ddp", "fsdp", "gpipe")
"""The puzzles of the exercise."""
STUDENTS: Final[dict[str, list[dict[str, Any]]]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""Who there is, and the files of each."""


def write_class(folder: Path, number: int = 0) -> list[Path]:
    """Write a folder for each student into `folder`, named as Moodle names them, and return the files.

    A larger class, of so many (`number`), has everybody several times, with other comments in the code, and beside the
    folders a roster, which knows of one more student: Nobody, who hands in nothing.
    """
    written: list[Path] = []
    rows = ["id,name"]
    for place in range(number or len(STUDENTS)):
        student, files = [*STUDENTS.items()][place % len(STUDENTS)]
        again = place // len(STUDENTS)
        name, its_id = f"{student} Example{f' {again + 1}' if again else ''}", 1001 + place
        rows.append(f"{its_id},{name}")
        for file in files:
            puzzle, code = file["puzzle"], _code(**file)
            code += f"\n# {name}" if again and code else ""
            called = file.get("name", "{stem}.ipynb").format(stem=PUZZLES[puzzle].stem)
            path = folder / f"{name}_{its_id}_assignsubmission_file_" / called
            path.parent.mkdir(parents=True, exist_ok=True)
            text = code if path.suffix == ".py" else _notebook(puzzle, code, file.get("hints", 0))
            write_whole(path, text[: len(text) // 2] if file.get("cut") else text)
            written.append(path)
    if number:
        rows.append(f"{1001 + number},Nobody Example")
        write_whole(folder / "roster.csv", "\n".join([*rows, ""]))
        written.append(folder / "roster.csv")
    return written


def _notebook(puzzle: str, code: str, hints: int) -> str:
    """A student's notebook, without outputs, with a code in its gap, or in place of the function."""
    path = home() / "puzzles" / f"{PUZZLES[puzzle].stem}.ipynb"
    notebook = cast("dict[str, Any]", json.loads(path.read_text("utf-8")))
    stub = f'    raise NotSolved("{puzzle}")'
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        cell["outputs"] = []
        source = "".join(cell["source"]).replace(f'hint("{puzzle}", 0)', f'hint("{puzzle}", {hints})')
        if stub in source and code.startswith("from "):
            source = code
        elif stub in source and code:
            source = source.replace(stub, textwrap.indent(code, "    "))
        cell["source"] = source.splitlines(keepends=True)
    return json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"


# -- what they write ------------------------------------------------------------------------------------------------


def _code(puzzle: str, way: str = "", change: str = "", code: str | None = None, **_: object) -> str:
    """The code of one file. That of another way is the whole cell, and begins with an import."""
    if code is not None:
        return code
    if way:
        text = (home() / "solutions" / FOLDER / f"{way}.py").read_text("utf-8")
        text = text[text.index('"""', 3) + 3 :].lstrip()  # it begins with its docstring
        return ast.unparse(_changed(change, puzzle, ast.parse(text))) if change else text
    if not change:
        return answer(puzzle)
    function = ast.parse("async def answer():\n" + textwrap.indent(answer(puzzle), "    "))
    changed = ast.parse(ast.unparse(_changed(change, puzzle, function))).body[0]
    assert isinstance(changed, ast.AsyncFunctionDef), "a change changes what is in the function"
    return "\n".join(map(ast.unparse, changed.body))


def _changed(change: str, puzzle: str, tree: ast.Module) -> ast.AST:
    return CHANGES[change](puzzle).visit(tree) if change in CHANGES else _Without(change).visit(tree)


class _Without(ast.NodeTransformer):
    """Leaves out a collective: what it was given goes on as it is."""

    def __init__(self, method: str) -> None:
        self._method = method

    def visit_Await(self, node: ast.Await) -> ast.AST:
        match node.value:
            case ast.Call(func=ast.Attribute(attr=method), args=[first, *_]) if method == self._method:
                return first
            case _:
                return self.generic_visit(node)


class _KeepingAll(ast.NodeTransformer):
    """Deletes nothing."""

    def visit_Delete(self, node: ast.Delete) -> ast.AST:
        return ast.Pass()


class _ForOneSize(ast.NodeTransformer):
    """Writes the sizes of the puzzle as numbers."""

    def __init__(self, puzzle: str) -> None:
        size = PUZZLES[puzzle].size
        self._sizes = {"RANKS": size.ranks, "LAYERS": size.layers, "BATCHES": size.batches}

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return ast.Constant(self._sizes[node.attr]) if node.attr in self._sizes else self.generic_visit(node)


class _OtherNames(ast.NodeTransformer):
    """Calls the variables of a function by other names."""

    NAMES: Final = {"layer": "i", "b": "batch", "coming": "next_weight"}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.NAMES.get(node.id, node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self.NAMES.get(node.arg, node.arg), node.annotation)


CHANGES: Final[dict[str, Callable[[str], ast.NodeTransformer]]] = {
    "other names": lambda _: _OtherNames(),
    "nothing deleted": lambda _: _KeepingAll(),
    "numbers for sizes": _ForOneSize,
}
"""What a student may have changed, given the puzzle."""
