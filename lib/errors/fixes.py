"""The line that corrects the last mistake, kept until the student asks for it.

If the fix is the very line that a puzzle asks for, the message names only the idea. `fix()` shows the line, or in a
shell, `puzzles fix FILE`.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

HOW = "(to see the line: fix(), or in a shell: puzzles fix FILE)"
_last: list[Any] = []
_shown: list[bool] = []


def keep(*error: Any) -> None:
    """Remember the mistake that was shown last, if any, and forget the one before it."""
    _last[:] = error


def fix() -> None:
    """Print how to correct the last mistake: the line itself, if the message named only the idea."""
    line = _last[0].fix if _last else None
    print(line or "There is nothing to fix yet: when a message names only the idea, fix() shows the line.")


def are_shown() -> bool:
    """Tell whether messages show the lines right away."""
    return bool(_shown)


@contextmanager
def shown() -> Generator[None]:
    """Let messages show the lines right away, as `puzzles fix` does."""
    _shown.append(True)
    try:
        yield
    finally:
        _shown.pop()
