"""Lines of source code: which are the student's, and how a message shows one."""

import os
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import ast

MOST_LINES = 20
"""The most lines that are joined to a statement."""
LONGEST = 160
"""The most characters of source text that a message shows."""
LIBRARY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder of `lib`; that of `drawing` lies beside it."""
OURS = tuple(os.path.join(os.path.dirname(LIBRARY), name, "") for name in (os.path.basename(LIBRARY), "drawing"))
STANDARD = os.path.dirname(os.__file__)
"""The folder of the standard library. In a browser most of it is in a zip file beside that."""
ZIPPED = os.path.join(os.path.dirname(STANDARD), "python{}{}.zip".format(*sys.version_info))
MARK = "<given> "
"""The prefix of the file name of code that `given` has marked."""
_NOT_THEIRS = (*OURS, os.path.join(STANDARD, ""), os.path.join(ZIPPED, ""), "<frozen", MARK)
_INSTALLED = tuple(os.sep + os.path.join(name, "") for name in ("site-packages", "dist-packages"))
GIVEN = ("given.py", "given code")
"""The file of a Place in a given helper: one of ours, or one that a notebook shows."""
_SCHEDULES = os.path.join(LIBRARY, "schedules", "")
_OURS_THERE = tuple(os.path.join(_SCHEDULES, name) for name in ("written.py", GIVEN[0]))
"""The code that asks a student for an order, and the helpers that notebooks give, are ours."""
_FOLLOWS = os.path.join(_SCHEDULES, "pipelines", "program.py")
"""The code that carries out an order."""
ORDER = "order"
"""The file of a Place that is not a line but an action of an order, at its position."""


class Place(NamedTuple):
    """A line of a student's code: file (or "notebook cell"), line number, function, and the line's text."""

    file: str
    line: int
    function: str
    text: str

    @property
    def within(self) -> str:
        """Where this is in what the student wrote, without its text."""
        return f"at position {self.line}" if self.file == ORDER else f"in line {self.line}"

    def __str__(self) -> str:
        if self.file == ORDER:
            return f"position {self.line}: {self.text}"
        inside = "" if self.function == "<module>" else f", in {self.function}"
        return f"{self.file}, line {self.line}{inside}: {self.text}" if self.text else f"{self.file}, line {self.line}"


def place(code: CodeType, line: int, last: int | None = None) -> Place:
    """Return the Place of a line of `code`, with the text of all lines of a call that ends on line `last`.

    Paths are shortened to file names: nothing saved may depend on the machine.
    """
    import linecache  # here and not above: with `tokenize` it is 2 ms of each start

    path = code.co_filename.removeprefix(MARK)
    name = "notebook cell" if "ipykernel" in path or path.startswith("<ipython-input") else os.path.basename(path)
    name = GIVEN[1] if path != code.co_filename else name
    # "<string>" is the name for any `exec`, under which Python 3.13 keeps the text of `python -c`.
    lines = [linecache.getline(path, n) if path != "<string>" else "" for n in range(line, max(line, last or line) + 1)]
    if lines[0].rstrip().endswith(":") and _open(lines[:1]) <= 0:  # the head of a loop, without its body
        del lines[1:]
    while lines[-1] and len(lines) < MOST_LINES and _open(lines) > 0:  # its brackets may end later
        lines.append(linecache.getline(path, line + len(lines)))
    text = _one_line(lines)
    text = text if len(text) <= LONGEST else text[: LONGEST - 3].strip() + "..."
    function = next((part for part in reversed(code.co_qualname.split(".")) if part[:1] != "<"), code.co_name)
    return Place(name, line, function, text)


def _open(lines: Iterable[str]) -> int:
    """Return how many brackets some lines leave open."""
    whole = re.sub(r"'[^']*'|\"[^\"]*\"|#.*", "", "".join(lines))
    return sum(map(whole.count, "([{")) - sum(map(whole.count, ")]}"))


def _one_line(lines: Iterable[str]) -> str:
    """Return the lines of one statement as one, without the space around brackets on lines of their own."""
    whole = ""
    for line in map(str.strip, lines):
        if line[:1] in (")", "]", "}"):
            whole = whole.removesuffix(",") + line
        else:
            whole += line if whole[-1:] in ("", "(", "[", "{") else f" {line}"
    return whole


def student_place(above: int = 1) -> Place | None:
    """Return the innermost line on the stack that is not the library's own: the line the student wrote. The search
    starts `above` frames up from this one."""
    frame = student_frame(sys._getframe(above))  # pyright: ignore[reportPrivateUsage]
    return None if frame is None else resolve(frame.f_code, frame.f_lasti)


def student_frame(frame: FrameType | None = None) -> FrameType | None:
    """Return the innermost frame of the student's code (see `is_students`), on this stack or from a frame outwards."""
    frame = frame or sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and not _is_students(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def resolve(code: CodeType, instruction: int) -> Place | None:
    """Return the lines of an instruction. Events keep the instruction: finding its line costs more than recording it.
    None for the code that carries out an order: its lines are not the student's."""
    if code.co_filename == _FOLLOWS:
        return None
    found = next(islice(code.co_positions(), instruction // 2, None), None)
    if found is None or found[0] is None:
        return None
    return place(code, found[0], found[1])


def function_of(code: CodeType) -> "ast.FunctionDef | ast.AsyncFunctionDef | None":
    """Return the syntax tree of this code's function; None if its source is unknown."""
    import ast  # here and not above: only a mistake needs it
    import linecache

    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError):  # a cell with notebook commands
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if first <= code.co_firstlineno <= (node.end_lineno or node.lineno):
                return node
    return None


def lines_calling(code: CodeType, name: str) -> list[Place]:
    """Return the lines of a function that call another, as in model.set_final_weight(...), reached or not."""
    import ast

    node = function_of(code)
    calls = [] if node is None else [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
    lines = {call.lineno for call in calls if name in (getattr(call, "attr", ""), getattr(call, "id", ""))}
    return [place(code, line) for line in sorted(lines)]


def innermost(error: BaseException) -> tuple[FrameType, int] | None:
    """Return the innermost frame of a traceback in the student's code, and the instruction there."""
    found = None
    trace = error.__traceback__
    while trace is not None:
        if is_students(trace.tb_frame.f_code):
            found = trace.tb_frame, trace.tb_lasti
        trace = trace.tb_next
    return found


def is_students(code: CodeType) -> bool:
    """Tell whether code is neither ours, nor Python's, nor an installed package's: the only place that decides this.

    The known schedules in `lib.schedules` count as a student's code.
    """
    return _is_students(code.co_filename)


@lru_cache(maxsize=4096)  # a cell that is run again is a new file
def _is_students(file: str) -> bool:
    if file.startswith(_SCHEDULES) and file not in _OURS_THERE:
        return True
    return not file.startswith(_NOT_THEIRS) and not any(folder in file for folder in _INSTALLED)


def raised_at(error: BaseException) -> Place | None:
    """Return the student's line that `innermost` finds for an error."""
    found = innermost(error)
    return None if found is None else resolve(found[0].f_code, found[1])


def notebook() -> Any:
    """Return the IPython shell that runs this code; None if none does. Imports nothing."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if ask is None else ask()
