"""The roster: whose each hand-in is, and that no row of a file that people write costs more than itself."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.suite.grade.intake.collecting import collect
from lib.suite.grade.intake.roster import Roster, enrolled, moment, neutral, plain, read_roster, read_table
from tests.suite.grade.intake.trees import folder as hand_in
from tests.support.said import Said

STUB = "async def ddp(model):\n    pass\n"


def roster(text: str | bytes) -> Roster:
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder, "roster.csv")).write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_roster(path)


def people(text: str | bytes) -> str:
    """Everybody in a roster with this in it, and what is wrong with it."""
    found = roster(text)
    return "\n".join([*(f"{person.id or 'no id'}: {person.name}" for person in found.people), *found.problems])


def whose(text: str, *names: str) -> str:
    """Everybody, where these folders were handed in, with the ids of the roster and of the folder."""
    with tempfile.TemporaryDirectory() as folder:
        handed_in = collect([hand_in(Path(folder, "hw1"), {f"{name}/ddp.py": STUB for name in names})] if names else [])
    collected, problems = enrolled(handed_in, roster(text))
    rows = [
        f"{one.student}: {one.roster_id or 'not enrolled'} ({one.id or 'no id'}), {len(one.files)} files, {one.more}"
        for one in collected.submissions
    ]
    return "\n".join([*rows, *problems])


def moodle(name: str, number: int) -> str:
    return f"{name}_{number}_assignsubmission_file_"


def linked(name: str, text: str) -> str:
    """Why a hand-in is refused that is no more than this."""
    with tempfile.TemporaryDirectory() as folder:
        (refused,) = collect([hand_in(Path(folder), {f"{moodle('Ann Lee', 1)}/{name}": text})]).refused
    return f"{refused.student}: {refused.why}"


test_what_is_read = Said(__file__, "rosters").test(lambda: globals() | {"moment": moment})


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
