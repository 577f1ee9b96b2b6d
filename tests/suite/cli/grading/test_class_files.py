"""`puzzles grade` with a roster, points and marks by hand, from a download to what is uploaded; and the leaderboard."""

import csv
import io
import zipfile
from pathlib import Path

import pytest

from tests.suite.cli.commands import puzzles, words
from tests.suite.grade.classes import HARD_CODED, alternative, hand_in, solution

pytest.importorskip("jinja2")

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


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    options = ["--roster", "worksheet.csv", "--config", "grade.toml", "--marks", "marks.csv", "-j", "1", *arguments]
    paths = [str(folder / one) if one.endswith((".csv", ".toml")) else one for one in options]
    result = puzzles("grade", folder / "hw1", "-o", folder / "report", *paths)
    return result.exit_code, words(result)


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
    code, text = run(folder)
    assert code == 1, text
    assert "marks.csv, which the next run reads and never changes" in text
    return folder


def grades(folder: Path) -> dict[str, str]:
    with (folder / "report" / "moodle.csv").open(encoding="utf-8", newline="") as file:
        return {row["Identifier"].removeprefix("Participant "): row["Grade"] for row in csv.DictReader(file)}


def test_everybody_of_the_roster_is_in_what_goes_back(course: Path) -> None:
    assert grades(course) == {"410001": "80", "410002": "80", "410003": "40", "410004": "0"}
    text = (course / "report" / "scores.csv").read_text("utf-8-sig")
    rows = {row["id"]: row for row in csv.DictReader(io.StringIO(text))}
    assert [rows[str(number)]["group"] for number in NAMES.values()] == ["g1", "g0", "g1", "g0"]
    assert rows["410004"]["ddp"] == "absent"
    with zipfile.ZipFile(course / "report" / "feedback-moodle.zip") as archive:
        assert len(archive.namelist()) == 4
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
        code, said = run(course)
        assert code == 1
        assert "there is no student '9'" in said
        assert marks.read_bytes() == changed
        assert grades(course)["410001"] == "100"
        report = course / "report"
        (page,) = (report / "feedback").glob("ann-lee-*.html")
        assert "Well &lt;i&gt;said&lt;/i&gt;" in page.read_text("utf-8")
        assert "10 of 10 points (8 for the results, 2 by hand)" in page.with_suffix(".txt").read_text("utf-8")
        assert "Well <i>said</i>" in (report / "scores.csv").read_text("utf-8")
        assert "there is no student" in (report / "index.html").read_text("utf-8")
        files = {path: path.read_bytes() for path in report.rglob("*") if path.is_file()}
        run(course)
        assert {path: path.read_bytes() for path in report.rglob("*") if path.is_file()} == files
    finally:
        marks.write_bytes(before)
        run(course)


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
        code, text = run(course)
        assert (code, says in text) == (2, True), text
        assert {path: path.read_bytes() for path in (course / "report").rglob("*") if path.is_file()} == report
    finally:
        (course / name).write_bytes(before)
