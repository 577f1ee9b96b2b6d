"""Gaps as the builder sees them: every marker is checked, and each answer is cut out of the student's copy."""

from __future__ import annotations

import ast
import re
import textwrap
from typing import NoReturn

from lib.suite.submissions import gap
from lib.suite.submissions.gap import Answer, BuildError, parse

MARKER = re.compile(r"^\s*#\s*-{2,}.*\byour code\b", re.IGNORECASE)
"""What looks like a marker, and so has to be one."""


def find(text: str, name: str, default: str | None) -> list[Answer]:
    """Find every answer in a source, in order, as `lib.suite.submissions.gap.find` does.

    Raises BuildError for markers that do not pair, and for an answer that is empty, badly indented, not as
    long as its marker says, or outside the function it belongs to.
    """
    wholes = list(gap.GAP.finditer(text))
    markers = set[int]()
    for whole in wholes:
        first = text.count("\n", 0, whole.start()) + 1
        body, indent = whole["body"].splitlines(), whole["indent"]
        code = [line for line in body if line.strip() and not line.lstrip().startswith("#")]
        if not code:
            _stop(name, first, "this gap holds no answer")
        inside = all(line.startswith(indent) for line in body if line.strip())
        if not inside or code[0].removeprefix(indent).startswith(" "):
            _stop(name, first, "an answer is indented as its markers are")
        if len(code) != int(whole["lines"]):
            _stop(name, first, f"the marker says about {whole['lines']} lines; the answer has {len(code)}")
        markers |= {first, first + len(body) + 1}
    for number, line in enumerate(text.splitlines(), 1):
        if MARKER.match(line) and number not in markers:
            begin, end = "# --- your code (about 3 lines) ---", "# --- end of your code ---"
            _stop(name, number, f"a gap has `{begin}` and `{end}` around it, indented alike, in one cell")
    try:
        answers = gap.find(text, name, default)
    except SyntaxError as error:
        _stop(name, error.lineno, f"this is not Python: {error.msg}")
    for answer in answers:
        whose = f"the answer to {answer.puzzle!r}" if answer.puzzle else "this exercise"
        if [other.puzzle for other in answers].count(answer.puzzle) > 1:
            _stop(name, answer.first, f"two answers to {answer.puzzle!r}; a puzzle has one gap")
        if not answer.function:
            _stop(name, answer.first, f"{whose} lies in no function")
        if answer.function != answer.puzzle:
            _stop(name, answer.first, f"{whose} lies in the function {answer.function!r}")
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


def _stop(name: str, line: int | None, what: str) -> NoReturn:
    raise BuildError(f"{name}, line {line}: {what}")
