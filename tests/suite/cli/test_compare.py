"""`puzzles compare`: what may be compared, what is refused, and the files that come of it."""

import re
from functools import partial
from pathlib import Path

import pytest

from lib import Trace, simulate
from lib.suite.cli.entries import chosen
from lib.suite.grade.intake.archives import FORMATS
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference
from tests.suite.cli.commands import STUB, Page, puzzles
from tests.suite.grade.intake.trees import tar_bytes, zip_bytes

pytestmark = pytest.mark.usefixtures("warm")
compare = partial(puzzles, "compare")

NASTY = "<script>alert(1)</script>&\"'[red]"
ESCAPES = "\x1b[2J\u202e"
WRONG = "async def basic(model):\n    model.forward(0, model.get_activation([0]), model.load_weights(1)[0])\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("ending", FORMATS)
def test_archives_of_a_class_are_those_that_are_graded(folder: Path, ending: str) -> None:
    files = {f"{name}/basic.py": reference("basic").read_bytes() for name in ("ann", "bob")}
    packed = zip_bytes(files) if ending == ".zip" else tar_bytes(files, "w" if ending == ".tar" else "w:gz")
    (folder / f"class{ending}").write_bytes(packed)
    found = chosen([f"class{ending}"], "basic")
    assert [subject.name for subject in found] == ["ann", "bob"]


def test_what_fails_is_a_row_and_stops_nothing(folder: Path) -> None:
    (folder / "wrong.py").write_text(WRONG)
    (folder / "stub.py").write_text(STUB)
    (folder / "broken.py").write_text("def basic(model:\n")
    (folder / "damaged.json").write_text('{"format": 3}')
    files = ["wrong.py", "stub.py", "broken.py", "damaged.json"]
    result = compare(*files, "basic", "--puzzle", "basic", "-o", "all.html")
    assert result.exit_code == 1, result.output
    rows = {
        row[1].strip(): row[2].strip()
        for row in (line.split("│") for line in result.output.splitlines())
        if row[2:] and row[1].strip()
    }
    assert rows == dict.fromkeys(files, "failed") | {"stub.py": "not solved", "basic": "correct"}
    page = Page((folder / "all.html").read_text())
    assert "broken.py, line 1: '(' was never closed" in page.text
    assert "wrong.py, line 2" in page.text
    assert page.tags.count("tr") == 1 + 5


def test_a_run_that_leaves_something_out_is_never_the_best(folder: Path) -> None:
    models = simulate(load_function(reference("basic"), "basic"), puzzle="basic", layers=1)
    trace = Trace.of(models)
    trace.save(folder / "short.json")
    result = compare("short.json", "basic", "--puzzle", "basic")
    assert "not correct" in result.output
    assert "*" not in result.output.split("short.json", 1)[1].splitlines()[0]


def test_a_page_is_whole_and_escaped(folder: Path) -> None:
    (folder / "wrong.py").write_text(WRONG.replace("model.forward", f"raise ValueError({NASTY!r})\n    model.forward"))
    result = compare(f"{NASTY}=basic", "wrong.py", "--puzzle", "basic", "-o", "all.html")
    assert NASTY in result.output
    html = (folder / "all.html").read_text()
    page = Page(html)
    assert page.tags.count("script") == 1
    assert "alert(1)" in page.text
    assert "<script>alert" not in html
    assert all(value.startswith("#") for value in page.values("src", "href"))
    assert "default-src 'none'" in html
    before = html.encode()
    compare(f"{NASTY}=basic", "wrong.py", "--puzzle", "basic", "-o", "all.html")
    assert (folder / "all.html").read_bytes() == before


def test_runs_of_different_puzzles_are_named_in_words_and_differ_from_the_start(folder: Path) -> None:
    result = compare("ddp", "gpipe", "fsdp", "--layers", "8", "--batches", "4", "-o", "all.svg")
    assert "first differ" not in result.output
    svg = (folder / "all.svg").read_text("utf-8")
    for name in ("DDP, GPipe and FSDP", "Distributed data parallel (DDP)", "Fully sharded data parallel (FSDP)"):
        assert f">{name}</text>" in svg
    assert "first differ" not in svg
    assert "first differ" in compare("gpipe", "gpipe:one_f_one_b").output


def test_a_picture_for_a_slide_has_its_shape_and_no_frame(folder: Path) -> None:
    for shape in ("16:9", "4:3", "1:1"):
        assert compare("basic", "grad_accum", "--frame", "none", "--aspect", shape, "-o", "a.svg").exit_code == 0
        svg = (folder / "a.svg").read_text("utf-8")
        width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0])
        wide, high = map(int, shape.split(":"))
        assert width / height == pytest.approx(wide / high, abs=0.002)
        assert 'rx="6"' not in svg
    assert compare("basic", "-o", "a.svg").exit_code == 0
    assert 'rx="6"' in (folder / "a.svg").read_text("utf-8")


def test_ranks_have_rows_of_their_own_where_that_is_asked_for(folder: Path) -> None:
    rows: list[int] = []
    for options in ([], ["--unfold"]):
        assert compare("ddp", *options, "-o", "a.svg").exit_code == 0
        rows.append(len(re.findall(">rank [0-3]</text>", (folder / "a.svg").read_text("utf-8"))))
    assert rows == [0, 4]


def test_what_a_terminal_would_obey_is_made_visible(folder: Path) -> None:
    (folder / "wrong.py").write_text(f"def basic(model):\n    raise ValueError({ESCAPES!r})\n", "utf-8")
    result = compare(f"{ESCAPES}=wrong.py", "--puzzle", "basic", "-o", "all.html")
    for text in (result.output, (folder / "all.html").read_text("utf-8")):
        assert "⟨U+001B⟩[2J⟨U+202E⟩" in text
        assert not set(ESCAPES[0::4] + ESCAPES[-1]) & set(text)
