"""The package that a student's notebook brings along: all that notebooks load, and not a room more."""

import ast
import io
import lzma
import subprocess
import sys
import zipfile
from base64 import b64decode
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from lib.puzzles.records import PUZZLES
from lib.suite.course.exports import DOORS, ELSEWHERE, in_text, package, set_up
from lib.suite.submissions.locations import reference, source_of
from tests.support.profiles import THOROUGH

ROOT = Path(__file__).parents[3]


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def code() -> dict[str, str]:
    """The text of every module of the package, by the name that Python knows it by."""
    files = {name: data.decode() for name, data in package().items() if name.endswith(".py")}
    return {module_of(name): text for name, text in files.items() if not name.startswith("lib/_notebooks")}


@cache
def imported(text: str) -> frozenset[str]:
    """The modules of the package that a text imports, at the top or when it comes to it, and those around them."""
    return frozenset(_imported(text))


def _imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1))


@cache
def loaded() -> frozenset[str]:
    """The modules that a student's notebook may come to load, whatever is called in it."""
    todo = set[str]()
    for path in [reference(puzzle) for puzzle in PUZZLES]:
        todo.update(imported(path.read_text("utf-8")))
    found = set[str]()
    while todo:
        name = todo.pop()
        if name in code() and name not in found:
            found.add(name)
            todo.update(imported(code()[name]))
    return frozenset(found)


def test_nothing_is_carried_that_a_student_never_loads() -> None:
    files = package()
    rooms = {name.rpartition("/")[0] for name in files if not name.startswith("lib/_notebooks/")}
    used = {name.rpartition(".")[0].replace(".", "/") for name in loaded()} | {
        name.replace(".", "/") for name in loaded()
    }
    assert not rooms - used
    assert not code().keys() - loaded()
    assert sum(map(len, files.values())) < 3_180_000


def test_of_what_stays_behind_nothing_is_needed_but_by_its_door() -> None:
    doors = {module_of(name) for name in DOORS}
    missing = [
        (name, other)
        for name in sorted(loaded() - doors)
        for other in sorted(imported(code()[name]))
        if f"{other.replace('.', '/')}.py".startswith(ELSEWHERE) or f"{other.replace('.', '/')}/".startswith(ELSEWHERE)
        if other not in doors
    ]
    assert not missing


def test_each_reference_is_carried_without_its_prose() -> None:
    files = package()
    for puzzle in PUZZLES:
        text = files[f"lib/_notebooks/solutions/{source_of(puzzle)}"].decode()
        assert f"def {puzzle}(" in text
        assert "[markdown]" not in text
        ast.parse(text)


def test_the_cell_unpacks_to_the_package_and_tells_no_time() -> None:
    files, cell = package(), set_up()
    text = in_text(files)
    assert cell.count(text) == 1
    assert len(cell) < 872_000
    with zipfile.ZipFile(io.BytesIO(lzma.decompress(b64decode(text)))) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files
        assert {one.date_time for one in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def ran(folder: Path, code: str) -> str:
    """What a fresh Python prints that sees the folder first, and no checkout, and runs the set-up cell."""
    path = f"sys.path[:] = [{str(folder)!r}, *(one for one in sys.path if one != {str(ROOT)!r})]"
    program = f"import sys; {path}\nexec(open({str(folder / 'cell')!r}).read())\n{code}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


OTHERS = ("lib/mine.py", "lib/__init__.py", "lib.py", "drawing.py")


@pytest.mark.parametrize("other", OTHERS if THOROUGH else OTHERS[1::2])
def test_a_foreign_lib_beside_the_notebook_is_named_and_not_in_the_way(tmp_path: Path, other: str) -> None:
    (tmp_path / other).parent.mkdir(exist_ok=True)
    (tmp_path / other).write_text("x = 1\n")
    (tmp_path / "cell").write_text(set_up(), "utf-8")
    printed = ran(
        tmp_path,
        "import lib, drawing, tempfile; from lib import simulate; from drawing import draw\n"
        "assert lib.__file__.startswith(tempfile.gettempdir()) and drawing.__file__.startswith(tempfile.gettempdir())\n"
        "try:\n    from lib.replay import ReplayOptions\nexcept ModuleNotFoundError as error:\n    print(error)\n",
    )
    name = other.partition("/")[0]
    assert f"There is another `{name.removesuffix('.py')}` at {tmp_path / name}." in printed
    assert "brings no replay" in printed
