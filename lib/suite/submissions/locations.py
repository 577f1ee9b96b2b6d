"""Where the notebooks and the solutions lie, in a checkout of the repository and where a wheel is installed."""

from __future__ import annotations

from pathlib import Path

from lib.files import ROOT
from lib.puzzles.records import PUZZLES

__all__ = ["home", "is_checkout", "reference", "shown"]


def is_checkout() -> bool:
    """Return whether this is the repository itself, and not an installed wheel."""
    return (ROOT / "pyproject.toml").is_file()


def home() -> Path:
    """Return the folder that holds puzzles/ and solutions/: the repository's root, or what a wheel brings."""
    return ROOT if is_checkout() else ROOT / "lib" / "_notebooks"


def reference(puzzle: str) -> Path:
    """Return the file of the reference solution of a puzzle."""
    return home() / "solutions" / f"{PUZZLES[puzzle].stem}.py"


def shown(path: Path) -> str:
    """Return a path as one would type it: from the current folder where it lies below that."""
    try:
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    except ValueError:
        return str(path)
