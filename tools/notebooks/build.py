"""The builder: solutions/<chapter>/<puzzle>.py, written by hand, to the notebooks in puzzles/ and in solutions/.

A student's notebook has the gap where the answer was, and the outputs of its demonstrations only. The solved one has
been run, each in a kernel that is started anew. Building twice gives the same bytes: ids come from the puzzle and the
cell's number, and nothing of the machine, the clock or the order of events is kept. All is made in memory before
anything is written.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from lib.extras import install
from lib.files import ready, write_whole
from lib.puzzles.records import PUZZLES, chapters
from lib.suite.submissions import locations
from lib.suite.submissions.gap import Answer, BuildError, parse
from lib.suite.submissions.load import Notebook
from lib.suite.submissions.locations import PAGES, named, notebook_in, notebooks_below, place_of, source_of
from lib.suite.submissions.needed import COMPOUND, pruned
from lib.suite.submissions.statements import Statement, statements
from tools.notebooks.gaps import find, student
from tools.notebooks.shared_cells import expand, glossary_page, puzzles_page, reading_order, teaching

try:
    import jupytext  # pyright: ignore[reportMissingTypeStubs]
    import nbformat

    from tools.notebooks.kernels import execute, tidied
except ImportError as missing:
    raise ImportError(f'notebooks need the extra "notebook": {install("notebook")}') from missing

METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
KEPT_METADATA = ("cellView", "jupyter", "tags")
ASKS = frozenset({"goal", "hint", "predict"})
"""What is for the student to call when they want to: the goal is figures that they are asked to predict first."""
STUB = "raise NotSolved("

PAGES_OF = {"docs/puzzles.md": puzzles_page, "docs/glossary.md": glossary_page, "TEACHING.md": teaching}
"""Pages with rows that follow from the records, and what makes these anew."""

_read_percent = cast(Any, jupytext).reads  # neither package has types
# A comment such as `# equal?` in a cell is no question to IPython.
PERCENT = {"extension": ".py", "format_name": "percent", "comment_magics": False}
_node = cast(Any, nbformat).from_dict
_read_json = cast(Any, nbformat).reads
_write_json = cast(Any, nbformat).writes


@dataclass(frozen=True, slots=True)
class Source:
    """One source below solutions/, read and found whole."""

    path: Path
    text: str
    answers: tuple[Answer, ...]

    @property
    def id(self) -> str:
        """The puzzle or page that it is of, after which its cells are named."""
        return self.path.stem

    @property
    def place(self) -> str:
        """Where its notebooks lie, below puzzles/ and solutions/, without their ending."""
        return place_of(self.id)

    @property
    def root(self) -> Path:
        """The folder that holds solutions/."""
        return self.path.parents[len(Path(source_of(self.id)).parts)]

    def solved(self) -> Notebook:
        """Return the notebook with the answers, not run yet."""
        return self._notebook(self.text)

    def student(self) -> Notebook:
        """Return the notebook with the gaps."""
        return self._notebook(student(self.text, list(self.answers), self.path.name))

    def _notebook(self, text: str) -> Notebook:
        """The notebook of a py:percent text, without outputs, with the ids and the metadata that we want."""
        percent: Any = _read_percent(expand(text, self.id, self.root), fmt=PERCENT)
        cells: list[dict[str, Any]] = []
        # A cell with the tag "judge" is for who judges the answers of a plain function, and in no notebook.
        for number, cell in enumerate(cell for cell in percent.cells if "judge" not in cell.metadata.get("tags", ())):
            kept = {key: cell.metadata[key] for key in KEPT_METADATA if key in cell.metadata}
            made = {"cell_type": cell.cell_type, "id": f"{self.id}-{number}", "metadata": kept, "source": cell.source}
            cells.append(made | ({"execution_count": None, "outputs": []} if cell.cell_type == "code" else {}))
        return {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def read_sources(folder: Path) -> list[Source]:
    """Read the sources of a solutions folder, in the order in which they are read. BuildError for one that has no gap,
    or that is of no puzzle or page, or lies in another folder than its chapter's."""
    sources: list[Source] = []
    there = [
        path for one in (folder, *(folder / chapter for chapter in chapters())) for path in sorted(one.glob("*.py"))
    ]
    order = {source_of(name): at for at, name in enumerate(reading_order())}
    for path in there:
        if (place := path.relative_to(folder).as_posix()) not in order:
            where = f"; it belongs in {source_of(path.stem)}" if path.stem in PUZZLES else ""
            raise BuildError(f"solutions/{place} is the source of no puzzle in its chapter{where}")
    for path in sorted(there, key=lambda path: order[path.relative_to(folder).as_posix()]):
        text, is_page = path.read_text("utf-8"), path.stem in PAGES
        answers = find(text, path.name, None if is_page else path.stem)
        if not is_page and not answers:
            gap = "`# --- your code (about N lines) ---`"
            raise BuildError(f"{path.name}: no {gap}: students would get the answer")
        for answer in answers:
            if not is_page and answer.puzzle not in PUZZLES:
                wrong = f"no puzzle is {answer.puzzle!r}; there are {', '.join(PUZZLES)}"
                raise BuildError(f"{path.name}, line {answer.first}: {wrong}")
        sources.append(Source(path, text, tuple(answers)))
    if not sources:
        raise BuildError(f"{folder} holds no <chapter>/<puzzle>.py to build from")
    return sources


def build(root: Path, *, stored: bool = False) -> dict[str, str]:
    """Return the text of all notebooks, and of docs/puzzles.md and TEACHING.md if there are such, by path below `root`.

    Only these pages and the folder solutions/ are read. With `stored` nothing is run: outputs are those that the solved
    notebooks hold, which is for others to check.
    """
    sources = read_sources(root / "solutions")
    solved = {root / f"solutions/{source.place}.ipynb": source.solved() for source in sources}
    ran = [_with_stored_outputs(*one) for one in solved.items()] if stored else execute(solved)
    if errors := [str(result) for result in ran if isinstance(result, BuildError)]:
        raise BuildError("\n".join(errors))
    files: dict[str, str] = {}
    for source, notebook in zip(sources, cast("list[Notebook]", ran), strict=True):
        files[f"puzzles/{source.place}.ipynb"] = _text(demonstrated(source.student(), notebook))
        files[f"solutions/{source.place}.ipynb"] = _text(notebook)
    for name, renewed in PAGES_OF.items():
        if (root / name).is_file():
            files[name] = renewed((root / name).read_text("utf-8"))
    return files


def _with_stored_outputs(path: Path, solved: Notebook) -> Notebook | BuildError:
    """A notebook with the outputs of the file at `path`, cell by cell; without any where there is no such file."""
    try:
        there: Any = _read_json(path.read_text("utf-8"), as_version=4)["cells"]
    except (OSError, ValueError, LookupError, AttributeError):  # the last where it is not an object, but a list
        there = []
    outputs = {cell.get("id"): cell.get("outputs", []) for cell in there}
    for cell in solved["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = outputs.get(cell["id"], [])
    try:
        return tidied(solved, path)
    except BuildError as error:
        return error


def left_behind(root: Path) -> list[str]:
    """Return the notebooks below `root` of puzzles that have another number or chapter by now."""
    whole = {*PAGES, *(name for name, record in PUZZLES.items() if not record.part_of)}
    found = [(root / top, path) for top in ("solutions", "puzzles") for path in notebooks_below(root / top)]
    wrong = (path for top, path in found if (name := named(path)) in whole and path != notebook_in(top, name))
    return [path.relative_to(root).as_posix() for path in wrong]


def stale(files: Mapping[str, str], root: Path) -> list[str]:
    """Return the notebooks that are missing, or differ from what `build` gave."""
    paths = {name: root / name for name in files}
    return [name for name, path in paths.items() if not path.is_file() or path.read_bytes() != files[name].encode()]


def worked_on(files: Iterable[str], root: Path) -> list[str]:
    """Return the students' notebooks among them that somebody has run, or in which a gap holds more than its stub."""
    return [name for name in files if name.startswith("puzzles/") and _is_worked_on(root / name)]


def write(files: Mapping[str, str], root: Path) -> list[str]:
    """Write the notebooks that changed, each of them whole or not at all, and return their names."""
    changed = stale(files, root)
    for name in changed:
        write_whole(ready(root / name), files[name])
    return changed


def _text(notebook: Notebook) -> str:
    """The file of a notebook, as Jupyter writes it; a kernel's version is not kept."""
    return str(_write_json(_node({**notebook, "metadata": METADATA}))).rstrip("\n") + "\n"


def _is_worked_on(path: Path) -> bool:
    if not path.is_file():
        return False
    text = path.read_text("utf-8")
    # What is built has a number where it has outputs; whoever runs it comes through cells that have none.
    run = (cell.get("execution_count") and not cell["outputs"] for cell in json.loads(text)["cells"])
    return locations.is_worked_on(text, path) or any(run)


# -- demonstrations ------------------------------------------------------------------------------------------------

# A demonstration is a cell whose outcome is the same whatever a student writes and guesses. So its output is that of
# the solved notebook, which has been run already. What depends on a gap or on a prediction, even by way of other cells,
# is left for the student to find out.


def demonstrated(student: Notebook, solved: Notebook) -> Notebook:
    """Return a student's notebook with the outputs of its demonstrations, taken from the solved one, which was run."""
    uses = {use.cell: use for use in _uses(student)}
    cells: list[dict[str, Any]] = []
    for cell, ran in zip(student["cells"], solved["cells"], strict=True):
        is_shown = cell["cell_type"] == "code" and not uses[cell["id"]].is_theirs and ran["outputs"]
        # An output and the number of the run that it is of go together: nbval takes one without it as a mistake.
        cells.append({**cell, **{key: ran[key] for key in ("outputs", "execution_count") if is_shown}})
    return {**student, "cells": cells}


def without_demonstrations(student: Notebook) -> Notebook:
    """Return a student's notebook with those code cells alone whose outcome depends on what a student writes, and those
    that give or change the names which they use. Where the solved notebook runs, the others do."""
    kept, used = set[str](), set[str]()
    for use in reversed([*_uses(student)]):
        if use.is_theirs or used & (use.made | use.touched):
            kept.add(use.cell)
            used |= use.used
    return {**student, "cells": [cell for cell in student["cells"] if cell["id"] in kept]}


@dataclass(slots=True)
class _Uses:
    """The names of the notebook that a code cell gives values to, changes, and takes from cells before it. `is_theirs`:
    its outcome depends on what a student writes or guesses."""

    cell: str
    made: set[str] = field(default_factory=set[str])
    touched: set[str] = field(default_factory=set[str])
    used: set[str] = field(default_factory=set[str])
    is_theirs: bool = False


def _uses(student: Notebook) -> Iterator[_Uses]:
    theirs = set[str]()
    """The names whose values depend on what a student writes."""
    for cell in student["cells"]:
        if cell["cell_type"] != "code":
            continue
        use, own, source = _Uses(cell["id"]), set[str](), "".join(cell["source"])
        for node in (part for one in statements([(cell["id"], source)])[0] for part in _parts_of(one.node)):
            names = Statement(node, cell["id"]).names
            use.used |= (names.now | names.later) - own
            use.touched |= names.touches | names.touches_later
            use.made |= names.gives
            if not isinstance(node, ast.Import | ast.ImportFrom):  # what is imported is asked for by its name
                own |= names.gives
        use.is_theirs = STUB in source or bool((ASKS | theirs) & use.used)
        if use.is_theirs:
            theirs |= use.made | _compared(parse(source, cell["id"]))
        else:
            theirs -= use.made
        yield use


def _parts_of(node: ast.stmt) -> Iterator[ast.stmt]:
    """A statement; a compound one without those in it, and then them."""
    if not isinstance(node, COMPOUND):
        yield node
        return
    yield pruned(node, lambda _: True)
    for inner in ast.iter_child_nodes(node):
        inside = inner.body if isinstance(inner, ast.ExceptHandler | ast.match_case) else [inner]
        for one in inside:
            if isinstance(one, ast.stmt):
                yield from _parts_of(one)


def _compared(tree: ast.AST) -> set[str]:
    """The runs that predictions are compared with, which from there on give the answer away."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    given = [one for call in calls if getattr(call.func, "attr", "") == "against" for one in call.args]
    return {part.id for one in given for part in ast.walk(one) if isinstance(part, ast.Name)}
