"""Notebooks that are graded as they run: what is otherwise only a message about a run that does not pass is an error.

    PUZZLES_GRADING=1 pytest --nbval-lax notebooks/

A student's notebook runs from the first cell to the last, whatever has been solved: messages say what is missing. With
the variable set these messages are raised, so that the cell fails: for a function that still holds its stub, a run that
is correct but misses the goal, an exercise with a wrong result, and a check without a run. (Mistakes are errors in any
case.)

One cause makes one cell fail. What a failed cell left behind, `out = []`, is not a second mistake: the drawings and the
check after it say that there is nothing, and pass. IPython, which runs the cells, reports which ones failed: an error
that the student's code caught does not count.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lib.errors.exceptions import NotSolved

VARIABLE = "PUZZLES_GRADING"
OFF = ("", "0", "off", "no", "false")


def is_on() -> bool:
    """Tell whether notebooks in this process are graded."""
    return os.environ.get(VARIABLE, "").strip().lower() not in OFF


def say(text: str, *, passed: bool) -> None:
    """Print the outcome of a run. When grading, an outcome that does not pass raises CheckError with this text."""
    if is_on() and not passed:
        from lib.errors.exceptions import CheckError  # here and not above: `import lib` should be quick

        raise CheckError(text)
    print(text)


def say_unsolved(error: NotSolved) -> None:
    """Print that a function is unsolved. When grading, raise the error, unless a cell has failed with it before."""
    if is_on() and error.puzzle not in _stubs:
        raise error
    print(error)


def say_absent(models: object, text: str) -> None:
    """Print that there is no run. When grading, raise CheckError, unless a failed cell is the reason."""
    say(text, passed=any(models is one for one in _left))


_stubs: set[str] = set()
"""The functions whose stubs made a cell fail."""
_left: list[object] = []
"""The empty lists that failed cells left behind."""


def watch() -> None:
    """Have IPython report, when grading, which cells failed, and what they left behind."""
    from lib.errors.exceptions import NotSolved  # here and not above: `import lib` should be quick
    from lib.errors.source_lines import notebook

    shell = notebook() if is_on() else None
    if shell is None:
        return
    before: list[object] = []

    def ended(result: Any) -> None:
        names: dict[str, Any] = shell.user_ns
        empty: list[object] = [value for value in names.values() if isinstance(value, list) and not value]
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            _left.extend(value for value in empty if not any(value is one for one in before))
        if isinstance(error, NotSolved):
            _stubs.add(error.puzzle)
        before[:] = empty

    shell.events.register("post_run_cell", ended)
