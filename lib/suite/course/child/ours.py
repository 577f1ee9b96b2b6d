"""What of our own code a function that is graded may use: what its puzzle builds on, and nothing that answers it.

The solutions of other puzzles and the schedules of `lib.schedules` that the answer to a puzzle is itself given come
with the request, as text. Of a module these are the functions that the answer uses; what else is imported of it says,
when it is called, that it is not to be had.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final, NoReturn

from lib.errors.exceptions import PuzzleError
from lib.files import ROOT
from lib.suite.submissions.locations import reference
from lib.suite.submissions.reading.cells import statements
from lib.suite.submissions.reading.needed import Program

__all__ = ["schedules_below", "withhold"]

SCHEDULES: Final = "lib.schedules."
LOADED: Final = (
    "lib.schedules.written",
    *(f"lib.schedules.pipelines.{name}" for name in ("action", "legality", "lowering", "program")),
)
"""What runs a written schedule is no schedule: it is there for every puzzle, and loaded before."""


@cache
def schedules_below(puzzle: str) -> Mapping[str, str]:
    """The modules of lib.schedules that our answer to a puzzle is given, each with the text of what it needs of it."""
    found: dict[str, str] = {}
    waiting = _imported(*_needed(reference(puzzle), [puzzle]))
    while waiting:
        module, names = waiting.popitem()
        if module not in found:
            nodes, used = _needed(ROOT / f"{module.replace('.', '/')}.py", names)
            found[module] = "\n".join(["from __future__ import annotations", *map(ast.unparse, nodes)])
            waiting |= _imported(nodes, used)
    return found


def _needed(path: Path, names: Sequence[str]) -> tuple[list[ast.stmt], frozenset[str]]:
    """The statements of a file of ours that some of its names need, in order, and the names that they use."""
    every, broken = statements([(path.name, path.read_text("utf-8"))])
    program = Program(every, broken)
    found = [next(iter(program.needed(name))) for name in names]
    needed = {id(one.node) for each in found for one in each.statements}
    return [one.node for one in every if id(one.node) in needed], frozenset[str]().union(*(one.names for one in found))


def _imported(nodes: Sequence[ast.stmt], used: frozenset[str]) -> dict[str, list[str]]:
    """The modules of schedules that some statements import, and the names that are used of each."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(SCHEDULES):
            names = [one.name for one in node.names if (one.asname or one.name) in used]
            if names and node.module not in LOADED:
                found.setdefault(node.module, []).extend(names)
    return found


def withhold(given: Mapping[str, str]) -> None:
    """From now on no module of lib.schedules is to be had but what is LOADED and what is given."""
    for name in LOADED:
        import_module(name)
    sys.meta_path.insert(0, _Given(given))


class _Given(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname.startswith(SCHEDULES) else None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        module.__dict__["__getattr__"] = partial(_refusing, name)
        exec(compile(self._given.get(name, ""), f"{name}.py", "exec"), module.__dict__)


def _refusing(module: str, name: str) -> Callable[..., NoReturn]:
    """What stands for a function that is not to be had."""
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    def refuse(*given: object, **named: object) -> NoReturn:
        raise PuzzleError(
            f"{module}.{name} is ours, and does not count as yours",
            expected="a function that says itself what each rank does",
            fix="write it yourself; use it to compare with in another cell, which is not graded",
        )

    return refuse
