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

__all__ = ["Answer", "BuildError", "find", "parse", "student", "untouched"]

BEGIN = re.compile(r"( *)# --- your code(?:: (\w+))? \(about (\d+) lines?\) ---")
END = re.compile(r"( *)# --- end of your code ---")
NEARLY = re.compile(r"\s*#\s*-{2,}.*\byour code\b", re.IGNORECASE)
CELL = re.compile(r"# %%")

Function = ast.FunctionDef | ast.AsyncFunctionDef


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
    lines = text.splitlines()
    answers = _pairs(lines, name, default or "")
    for answer in answers:
        _check_answer(lines, answer, name)
    try:
        tree = parse(text, name)
    except SyntaxError as error:
        _stop(name, error.lineno, f"this is not Python: {error.msg}")
    answers = [answer if answer.puzzle else replace(answer, puzzle=_around(tree, answer)) for answer in answers]
    for answer in answers:
        if [other.puzzle for other in answers].count(answer.puzzle) > 1:
            _stop(name, answer.first, f"two answers to {answer.puzzle!r}; a puzzle has one gap")
        if not (function := _around(tree, answer)):
            whose = f"the answer to {answer.puzzle!r}" if answer.puzzle else "this exercise"
            _stop(name, answer.first, f"{whose} lies in no function")
        if function != answer.puzzle:
            _stop(name, answer.first, f"the answer to {answer.puzzle!r} lies in the function {function!r}")
    return answers


def student(text: str, answers: list[Answer], name: str) -> str:
    """Return the source with each answer replaced by a line that raises NotSolved, which it imports."""
    if not answers:
        return text
    lines = text.splitlines()
    for answer in reversed(answers):
        lines[answer.first : answer.last - 1] = [answer.stub]
    _import_not_solved(lines, parse(text, name), answers[0], name)
    return "\n".join(lines) + "\n"


def untouched(text: str, puzzle: str) -> bool:
    """Return whether the gap of a puzzle still holds nothing but its stub."""
    stub = rf' *raise NotSolved\("{re.escape(puzzle)}"\)'
    return re.search(rf"^{BEGIN.pattern}\n{stub}\n{END.pattern}$", text, re.MULTILINE) is not None


def _pairs(lines: list[str], name: str, default: str) -> list[Answer]:
    answers: list[Answer] = []
    open_: tuple[int, re.Match[str]] | None = None
    for number, line in enumerate(lines, 1):
        begin, end = BEGIN.fullmatch(line), END.fullmatch(line)
        if begin and open_:
            _stop(name, number, f"a gap inside the gap that line {open_[0]} begins")
        elif begin:
            open_ = number, begin
        elif end and not open_:
            _stop(name, number, "`end of your code` without a beginning")
        elif end and open_:
            first, found = open_
            if end[1] != found[1]:
                _stop(name, number, f"the two markers of a gap are indented alike; line {first} is not")
            answers.append(Answer(found[2] or default, first, number, found[1], int(found[3])))
            open_ = None
        elif NEARLY.match(line):
            _stop(name, number, "a marker is `# --- your code (about 3 lines) ---` or `# --- end of your code ---`")
        elif open_ and CELL.match(line):
            break
    if open_:
        _stop(name, open_[0], "this gap has no `# --- end of your code ---` in its cell")
    return answers


def _check_answer(lines: list[str], answer: Answer, name: str) -> None:
    body = lines[answer.first : answer.last - 1]
    code = [line for line in body if line.strip() and not line.lstrip().startswith("#")]
    if not code:
        _stop(name, answer.first, "this gap holds no answer")
    for number, line in enumerate(body, answer.first + 1):
        beyond = line.removeprefix(answer.indent) if line.startswith(answer.indent) else None
        if line.strip() and (beyond is None or (line is code[0] and beyond.startswith(" "))):
            _stop(name, number, "an answer is indented as its markers are")
    try:
        parse("async def answer():\n" + textwrap.indent("\n".join(body), "    "), name)
    except SyntaxError as error:
        _stop(name, answer.first + (error.lineno or 2) - 1, f"the answer does not stand by itself: {error.msg}")
    if len(code) != answer.lines:
        _stop(name, answer.first, f"the marker says about {answer.lines} lines; the answer has {len(code)}")


def _around(tree: ast.Module, answer: Answer) -> str:
    """The name of the function that an answer lies in; empty where it lies in none."""
    for node in tree.body:
        if isinstance(node, Function) and node.lineno < answer.first < (node.end_lineno or 0):
            return node.name
    return ""


def _import_not_solved(lines: list[str], tree: ast.Module, answer: Answer, name: str) -> None:
    """Adds NotSolved to `from lib import ...`, sorted in as ruff would."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "lib" and node.lineno < answer.first:
            if any(alias.asname or alias.name == "*" for alias in node.names):
                _stop(name, node.lineno, "write `from lib import ...` with plain names")
            names = sorted({alias.name for alias in node.names} | {"NotSolved"}, key=_order)
            lines[node.lineno - 1 : node.end_lineno] = [f"from lib import {', '.join(names)}"]
            return
    _stop(name, answer.first, "no `from lib import ...` at top level above the gap, to import NotSolved with")


def _order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest."""
    constant = len(name) > 1 and name.isupper()
    return 0 if constant else 1 if name[0].isupper() else 2, name


def _stop(name: str, line: int | None, what: str) -> NoReturn:
    raise BuildError(f"{name}, line {line}: {what}")
