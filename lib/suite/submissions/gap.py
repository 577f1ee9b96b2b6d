"""The gap in a puzzle's source: where an answer begins and ends, and the student's copy without it.

    # --- your code (about 3 lines) ---
    the answer
    # --- end of your code ---

lies in the function that the puzzle is named after. The number of lines must be that of the answer, without
blank lines and comments. In a file with several puzzles a marker says whose it is: `your code: fsdp (about ...`.
An exercise in a notebook without a puzzle is called as the function that it lies in.
"""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass, replace
from typing import NoReturn

BEGIN = r"(?P<indent> *)# --- your code(?:: (?P<puzzle>\w+))? \(about (?P<lines>\d+) lines?\) ---"
END = r"(?P=indent)# --- end of your code ---"
GAP = re.compile(rf"^{BEGIN}\n(?P<body>(?:(?!# %%).*\n)*?){END}$", re.MULTILINE)
"""A whole gap: both of its markers are indented alike, and stand in one cell."""
MARKER = re.compile(r"^\s*#\s*-{2,}.*\byour code\b", re.IGNORECASE)
"""What looks like a marker, and so has to be one."""
CELL = re.compile(r"# %%")


class BuildError(ValueError):
    """A source that no notebook can be made of. The message names the file and, where it can, the line."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one puzzle. `first` and `last` are the lines (from 1) of its two markers, and `lines` says how many
    there are between them, without blank lines and comments."""

    puzzle: str
    first: int
    last: int
    indent: str
    lines: int

    @property
    def stub(self) -> str:
        """The line that stands in a student's copy instead of the answer."""
        return f'{self.indent}raise NotSolved("{self.puzzle}")'


def parse(text: str, name: str) -> ast.Module:
    """Return the syntax tree of a notebook's source: `await` is allowed at top level."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(text, name, "exec", flags, dont_inherit=True)
    assert isinstance(tree, ast.Module), "PyCF_ONLY_AST gives a tree"
    return tree


def find(text: str, name: str, default: str | None) -> list[Answer]:
    """Find every answer in a source, in order; `default` is the puzzle of a marker that names none. With None such a
    marker is an exercise, and takes the name of its function.

    Raises BuildError for markers that do not pair, and for an answer that is empty, badly indented, not as
    long as its marker says, or outside the function it belongs to.
    """
    answers: list[Answer] = []
    for gap in GAP.finditer(text):
        first = text.count("\n", 0, gap.start()) + 1
        body, indent = gap["body"].splitlines(), gap["indent"]
        code = [line for line in body if line.strip() and not line.lstrip().startswith("#")]
        if not code:
            _stop(name, first, "this gap holds no answer")
        inside = all(line.startswith(indent) for line in body if line.strip())
        if not inside or code[0].removeprefix(indent).startswith(" "):
            _stop(name, first, "an answer is indented as its markers are")
        if len(code) != int(gap["lines"]):
            _stop(name, first, f"the marker says about {gap['lines']} lines; the answer has {len(code)}")
        answers.append(Answer(gap["puzzle"] or default or "", first, first + len(body) + 1, indent, len(code)))
    markers = {line for answer in answers for line in (answer.first, answer.last)}
    for number, line in enumerate(text.splitlines(), 1):
        if MARKER.match(line) and number not in markers:
            begin, end = "# --- your code (about 3 lines) ---", "# --- end of your code ---"
            _stop(name, number, f"a gap has `{begin}` and `{end}` around it, indented alike, in one cell")
    try:
        tree = parse(text, name)
    except SyntaxError as error:
        _stop(name, error.lineno, f"this is not Python: {error.msg}")
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    around = {
        answer.first: function.name
        for answer in answers
        for function in functions
        if function.lineno < answer.first < (function.end_lineno or 0)
    }
    answers = [replace(answer, puzzle=answer.puzzle or around.get(answer.first, "")) for answer in answers]
    for answer in answers:
        whose = f"the answer to {answer.puzzle!r}" if answer.puzzle else "this exercise"
        if [other.puzzle for other in answers].count(answer.puzzle) > 1:
            _stop(name, answer.first, f"two answers to {answer.puzzle!r}; a puzzle has one gap")
        if answer.first not in around:
            _stop(name, answer.first, f"{whose} lies in no function")
        if around[answer.first] != answer.puzzle:
            _stop(name, answer.first, f"{whose} lies in the function {around[answer.first]!r}")
    return answers


def student(text: str, answers: list[Answer], name: str) -> str:
    """Return the source with each answer replaced by a line that raises NotSolved, which it imports."""
    if not answers:
        return text
    lines = text.splitlines()
    for answer in reversed(answers):
        lines[answer.first : answer.last - 1] = [answer.stub]
    line = answers[0].first
    for node in parse(text, name).body:
        if isinstance(node, ast.ImportFrom) and node.module == "lib" and node.lineno < line:
            if any(alias.asname or alias.name == "*" for alias in node.names):
                _stop(name, node.lineno, "write `from lib import ...` with plain names")
            names = {alias.name for alias in node.names} | {"NotSolved"}
            # Constants, then classes, then the rest, as ruff sorts them; and no wider than a cell is shown.
            said = ", ".join(sorted(names, key=lambda x: (len(x) < 2 or not x.isupper(), not x[0].isupper(), x)))
            whole = f"from lib import {said}"
            if len(whole) > 88:
                whole = f"from lib import (\n{textwrap.indent(textwrap.fill(f'{said},', 84), '    ')}\n)"
            lines[node.lineno - 1 : node.end_lineno] = [whole]
            return "\n".join(lines) + "\n"
    _stop(name, line, "no `from lib import ...` at top level above the gap, to import NotSolved with")


def untouched(text: str, puzzle: str) -> bool:
    """Return whether the gap of a puzzle still holds nothing but its stub."""
    stub = rf' *raise NotSolved\("{re.escape(puzzle)}"\)'
    return re.search(rf"^{BEGIN}\n{stub}\n{END}$", text, re.MULTILINE) is not None


def _stop(name: str, line: int | None, what: str) -> NoReturn:
    raise BuildError(f"{name}, line {line}: {what}")
