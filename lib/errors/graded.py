"""A notebook that is graded as it runs: what it only says of a run that does not pass is an error then.

    PUZZLES_GRADING=1 pytest --nbval-lax notebooks/

A student's notebook runs from its first cell to its last, whatever has been solved: what is missing is said in words.
With the variable set the same words are raised, so that the cell fails: of a function that still holds its stub, of a
run that is correct and not within the goal, of an exercise that did not come out, and of a check of nothing. (What is
wrong is an error in any case.)

One cause is one cell that fails. What a failed cell left behind, `out = []`, is no second mistake: the drawings and the
check after it say that there is nothing, and pass. That a cell failed is heard from IPython, which runs it: an error
that somebody caught is none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lib.errors.exceptions import NotSolved

VARIABLE = "PUZZLES_GRADING"
OFF = ("", "0", "off", "no", "false")


def is_on() -> bool:
    """Tell whether what this process runs is graded."""
    return os.environ.get(VARIABLE, "").strip().lower() not in OFF


def say(text: str, *, passed: bool) -> None:
    """Print what came of a run; what does not pass is a CheckError with this text where that is graded."""
    if is_on() and not passed:
        from lib.errors.exceptions import CheckError  # here and not above: `import lib` should be quick

        raise CheckError(text)
    print(text)


def say_unsolved(error: NotSolved) -> None:
    """Print that a function is unsolved. Where that is graded it is raised, unless a cell failed of it before."""
    if is_on() and error.puzzle not in _stubs:
        raise error
    print(error)


def say_absent(models: object, text: str) -> None:
    """Print that there is no run. Where that is graded it is a CheckError, unless a cell that failed left none."""
    say(text, passed=any(models is one for one in _left))


_stubs: set[str] = set()
"""The functions of which a cell failed, as they hold their stubs."""
_left: list[object] = []
"""The empty lists that cells left which failed."""


def watch() -> None:
    """Has IPython, where it runs what is graded, tell of each cell whether it failed, and what it left."""
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
