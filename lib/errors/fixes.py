"""The line that corrects the last mistake, kept until somebody asks for it.

Where the fix of a mistake is the very line that a puzzle asks for, the message names the idea alone. `fix()` shows the
line; in a shell, `puzzles fix FILE` does.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

HOW = "(to see the line: fix(), or in a shell: puzzles fix FILE)"
_last: list[Any] = []
_shown: list[bool] = []


def keep(*error: Any) -> None:
    """Remembers the mistake that was shown last, if any, and forgets the one before it."""
    _last[:] = error


def fix() -> None:
    """Print how to correct the last mistake: the line itself, where its message only named the idea."""
    line = _last[0].fix if _last else None
    print(line or "There is nothing to fix yet: when a message names only the idea, fix() shows the line.")


def are_shown() -> bool:
    """Tell whether messages are to show the lines right away."""
    return bool(_shown)


@contextmanager
def shown() -> Generator[None]:
    """Has messages show the lines right away: what `puzzles fix` does."""
    _shown.append(True)
    try:
        yield
    finally:
        _shown.pop()
