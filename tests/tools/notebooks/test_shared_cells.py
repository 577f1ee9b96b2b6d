"""Parts: cells written once, filled in for each notebook; badges and requirements from the project's own files;
references: every work once in docs/references.toml, cited by key, numbered in the order of first use."""

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from lib import PUZZLES
from lib.files import ready
from lib.puzzles.records import Chapter, chapters, minutes_of_core
from lib.suite.course.exports import DRAWINGS, pinned
from lib.suite.submissions.locations import notebook_in
from tests.support.said import Said
from tools.notebooks import shared_cells
from tools.notebooks.shared_cells import badge, core_of, expand, reading_order, requirement, works

ROOT = Path(__file__).parents[3]
ASKS = "# %% [markdown]\n# <!-- part: {} -->\n"
PROJECT = '[project]\nname = "llm-training-puzzles"\nversion = "1.2.3"\n'
NAMES = reading_order()


def project(tmp_path: Path) -> Path:
    parts = tmp_path / "solutions" / "parts"
    parts.mkdir(parents=True)
    (parts / "who.py").write_text("# %% [markdown]\n# $title on $ranks ranks\n", "utf-8")
    (parts / "top.py").write_text("# %% [markdown]\n# $top\n", "utf-8")
    (tmp_path / "pyproject.toml").write_text(PROJECT, "utf-8")
    return tmp_path


root = pytest.fixture(project, name="root")


def expanded(text: str, name: str = "ddp", who: str = "") -> str:
    with TemporaryDirectory() as folder:
        root = project(Path(folder))
        if who:
            (root / "solutions" / "parts" / "who.py").write_text(who, "utf-8")
        return expand(text, name, root).rstrip("\n")


def address(more: str) -> str:
    """The badge above a notebook, and the requirement, of a project in whose file this stands."""
    with TemporaryDirectory() as folder:
        root = project(Path(folder))
        (root / "pyproject.toml").write_text(PROJECT + more, "utf-8")
        above = expand(ASKS.format("top"), "ddp", root)
        found = badge(root, PUZZLES["ddp"].path)
        assert above.strip().endswith(found or "→")
        said = f"{found or 'no badge'}\n{requirement(root) or 'nothing to install'}"
        return said.replace(PUZZLES["ddp"].path, "STEM")


test_what_a_part_becomes = Said(__file__, "parts").test(lambda: globals())


def test_the_links_lead_from_chapter_to_chapter_and_say_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    basic, hsdp = PUZZLES["basic"], PUZZLES["hsdp"]
    two = [(Chapter("Basics", "All of it."), [basic]), (chapters()["mesh"], [hsdp])]
    monkeypatch.setattr(shared_cells, "by_chapter", lambda: two)
    index = "[Map of the puzzles](../00_index.ipynb)"
    before = "← [Introduction](../00_introduction.ipynb)"
    first = f"{before} · {index} · [{chapters()['mesh'].title}: {hsdp.heading}](../{hsdp.path}.ipynb) →"
    assert expand(ASKS.format("top"), "basic", root) == f"# %% [markdown]\n# {first}\n"
    second = f"← [Basics: {basic.heading}](../{basic.path}.ipynb) · {index}"
    assert expand(ASKS.format("top"), "hsdp", root) == f"# %% [markdown]\n# {second}\n"
    intro = f"[Map of the puzzles](00_index.ipynb) · [{basic.heading}]({basic.path}.ipynb) →"
    assert expand(ASKS.format("top"), "introduction", root) == f"# %% [markdown]\n# {intro}\n"
    (root / "solutions" / "parts" / "table.py").write_text("# %% [markdown]\n# $table\n", "utf-8")
    table = expand(ASKS.format("table"), "index", root)
    assert all(line.startswith("#") for line in table.splitlines())
    assert re.findall(r"^# (### .*|All of it\.|\| \[[\d.]+)", table, re.MULTILINE) == [
        *("### Basics", "All of it.", f"| [{basic.label}"),
        *(f"### {chapters()['mesh'].title}", f"| [{hsdp.label}"),
    ]


def test_the_table_of_puzzles_has_the_chapters() -> None:
    text = (ROOT / "docs/puzzles.md").read_text("utf-8")
    assert shared_cells.puzzles_page(text) == text
    head = "| | puzzle | sizes | what | deepens |\n|---|---|---|---|---|\n| 00 | index | | a map | |\n"
    whole = f"{head}| 1.1 | other | 1 | x | core |\n\n| 1 | 2 |\n"
    made = shared_cells.puzzles_page(whole)
    assert shared_cells.puzzles_page(made) == made
    assert made.count("**Basics**") == 1
    assert made.startswith(f"{head}| | **Basics** | | | |\n| 1.1 | basic |")
    assert made.endswith(" |\n\n| 1 | 2 |\n")


def set_up(root: Path, project: str) -> str:
    (root / "pyproject.toml").write_text(project, "utf-8")
    shutil.copytree(ROOT / "solutions" / "parts", root / "solutions" / "parts", dirs_exist_ok=True)
    shutil.copy(ROOT / "constraints.txt", root)
    return expand(ASKS.format("setup"), "index", root)


def test_a_package_that_is_nowhere_is_not_promised(root: Path) -> None:
    unpublished = set_up(root, PROJECT)
    assert "make lab" in unpublished
    assert "puzzles export --colab" in unpublished
    assert "pip" not in unpublished
    published = set_up(root, PROJECT + '[project.urls]\nRepository = "https://a.b/c"\n')
    assert "llm-training-puzzles" in published


def test_without_the_puzzles_the_set_up_says_what_works(tmp_path: Path) -> None:
    cell = tmp_path / "cell.py"
    cell.write_text("".join(cells_of("index")[0]["source"]), "utf-8")
    done = subprocess.run([sys.executable, "-I", "-S", cell], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "This notebook needs the folder that it comes from" in done.stderr
    assert "`make lab`" in done.stderr


def test_nothing_promises_a_package_that_is_nowhere() -> None:
    if requirement(ROOT) is not None:
        return
    files = [path for name in ("lib", "drawing", "solutions", "tests") for path in (ROOT / name).rglob("*.py")]
    files += [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "puzzles").rglob("*.ipynb")]
    promise = re.compile(r"pip install\W+" + "llm-training")
    found = {path.name for path in files if promise.search(path.read_text("utf-8"))}
    assert found <= {"extras.py", "test_extras.py"}  # which is said to somebody who has installed the package


def test_what_the_drawings_need_is_pinned_to_the_tested_versions() -> None:
    tested = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    found = pinned(ROOT)
    assert set(found) <= set(tested)
    assert [line.partition("==")[0] for line in found] == [*DRAWINGS]
    needed = {line.lower() for name in DRAWINGS for line in requires(name) or () if ";" not in line}
    assert needed - {*DRAWINGS} == {"importlib-metadata", "pillow", "toolz", "typing-extensions"}


def cells_of(name: str) -> list[dict[str, Any]]:
    """The cells of a student's notebook, which `puzzles check` compares with its source."""
    return json.loads(notebook_in(ROOT / "puzzles", name).read_text("utf-8"))["cells"]


@pytest.mark.parametrize("name", NAMES)
def test_every_notebook_begins_with_the_set_up_and_links_to_its_neighbours_and_the_map(name: str) -> None:
    cells = cells_of(name)
    assert [number for number, cell in enumerate(cells) if not "".join(cell["source"]).strip()] == []
    assert cells[0]["cell_type"] == "code"
    assert cells[0]["source"][0].startswith("# @title Set up")
    assert cells[0]["metadata"]["cellView"] == "form"
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    here = NAMES.index(name)
    others = {NAMES[0], *NAMES[max(0, here - 1) : here + 2]} - {name}
    folder = notebook_in(ROOT / "puzzles", name).parent
    links = {(folder / link).resolve() for link in re.findall(r"\]\(([\w./]+\.ipynb)\)", text)}
    assert links >= {notebook_in(ROOT / "puzzles", other) for other in others}
    assert all(link.is_file() for link in links)


@pytest.mark.parametrize("name", NAMES)
def test_every_notebook_ends_with_where_to_go_next(name: str) -> None:
    last = "".join(cells_of(name)[-1]["source"])
    core = [one.id for one in PUZZLES.values() if not (one.deepens or one.part_of)]
    at = core.index(core_of(PUZZLES[name]).id) + 1 if name in PUZZLES else 0
    assert "[Map of the puzzles](" in last or name == "index"
    if name not in ("index", "gallery"):
        assert f"{core[at]}.ipynb)" in last if at < len(core) else "The core path ends " in last


def test_no_puzzle_of_the_core_path_needs_one_that_may_be_skipped() -> None:
    core = [one for one in PUZZLES.values() if not one.deepens]
    assert [need for one in core for need in one.needs if PUZZLES[need].deepens] == []
    assert 12 * 60 <= minutes_of_core() <= 13 * 60
    assert all(core_of(one).deepens == "" for one in PUZZLES.values())


def test_the_map_links_to_every_puzzle() -> None:
    text = "\n".join("".join(cell["source"]) for cell in cells_of("index"))
    for puzzle in PUZZLES.values():
        if not puzzle.part_of:
            assert f"[{puzzle.heading}]({puzzle.path}.ipynb)" in text
            assert puzzle.teaches in text


SOURCES = [path for path in sorted((ROOT / "solutions").rglob("*.py")) if path.parent.name != "parts"]
TWO = """
[lee2020]
authors = "Lee et al."
title = "On rings"
year = 2020
at = "arXiv 1"
url = "https://arxiv.org/abs/1"
checked = "title"
[page]
authors = "PyTorch"
title = "A page"
at = "docs"
url = "https://docs.pytorch.org"
"""
CITING = """# One says so [@page]. Another does [@lee2020, table 2], and again [@page].
# <!-- references -->
"""


def listed(source: str, file: str = TWO) -> str:
    """A source with its references of a file of works; two blanks at the end of a line are <br>."""
    with TemporaryDirectory() as folder:
        ready(Path(folder, shared_cells.FILE)).write_text(file, "utf-8")
        return shared_cells.with_references(source, "one.py", Path(folder)).replace("  \n", "<br>\n").rstrip("\n")


test_citations_are_numbered_by_first_use_and_listed = Said(__file__, "references").test(lambda: globals())


def test_every_work_is_cited_and_none_is_there_twice() -> None:
    used = {key for path in SOURCES for key in shared_cells.cited(path.read_text("utf-8"))}
    assert used == set(works(ROOT))
    assert len({work.url for work in works(ROOT).values()}) == len(works(ROOT))


def test_every_work_says_whose_it_is_what_it_is_and_of_when() -> None:
    """What has no year is a page that changes: a documentation, or a README."""
    for key, work in works(ROOT).items():
        assert all([work.authors, work.title, work.at]), key
        assert work.url.startswith("https://"), key
        assert work.checked in ("", "title", "claim"), key
        assert work.year or re.search("documentation|README", work.at), key


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_source_writes_no_entry_by_hand(path: Path) -> None:
    assert re.findall(r"^# \[\d+\] .*", path.read_text("utf-8"), re.MULTILINE) == []
