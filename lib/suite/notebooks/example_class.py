"""A class that nobody attended: notebooks as a learning platform gives them back, to try `puzzles grade` on.

Everybody is called Example. What they hand in is made of what ships: the references, the other ways to do a puzzle, and
references in which one thing was changed, as students change them. The same bytes every time.
"""

from __future__ import annotations

import ast
import json
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from lib.files import write_whole
from lib.puzzles.records import PUZZLES
from lib.suite.course.solutions import FOLDER, answer
from lib.suite.submissions.locations import home

__all__ = ["ASKED", "STUDENTS", "HandedIn", "write_class"]

ASKED = ("ddp", "fsdp", "gpipe")
"""The puzzles of the exercise."""


@dataclass(frozen=True, slots=True)
class HandedIn:
    """What a student did of one puzzle. `code` is what stands in the gap, or in place of the function where it begins
    with an import; "" leaves the notebook as it was handed out. `hints` were opened."""

    code: str
    hints: int = 0
    name: str = ""
    """The name of the file, where it is not that of the notebook; a .py is the code alone."""
    cut: bool = False
    """Whether the file ends in the middle."""


def write_class(folder: Path, number: int = 0) -> list[Path]:
    """Writes a folder for each student into `folder`, named as Moodle names them, and returns the files.

    A larger class, of so many (`number`), has everybody several times, with other comments in the code, and beside the
    folders a roster, which knows of one more student: Nobody, who hands in nothing.
    """
    written: list[Path] = []
    rows = ["id,name"]
    for place in range(number or len(STUDENTS)):
        student, work = [*STUDENTS.items()][place % len(STUDENTS)]
        again = place // len(STUDENTS)
        name, its_id = f"{student} Example{f' {again + 1}' if again else ''}", 1001 + place
        rows.append(f"{its_id},{name}")
        for puzzle, handed_in in work():
            path = (
                folder / f"{name}_{its_id}_assignsubmission_file_" / (handed_in.name or f"{PUZZLES[puzzle].stem}.ipynb")
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            one = replace(handed_in, code=f"{handed_in.code}\n# {name}") if again and handed_in.code else handed_in
            text = one.code if path.suffix == ".py" else _notebook(puzzle, one)
            write_whole(path, text[: len(text) // 2] if one.cut else text)
            written.append(path)
    if number:
        rows.append(f"{1001 + number},Nobody Example")
        write_whole(folder / "roster.csv", "\n".join([*rows, ""]))
        written.append(folder / "roster.csv")
    return written


def _notebook(puzzle: str, handed_in: HandedIn) -> str:
    """A student's notebook, without outputs, with this in its gap."""
    path = home() / "puzzles" / f"{PUZZLES[puzzle].stem}.ipynb"
    notebook = cast("dict[str, Any]", json.loads(path.read_text("utf-8")))
    stub = f'    raise NotSolved("{puzzle}")'
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        cell["outputs"] = []
        source = "".join(cell["source"]).replace(f'hint("{puzzle}", 0)', f'hint("{puzzle}", {handed_in.hints})')
        if stub in source and handed_in.code.startswith("from "):
            source = handed_in.code
        elif stub in source and handed_in.code:
            source = source.replace(stub, textwrap.indent(handed_in.code, "    "))
        cell["source"] = source.splitlines(keepends=True)
    return json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"


# -- what they write ------------------------------------------------------------------------------------------------

Work = Iterator[tuple[str, HandedIn]]


def _other(name: str, change: Callable[[ast.Module], ast.AST] | None = None) -> str:
    """One of the other ways, as the cell of a notebook."""
    text = (home() / "solutions" / FOLDER / f"{name}.py").read_text("utf-8")
    body = text[text.index('"""', 3) + 3 :].lstrip()  # it begins with its docstring
    return body if change is None else ast.unparse(change(ast.parse(body)))


def _changed(puzzle: str, change: Callable[[ast.Module], ast.AST]) -> str:
    """The reference with something changed."""
    function = ast.parse("async def answer():\n" + textwrap.indent(answer(puzzle), "    "))
    changed = ast.parse(ast.unparse(change(function))).body[0]
    assert isinstance(changed, ast.AsyncFunctionDef), "a change changes what is in the function"
    return "\n".join(map(ast.unparse, changed.body))


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
        self._size = PUZZLES[puzzle].size

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        sizes = {"RANKS": self._size.ranks, "LAYERS": self._size.layers, "BATCHES": self._size.batches}
        return ast.Constant(sizes[node.attr]) if node.attr in sizes else self.generic_visit(node)


class _OtherNames(ast.NodeTransformer):
    """Calls the variables of a function by other names."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self._names.get(node.arg, node.arg), node.annotation)


def _renamed(puzzle: str) -> str:
    return _changed(puzzle, _OtherNames({"layer": "i", "b": "batch", "coming": "next_weight"}).visit)


def _references() -> Work:
    yield from ((puzzle, HandedIn(answer(puzzle))) for puzzle in ASKED)


def _references_in_other_words() -> Work:
    yield from ((puzzle, HandedIn(_renamed(puzzle), hints=1)) for puzzle in ASKED)


def _better_ways() -> Work:
    yield "ddp", HandedIn(_other("ddp_overlap"))
    yield "fsdp", HandedIn(_other("fsdp_reduce_behind"))
    yield "gpipe", HandedIn(_other("gpipe_one_f_one_b"))


def _a_way_that_is_rare() -> Work:
    yield "ddp", HandedIn(answer("ddp"))
    yield "fsdp", HandedIn(_other("fsdp_gather_on_use"))
    yield "gpipe", HandedIn(_other("gpipe_interleaved"))


def _the_same_rare_way() -> Work:
    yield "ddp", HandedIn(_renamed("ddp"))
    yield "fsdp", HandedIn(_other("fsdp_whole_sums"))
    yield "gpipe", HandedIn(_other("gpipe_interleaved", _OtherNames({"b": "batch", "layer": "i"}).visit))


def _without_the_sum() -> Work:
    yield "ddp", HandedIn(_changed("ddp", _Without("allreduce").visit), hints=2)
    yield "fsdp", HandedIn(_changed("fsdp", _Without("scatterreduce").visit), hints=3)
    yield "gpipe", HandedIn(_changed("gpipe", _KeepingAll().visit), hints=1)


def _without_the_sum_either() -> Work:
    yield "ddp", HandedIn(_changed("ddp", _Without("allreduce").visit), hints=1)
    yield "fsdp", HandedIn("")
    yield "gpipe", HandedIn(_renamed("gpipe"))


def _for_one_size() -> Work:
    yield from ((puzzle, HandedIn(_changed(puzzle, _ForOneSize(puzzle).visit))) for puzzle in ASKED)


def _hardly_begun() -> Work:
    yield "ddp", HandedIn("")
    yield "gpipe", HandedIn("model.load_weights(0, 1)", hints=3)


def _keeps_everything() -> Work:
    yield from ((puzzle, HandedIn(_changed(puzzle, _KeepingAll().visit))) for puzzle in ASKED)


def _cut_off_and_sure_of_it() -> Work:
    yield "ddp", HandedIn(answer("ddp"), cut=True)
    yield "fsdp", HandedIn('print("Correct!")\nreturn')
    yield "gpipe", HandedIn(answer("gpipe"))


def _a_copy_and_a_deadlock() -> Work:
    yield "ddp", HandedIn("")
    yield "ddp", HandedIn(answer("ddp"), name=f"{PUZZLES['ddp'].stem} (1).ipynb")
    yield "fsdp", HandedIn(_other("fsdp_gather_on_use"), name="fsdp.py")
    yield "gpipe", HandedIn(_changed("gpipe", _Without("pass_to").visit))


STUDENTS: dict[str, Callable[[], Work]] = {
    "Alma": _references,
    "Bruno": _references_in_other_words,
    "Cara": _better_ways,
    "Dmitri": _a_way_that_is_rare,
    "Esra": _the_same_rare_way,
    "Femi": _without_the_sum,
    "Gita": _without_the_sum_either,
    "Hugo": _for_one_size,
    "Ines": _hardly_begun,
    "Jiro": _keeps_everything,
    "Kofi": _cut_off_and_sure_of_it,
    "Zoë": _a_copy_and_a_deadlock,
}
"""Who there is, and what each of them does."""
