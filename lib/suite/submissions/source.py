"""What somebody handed in, as text: its cells, which puzzles it answers, and one function of it with what that uses."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import PurePath
from typing import Final, NamedTuple

from lib.errors.wording import counted
from lib.puzzles.records import PUZZLES
from lib.suite.submissions import gap
from lib.suite.submissions.locations import reference
from lib.suite.submissions.needed import Needed, Program
from lib.suite.submissions.normal_form import normal_form
from lib.suite.submissions.statements import (
    FUNCTIONS,
    Cell,
    Function,
    SourceError,
    Statement,
    code_cells,
    own_returns,
    required,
    statements,
    tidy,
    without_package,
)

__all__ = ["STATES", "Source", "SourceError", "State", "code_cells"]

TEXT = re.compile(r"""\b(?:puzzle[ \t]*=[ \t]*|NotSolved\([ \t]*)["'](\w+)["']""")
FEW = 3
LONGEST_NAME = 60
"""Functions that a message names, and characters of the name of one."""


class State(NamedTuple):
    """A state by its word, which is the same everywhere, with a sign that stands for it and what it means. `judged`:
    there was a function to look at."""

    word: str
    sign: str
    about: str
    judged: bool = True


STATES: Final = {
    state.word: state
    for state in (
        State("passed", "✓", "all that is needed"),
        State("missed", "◐", "correct, and over the goal that is needed"),
        State("partly", "◑", "right at the puzzle's own size, and not at all others"),
        State("failed", "✗", "not correct, or it did not come to its end"),
        State("unsolved", "○", "the gap still holds its stub"),
        State("renamed", "≠", "a file is there for it, which does not define its function", judged=False),
        State("unreadable", "⊘", "what was handed in cannot be read", judged=False),
        State("empty", "∅", "what was handed in holds no code", judged=False),
        State("unrelated", "∉", "what was handed in holds none of the puzzles that are asked", judged=False),
        State("absent", "–", "it was not handed in", judged=False),
    )
}
"""From good to bad."""


@dataclass(frozen=True, slots=True)
class Source:
    """The code of what somebody handed in, as text: nothing of it has run.

    `cells` are (what errors call it, text): a .py is one cell, a notebook has one for each code cell. `modules` are
    other .py files handed in with it, (relative path, text), which it may import. `name` is the file's. `needs`: there
    is nothing in it but what one function needs, which are these names, and of them these are given by nothing.
    """

    cells: tuple[Cell, ...]
    modules: tuple[Cell, ...] = ()
    name: str = ""
    needs: tuple[frozenset[str], frozenset[str]] | None = None

    @classmethod
    def of(cls, name: str, text: str) -> Source:
        """Read the text of a .py or .ipynb, by the ending of its name. SourceError where it is neither."""
        suffix = PurePath(name).suffix
        if suffix in (".py", ".ipynb") and not text.strip():
            raise SourceError(f"{PurePath(name).name} is empty", "empty")
        if suffix == ".py":
            return cls(((name, without_package(text)),), name=name)
        if suffix == ".ipynb":
            cells = code_cells(name, text)
            if not any(cell.strip() for cell in cells):
                raise SourceError(f"{PurePath(name).name} is a notebook without code", "empty")
            numbered = tuple((f"{name}, code cell {number}", cell) for number, cell in enumerate(cells, 1))
            return cls(numbered, name=name)
        raise SourceError(f"{PurePath(name).name} is neither a notebook (.ipynb) nor Python (.py)")

    def puzzles(self) -> tuple[str, ...]:
        """Return the puzzles whose function it defines, in the records' order: also in a cell that is no Python."""
        try:
            program = program_of(self.cells)
        except SourceError:
            return ()
        return tuple(puzzle for puzzle in PUZZLES if self._answers(program, puzzle))

    def _answers(self, program: Program, puzzle: str) -> bool:
        found = program.definition(puzzle)
        if found is None:
            return program.broken_after(puzzle) is not None
        if isinstance(found.node, ast.ImportFrom | ast.Import):
            return self._is_handed_in(found.node)
        return not isinstance(found.node, FUNCTIONS) or required(found.node) == _taken(puzzle)

    def _is_handed_in(self, node: ast.ImportFrom | ast.Import) -> bool:
        stems = {PurePath(path).stem for path, _ in self.modules}
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
        return any(name.rpartition(".")[2] in stems for name in names)

    def spoken_of(self) -> frozenset[str]:
        """Return the puzzles whose notebook it has text of: a stub, or a call about one."""
        return frozenset(name for _, text in self.cells for name in TEXT.findall(text))

    def instead_of(self, puzzle: str) -> str:
        """Say what stands where the function of a puzzle should be: for a source that does not answer the puzzle.
        SourceError where it cannot be read."""
        program = program_of(self.cells)
        found = program.definition(puzzle)
        if found is not None and isinstance(found.node, FUNCTIONS) and required(found.node) != _taken(puzzle):
            where = f"`{puzzle}` ({_place(found)})"
            return f"{where} takes {counted(required(found.node), 'argument')}, and is given {_taken(puzzle)}"
        if found is not None and isinstance(found.node, ast.ImportFrom | ast.Import):
            return f"`{puzzle}` ({_place(found)}) is imported from what was not handed in"
        # What is meant is likely called after the puzzle, or handed to a call about it.
        call = re.compile(rf"""\b(\w{{1,100}})[ \t]*,[ \t]*puzzle[ \t]*=[ \t]*["']{puzzle}["']""")
        handed = {name for _, text in self.cells for name in call.findall(text)}
        every = program.functions()
        likely = [one for one in every if _name(one) in handed or (puzzle and puzzle in _name(one).lower())]
        functions = likely or sorted(every, key=lambda one: not isinstance(one.node, FUNCTIONS))
        names = [f"`{_name(one)[:LONGEST_NAME]}` ({_place(one)})" for one in functions]
        more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
        return f"it has {', '.join(names[:FEW])}{more}" if names else "it has no function at all"

    def untouched(self, puzzle: str) -> bool:
        """Return whether the gap of a puzzle still holds its stub, and the function comes to it: nothing need run."""
        try:
            found = program_of(self.cells).definition(puzzle)
        except SourceError:
            return False
        if found is None or not isinstance(found.node, FUNCTIONS) or found.node.decorator_list[1:]:
            return False
        text = next(text for name, text in self.cells if name == found.cell)
        lines = text.replace("\r\n", "\n").split("\n")[found.node.lineno - 1 : found.node.end_lineno or 0]
        # The marker at the end stands below the last statement.
        after = text.replace("\r\n", "\n").split("\n")[found.node.end_lineno or 0 :][:1]
        return gap.untouched("\n".join([*lines, *after]), puzzle) and _ends_in_stub(found.node)

    def normalised(self, puzzle: str) -> str:
        """Digest the code of a puzzle's function and of what it uses: the same for other names of variables and
        helpers, another layout, comments, docstrings, annotations and order of helpers. "" if it cannot be read."""
        try:
            return normal_form(program_of(self.cells), puzzle, self.modules)
        except SourceError:
            return ""

    def only(self, puzzle: str) -> Source:
        """Return the source with nothing but what the function of a puzzle needs: other lines are empty, so that
        numbers stay. It is faster to run at several sizes. The source itself, where what is needed cannot be told
        without running it."""
        try:
            program = program_of(self.cells)
            first = next(program.needed(puzzle), None)
            if first is None or not first.sure or program.broken_after(puzzle) is not None:
                return self
            kept = _kept(self.cells, first, program)
            every, broken = statements(kept)
            again = Program(every, broken)
            second = next(again.needed(puzzle), None)
            same = second is not None and _read(first) == _read(second)
        except (ValueError, RecursionError, MemoryError):  # a number of more digits than Python writes, a deep nest
            return self
        if not same:
            return self
        alone = not broken and len(every) == len(first.statements)
        return replace(self, cells=kept, needs=(first.names, first.missing) if alone else None)


def _name(statement: Statement) -> str:
    return str(getattr(statement.node, "name", ""))


def _place(statement: Statement) -> str:
    """Say where a statement stands: its cell, if there are several, and its line."""
    cell = statement.cell.rpartition(", ")[2]
    line = f"line {getattr(statement.node, 'lineno', 0)}"
    return f"{cell}, {line}" if cell.startswith("code cell ") else line


def _kept(cells: tuple[Cell, ...], needed: Needed, program: Program) -> tuple[Cell, ...]:
    """The cells, with the lines of what is needed, and those that are no Python, of which somebody may want to know."""
    lines: dict[str, set[int]] = {}
    for one in needed.statements:
        first = min([one.node.lineno, *(mark.lineno for mark in getattr(one.node, "decorator_list", ()))])
        lines.setdefault(one.cell, set()).update(range(first, (one.node.end_lineno or first) + 1))
    found: list[Cell] = []
    broken = {one.cell for one in program.broken}
    for name, text in cells:
        if name in broken:
            found.append((name, text))
        elif name in lines:
            every = enumerate(tidy(text).split("\n"), 1)
            found.append((name, "\n".join(line if number in lines[name] else "" for number, line in every)))
    return tuple(found)


def _read(needed: Needed) -> tuple[object, ...]:
    """Lay out what is read of a source, to be compared: which statements on which lines give which names."""
    lines = [(one.cell, ast.dump(one.node, include_attributes=True)) for one in needed.statements]
    return needed.names, needed.missing, needed.sure, lines


@lru_cache(maxsize=2)  # the puzzles of one source are asked one after the other
def program_of(cells: tuple[Cell, ...]) -> Program:
    return Program(*statements(cells))


@cache
def _taken(puzzle: str) -> int:
    """Count the arguments that the function of a puzzle takes."""
    text = reference(puzzle).read_text("utf-8")
    found = Program(*statements([(f"{puzzle}.py", text)])).definition(puzzle)
    node = None if found is None else found.node
    assert isinstance(node, FUNCTIONS), "a solution has its function"
    return required(node)


def _ends_in_stub(node: Function) -> bool:
    """Tell whether a function comes to a `raise` of its own body, and never ends before."""
    for place, one in enumerate(node.body):
        if isinstance(one, ast.Raise):
            return not any(own_returns(before) for before in node.body[:place])
    return False
