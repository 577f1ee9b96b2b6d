"""Notebooks to mail: one file each, with the package inside, that runs in an empty environment such as Colab's.

The set-up cell unpacks what it carries itself (see `lib.suite.notebooks.exports.package`), so only chalk and what chalk
needs come from the network. A link leads to what is in the same file, or is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lib.files import ROOT
from lib.puzzles.records import PUZZLES
from lib.suite.notebooks.exports.package import in_text, package
from lib.suite.notebooks.shared_cells import pinned
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.load import Notebook
from lib.suite.submissions.locations import home, is_checkout

__all__ = ["chosen", "edition", "export", "read_notebook", "set_up", "together"]

SETUP = "# @title Set up"
STAYS = {
    "index": "the map of a folder of notebooks: away from it, it leads nowhere",
    "gallery": "the one that needs stored schedules, which answer puzzles: away from here, it has none",
}
"""The notebooks that are not for elsewhere, and what each of them is."""
LINK = re.compile(r"\[([^\]]+)\]\((\w+)\.ipynb\)")
BETWEEN = " · "
NAVIGATION = re.compile(rf"(?:← )?{LINK.pattern}(?: →)?|\[!\[.*\]\(.*\)")
"""A part of a line that has nothing but links to other notebooks, or a badge."""


def export(notebooks: Iterable[Path], output: Path) -> list[Path]:
    """Writes an edition of each notebook into the folder `output`, or of all together into the .ipynb `output`.

    Raises BuildError for a file that is no notebook of ours: its first code cell is the set-up.
    """
    read = [(path, read_notebook(path)) for path in notebooks]
    cell = set_up()
    if output.suffix == ".ipynb":
        made = {output: edition(together(dict(read)), output.name, cell)}
    else:
        made = {output / path.name: edition(together({path: notebook}), path.name, cell) for path, notebook in read}
    for path, notebook in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return list(made)


def chosen(names: Sequence[str]) -> list[Path]:
    """The students' notebooks called by a puzzle's id, by "introduction" or by a path; without names every one.

    Raises BuildError for a name that is none of these, and for a notebook of the repository that somebody has solved.
    """
    folder = home() / "puzzles"
    stems = {"introduction": "00_introduction"} | {puzzle.id: puzzle.stem for puzzle in PUZZLES.values()}
    found: list[Path] = []
    for name in names or stems:
        if name not in stems and not name.endswith(".ipynb"):
            raise BuildError(f"there is no notebook {name!r}; there are {', '.join(stems)}, or say the path of one")
        path = folder / f"{stems[name]}.ipynb" if name in stems else Path(name)
        found.append(path)
    if is_checkout():
        from lib.suite.notebooks.build import worked_on

        mine = [f"puzzles/{path.name}" for path in found if path.parent == folder]
        if solved := worked_on(mine, home()):
            raise BuildError(f"somebody has worked in {', '.join(solved)}; `puzzles build --force` makes them new")
    return found


def set_up() -> str:
    """The text of the set-up cell that carries the package. The same package gives the same text."""
    part = (home() / "solutions" / "parts" / "setup_carried.py").read_text("utf-8").partition("\n")[2].rstrip("\n")
    return part.replace("$requirements", " ".join(pinned(ROOT))).replace("$package", in_text(package()))


def edition(notebook: Notebook, name: str, cell: str) -> Notebook:
    """A copy of a notebook, called `name`, whose set-up cell has another text."""
    cells: list[dict[str, Any]] = [dict(cell) for cell in notebook["cells"]]
    setups = [cell for cell in cells if cell["cell_type"] == "code" and _source(cell).startswith(SETUP)]
    if not setups:
        raise BuildError(f"{name} has no set-up cell; make it with `puzzles build`")
    setups[0]["source"] = cell
    return {**notebook, "cells": cells}


def together(notebooks: Mapping[Path, Notebook]) -> Notebook:
    """One notebook with the cells of several, and one set-up. Links lead to places in it, where they lead anywhere."""
    if not notebooks:
        raise BuildError("there are no notebooks to put together")
    cells: list[dict[str, Any]] = []
    stems = [path.stem for path in notebooks]
    for number, (path, notebook) in enumerate(notebooks.items()):
        if (stays := STAYS.get(path.stem.partition("_")[2])) is not None:
            raise BuildError(f"{path.name} is {stays}")
        own = [cell for cell in notebook["cells"] if not number or not _source(cell).startswith(SETUP)]
        own = list(filter(None, (_relinked(cell, stems) for cell in own)))
        if len(stems) > 1 and (first := next((cell for cell in own if cell["cell_type"] == "markdown"), None)):
            first["source"] = f'<a id="{path.stem}" name="{path.stem}"></a>\n\n{first["source"]}'
        cells += own
    return {**next(iter(notebooks.values())), "cells": cells}


def _relinked(cell: dict[str, Any], stems: Sequence[str]) -> dict[str, Any] | None:
    """A cell whose links lead to places in the same file; None for one that had nothing but links elsewhere."""
    if cell["cell_type"] != "markdown":
        return dict(cell)
    text = _source(cell)
    parts = text.split(BETWEEN)
    if all(NAVIGATION.fullmatch(part) for part in parts):
        text = BETWEEN.join(part for part in parts if (link := LINK.search(part)) and link[2] in stems)
        if not text:
            return None
    return {**cell, "source": LINK.sub(lambda link: f"[{link[1]}](#{link[2]})" if link[2] in stems else link[1], text)}


def read_notebook(path: Path) -> Notebook:
    """A notebook as JSON. BuildError for a file that is not there, or is none."""
    if not path.is_file():
        raise BuildError(f"there is no file {path}")
    try:
        notebook: Notebook = json.loads(path.read_text("utf-8"))
        for cell in notebook["cells"]:
            _source(cell)
    except (ValueError, KeyError, TypeError):
        raise BuildError(f"{path.name} is not a notebook: it has no list of cells with their sources") from None
    return notebook


def _source(cell: dict[str, Any]) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)
