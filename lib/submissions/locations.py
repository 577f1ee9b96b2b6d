"""Where the notebooks and the solutions lie, in a checkout of the repository and where a wheel is installed."""

from __future__ import annotations

import shutil
from pathlib import Path

from lib.files import ROOT
from lib.puzzles.records import PUZZLES
from lib.submissions.load import SourceError

__all__ = ["home", "is_checkout", "notebook_of", "reference", "shown", "workplace"]


def is_checkout() -> bool:
    """Whether this is the repository itself, and not an installed wheel."""
    return (ROOT / "pyproject.toml").is_file()


def home() -> Path:
    """The folder that holds puzzles/ and solutions/: the repository's root, or what a wheel brings."""
    return ROOT if is_checkout() else ROOT / "lib" / "_notebooks"


def reference(puzzle: str) -> Path:
    """The file of the reference solution of a puzzle."""
    return home() / "solutions" / f"{PUZZLES[puzzle].stem}.py"


def notebook_of(puzzle: str) -> Path:
    """The notebook in which a puzzle is solved: the repository's, or the copy that `puzzles lab` makes here."""
    folder = home() if is_checkout() else Path.cwd()
    return folder / "puzzles" / f"{PUZZLES[puzzle].stem}.ipynb"


def workplace(current: Path) -> Path:
    """Where to open the puzzles: the repository's, or copies below `current` of what a wheel brings.

    A notebook that is there already is somebody's work, and is left alone.
    """
    if is_checkout():
        if not (home() / "puzzles").is_dir():
            raise SourceError("there are no notebooks yet: make them with `puzzles build`")
        return home() / "puzzles"
    folder = current / "puzzles"
    folder.mkdir(exist_ok=True)
    # By what they are called without their number: that of a puzzle changes when others are added.
    there = {path.stem.partition("_")[2] for path in folder.glob("*.ipynb")}
    for notebook in sorted((home() / "puzzles").glob("*.ipynb")):
        if notebook.stem.partition("_")[2] not in there:
            shutil.copyfile(notebook, folder / notebook.name)
    return folder


def shown(path: Path) -> str:
    """A path as one would type it: from the current folder where it lies below that."""
    try:
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    except ValueError:
        return str(path)
