"""Notebooks to mail: one file each, with the package inside, that runs in an empty environment such as Colab's.

The set-up cell unpacks a wheel that it carries itself, so only chalk and what chalk needs come from the network. The
wheel has lib, drawing and the references, and not the notebooks with their pictures, which are most of the size of a
release. A link leads to what is in the same file, or is left out.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import textwrap
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from lib.files import ROOT
from lib.notebooks.shared_cells import pinned
from lib.puzzles.records import PUZZLES
from lib.submissions.gap import BuildError
from lib.submissions.load import Notebook
from lib.submissions.locations import home, is_checkout

__all__ = ["chosen", "edition", "export", "read_notebook", "together", "wheel"]

CODE = ("lib", "drawing")
ENDINGS = (".py", ".toml", ".json", ".typed", ".css", ".js", ".html")
LEFT_OUT = ("_notebooks", "__pycache__")
LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the wheel: the same bytes every time."""
SETUP = "# @title Set up"
TITLE = re.compile(r"\A(?:#.*\n)+")
PACKAGES = '    packages = "$requirements".split()\n'
"""The line of the set-up of a release, in solutions/parts/setup.py, that says what pip installs."""
LINK = re.compile(r"\[([^\]]+)\]\((\w+)\.ipynb\)")
BETWEEN = " · "
NAVIGATION = re.compile(rf"(?:← )?{LINK.pattern}(?: →)?|\[!\[.*\]\(.*\)")
"""A part of a line that has nothing but links to other notebooks, or a badge."""

CARRIED = '''
import base64
import pathlib
import tempfile
import zlib

WHEEL = """
{data}
"""
'''
UNPACK = """\
    wheel = pathlib.Path(tempfile.mkdtemp(), "{name}")
    wheel.write_bytes(zlib.decompress(base64.b64decode(WHEEL)))
    packages = [str(wheel), *"{others}".split()]
"""
"""What a set-up cell gets: the wheel before it looks for the package, and its use where it would ask an index."""


def export(notebooks: Iterable[Path], output: Path) -> list[Path]:
    """Writes an edition of each notebook into the folder `output`, or of all together into the .ipynb `output`.

    Raises BuildError for a file that is no notebook of ours: its first code cell is the set-up.
    """
    read = [(path, read_notebook(path)) for path in notebooks]
    package = wheel()
    if output.suffix == ".ipynb":
        made = {output: edition(together(dict(read)), output.name, package)}
    else:
        made = {output / path.name: edition(together({path: notebook}), path.name, package) for path, notebook in read}
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
        from lib.notebooks.build import worked_on

        mine = [f"puzzles/{path.name}" for path in found if path.parent == folder]
        if solved := worked_on(mine, home()):
            raise BuildError(f"somebody has worked in {', '.join(solved)}; `puzzles build --force` makes them new")
    return found


def edition(notebook: Notebook, name: str, package: tuple[str, bytes]) -> Notebook:
    """A copy of a notebook, called `name`, whose set-up cell carries a wheel (its file name and its bytes)."""
    cells: list[dict[str, Any]] = [dict(cell) for cell in notebook["cells"]]
    setups = [cell for cell in cells if cell["cell_type"] == "code" and _source(cell).startswith(SETUP)]
    if not setups:
        raise BuildError(f"{name} has no set-up cell; make it with `puzzles build`")
    part = (home() / "solutions" / "parts" / "setup.py").read_text("utf-8")
    assert PACKAGES in part, "the set-up of a release says what pip installs"
    data = "\n".join(textwrap.wrap(base64.b64encode(zlib.compress(package[1], 9)).decode(), 120))
    source = part.partition("\n")[2].rstrip("\n")
    source = source.replace(PACKAGES, UNPACK.format(name=package[0], others=" ".join(pinned(ROOT))))
    setups[0]["source"] = TITLE.sub(lambda found: found[0] + CARRIED.format(data=data), source)
    return {**notebook, "cells": cells}


def together(notebooks: Mapping[Path, Notebook]) -> Notebook:
    """One notebook with the cells of several, and one set-up. Links lead to places in it, where they lead anywhere."""
    if not notebooks:
        raise BuildError("there are no notebooks to put together")
    cells: list[dict[str, Any]] = []
    stems = [path.stem for path in notebooks]
    for number, (path, notebook) in enumerate(notebooks.items()):
        if path.stem.partition("_")[2] == "index":
            raise BuildError(f"{path.name} is the map of a folder of notebooks: away from it, it leads nowhere")
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


def wheel() -> tuple[str, bytes]:
    """The wheel of this very package: its file name and its bytes, the same every time.

    Raises BuildError where the package is not installed: its name and version stand in what pip wrote down.
    """
    try:
        found = distribution("llm-training-puzzles")
    except PackageNotFoundError:
        raise BuildError("the package is not installed here: pip install -e . (or make setup)") from None
    stem = f"llm_training_puzzles-{found.version}"
    information = f"{stem}.dist-info"
    files = dict(_files())
    files[f"{information}/METADATA"] = (found.read_text("METADATA") or "").encode()
    files[f"{information}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: puzzles export\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = [f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items()]
    files[f"{information}/RECORD"] = "".join([*record, f"{information}/RECORD,,\n"]).encode()
    bytes_ = io.BytesIO()
    with zipfile.ZipFile(bytes_, "w") as archive:  # packed as a whole later, which makes it a quarter smaller
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, LONG_AGO), data)
    return f"{stem}-py3-none-any.whl", bytes_.getvalue()


def _files() -> Iterator[tuple[str, bytes]]:
    """The code, and the references where an installed package looks for them."""
    for package in CODE:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in ENDINGS and not set(LEFT_OUT) & set(path.parts):
                yield path.relative_to(ROOT).as_posix(), path.read_bytes()
    solutions = home() / "solutions"
    for path in sorted(solutions.rglob("*.py")):
        yield f"lib/_notebooks/solutions/{path.relative_to(solutions).as_posix()}", path.read_bytes()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


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
