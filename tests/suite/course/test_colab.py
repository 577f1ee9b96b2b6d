"""Editions to mail: one file, with the package inside, that works in an empty environment with no repository near."""

import json
import os
import re
import subprocess
import sys
import venv
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lib import PUZZLES
from lib.suite.course.exports import edition, export_colab, together
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.locations import place_of
from tests.support.said import Said
from tools.notebooks.build import Source, read_sources

ROOT = Path(__file__).parents[3]
RUNNER = """\
import ast, asyncio, inspect, json, sys
names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        text = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
        code = compile(text, cell["id"], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if inspect.isawaitable(result):
            asyncio.run(result)
import lib
print("from", lib.__file__)
"""


@cache
def all_sources() -> dict[str, Source]:
    """The sources of notebooks by puzzle or page, read when a test asks."""
    return {source.id: source for source in read_sources(ROOT / "solutions")}


@pytest.fixture(scope="module")
def editions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The student's and the solved notebook of one puzzle, and two puzzles in one file, as one mails them."""
    folder = tmp_path_factory.mktemp("mail")
    ddp, fsdp = all_sources()["ddp"], all_sources()["fsdp"]
    made = {"student": ddp.student(), "solved": ddp.solved(), "more": fsdp.solved()}
    for name, notebook in made.items():
        (folder / f"{name}.ipynb").write_text(json.dumps(notebook), "utf-8")
    each = export_colab([folder / "student.ipynb", folder / "solved.ipynb"], folder / "out")
    (both,) = export_colab([folder / "solved.ipynb", folder / "more.ipynb"], folder / "course.ipynb")
    return {path.stem: path for path in [*each, both]}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(folder, with_pip=True)
    return folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def run(python: Path, notebook: Path) -> str:
    """What the cells of a notebook print, run one after another far from the repository."""
    runner = notebook.parent / "runner.py"
    runner.write_text(RUNNER, "utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment |= {"PUZZLES_PROGRESS": "off"}
    done = subprocess.run(
        [python, "-I", runner, notebook], cwd=notebook.parent, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_an_edition_runs_in_an_empty_environment(editions: dict[str, Path], empty: Path) -> None:
    printed = run(empty, editions["student"])
    assert "ddp is not solved yet" in printed
    assert re.search(r"from \S+puzzles-\w+/lib/__init__\.py", printed)
    again = run(empty, editions["course"])  # chalk is installed now
    assert again.count("Correct!") == 2


def test_an_edition_is_one_file_without_links_and_with_one_set_up(editions: dict[str, Path]) -> None:
    for path in editions.values():
        notebook = json.loads(path.read_text("utf-8"))
        sources = ["".join(cell["source"]) for cell in notebook["cells"]]
        assert sum(source.startswith("# @title Set up") for source in sources) == 1
        assert sources[0].count("PACKAGE") == 2
        assert not any(".ipynb)" in source for source in sources)
        links = re.findall(r"\]\(#(\w+)\)", "\n".join(sources))
        assert all(f'<a id="{link}"' in "\n".join(sources) for link in links)
        assert len({cell["id"] for cell in notebook["cells"]}) == len(sources)
        assert path.stat().st_size < 60_000 * len(PUZZLES)


def test_of_one_notebook_only_the_set_up_is_changed_and_the_links_to_others_go() -> None:
    path = Path(f"{PUZZLES['ddp'].stem}.ipynb")
    notebook = all_sources()["ddp"].student()
    made = edition(together({path: notebook}), path.name, "# @title Set up: another")
    before = {cell["id"]: cell["source"] for cell in notebook["cells"]}
    after = {cell["id"]: cell["source"] for cell in made["cells"]}
    gone = [before[cell] for cell in before.keys() - after.keys()]
    assert [source[:3] for source in gone] == ["← ["]
    changed = [cell for cell in after if after[cell] != before[cell]]
    assert [after[cell][:8] for cell in changed] == ["# @title", "**Next o"]
    assert ".ipynb" not in after[changed[-1]]


def test_together_the_links_lead_to_each_other() -> None:
    names = ("introduction", "basic", "grad_accum")
    paths = [Path(f"{place_of(name)}.ipynb") for name in names]
    made = together({path: all_sources()[name].student() for path, name in zip(paths, names, strict=True)})
    sources = [cell["source"] for cell in made["cells"] if cell["cell_type"] == "markdown"]
    text = "\n".join(sources)
    for path in paths:
        assert sum(f'<a id="{path.stem}"' in source for source in sources) == 1
        assert f"](#{path.stem})" in text
    assert set(re.findall(r"\]\(#(\w+)\)", text)) == {path.stem for path in paths}
    basic = made["cells"][-1 - next(n for n, cell in enumerate(made["cells"][::-1]) if "grad_accum" not in cell["id"])]
    following = f"[{PUZZLES['grad_accum'].heading}](#{PUZZLES['grad_accum'].stem})"
    assert f": {following} ({PUZZLES['grad_accum'].minutes} minutes)." in basic["source"]
    assert any(one.endswith(f"← [Introduction](#00_introduction) · {following} →") for one in sources)


def mailed(text: str | bytes | None) -> str:
    """What is said of a notebook with this in it, or of none; nothing is written."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "mine.ipynb")
        if text is not None:
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(BuildError) as caught:
            export_colab([path], Path(folder, "out"))
        assert not Path(folder, "out").exists()
        return str(caught.value).replace(folder, "FOLDER")


test_what_is_not_mailed = Said(__file__, "mailed").test(lambda: globals())
