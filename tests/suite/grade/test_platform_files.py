"""What goes back to a platform: its own export with the points in it, and the feedback under its own names."""

import tempfile
import zipfile
from pathlib import Path

import pytest

from lib.suite.grade.gradebook import Asked, Gradebook, Mark, Score, Student
from lib.suite.grade.gradebook import Result as Outcome
from lib.suite.grade.intake.collecting import collect
from lib.suite.grade.intake.roster import enrolled, read_roster
from lib.suite.grade.intake.submission import Collected
from lib.suite.grade.results import file_names, write_feedback, write_points
from tests.suite.grade.intake.trees import folder as hand_in
from tests.support.said import Said

MOODLE = """\
Identifier,Full name,Email address,Status,Grade,Maximum Grade,Last modified (grade),Feedback comments
Participant 410002,"Ode, Ben",b@x,No submission,,100.00,-,
Participant 410001,Ann_Lee,a@x,Submitted,,100.00,"Monday, 2 November 2026, 9:00 AM",
"""
CANVAS = """\
Student,ID,SIS User ID,SIS Login ID,Section,Exercise 2 (77),Exercise 3 (78),Current Score
    Points Possible,,,,,10,20,(read only)
"Lee, Ann",12345,s1,alee7,A,9,,90
"Ode, Ben",12346,s2,bode,A,8,,80
"""
BRIGHTSPACE = """\
OrgDefinedId,Username,Last Name,First Name,Exercise 3 Points Grade,End-of-Line Indicator
#7001,#alee7,Lee,Ann,,#
#7002,#bode,Ode,Ben,,#
"""


def returned(folder: Path, name: str, export: str, column: str) -> tuple[bytes, Path | None]:
    """The roster that goes back, and the zip, where somebody handed in a file; everybody has 4 of 5 points."""
    (folder / "export.csv").write_text(export, "utf-8")
    roster = read_roster(folder / "export.csv")
    handed_in = collect([hand_in(folder / "in", {name: "x = 1\n"})]) if name else Collected(())
    collected, problems = enrolled(handed_in, roster)
    assert problems == ()
    scores = (Score("ddp", "passed", Outcome("", "passed")),)
    students = tuple(
        Student(one.student, scores, (), one.roster_id, (Mark("ddp", 4, 5),)) for one in collected.submissions
    )
    book = Gradebook((Asked("ddp", "Data parallel", 3),), students)
    for file in file_names([student.name for student in students]):
        hand_in(folder / "out" / "feedback", {f"{file}.html": f"page {file}"})
    points = write_points(book, roster, column, folder / "out")
    return points.read_bytes(), write_feedback(book, collected, folder / "out")


def back(name: str, export: str, column: str) -> str:
    """Both files, the table as it is."""
    with tempfile.TemporaryDirectory() as folder:
        points, pages = returned(Path(folder), name, export, column)
        with zipfile.ZipFile(pages or "") as archive:
            assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
            return "\n".join([*points.decode().splitlines(), *archive.namelist()])


test_what_goes_back = Said(__file__, "returned").test(lambda: globals())


def test_moodle_takes_a_file_of_feedback_for_the_right_participant(tmp_path: Path) -> None:
    """As importziplib.php takes a name apart: at the first four underscores."""
    _, path = returned(tmp_path, "hw1/Ann Lee_410001_assignsubmission_file_/ddp.py", MOODLE, "Grade")
    with zipfile.ZipFile(path or "") as archive:
        (name,) = archive.namelist()
        assert name.split("_", 4)[1:] == ["410001", "assignsubmission", "file", "feedback.html"]
        assert archive.read(name).decode().startswith("page ann-lee-")


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "\u202eevil", "two\nlines", "李 小龙"])
def test_no_name_leaves_its_cell(tmp_path: Path, name: str) -> None:
    points, pages = returned(tmp_path, "", f'Identifier,Full name,Grade\nParticipant 9,"{name}",\n', "Grade")
    (line,) = points.decode().splitlines()[1:]
    assert line.startswith("Participant 9,")
    assert line.endswith(",4")
    assert ",=" not in line
    assert pages is None
