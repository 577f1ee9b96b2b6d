"""The made-up class: what each student hands in comes out as it is meant to, and is the same every time."""

from pathlib import Path

import pytest

from lib.suite.grade.intake.collecting import collect
from lib.suite.grade.intake.roster import enrolled, read_roster
from tests.suite.cli.commands import puzzles, words
from tools.example_class import STUDENTS, write_class


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("class")
    write_class(place)
    return place


def test_they_are_taken_in_as_what_moodle_gives(folder: Path) -> None:
    collected = collect([folder])
    assert [one.student for one in collected.submissions] == [f"{name} Example" for name in STUDENTS]


def test_the_same_bytes_every_time(folder: Path, tmp_path: Path) -> None:
    for path in write_class(tmp_path):
        assert path.read_bytes() == (folder / path.relative_to(tmp_path)).read_bytes()


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "36 files of 12 students who do not exist" in words(puzzles("demo", "--class"))
    assert len([*(tmp_path / "class").iterdir()]) == 12


def test_a_larger_class_has_everybody_in_its_roster_and_one_more(tmp_path: Path) -> None:
    write_class(tmp_path / "class", 15)
    collected = collect([tmp_path / "class"])
    roster = read_roster(tmp_path / "class" / "roster.csv")
    everybody, problems = enrolled(collected, roster)
    assert problems == ()
    assert [len(one.submissions) for one in (collected, everybody)] == [15, 16]
    assert [one.student for one in everybody.submissions if not one.files] == ["Nobody Example"]
    codes = [one.files[0].source().cells for one in collected.submissions if one.student.startswith("Alma")]
    assert len(set(codes)) == 2
