"""Finds the gap in a puzzle's source: where an answer begins and ends, and whether a student has filled it.

    # --- your code (about 3 lines) ---
    the answer
    # --- end of your code ---

is in the function that the puzzle is named after. The number of lines must be that of the answer, without
blank lines and comments. In a file with several puzzles a marker names its puzzle: `your code: fsdp (about ...`.
An exercise in a notebook without a puzzle is named after the function around it.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

BEGIN = r"(?P<indent> *)# --- your code(?:: (?P<puzzle>\w+))? \(about (?P<lines>\d+) lines?\) ---"
END = r"(?P=indent)# --- end of your code ---"
GAP = re.compile(rf"^{BEGIN}\n(?P<body>(?:(?!# %%).*\n)*?){END}$", re.MULTILINE)
"""A whole gap: its two markers are indented alike, and in one cell."""
CELL = re.compile(r"# %%")


class BuildError(ValueError):
    """A source that cannot be made into a notebook. The message names the file and, if possible, the line."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one puzzle, and the function around it ("" if there is none). `first` and `last` are the lines
    (from 1) of its two markers."""

    puzzle: str
    first: int
    last: int
    indent: str
    function: str

    @property
    def stub(self) -> str:
        """Return the line that replaces the answer in a student's copy."""
        return f'{self.indent}raise NotSolved("{self.puzzle}")'


def parse(text: str, name: str) -> ast.Module:
    """Return the syntax tree of a notebook's source: `await` is allowed at top level."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(text, name, "exec", flags, dont_inherit=True)
    assert isinstance(tree, ast.Module), "PyCF_ONLY_AST gives a tree"
    return tree


def find(text: str, name: str, default: str | None) -> list[Answer]:
    """Find every answer in a source of ours, in order; `default` is the puzzle of a marker that names none. If it is
    None, such a marker is an exercise named after its function. SyntaxError if the source is not Python."""
    functions = [node for node in parse(text, name).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    answers: list[Answer] = []
    for gap in GAP.finditer(text):
        first = text.count("\n", 0, gap.start()) + 1
        last = first + gap["body"].count("\n") + 1
        around = next((one.name for one in functions if one.lineno < first < (one.end_lineno or 0)), "")
        answers.append(Answer(gap["puzzle"] or default or around, first, last, gap["indent"], around))
    return answers


def untouched(text: str, puzzle: str) -> bool:
    """Tell whether the gap of a puzzle still holds only its stub."""
    stub = rf' *raise NotSolved\("{re.escape(puzzle)}"\)'
    return re.search(rf"^{BEGIN}\n{stub}\n{END}$", text, re.MULTILINE) is not None
