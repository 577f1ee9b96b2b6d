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
from lib.suite.submissions.needed import IMPORTS, Needed, Program
from lib.suite.submissions.normal_form import normal_form
from lib.suite.submissions.statements import (
    FUNCTIONS,
    Cell,
    SourceError,
    Statement,
    code_cells,
    own_returns,
    required,
    statements,
    tidy,
    without_package,
)

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
        suffix, file = PurePath(name).suffix, PurePath(name).name
        if suffix not in (".py", ".ipynb"):
            raise SourceError(f"{file} is neither a notebook (.ipynb) nor Python (.py)")
        if not text.strip():
            raise SourceError(f"{file} is empty", "empty")
        if suffix == ".py":
            return cls(((name, without_package(text)),), name=name)
        cells = code_cells(name, text)
        if not any(cell.strip() for cell in cells):
            raise SourceError(f"{file} is a notebook without code", "empty")
        return cls(tuple((f"{name}, code cell {number}", cell) for number, cell in enumerate(cells, 1)), name=name)

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
        if isinstance(found.node, IMPORTS):
            handed_in = {PurePath(path).stem for path, _ in self.modules}
            names = [one.name for one in found.node.names]
            names = [found.node.module or ""] if isinstance(found.node, ast.ImportFrom) else names
            return any(name.rpartition(".")[2] in handed_in for name in names)
        return not isinstance(found.node, FUNCTIONS) or required(found.node) == _taken(puzzle)

    def spoken_of(self) -> frozenset[str]:
        """Return the puzzles whose notebook it has text of: a stub, or a call about one."""
        return frozenset(name for _, text in self.cells for name in TEXT.findall(text))

    def instead_of(self, puzzle: str) -> str:
        """Say what stands where the function of a puzzle should be: for a source that does not answer the puzzle.
        SourceError where it cannot be read."""
        program = program_of(self.cells)
        if (found := program.definition(puzzle)) is not None:
            where = f"`{puzzle}` ({_place(found)})"
            if isinstance(found.node, FUNCTIONS) and required(found.node) != _taken(puzzle):
                return f"{where} takes {counted(required(found.node), 'argument')}, and is given {_taken(puzzle)}"
            if isinstance(found.node, IMPORTS):
                return f"{where} is imported from what was not handed in"
        # What is meant is likely called after the puzzle, or handed to a call about it.
        call = re.compile(rf"""\b(\w{{1,100}})[ \t]*,[ \t]*puzzle[ \t]*=[ \t]*["']{puzzle}["']""")
        handed = {name for _, text in self.cells for name in call.findall(text)}
        every = [(str(getattr(one.node, "name", "")), one) for one in program.functions()]
        likely = [(name, one) for name, one in every if name in handed or (puzzle and puzzle in name.lower())]
        functions = likely or sorted(every, key=lambda one: not isinstance(one[1].node, FUNCTIONS))
        names = [f"`{name[:LONGEST_NAME]}` ({_place(one)})" for name, one in functions]
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
        # With the line below the last statement: the marker at the end.
        lines = text.replace("\r\n", "\n").split("\n")[found.node.lineno - 1 : (found.node.end_lineno or 0) + 1]
        body = found.node.body
        stub = next((place for place, one in enumerate(body) if isinstance(one, ast.Raise)), None)
        return stub is not None and not any(map(own_returns, body[:stub])) and gap.untouched("\n".join(lines), puzzle)

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
            second = next(Program(every, broken).needed(puzzle), None)
            if second is None or _read(first) != _read(second):
                return self
        except (ValueError, RecursionError, MemoryError):  # a number of more digits than Python writes, a deep nest
            return self
        alone = not broken and len(every) == len(first.statements)
        return replace(self, cells=kept, needs=(first.names, first.missing) if alone else None)


def _place(statement: Statement) -> str:
    """Say where a statement stands: its cell, if there are several, and its line."""
    cell = statement.cell.rpartition(", ")[2]
    line = f"line {statement.node.lineno}"
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
    assert found is not None, "a solution has its function"
    assert isinstance(found.node, FUNCTIONS), "a solution has its function"
    return required(found.node)
