"""`puzzles grade`: what it leaves, what it says, and with which status it ends."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.suite.cli.grading.command import Changes
from lib.suite.grade.gradebook import Gradebook
from tests.suite.cli.commands import puzzles, words
from tests.suite.grade.classes import HARD_CODED, STUB, alternative, hand_in, solution

pytest.importorskip("jinja2")
pytest.importorskip("joblib")


def run(*arguments: str | Path) -> tuple[int, str]:
    result = puzzles("grade", *arguments)
    return result.exit_code, words(result)


@pytest.fixture
def passing(tmp_path: Path) -> Path:
    return hand_in(tmp_path / "in", {"ana/ddp.py": solution("ddp"), "ben/ddp.py": solution("ddp") + "\n# mine\n"})


def test_a_class_that_passes(passing: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    code, text = run(passing, "--out", out, "-j", "1")
    assert code == 0, text
    assert "2 students" in text
    assert "What kept each run apart" in text
    assert str(out / "index.html") in text
    for name in ("scores.csv", "gradebook.json", "junit.xml", "index.html"):
        assert (out / name).is_file()
    book = Gradebook.from_json((out / "gradebook.json").read_text("utf-8"))
    assert [one.puzzle for one in book.asked] == ["ddp"]
    assert book.passed
    assert "llm-training-puzzles" in book.made_by
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert run(passing, "--out", out, "-j", "1")[0] == 0
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_an_archive_and_a_folder(passing: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as archive:
        archive.writestr("cleo/ddp.py", HARD_CODED)
        archive.writestr("dan/ddp.py", STUB)
    out = tmp_path / "report"
    code, _ = run(passing, tmp_path / "more.zip", "--out", out, "-j", "1")
    assert code == 1
    data = json.loads((out / "gradebook.json").read_text("utf-8"))
    states = {student["name"]: student["scores"][0]["state"] for student in data["students"]}
    assert states == {"ana": "passed", "ben": "passed", "cleo": "partly", "dan": "unsolved"}


@pytest.mark.parametrize(("need", "status"), [("correct", 0), ("first", 1), ("passes", 1), ("best", 1)])
def test_need_says_what_counts_as_passed(tmp_path: Path, need: str, status: int) -> None:
    folder = hand_in(tmp_path / "in", {"ben/ddp.py": alternative("ddp_sharded_update")})
    assert run(folder, "--out", tmp_path / "report", "--need", need, "-j", "1")[0] == status


def test_hidden_sizes_are_drawn_and_a_file_says_more(passing: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    (tmp_path / "grade.toml").write_text("title = 'x'\n[puzzle.ddp]\nhidden = 3\n", "utf-8")
    assert run(passing, "--out", out, "--config", tmp_path / "grade.toml", "--seed", "spring", "-j", "1")[0] == 0
    asked = json.loads((out / "gradebook.json").read_text("utf-8"))["asked"][0]
    assert len(asked["hidden"]) == 3


@pytest.mark.parametrize("told", [False, True])
def test_students_are_told_at_which_sizes_they_failed_where_the_file_says_so(tmp_path: Path, told: bool) -> None:
    place = hand_in(tmp_path / "in", {"cleo/ddp.py": HARD_CODED})
    config = tmp_path / "grade.toml"
    sizes = "[puzzle.ddp]\nhidden = [{ ranks = 5, layers = 3, batches = 5 }]\n"
    config.write_text(f"tell_sizes = {str(told).lower()}\n{sizes}", "utf-8")
    assert run(place, "--out", tmp_path / "report", "--config", config, "-j", "1")[0] == 1
    (page,) = (tmp_path / "report" / "feedback").glob("*.txt")
    assert ("5 ranks, 3 layers, 5 batches" in page.read_text("utf-8")) == told


def test_a_package_that_is_missing_is_said_first(passing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.extras.find_spec", lambda name: None)
    code, text = run(passing)
    assert code == 1
    assert 'puzzles grade needs the extra "grade": pip install' in text


def test_a_drop_folder_is_looked_at_after_each_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is only touched is none; what still grows is waited for."""
    monkeypatch.setattr("lib.suite.cli.grading.command.QUIET", 0.02)
    file = tmp_path / "ddp.py"
    file.write_text("a", "utf-8")

    def events(*folders: Path, **options: object) -> Iterator[set[object]]:
        assert (folders, options["raise_interrupt"]) == ((tmp_path,), True)
        yield set()  # nothing has changed
        file.write_text("ab", "utf-8")
        yield set()

    monkeypatch.setattr("watchfiles.watch", events)
    assert [file.read_text("utf-8") for _ in Changes([tmp_path])] == ["ab"]


def test_watching_grades_what_comes_and_ends_with_ctrl_c(
    passing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("watchfiles")
    monkeypatch.setattr("lib.suite.cli.grading.command.QUIET", 0.02)
    scores = tmp_path / "report" / "scores.csv"
    graded: list[bool] = []

    def events(*folders: Path, **options: object) -> Iterator[set[object]]:
        graded.append("cleo" in scores.read_text("utf-8"))
        hand_in(passing, {"cleo/ddp.py": HARD_CODED})
        yield set()
        graded.append("cleo" in scores.read_text("utf-8"))
        raise KeyboardInterrupt

    monkeypatch.setattr("watchfiles.watch", events)
    code, text = run(passing, "--out", tmp_path / "report", "--watch", "-j", "1")
    assert (code, graded, "Watching for more" in text) == (0, [False, True], True)
