"""`puzzles grade`: what it leaves, what it says, and with which status it ends; a roster, and points by hand."""

import csv
import io
import json
import zipfile
from pathlib import Path

import pytest

from tests.suite.cli.commands import puzzles, words
from tests.suite.grade.classes import HARD_CODED, STUB, alternative, read_back, solution
from tests.suite.grade.intake.trees import folder as hand_in

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
    for name in ("scores.csv", "gradebook.json", "index.html"):
        assert (out / name).is_file()
    book = read_back((out / "gradebook.json").read_text("utf-8"))
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


NAMES = {"Ann Lee": 410001, "Ben Ode": 410002, "Zoë <b>Xu</b>": 410003, "Dan Dee": 410004}
WORKSHEET = "Identifier,Full name,Grade,Maximum Grade,Last modified (grade),alias,group\n" + "".join(
    f"Participant {number},{name},,100.00,-,{'Team Ring' if number == 410002 else ''},g{number % 2}\n"
    for name, number in NAMES.items()
)
CONFIG = """
title = "Exercise 3"
puzzles = ["ddp"]
[points]
correct = 4
hidden = 4
by_hand = 2
[puzzle.ddp]
hidden = [{ ranks = 4, layers = 3, batches = 4 }]
"""


def regrade(folder: Path) -> tuple[int, str]:
    files = ("--roster", folder / "worksheet.csv", "--config", folder / "grade.toml", "--marks", folder / "marks.csv")
    return run(folder / "hw1", "-o", folder / "report", *files, "--column", "Grade", "-j", "1")


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A class of four, of whom three handed in, graded once."""
    folder = tmp_path_factory.mktemp("course")
    codes = {
        "Ann Lee_410001": solution("ddp"),
        "Ben Ode_410002": alternative("ddp_overlap"),
        "Zoë Xu_410003": HARD_CODED,
    }
    hand_in(folder / "hw1", {f"{name}_assignsubmission_file_/ddp.py": code for name, code in codes.items()})
    (folder / "worksheet.csv").write_text(WORKSHEET, "utf-8")
    (folder / "grade.toml").write_text(CONFIG, "utf-8")
    code, text = regrade(folder)
    assert code == 1, text
    assert "marks.csv, which the next run reads and never changes" in text
    return folder


def grades(folder: Path) -> dict[str, str]:
    with (folder / "report" / "upload.csv").open(encoding="utf-8", newline="") as file:
        return {row["Identifier"].removeprefix("Participant "): row["Grade"] for row in csv.DictReader(file)}


def test_everybody_of_the_roster_is_in_what_goes_back(course: Path) -> None:
    assert grades(course) == {"410001": "8", "410002": "8", "410003": "4", "410004": "0"}
    text = (course / "report" / "scores.csv").read_text("utf-8-sig")
    rows = {row["id"]: row for row in csv.DictReader(io.StringIO(text))}
    assert [rows[str(number)]["group"] for number in NAMES.values()] == ["g1", "g0", "g1", "g0"]
    assert rows["410004"]["ddp"] == "absent"
    with zipfile.ZipFile(course / "report" / "feedback.zip") as archive:
        assert len(archive.namelist()) == 3
        for name in archive.namelist():
            number = name.split("_")[1]
            own = next(student for student, its in NAMES.items() if str(its) == number)
            page = archive.read(name).decode()
            assert own.replace("<", "&lt;").replace(">", "&gt;") in page
            assert not [other for other in NAMES if other != own and other in page]


def test_marks_by_hand_survive_a_second_run_and_are_everywhere(course: Path) -> None:
    marks = course / "marks.csv"
    before = marks.read_bytes()
    text = before.decode("utf-8-sig").replace("410001,Ann Lee,ddp,,", "410001,Ann Lee,ddp,2,Well <i>said</i>")
    marks.write_text(f"{text}9,Nobody,ddp,1,\n", "utf-8")
    changed = marks.read_bytes()
    try:
        code, said = regrade(course)
        assert code == 1
        assert "there is no student '9'" in said
        assert marks.read_bytes() == changed
        assert grades(course)["410001"] == "10"
        report = course / "report"
        (page,) = (report / "feedback").glob("ann-lee-*.html")
        assert "Well &lt;i&gt;said&lt;/i&gt;" in page.read_text("utf-8")
        assert "10 of 10 points (8 for the results, 2 by hand)" in page.with_suffix(".txt").read_text("utf-8")
        assert "Well <i>said</i>" in (report / "scores.csv").read_text("utf-8")
        assert "there is no student" in (report / "index.html").read_text("utf-8")
        files = {path: path.read_bytes() for path in report.rglob("*") if path.is_file()}
        regrade(course)
        assert {path: path.read_bytes() for path in report.rglob("*") if path.is_file()} == files
    finally:
        marks.write_bytes(before)
        regrade(course)


def test_a_leaderboard_has_the_names_that_were_chosen_and_no_others(course: Path) -> None:
    page = (course / "report" / "leaderboard.html").read_text("utf-8")
    assert "Team Ring" in page
    assert "1 student" in page
    assert "<dd>89 %</dd>" in page  # of the time, the reference computes
    assert page.count("<svg") == 2  # Zoë's is not correct at all sizes
    feedback = [path.stem for path in (course / "report" / "feedback").glob("*.html")]
    hidden = [*(word for name in NAMES for word in name.split()), *map(str, NAMES.values()), *feedback, "Xu", "g0"]
    assert [word for word in hidden if word in page] == []


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("worksheet.csv", b"a,b\n1,2\n", "has no column of ids"),
        ("marks.csv", b"PK\x03\x04", "is a workbook"),
        ("grade.toml", b"[points]\ncorrect = '__import__(1)'", "a number from 0 to 1,000"),
    ],
)
def test_a_file_that_cannot_be_used_is_said_before_anything_runs(
    course: Path, name: str, data: bytes, says: str
) -> None:
    before = (course / name).read_bytes()
    report = {path: path.read_bytes() for path in (course / "report").rglob("*") if path.is_file()}
    try:
        (course / name).write_bytes(data)
        code, text = regrade(course)
        assert (code, says in text) == (2, True), text
        assert {path: path.read_bytes() for path in (course / "report").rglob("*") if path.is_file()} == report
    finally:
        (course / name).write_bytes(before)
