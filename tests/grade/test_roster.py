"""The roster: whose each hand-in is, and that no row of a file that people write costs more than itself."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.grade.intake.collecting import collect
from lib.grade.intake.submission import Collected
from lib.grade.people.roster import Roster, enrolled, read_roster
from lib.grade.people.tables import TableError, moment, neutral, plain, read_table
from tests.grade.classes import hand_in

STUB = "async def ddp(model):\n    pass\n"


def roster(tmp_path: Path, text: str | bytes) -> Roster:
    path = tmp_path / "roster.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_roster(path)


def people(found: Roster) -> list[tuple[str, str]]:
    return [(person.id, person.name) for person in found.people]


def handed_in(tmp_path: Path, *names: str) -> Collected:
    return collect([hand_in(tmp_path / "hw1", {f"{name}/ddp.py": STUB for name in names})])


def moodle(name: str, number: int) -> str:
    return f"{name}_{number}_assignsubmission_file_"


def ids(collected: Collected) -> dict[str, tuple[str, int]]:
    """The id and the number of files of each student, by name."""
    return {one.student: (one.roster_id or one.id, len(one.files)) for one in collected.submissions}


# -- the file -------------------------------------------------------------------------------------------------------

TWO = [("1", "Ann Lee"), ("2", "Ben Ode")]


@pytest.mark.parametrize(
    "text",
    [
        "id,name\n1,Ann Lee\n2,Ben Ode\n",
        "\ufeffID;Name;group\r\n1;Ann Lee;a\r\n\r\n2;Ben Ode;b\r\n",
        "name\tid\nAnn Lee\t1\nBen Ode\t2",
        "Identifier,Full name,Grade\nParticipant 1,Ann Lee,\nParticipant 2,Ben Ode,\n",
        "OrgDefinedId,Last Name,First Name\n#1,Lee,Ann\n#2,Ode,Ben\n",
        "Student,ID,Section\n    Points Possible,,\nAnn Lee,1,a\nBen Ode,2,b\n",
        'id,name,more\n1,"Ann Lee","two\nlines, and a comma"\n2,Ben Ode,\n',
    ],
    ids=["plain", "excel", "tabs", "moodle", "brightspace", "canvas", "quoted"],
)
def test_a_list_in_any_of_these_forms_is_the_same_class(tmp_path: Path, text: str) -> None:
    found = roster(tmp_path, text)
    assert people(found) == TWO
    assert found.problems == ()


def test_what_excel_calls_unicode_text_is_read(tmp_path: Path) -> None:
    assert people(roster(tmp_path, "id\tname\n1\tZoë\n".encode("utf-16"))) == [("1", "Zoë")]


def test_another_encoding_is_read_and_named_with_its_line(tmp_path: Path) -> None:
    found = roster(tmp_path, "id,name\n1,Ann\n2,Zoë\n".encode("cp1252"))
    assert people(found) == [("1", "Ann"), ("2", "Zoë")]
    (problem,) = found.problems
    assert "line 3: is not UTF-8" in problem


def test_a_damaged_row_costs_itself_alone(tmp_path: Path) -> None:
    found = roster(tmp_path, 'id,name\n1,Ann Lee\n2,"Ben\n3,Cleo"x\n4,Dan\n5,"Eve"\n')
    assert people(found) == [("1", "Ann Lee"), ("3", 'Cleo"x'), ("4", "Dan"), ("5", "Eve")]
    (problem,) = found.problems
    assert problem.startswith("roster.csv, line 3: is not used")


def test_an_id_that_stands_twice_loses_nobody(tmp_path: Path) -> None:
    found = roster(tmp_path, "id,name\n1,Ann Lee\n1,Ben Ode\n1,Lee Ann\n,Cleo\n")
    assert people(found) == [("1", "Ann Lee"), ("", "Ben Ode"), ("", "Cleo")]
    assert [problem.partition(":")[0] for problem in found.problems] == [
        "roster.csv, line 3",
        "roster.csv, line 4",
        "roster.csv, line 5",
    ]


def test_a_comma_too_many_and_a_time_that_is_none_are_named(tmp_path: Path) -> None:
    found = roster(tmp_path, "id,name,deadline\n1,Ann,tomorrow\n2,Ben,2026-11-08 23:59,oops\n")
    assert len(found.people) == 2
    assert ["line 3" in found.problems[0], "line 2" in found.problems[1]] == [True, True]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no headings"),
        (b"name,group\nAnn,a\n", "no column of ids"),
        (b"id,group\n1,a\n", "no column of names"),
        (b"PK\x03\x04rest", "workbook"),
        (b"\x89PNG\r\n\x1a\n\0\0", "no headings"),
    ],
)
def test_what_is_no_roster_is_said(tmp_path: Path, data: bytes, says: str) -> None:
    with pytest.raises(TableError, match=says):
        roster(tmp_path, data)


@given(data=st.binary(max_size=300))
def test_no_bytes_make_it_fall_over(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("t") / "roster.csv"
    path.write_bytes(b"id,name\n" + data)
    table = read_table(path)
    assert len(table.rows) + len(table.problems) <= data.count(b"\n") + data.count(b"\r") + 3


@given(text=st.text(max_size=30))
def test_a_neutral_cell_is_one_line_and_can_be_read_again(text: str) -> None:
    cell = neutral(text)
    assert neutral(plain(cell)) == cell
    assert "\n" not in cell
    assert not cell.startswith(("=", "@", "|", "%"))


@pytest.mark.parametrize("text", ["2026-11-01 22:00", "Sunday, 1 November 2026, 10:00 PM", "2026-11-01-22-00"])
def test_a_time_is_read_as_platforms_write_it(text: str) -> None:
    found = moment(text)
    assert found is not None
    assert (found.day, found.hour) == (1, 22)


# -- whose a hand-in is ---------------------------------------------------------------------------------------------


def test_everybody_is_there_whether_they_handed_in_or_not(tmp_path: Path) -> None:
    found = roster(tmp_path, "id,name,group\n410001,Ann Lee,a\n410002,Ben Ode,b\n")
    collected, problems = enrolled(handed_in(tmp_path, moodle("Ann Lee", 410001), moodle("Eve Else", 9)), found)
    assert ids(collected) == {"Ann Lee": ("410001", 1), "Ben Ode": ("410002", 0), "Eve Else": ("9", 1)}
    assert problems == ("Eve Else handed something in and is not in the roster; the row is marked",)
    assert collected.submissions[0].more == (("group", "a"),)


def test_a_name_in_any_order_and_a_login_are_known(tmp_path: Path) -> None:
    found = roster(tmp_path, "id,name,email\n7,Ann Lee,alee7@example.org\n8,Ben Ode,bode@example.org\n")
    collected, problems = enrolled(handed_in(tmp_path, moodle("Lee, Ann", 410001), "bode"), found)
    assert ids(collected) == {"Ann Lee": ("7", 1), "Ben Ode": ("8", 1)}
    assert collected.submissions[0].id == "410001"
    assert problems == ()


def test_two_of_one_name_are_told_apart_by_their_ids_and_never_by_chance(tmp_path: Path) -> None:
    found = roster(tmp_path, "id,name\n1,Sam Same\n2,Sam Same\n")
    collected, problems = enrolled(handed_in(tmp_path, moodle("Sam Same", 1), moodle("Sam Same", 2)), found)
    assert ids(collected) == {"Sam Same (1)": ("1", 1), "Sam Same (2)": ("2", 1)}
    assert problems == ()
    (tmp_path / "b").mkdir()
    collected, problems = enrolled(handed_in(tmp_path / "b", "Sam Same", "x"), found)
    assert ids(collected)["Sam Same (1)"] == ("1", 0)
    assert "a name that several in the roster have" in problems[0]


def test_an_id_of_one_with_the_name_of_another_is_nobodys(tmp_path: Path) -> None:
    found = roster(tmp_path, "id,name\n1,Ann Lee\n2,Ben Ode\n")
    collected, problems = enrolled(handed_in(tmp_path, moodle("Ben Ode", 1), moodle("Quite Other", 2)), found)
    assert {name: files for name, (_, files) in ids(collected).items()} == {
        "Ann Lee": 0,
        "Ben Ode": 0,
        "Ben Ode [2]": 1,
        "Quite Other": 1,
    }
    assert sum("nobody gets it" in problem for problem in problems) == 2


def test_a_student_who_names_a_file_after_another_gives_them_nothing(tmp_path: Path) -> None:
    found = roster(tmp_path, "id,name\n1,Ann Lee\n2,Ben Ode\n")
    inner = f"{moodle('Ann Lee', 1)}/{moodle('Ben Ode', 2)}"
    collected, _ = enrolled(handed_in(tmp_path, inner, moodle("Cleo", 3)), found)
    assert ids(collected) == {"Ann Lee": ("1", 1), "Ben Ode": ("2", 0), "Cleo": ("3", 1)}


def test_names_of_every_kind_are_one_line_each(tmp_path: Path) -> None:
    names = ["<b>Ann</b>", "\u202eevil", "=1+1", "李 小龙", "two\nlines"]
    rows = "\n".join(f'{number},"{name}"' for number, name in enumerate(names, 1))
    collected, problems = enrolled(Collected(()), roster(tmp_path, f"id,name\n{rows}\n"))
    assert [one.roster_id for one in sorted(collected.submissions, key=lambda one: one.roster_id)] == [*"12345"]
    assert not any("\n" in one.student or "\u202e" in one.student for one in collected.submissions)
    assert problems == ()


@pytest.mark.parametrize(
    ("name", "text", "link"),
    [
        ("onlinetext.html", '<a href="https://colab.research.google.com/drive/1abc?usp=sharing">mine</a>', True),
        ("mine.url", "[InternetShortcut]\nURL=https://drive.google.com/file/d/1abc/view\n", True),
        ("onlinetext.html", "<p>I have no time, see example.org</p>", False),
    ],
)
def test_a_share_link_is_called_one(tmp_path: Path, name: str, text: str, link: bool) -> None:
    collected = collect([hand_in(tmp_path / "hw1", {f"{moodle('Ann Lee', 1)}/{name}": text})])
    (refused,) = collected.refused
    assert refused.student == "Ann Lee"
    assert ("links are not followed" in refused.why) == link
    assert refused.why.endswith("hand in the notebook itself")


def test_a_list_of_names_that_a_student_hands_in_names_nobody(tmp_path: Path) -> None:
    theirs = "submission_2:\n  :submitters:\n  - :name: Ann Lee\nben:\n  - :name: Ann Lee\n"
    own = "submission_1:\n  :submitters:\n  - :name: Ann Lee\nsubmission_2:\n  :submitters:\n  - :name: Ben Ode\n"
    folder = "assignment_9_export"
    files = {
        f"{folder}/submission_1/{name}": text
        for name, text in {"ddp.py": STUB, "submission_metadata.yml": theirs}.items()
    }
    files |= {f"{folder}/submission_2/ddp.py": STUB, f"{folder}/submission_metadata.yml": own}
    collected = collect([hand_in(tmp_path / "a", files) / folder])
    assert {one.student: one.id for one in collected.submissions} == {"Ann Lee": "1", "Ben Ode": "2"}
    plain = {"ann/ddp.py": STUB, "ann/submission_metadata.yml": theirs, "ben/ddp.py": STUB}
    assert {one.student for one in collect([hand_in(tmp_path / "hw", plain)]).submissions} == {"ann", "ben"}
