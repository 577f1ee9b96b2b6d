"""What the pages are made of, as far as no node is needed."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lib import PUZZLES
from lib.suite.course.exports import package
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.locations import notebooks_below
from tools.browser import build, compiled

ROOT = Path(__file__).parents[2]


def test_the_whole_suite_begins_at_its_map_and_a_choice_at_the_text_of_a_course(tmp_path: Path) -> None:
    every = build.notebooks(())
    assert sorted(every) == sorted(path.stem for path in notebooks_below(ROOT / "puzzles"))
    assert next(iter(every)) == "00_index"
    text = tmp_path / "week1.md"
    text.write_text("# Week 1\n\nBy Sunday.\n")
    first, *others = build.notebooks(["ddp", "fsdp"], text).items()
    assert [stem for stem, _ in others] == [PUZZLES[name].stem for name in ("ddp", "fsdp")]
    (cell,) = first[1]["cells"]
    assert cell["source"].startswith(
        f"# Week 1\n\nBy Sunday.\n\n- [{PUZZLES['ddp'].heading}]({PUZZLES['ddp'].stem}.ipynb)\n"
    )
    assert build.title(first[1]) == "Week 1"


def test_the_page_has_what_a_notebook_for_colab_brings_and_its_kernel() -> None:
    assert package().items() <= build.contents().items()
    more = set(build.contents()) - set(package())
    assert {name for name in more if not name.startswith("lib/")} == {"kernel.py", "chalk_standin.py"}
    assert not [name for name in more if name.startswith(("lib/suite/grade", "lib/suite/cli", "lib/replay"))]


def test_an_editor_offers_what_a_model_can_do() -> None:
    offered = {name: (call, said) for name, call, said in build.methods()}
    assert offered["allreduce"][0].startswith("await model.allreduce(")
    assert offered["storage"][0].startswith("model.storage()")
    assert not [name for name, (call, said) in offered.items() if name.startswith("_") or "self" in call]
    assert [name for name, (call, said) in offered.items() if call.endswith(")") and not said] == []


def test_the_scripts_of_all_frames_are_allowed() -> None:
    assert build.hashes()
    assert all(re.fullmatch(build.HASH, one) for one in build.hashes())


@pytest.mark.parametrize(
    ("names", "said"), [(("no_puzzle",), "there is no notebook 'no_puzzle'"), (("nowhere.ipynb",), "there is no file")]
)
def test_a_name_that_is_none_is_refused(names: tuple[str, ...], said: str) -> None:
    with pytest.raises(BuildError, match=said):
        build.notebooks(names)


def test_nothing_of_somebody_else_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "MODULES", tmp_path / "node_modules")
    with pytest.raises(BuildError, match="run `npm ci --ignore-scripts` in"):
        build.build(tmp_path / "site")
    tool = tmp_path / "node_modules" / ".bin" / "esbuild"
    tool.parent.mkdir(parents=True)
    tool.touch()
    with pytest.raises(BuildError, match="holds something else"):
        build.build(tmp_path)


def test_what_is_loaded_first_is_compiled_and_what_messages_show_keeps_its_lines() -> None:
    files = dict.fromkeys(("lib/a.py", "lib/schedules/steps.py", "lib/later.py", "a.toml"), b"x = 1\n")
    first = {"/site/lib/a.py", "/site/lib/schedules/steps.py"}
    made = dict(compiled.package(files.items(), "/site", first))
    left = [name for name in made if name.endswith((".py", ".toml"))]
    assert left == ["lib/schedules/steps.py", "lib/later.py", "a.toml"]
    assert "lib/a.pyc" in made
    assert made == dict(compiled.package(files.items(), "/site", first))


def test_of_the_standard_library_stays_what_is_used() -> None:
    names = ["pdb.py", "encodings/cp1250.py", "encodings/utf_8.py", "encodings/cp437.py", "csv.py"]
    left = [name for name, _ in compiled.library(((name, b"") for name in names), "/zip", set())]
    assert left == ["encodings/utf_8.py", "encodings/cp437.py", "csv.py"]


def test_node_s_packages_are_pinned() -> None:
    asked = json.loads((build.PAGE / "package.json").read_text("utf-8"))["devDependencies"]
    locked = json.loads((build.PAGE / "package-lock.json").read_text("utf-8"))["packages"]
    assert {name: locked[f"node_modules/{name}"]["version"] for name in asked} == asked
    assert all("integrity" in one for place, one in locked.items() if place)


def test_a_notebook_that_is_downloaded_asks_this_site_for_the_package() -> None:
    cell = build.set_up()
    assert cell.startswith("# @title Set up")
    assert '"$site chalk-diagrams==' in cell
    ast.parse(cell)


def test_what_is_for_elsewhere_is_not_kept_by_a_visit(tmp_path: Path) -> None:
    for name in ("index.html", "app.js", "a.whl"):
        (tmp_path / name).write_text(name)
    kept = build.version(tmp_path)
    assert json.loads(kept["files"]) == ["./", "app.js"]
    (tmp_path / "app.js").write_text("another")
    assert build.version(tmp_path)["version"] != kept["version"]


def test_the_wheel_has_just_the_package_and_pip_installs_it(tmp_path: Path) -> None:
    name, data = build.wheel()
    assert build.wheel() == (name, data)
    (tmp_path / name).write_bytes(data)
    words = ["install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--target", str(tmp_path / "site")]
    pip = subprocess.run([sys.executable, "-m", "pip", *words, name], cwd=tmp_path, capture_output=True, text=True)
    assert pip.returncode == 0, pip.stderr
    (about,) = (tmp_path / "site").glob("*.dist-info")
    assert "Requires-Dist: chalk-diagrams" in (about / "METADATA").read_text("utf-8")
    for path, held in package().items():
        assert (tmp_path / "site" / path).read_bytes() == held
    others = [one for one in (tmp_path / "site").iterdir() if one.name not in ("lib", "drawing", about.name)]
    assert others == []
