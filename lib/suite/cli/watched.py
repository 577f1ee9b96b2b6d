"""The files that `puzzles watch` looks after, and the puzzles that each is about."""

from __future__ import annotations

from pathlib import Path

from lib.puzzles.records import PUZZLES, puzzle_of_file
from lib.suite.submissions.load import SourceError, puzzles_of, source_in

__all__ = ["Watched"]

ENDINGS = (".ipynb", ".py")


class Watched:
    """A notebook, a .py, or those of a folder.

    `puzzle` says which one a single file is about, where its name and its functions do not. SourceError for a path
    where there is nothing to watch.
    """

    def __init__(self, path: Path, puzzle: str | None = None) -> None:
        if not path.exists():
            raise SourceError(f"there is no file or folder {path}")
        if path.is_file() and path.suffix not in ENDINGS:
            raise SourceError(f"{path.name} is neither a notebook (.ipynb), nor Python (.py), nor a folder")
        self.path = path
        self.alone = path.is_file()
        self.folder = path.parent if self.alone else path
        self._puzzle = puzzle if self.alone else None
        self._known: set[str] = set()
        """Names of files that had a puzzle."""
        if not self.alone and not self.by_puzzle():
            raise SourceError(f"{path} holds no notebook of a puzzle; `puzzles lab` opens a folder of them")

    def by_puzzle(self) -> dict[str, list[Path]]:
        """The files that there are now, by puzzle, in the order of the puzzles."""
        found: dict[str, list[Path]] = {}
        for path in [self.path] if self.alone else sorted(self.folder.glob("*")):
            if self.concerns(path):
                try:
                    for puzzle in self.about(path):
                        found.setdefault(puzzle, []).append(path)
                except (SourceError, OSError):
                    continue  # one of no puzzle, or that cannot be read just now
        return {puzzle: found[puzzle] for puzzle in PUZZLES if puzzle in found}

    def concerns(self, path: Path) -> bool:
        """Whether a change of a file is to be looked at."""
        if self.alone:
            return path.name == self.path.name
        return path.suffix in ENDINGS and not path.name.startswith(".")

    def about(self, path: Path) -> tuple[str, ...]:
        """The puzzles of a file. SourceError or OSError where it has none, or cannot be read."""
        puzzles = (self._puzzle,) if self._puzzle else puzzles_of(path)
        self._known.add(path.name)
        return puzzles

    def begun(self, path: Path) -> tuple[str, ...]:
        """Those of them in which somebody has written something; the first, where nobody has."""
        puzzles = self.about(path)
        if len(puzzles) == 1:
            return puzzles
        source = source_in(path)
        return tuple(puzzle for puzzle in puzzles if not source.untouched(puzzle)) or puzzles[:1]

    def was_known(self, path: Path) -> bool:
        """Whether a file, which may be gone by now, is one that had a puzzle, or is the one to watch."""
        return self.alone or path.name in self._known

    def ought_to_have_one(self, path: Path) -> bool:
        """Whether it is a mistake that a file has no puzzle: it is the one to watch, or is called like one."""
        return self.alone or puzzle_of_file(path.stem) is not None
