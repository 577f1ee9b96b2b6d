"""Finds notebooks and solutions, and keeps a student's own copies: made if missing, updated, and never overwritten if
they hold work.

puzzles/pipelines/03_interleaved.ipynb is made from solutions/pipelines/interleaved.py, in a checkout or in an
installed wheel. The copies are in my_puzzles/: beside puzzles/ in a checkout, else below the current folder, or where
the variable PUZZLES_FOLDER points. A copy without changes follows its puzzle to a new text, number or folder. A copy
with a student's work moves, too, but keeps its text.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from lib.files import ROOT, ready, write_whole
from lib.puzzles.records import PUZZLES, chapters, puzzle_of_file
from lib.suite.submissions.gap import untouched
from lib.suite.submissions.statements import SourceError, code_cells, notebook_cells

PAGES = ("index", "introduction", "gallery")
"""The notebooks without a puzzle. They are above the chapters' folders, and all have the number 00."""
FOLDER = "my_puzzles"
VARIABLE = "PUZZLES_FOLDER"
FEW = 3  # up to this many notebooks are named one by one
MEMORY = ".given.json"
"""What each copy was made from. Without it a copy that differs from today's puzzle counts as a student's work."""


def is_checkout() -> bool:
    """Tell whether this is the repository itself, not an installed wheel."""
    return (ROOT / "pyproject.toml").is_file()


def home() -> Path:
    """Return the folder that holds puzzles/ and solutions/: the repository's root, or a folder in the wheel."""
    return ROOT if is_checkout() else ROOT / "lib" / "_notebooks"


def place_of(name: str) -> str:
    """Return the path of a puzzle's or page's notebook below puzzles/ or solutions/, without its ending:
    `basics/04_ddp`, `00_index`."""
    return f"00_{name}" if name in PAGES else PUZZLES[name].path


def source_of(name: str) -> str:
    """Return the path of that notebook's source below solutions/: `basics/ddp.py`, `index.py`."""
    return f"{name}.py" if name in PAGES else f"{PUZZLES[name].chapter}/{PUZZLES[name].notebook}.py"


def notebook_in(folder: Path, name: str) -> Path:
    """Return the notebook of a puzzle or page in a folder like puzzles/."""
    return folder / f"{place_of(name)}.ipynb"


def named(path: Path) -> str | None:
    """Return the puzzle or page that a notebook is named after, even under an old number."""
    if (record := puzzle_of_file(path.stem)) is not None:
        return record.id
    return path.stem.removeprefix("00_") if path.stem in [f"00_{name}" for name in PAGES] else None


def notebooks_below(folder: Path) -> list[Path]:
    """Return the notebooks in a folder, and in the chapters' folders below it."""
    folders: Sequence[Path] = [folder, *(folder / chapter for chapter in chapters())]
    return [path for one in folders for path in sorted(one.glob("[0-9]*_*.ipynb"))]


def reference(puzzle: str) -> Path:
    """Return the file of the reference solution of a puzzle."""
    return home() / "solutions" / source_of(puzzle)


def is_source(path: Path) -> bool:
    """Tell whether a file is a source of ours for notebooks, which is named after its puzzle."""
    return (home() / "solutions").resolve() in path.resolve().parents


def shown(path: Path) -> str:
    """Return a path as you would type it: relative to the current folder if it is below."""
    try:
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    except ValueError:
        return str(path)


def yours(current: Path) -> Path:
    """Return the folder of a student's copies, seen from the folder `current`, whether it exists or not."""
    if told := os.environ.get(VARIABLE):
        return Path(told)
    if is_checkout():
        return home() / FOLDER
    above = (folder for folder in (current, *current.parents) if (folder / MEMORY).is_file())
    return next(above, current / FOLDER)


def mine(puzzle: str, folder: Path) -> Path:
    """Return the notebook of a puzzle in a folder, whatever its number there; else the path that it would have. A
    puzzle that is part of another may still have an older notebook of its own."""
    there = _by_name(folder)
    return there.get(puzzle) or there.get(PUZZLES[puzzle].notebook) or notebook_in(folder, puzzle)


def notebook_of(puzzle: str) -> Path:
    """Return the student's own notebook of a puzzle. In a checkout it is made if missing."""
    return mine(puzzle, _own_folder())


def located(path: Path) -> Path:
    """Find a notebook by the path that a student gave: that file, or the own copy that has or had this name."""
    name = named(path) if path.suffix == ".ipynb" else None
    above = path.parts[:-1]
    above = above[1:] if above[:1] in ((FOLDER,), ("puzzles",)) else above
    if path.exists() or name is None or above not in ((), *((chapter,) for chapter in chapters())):
        return path
    own = _by_name(_own_folder()).get(name)
    return path if own is None else own


def _own_folder() -> Path:
    return prepared(Path.cwd()).folder if is_checkout() else yours(Path.cwd())


def is_edition(path: Path) -> bool:
    """Tell whether a file is an edition that copies are made from, not meant to be worked in."""
    return is_checkout() and path.resolve() in [edition.resolve() for edition in _editions().values()]


def is_worked_on(text: str, path: Path) -> bool:
    """Tell whether a gap of a student's notebook holds more than its stub. `path` gives its name."""
    code = "\n".join(code_cells(path.name, text))
    gaps = re.findall(r'raise NotSolved\("(\w+)"\)', code)
    return not all(untouched(code, puzzle) for puzzle in gaps) or not (gaps or puzzle_of_file(path.stem) is None)


def _editions() -> dict[str, Path]:
    names = (*PAGES, *(name for name, record in PUZZLES.items() if not record.part_of))
    every = {name: notebook_in(home() / "puzzles", name) for name in names}
    return {name: path for name, path in every.items() if path.is_file()}


def _by_name(folder: Path) -> dict[str, Path]:
    """The notebooks of a folder by the puzzle or page they are named after, even under an old number or in an old
    place. Of several the one that is in today's place wins."""
    found: dict[str, Path] = {}
    for path in notebooks_below(folder):
        if (name := named(path)) is not None and found.get(name) != notebook_in(folder, name):
            found[name] = path
    return found


# -- the copies, made and kept up to date --------------------------------------------------------------------------


class Given(NamedTuple):
    """The edition that a copy was made from: the digests of its file and of its cells."""

    file: str
    cells: str


@dataclass
class Workplace:
    """The folder, and its copies that were just made, brought up to date, renamed, or left alone although their puzzle
    has changed."""

    folder: Path
    made: list[str] = field(default_factory=list[str])
    refreshed: list[str] = field(default_factory=list[str])
    renamed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    kept: list[str] = field(default_factory=list[str])

    def news(self) -> Iterator[str]:
        """Yield what a student should know about that."""
        if self.made:
            what = "your copies of the notebooks" if len(self.made) > 1 else self.made[0]
            yield f"Made {what} in {shown(self.folder)}: work there, they are yours."
        for old, new in self.renamed:
            yield f"Moved {old} to {new}: that is where the puzzle is now."
        if self.refreshed:
            which = ", ".join(self.refreshed) if len(self.refreshed) <= FEW else f"{len(self.refreshed)} notebooks"
            yield f"Brought up to date, as you had not changed them: {which}."
        for name in self.kept:
            yield (
                f"{name} has changed since you began it. Yours is left as it is; the new one is "
                f"{shown(home() / 'puzzles' / name)}. To begin anew, rename yours: the next start makes a new copy."
            )


def prepared(current: Path) -> Workplace:
    """Make the student's missing copies, and update those without work in them. Raises SourceError if there is nothing
    to copy, and OSError if the folder cannot be written."""
    editions = _editions()
    if not editions:
        raise SourceError("there are no notebooks yet: make them with `puzzles build`")
    place = Workplace(yours(current))
    place.folder.mkdir(parents=True, exist_ok=True)
    known = _read(place.folder / MEMORY)
    there = _by_name(place.folder)
    now = {name: _followed(name, one, there.get(name), known.get(name), place) for name, one in editions.items()}
    given = {name: found for name, found in now.items() if found is not None}
    if given != known:
        entries = {name: found._asdict() for name, found in sorted(given.items())}
        write_whole(place.folder / MEMORY, json.dumps(entries, indent=1) + "\n")
    return place


def _followed(name: str, edition: Path, copy: Path | None, known: Given | None, place: Workplace) -> Given | None:
    """Make or update the copy of one notebook, and return what it was made from; None if that is unknown."""
    text = edition.read_text("utf-8")
    # An edition that somebody has worked in, as is possible, is theirs, too: it never replaces a copy.
    new = None if is_worked_on(text, edition) else Given(_digest(text), _cells(edition, text))
    target = notebook_in(place.folder, name)
    where = target.relative_to(place.folder).as_posix()
    if copy is None:
        write_whole(ready(target), text)
        place.made.append(where)
        return new
    if copy != target:
        place.renamed.append((copy.relative_to(place.folder).as_posix(), where))
        copy = copy.rename(ready(target))
    if new is None or known == new:
        return known
    try:
        old = copy.read_text("utf-8")
        cells = _cells(copy, old)
    except (SourceError, UnicodeDecodeError):
        return known  # just being saved, or no notebook any more: theirs in any case
    if old == text:
        return new
    if cells == new.cells and (known is None or _digest(old) != known.file):
        return new  # the same lines, only run
    if known is None or cells != known.cells:
        place.kept.append(where)
        return known
    write_whole(copy, text)
    place.refreshed.append(where)
    return new


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _cells(path: Path, text: str) -> str:
    """The digest of a notebook's cells, without their outputs."""
    return _digest(json.dumps(notebook_cells(path.name, text)))


def _read(file: Path) -> dict[str, Given]:
    """Read what is remembered; ignore a missing or damaged file, and damaged entries."""
    try:
        found: Any = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    entries = cast("dict[str, Any]", found).items() if isinstance(found, dict) else ()
    fields = set(Given._fields)
    return {name: Given(**entry) for name, entry in entries if isinstance(entry, dict) and entry.keys() == fields}
