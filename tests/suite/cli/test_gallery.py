"""`puzzles gallery`: equal schedules once, in the order of a figure, and nobody's name unless it is asked for."""

import re
from functools import partial
from pathlib import Path

import pytest

from lib.suite.cli.compare import grouped
from lib.suite.cli.entries import ALL, Entry, chosen, entries_of
from lib.suite.course.solutions import files_of, run_of_file
from lib.suite.isolation.isolation import Isolation
from lib.suite.isolation.messages import Sent
from lib.suite.submissions.locations import reference
from tests.suite.cli.commands import Page, puzzles

pytest.importorskip("jinja2")
pytestmark = pytest.mark.usefixtures("warm")
gallery = partial(puzzles, "gallery")
NAMES = ("ada", "bob", "eve<b>", "mallory", "trent")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five students: two with our answer, one with another, one who fails, and one who did nothing."""
    monkeypatch.chdir(tmp_path)
    ours, other = (path.read_text("utf-8") for path in list(files_of("gpipe").values())[:2])
    stub = "from lib import NotSolved\n\n\nasync def gpipe(model):\n    raise NotSolved('gpipe')\n"
    wrong = "async def gpipe(model):\n    model.forward(0, model.load_weights(0)[0])\n"
    for name, text in zip(NAMES, (ours, ours, other, wrong, stub), strict=True):
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / "gpipe.py").write_text(text, "utf-8")
    return tmp_path


def titles(html: str) -> list[str]:
    return [re.sub("&[^;]*;", "?", found) for found in re.findall("<h2>(.*?)</h2>", html)]


def test_equal_schedules_are_shown_once_without_names(folder: Path) -> None:
    result = gallery("gpipe", "class", "-o", "all.html")
    assert result.exit_code == 0, result.output
    assert "1 solution not shown: still the stub." in result.output
    html = (folder / "all.html").read_text("utf-8")
    assert titles(html) == [
        "GPipe: interleaved (ours) · 1 student",
        "GPipe: 1F1B (ours)",
        "GPipe (ours) · 2 students",
        "1 student: rank 0: the input of forward is not an activation",
    ]
    for text in (result.output, html, *(path.read_text() for path in (folder / "all_pictures").iterdir())):
        assert not any(name in text for name in NAMES)
    assert len(list((folder / "all_pictures").iterdir())) == 4
    for name in re.findall('src="(.*?)"', html):
        assert (folder / name).is_file()


def test_names_are_said_where_they_are_asked_for(folder: Path) -> None:
    assert gallery("gpipe", "class", "--names", "-o", "all.html").exit_code == 0
    html = (folder / "all.html").read_text("utf-8")
    assert "GPipe (ours) · ada, bob" in titles(html)
    assert "eve<b>" not in html
    assert "eve&lt;b&gt;" in html
    page = Page(html)
    assert page.tags.count("article") == 4


def test_the_fastest_comes_first_and_what_is_wrong_at_the_end() -> None:
    entries = entries_of(chosen([f"fsdp:{ALL}"]))
    bad = Entry("bad", "bad.py", "fsdp", trace=entries[0].trace, error="it failed")
    groups = grouped([bad, *entries])
    assert [group.first.correct for group in groups] == [True] * (len(groups) - 1) + [False]
    times = [group.first.figures["time"] for group in groups if group.first.figures]
    assert len(times) > 1
    assert times == sorted(times)


def test_times_that_a_trace_states_are_not_believed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process of a student's sends may state any times; what is drawn and sorted by is timed anew."""
    forged = run_of_file(reference("gpipe"), "gpipe")
    for _, event in forged.events():
        event.start = event.issued = 0
    monkeypatch.setattr(Isolation, "run", lambda *_: Sent("trace", trace=forged))
    found = entries_of(chosen(["class"], "gpipe"))
    assert {entry.figures["time"] for entry in found if entry.figures} == {33.8}
    assert len(found) == len(NAMES)
