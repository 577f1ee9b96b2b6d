"""Where the notebooks and the solutions lie, and a student's own copies: made where they are missing, kept up to date,
never written over.

puzzles/pipelines/03_interleaved.ipynb is made from solutions/pipelines/interleaved.py, in a checkout or where a wheel
is installed. The copies lie in my_puzzles/: beside puzzles/ in a checkout, else below the current folder, or where the
variable PUZZLES_FOLDER says. A copy in which no line was changed follows the puzzle: to a new text, a new number, a new
folder. A copy with a student's work in it moves, and its text is left as it is.
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
"""The notebooks without a puzzle. They lie above the folders of the chapters, and are all numbered 00."""
FOLDER = "my_puzzles"
VARIABLE = "PUZZLES_FOLDER"
FEW = 3  # so many notebooks are named one by one
MEMORY = ".given.json"
"""What each copy was made from. Without it a copy that differs from today's puzzle counts as somebody's work."""


def is_checkout() -> bool:
    """Return whether this is the repository itself, and not an installed wheel."""
    return (ROOT / "pyproject.toml").is_file()


def home() -> Path:
    """Return the folder that holds puzzles/ and solutions/: the repository's root, or what a wheel brings."""
    return ROOT if is_checkout() else ROOT / "lib" / "_notebooks"


def place_of(name: str) -> str:
    """Return where the notebook of a puzzle or page lies below puzzles/ or solutions/, without its ending:
    `basics/04_ddp`, `00_index`."""
    return f"00_{name}" if name in PAGES else PUZZLES[name].path


def source_of(name: str) -> str:
    """Return where the source of that notebook lies below solutions/: `basics/ddp.py`, `index.py`."""
    return f"{name}.py" if name in PAGES else f"{PUZZLES[name].chapter}/{PUZZLES[name].notebook}.py"


def notebook_in(folder: Path, name: str) -> Path:
    """Return the notebook of a puzzle or page in such a folder as puzzles/."""
    return folder / f"{place_of(name)}.ipynb"


def named(path: Path) -> str | None:
    """Return the puzzle or page that a notebook is called after, by whatever number it had before."""
    if (record := puzzle_of_file(path.stem)) is not None:
        return record.id
    return path.stem.removeprefix("00_") if path.stem in [f"00_{name}" for name in PAGES] else None


def notebooks_below(folder: Path) -> list[Path]:
    """Return the notebooks that lie in a folder, or in the folder of a chapter below it."""
    folders: Sequence[Path] = [folder, *(folder / chapter for chapter in chapters())]
    return [path for one in folders for path in sorted(one.glob("[0-9]*_*.ipynb"))]


def reference(puzzle: str) -> Path:
    """Return the file of the reference solution of a puzzle."""
    return home() / "solutions" / source_of(puzzle)


def is_source(path: Path) -> bool:
    """Return whether a file is one of ours that notebooks are made from, which is called after its puzzle."""
    return (home() / "solutions").resolve() in path.resolve().parents


def shown(path: Path) -> str:
    """Return a path as one would type it: from the current folder where it lies below that."""
    try:
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    except ValueError:
        return str(path)


def yours(current: Path) -> Path:
    """Return the folder of a student's copies, seen from the folder `current`, whether it is there or not."""
    if told := os.environ.get(VARIABLE):
        return Path(told)
    if is_checkout():
        return home() / FOLDER
    above = (folder for folder in (current, *current.parents) if (folder / MEMORY).is_file())
    return next(above, current / FOLDER)


def mine(puzzle: str, folder: Path) -> Path:
    """Return the notebook of a puzzle in a folder, whatever number it has there; else where it would be. Of a puzzle
    that is part of another it may be one of its own, of before."""
    there = _by_name(folder)
    return there.get(puzzle) or there.get(PUZZLES[puzzle].notebook) or notebook_in(folder, puzzle)


def notebook_of(puzzle: str) -> Path:
    """Return the student's own notebook of a puzzle. In a checkout it is made if it is missing."""
    return mine(puzzle, _own_folder())


def located(path: Path) -> Path:
    """Return a notebook as a student names it: that file; or, of a name that it has or had, the student's own copy."""
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
    """Return whether a file is one of those that the copies are made from, and not meant to be worked in."""
    return is_checkout() and path.resolve() in [edition.resolve() for edition in _editions().values()]


def is_worked_on(text: str, path: Path) -> bool:
    """Return whether a gap of a student's notebook holds more than its stub. `path` says what it is called."""
    code = "\n".join(code_cells(path.name, text))
    gaps = re.findall(r'raise NotSolved\("(\w+)"\)', code)
    return not all(untouched(code, puzzle) for puzzle in gaps) or not (gaps or puzzle_of_file(path.stem) is None)


def _editions() -> dict[str, Path]:
    names = (*PAGES, *(name for name, record in PUZZLES.items() if not record.part_of))
    every = {name: notebook_in(home() / "puzzles", name) for name in names}
    return {name: path for name, path in every.items() if path.is_file()}


def _by_name(folder: Path) -> dict[str, Path]:
    """The notebooks of a folder by the puzzle or page that each is called after, also where they have a number or a
    place of before. Of several it is the one that is where it belongs today."""
    found: dict[str, Path] = {}
    for path in notebooks_below(folder):
        if (name := named(path)) is not None and found.get(name) != notebook_in(folder, name):
            found[name] = path
    return found


# -- the copies, made and kept up to date --------------------------------------------------------------------------


class Given(NamedTuple):
    """The edition that a copy was made from: the digest of the file, and that of what stands in its cells."""

    file: str
    cells: str


@dataclass
class Workplace:
    """The folder, and the names of the copies in it that were just made, brought up to date, given their new number, or
    left as they are although their puzzle is a newer one."""

    folder: Path
    made: list[str] = field(default_factory=list[str])
    refreshed: list[str] = field(default_factory=list[str])
    renamed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    kept: list[str] = field(default_factory=list[str])

    def news(self) -> Iterator[str]:
        """Yield what a student ought to know of that."""
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
    """Make the student's copies that are missing, and have those without work in them follow their puzzle. Raises
    SourceError where there is nothing to copy, and OSError where the folder cannot be written."""
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
    """Makes the copy of one notebook, or has it follow, and gives what it was made from; None where it is not known."""
    text = edition.read_text("utf-8")
    # An edition in which somebody has worked, as one could, is theirs too: its copy is never replaced.
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
        return known  # in the middle of being saved, or no notebook any more: theirs in any case
    if old == text:
        return new
    if cells == new.cells and (known is None or _digest(old) != known.file):
        return new  # the same lines, which somebody has run
    if known is None or cells != known.cells:
        place.kept.append(where)
        return known
    write_whole(copy, text)
    place.refreshed.append(where)
    return new


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _cells(path: Path, text: str) -> str:
    """The digest of what stands in the cells of a notebook, without what came out of them."""
    return _digest(json.dumps(notebook_cells(path.name, text)))


def _read(file: Path) -> dict[str, Given]:
    """Read what is remembered: nothing of a file that is not there or damaged, nor of a damaged entry."""
    try:
        found: Any = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    entries = cast("dict[str, Any]", found).items() if isinstance(found, dict) else ()
    fields = set(Given._fields)
    return {name: Given(**entry) for name, entry in entries if isinstance(entry, dict) and entry.keys() == fields}
