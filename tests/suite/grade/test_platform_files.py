"""What goes back to a platform: read as the platform's own importer reads it, from the sources that each row names."""

import csv
import io
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from lib.suite.grade.gradebook import Asked, Gradebook, Mark, Score, Student
from lib.suite.grade.gradebook import Result as Outcome
from lib.suite.grade.intake.collecting import PLATFORMS, collect
from lib.suite.grade.intake.roster import Roster, enrolled, read_roster
from lib.suite.grade.intake.submission import Collected
from lib.suite.grade.results import RETURNS, Class, Return, file_names, returning, write_returns
from tests.suite.grade.classes import hand_in
from tests.support.said import Said

ASKED = Asked("ddp", "Data parallel", 3)
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
OrgDefinedId,Username,Last Name,First Name,End-of-Line Indicator
#7001,#alee7,Lee,Ann,#
#7002,#bode,Ode,Ben,#
"""


def returned(
    tmp_path: Path, names: Sequence[str], export: str = "", also: Sequence[str] = ()
) -> tuple[dict[str, bytes], Class]:
    """What is written for a class that handed in these files; everybody has 4 of 5 points and a comment."""
    collected = collect([hand_in(tmp_path / "in", dict.fromkeys(names, "x = 1\n"))]) if names else Collected(())
    roster = Roster()
    if export:
        (tmp_path / "export.csv").write_text(export, "utf-8")
        roster = read_roster(tmp_path / "export.csv")
        collected, problems = enrolled(collected, roster)
        assert problems == ()
    score = Score("ddp", "passed", Outcome("", "passed"))
    students = tuple(
        Student(one.student, (score,), (), one.roster_id or one.id, (Mark("ddp", 4, 5, "", None, "=1\nGood"),))
        for one in collected.submissions
    )
    group = Class(
        Gradebook((ASKED,), students, title="Exercise 3"), roster, {one.student: one for one in collected.submissions}
    )
    for file in file_names([student.name for student in students]):
        hand_in(tmp_path / "out" / "feedback", {f"{file}.html": f"page {file}"})
    written = write_returns(group, returning(collected, roster, also), tmp_path / "out")
    assert written == write_returns(group, returning(collected, roster, also), tmp_path / "out")
    return {path.name: path.read_bytes() for path in written}, group


def rows(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


def names_in(data: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        return archive.namelist()


def back(*names: str, export: str = "", also: Sequence[str] = ()) -> str:
    """Everything that is written, tables as they are."""
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, data in returned(Path(folder), names, export, also)[0].items():
            said += [f"{name}:", *(data.decode().splitlines() if name.endswith(".csv") else names_in(data))]
    return "\n".join(said)


test_what_goes_back = Said(Path(__file__).with_name("said") / "returned.txt").test(lambda: globals())


def moodle_participant(name: str) -> tuple[int, str, str, str]:
    """As importziplib.php takes a name apart: at the first four underscores."""
    _, participant, kind, plugin, rest = name.split("_", 4)
    return int(participant), kind, plugin, rest


HANDED_IN = "hw1/Ann Lee_410001_assignsubmission_file_/ddp.py"


def test_moodle_takes_each_file_of_feedback_for_the_right_participant(tmp_path: Path) -> None:
    files, group = returned(tmp_path, [HANDED_IN], MOODLE)
    found = {moodle_participant(name) for name in names_in(files["feedback-moodle.zip"])}
    assert found == {(number, "assignsubmission", "file", "feedback.html") for number in (410001, 410002)}
    with zipfile.ZipFile(io.BytesIO(files["feedback-moodle.zip"])) as archive:
        for name in archive.namelist():
            (student,) = (one for one in group.book.students if one.id == str(moodle_participant(name)[0]))
            assert archive.read(name).decode() == f"page {file_names([student.name])[0]}"


def test_what_an_earlier_grading_wrote_for_another_platform_goes(tmp_path: Path) -> None:
    files, group = returned(tmp_path, [HANDED_IN])
    assert set(files) == {"moodle.csv", "feedback-moodle.zip"}
    assert write_returns(group, [], tmp_path / "out") == []
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["feedback"]


@pytest.mark.parametrize(
    "name", ["=cmd|' /C calc'!A0", "<b>x</b>", "\u202eevil", "two\nlines", "a_1_b/../c", "李 小龙"]
)
def test_no_name_leaves_its_cell_or_its_folder(tmp_path: Path, name: str) -> None:
    quoted = name.replace('"', '""')
    files, _ = returned(tmp_path, [], f'Identifier,Full name,Grade\nParticipant 9,"{quoted}",\n')
    (row,) = rows(files["moodle.csv"])
    assert row["Identifier"] == "Participant 9"
    assert not row["Full name"].startswith("=")
    (path,) = names_in(files["feedback-moodle.zip"])
    assert "/" not in path
    assert moodle_participant(path)[0] == 9


def test_every_row_is_of_a_platform_and_says_where_its_forms_are_written() -> None:
    assert {one.platform for one in RETURNS} <= {platform.name for platform in PLATFORMS}
    assert all(one.documented and one.documented[0].startswith("https://") for one in RETURNS)


def test_one_more_platform_is_one_more_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row alone: its files are written, and nothing else has to know of it."""
    row = row_of("Sakai")
    monkeypatch.setattr("lib.suite.grade.results.RETURNS", (*RETURNS, row))
    files, _ = returned(tmp_path, ["hw1/Lee, Ann(alee7)/Submission attachment(s)/ddp.py"])
    assert files["sakai.csv"] == b"Display ID,grade\r\nalee7,4\r\n"
    assert names_in(files["feedback-sakai.zip"]) == ["Lee, Ann(alee7)/Submission attachment(s)/feedback.html"]


def row_of(platform: str) -> Return:
    """A row such as an engineer would add."""

    def table(group: Class) -> list[list[str]]:
        found = [[its_id, f"{student.points:g}"] for _, its_id, student in group.rows(platform)]
        return [["Display ID", "grade"], *found]

    return RETURNS[1]._replace(platform=platform, headings=frozenset({"Display ID"}), table=table)
