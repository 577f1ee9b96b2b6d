"""Exports notebooks: editions for Colab with the package inside, and assignments for nbgrader.

An edition is one file that can be mailed, and runs in an empty environment. Its set-up cell unpacks the package it
carries, so only chalk and its dependencies come from the network; links lead to places in the same file, or are left
out.

nbgrader takes the instructor's version of an assignment, source/<assignment>/05_fsdp.ipynb: the puzzle's cells with our
answer in the gap, the check as a locked test, and below it a new cell with a test of other sizes; and the settings of a
course, nbgrader_config.py.

A test that raises fails, and gets no points from nbgrader. The hidden regions call `lib.suite.grade.grading`.
"""

from __future__ import annotations

import ast
import base64
import json
import lzma
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from lib.files import ROOT, packaged, ready, write_whole, zipped
from lib.puzzles.puzzle import Puzzle
from lib.puzzles.records import PUZZLES, of_one_notebook, puzzle_of_file
from lib.suite.submissions.gap import BuildError, find
from lib.suite.submissions.load import Notebook
from lib.suite.submissions.locations import home, is_checkout, notebook_in, reference
from lib.suite.submissions.statements import notebook_cells

SETUP = "# @title Set up"
STAYS = {
    "index": "the map of a folder of notebooks: away from it, it leads nowhere",
    "gallery": "the one that needs stored schedules, which answer puzzles: away from here, it has none",
}
"""The notebooks that are not exported, and what each of them is."""
LINK = re.compile(r"\[([^\]]+)\]\((?:[\w.]+/)*(\w+)\.ipynb\)")
BETWEEN = " · "
NAVIGATION = re.compile(rf"(?:← )?{LINK.pattern}(?: →)?|\[!\[.*\]\(.*\)")
"""A part of a line that consists of links to other notebooks, or a badge."""
ENDINGS: Final = (".py", ".toml", ".csv", ".json", ".typed", ".css", ".js", ".html", ".txt")
ELSEWHERE: Final = (
    *("drawing/comparing/overview.py", "lib/_notebooks/", "lib/analysis/bounds/best_orders.", "lib/plan/files."),
    *("lib/schedules/formats/chrome.py", "lib/schedules/gallery.py", "lib/replay/", "lib/suite/course/subject.py"),
    *("lib/suite/course/exports.py", "lib/suite/course/nbgrader_config.txt"),
    *(f"lib/suite/{room}/" for room in ("cli", "grade", "isolation")),
)
"""Beginnings of paths that no student's notebook loads; the orders stored there would answer puzzles."""
DOORS: Final = ("lib/replay/__init__.py",)  # kept anyway: it says that the rest is missing
PROSE: Final = re.compile(r"^# %% \[markdown\].*\n(?:(?!# %%).*\n?)*", re.MULTILINE)
PACKER: Final = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
"""The xz settings that make text smallest."""
DRAWINGS: Final = ("chalk-diagrams", "chalk-planar", "colour", "loguru", "svgwrite")
"""The packages that only the drawings need. Chalk's other dependencies keep whatever version is installed."""


def chosen(names: Sequence[str]) -> list[Path]:
    """Return the students' notebooks named by a puzzle's id, "introduction" or a path; all of them without names.

    Raises BuildError for any other name, and for a notebook of the repository that somebody has worked in.
    """
    folder, known = home() / "puzzles", ["introduction", *PUZZLES]
    paths: list[Path] = []
    for name in names or known:
        if name not in known and not name.endswith(".ipynb"):
            raise BuildError(f"there is no notebook {name!r}; there are {', '.join(known)}, or say the path of one")
        paths.append(Path(name) if name.endswith(".ipynb") else notebook_in(folder, name))
    paths = [*dict.fromkeys(paths)]
    if is_checkout():
        from tools.notebooks.build import worked_on

        mine = [path.relative_to(home()).as_posix() for path in paths if folder in path.parents]
        if solved := worked_on(mine, home()):
            raise BuildError(f"somebody has worked in {', '.join(solved)}; `puzzles build --force` makes them new")
    return paths


def read_notebook(path: Path) -> Notebook:
    """Read a notebook as JSON. BuildError for a file that does not exist, or is not a notebook."""
    try:
        text = path.read_text("utf-8")
        notebook_cells(path.name, text)
        notebook: Notebook = json.loads(text, strict=False)
        if "cells" not in notebook:
            raise BuildError(f"{path.name} is a notebook of format 3; open it in Jupyter, and save it")
        return notebook
    except OSError:
        raise BuildError(f"there is no file {path}") from None
    except UnicodeDecodeError as error:
        raise BuildError(f"{path.name} is not text in UTF-8: {error.reason} at byte {error.start}") from None
    except ValueError as error:
        raise BuildError(str(error)) from None


def _source(cell: dict[str, Any]) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def _text(notebook: Notebook) -> str:
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _written(made: Mapping[Path, str]) -> list[Path]:
    for path, text in made.items():
        write_whole(ready(path), text)
    return list(made)


# -- for Colab, and to mail -----------------------------------------------------------------------------------------


def export_colab(notebooks: Iterable[Path], output: Path) -> list[Path]:
    """Write an edition of each notebook into the folder `output`, or one of all of them into the .ipynb `output`.

    Raises BuildError for a notebook that is not ours, as it has no set-up cell.
    """
    read = {path: read_notebook(path) for path in notebooks}
    cell = set_up()
    several = {output / path.name: {path: notebook} for path, notebook in read.items()}
    files = {output: read} if output.suffix == ".ipynb" else several
    return _written({path: _text(edition(together(parts), path.name, cell)) for path, parts in files.items()})


@cache  # packing takes a second, and the cell goes into many notebooks
def set_up() -> str:
    """Return the text of the set-up cell that carries the package. The same package gives the same text."""
    part = (home() / "solutions" / "parts" / "setup_carried.py").read_text("utf-8").partition("\n")[2].rstrip("\n")
    return part.replace("$requirements", " ".join(pinned(ROOT))).replace("$package", in_text(package()))


def pinned(root: Path) -> list[str]:
    """Return what pip must install for the drawings, in the versions of constraints.txt, else those installed here."""
    if not (root / "constraints.txt").is_file():  # an installed wheel
        return [f"{name}=={version(name)}" for name in DRAWINGS]
    lines = (root / "constraints.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line.partition("==")[0] in DRAWINGS]


def edition(notebook: Notebook, name: str, cell: str) -> Notebook:
    """Return a copy of a notebook, called `name`, with another text in its set-up cell."""
    cells: list[dict[str, Any]] = [dict(cell) for cell in notebook["cells"]]
    setup = next((cell for cell in cells if cell["cell_type"] == "code" and _source(cell).startswith(SETUP)), None)
    if setup is None:
        raise BuildError(f"{name} has no set-up cell; make it with `puzzles build`")
    setup["source"] = cell
    return {**notebook, "cells": cells}


def together(notebooks: Mapping[Path, Notebook]) -> Notebook:
    """Make one notebook with the cells of several, and one set-up. Links lead to places in it, or become text."""
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
    """A cell whose links lead to places in the same file; None if it only had links elsewhere."""
    if cell["cell_type"] != "markdown":
        return dict(cell)
    text = _source(cell)
    parts = text.split(BETWEEN)
    if all(NAVIGATION.fullmatch(part) for part in parts):
        text = BETWEEN.join(part for part in parts if (link := LINK.search(part)) and link[2] in stems)
        if not text:
            return None
    return {**cell, "source": LINK.sub(lambda link: f"[{link[1]}](#{link[2]})" if link[2] in stems else link[1], text)}


def package(also: Sequence[str] = ()) -> dict[str, bytes]:
    """Return the files of this project that a student needs, by path, in order, to unpack where Python imports from.

    These are the rooms that a notebook loads, and the references without the prose around them, as `reveal` shows them
    and some puzzles build on them; nothing that grades a class, makes notebooks, runs on real hardware or solves a
    puzzle, except for the paths in `also`.
    """

    code = files_below(ROOT, "lib") | files_below(ROOT, "drawing")
    files = {name: data for name, data in code.items() if name in (*DOORS, *also) or not name.startswith(ELSEWHERE)}
    for name, data in files_below(home(), "solutions").items():
        if name.endswith(".py") and not name.startswith("solutions/parts/"):
            files[f"lib/_notebooks/{name}"] = PROSE.sub("", data.decode()).encode()
    return files


def files_below(root: Path, folder: str) -> dict[str, bytes]:
    """Return the files of a folder that belong in the package, by their paths from the root, in order."""
    paths = (path for path in sorted((root / folder).rglob("*")) if path.suffix in ENDINGS)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths if "__pycache__" not in path.parts}


def in_text(files: Mapping[str, bytes]) -> str:
    """Pack files into lines of text that no editor or platform changes: base64 of an xz of a zip."""
    whole = lzma.compress(zipped(files, zipfile.ZIP_STORED), filters=PACKER)  # together a quarter smaller
    text = base64.b64encode(whole).decode()
    return "\n".join(text[place : place + 120] for place in range(0, len(text), 120))


# -- for nbgrader ---------------------------------------------------------------------------------------------------


def export_nbgrader(
    notebooks: Iterable[Path], output: Path, assignment: str, *, need: str = "first", **hidden: int | str | None
) -> list[Path]:
    """Write the instructor's version of students' notebooks into the course folder `output`, and settings unless it has
    some. `need`, and `hidden` and `seed` among the other keywords, are those of `puzzles grade`.

    Raises BuildError for a notebook without a puzzle, and for an assignment's name that nbgrader would refuse.
    """
    if not assignment or "+" in assignment or Path(assignment).name != assignment or assignment.startswith("."):
        raise BuildError(f"an assignment is called as a folder is, such as week_1; got {assignment!r}")
    made: dict[Path, str] = {}
    for path in notebooks:
        notebook, record = together({path: read_notebook(path)}), puzzle_of_file(path.stem)
        if record is None:
            known = ", ".join(PUZZLES)
            raise BuildError(f"{path.name} is not a puzzle's, so there is nothing to grade; there are {known}")
        made[output / "source" / assignment / path.name] = _text(instructors(notebook, record, need, hidden))
    settings = output / "nbgrader_config.py"
    if not settings.exists():
        made[settings] = packaged("lib.suite.course", "nbgrader_config.txt")
    return _written(made)


def instructors(notebook: Notebook, record: Puzzle, need: str, hidden: Mapping[str, int | str | None]) -> Notebook:
    """Return a student's notebook with our answer in it, and with nbgrader's metadata in its cells."""
    path, records = reference(record.id), of_one_notebook(record)
    text = path.read_text("utf-8")
    ours = {one.puzzle: one for one in find(text, path.name, record.id)}
    cells: list[dict[str, Any]] = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            cells.append(cell)
            continue
        bare: dict[str, Any] = {**cell, "outputs": [], "execution_count": None}
        source = _source(cell)
        is_check = "Model.check(" in source or "check_function(" in source
        if (asked := next((one for one in records if ours[one.id].stub in source.splitlines()), None)) is not None:
            gap = ours[asked.id]
            lines = text.splitlines()[gap.first : gap.last - 1]
            solution = "\n".join([f"{gap.indent}### BEGIN SOLUTION", *lines, f"{gap.indent}### END SOLUTION"])
            cells.append(_marked(bare, f"{asked.id}-answer", source.replace(gap.stub, solution)))
        elif is_check and (asked := next((one for one in records if f'puzzle="{one.id}"' in source), None)) is not None:
            cells.append(_marked(bare, f"{asked.id}-check", _check(source, asked, need), points=2))
            if test := _elsewhere(asked, need, hidden):
                more: dict[str, Any] = {**bare, "id": f"{cell['id']}-other-sizes"}
                cells.append(_marked(more, f"{asked.id}-other-sizes", test, points=1))
        else:
            cells.append(bare)
    ids = [cell["metadata"]["nbgrader"]["grade_id"] for cell in cells if "nbgrader" in cell["metadata"]]
    wanted = {f"{one.id}-{what}" for one in records for what in ("answer", "check")}
    if not wanted <= {*ids} or len(set(ids)) < len(ids):
        raise BuildError(f"{record.stem}.ipynb has no gap with its stub, and one check after it, for nbgrader to grade")
    return {**notebook, "cells": cells}


def _check(source: str, record: Puzzle, need: str) -> str:
    """A check as a test: failing is an error, and the shown value is not a number, which would count as points."""
    if record.hidden:  # hidden sizes have their own test and point
        source = source.replace(f'puzzle="{record.id}")', f'puzzle="{record.id}", elsewhere=False)')
    *lines, last = source.rstrip("\n").split("\n")
    ending = ast.parse(last).body[0]
    if isinstance(ending, ast.Expr) and not isinstance(ending.value, ast.Name):
        lines.append(f"verdict = {last}")
    goal = "" if need == "correct" or record.is_function else " and verdict.passed"
    unmet = f"{record.id} is not solved yet" + (", or not within the goal" if goal else "")
    lines += [f'assert verdict is not None{goal}, "{unmet}"', "display(verdict)"]
    return "\n".join([*lines, _region("require", record, {"need": need})])


def _elsewhere(record: Puzzle, need: str, hidden: Mapping[str, int | str | None]) -> str:
    """The test of other sizes; empty if there are none."""
    given = {name: value for name, value in hidden.items() if value is not None}
    if given.get("hidden") == 0 or (not given and not record.hidden):
        return ""
    what = "other inputs" if record.is_function else "other sizes"
    return f"# Graded: {what}.\n" + _region("require_elsewhere", record, {"need": need, **given})


def _region(function: str, record: Puzzle, words: Mapping[str, int | str | None]) -> str:
    """Hidden tests: nbgrader removes them from a student's copy, and restores them before grading."""
    given = "".join(f", {name}={json.dumps(value)}" for name, value in words.items())
    return (
        "### BEGIN HIDDEN TESTS\n"
        f"from lib.suite.grade.grading import {function}\n\n"
        f'{function}("{record.id}"{given})\n'
        "### END HIDDEN TESTS"
    )


def _marked(cell: dict[str, Any], name: str, source: str, points: int | None = None) -> dict[str, Any]:
    """A cell with nbgrader's metadata: a test that is worth points, or else an answer."""
    graded = points is not None
    marks: dict[str, Any] = {"grade": graded, "grade_id": name, "locked": graded}
    marks |= {"points": points} if graded else {}
    marks |= {"schema_version": 3, "solution": not graded, "task": False}
    kept = {"deletable": False, "editable": False} if graded else {}
    return {**cell, "source": source, "metadata": {**cell["metadata"], **kept, "nbgrader": marks}}
