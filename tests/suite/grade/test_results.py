"""The files for other programs: what stands in them, whatever students are called and whatever their code says."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lib.suite.course.solutions import run_of_file
from lib.suite.grade.gradebook import (
    Asked,
    Entry,
    Gradebook,
    Journal,
    Refused,
    Result,
    Score,
    Student,
    Traces,
    schedule_of,
)
from lib.suite.grade.results import COLUMNS, csv_of, file_names, is_ours, write_results
from lib.suite.submissions.locations import reference
from lib.trace.trace import Trace
from tests.suite.grade.classes import read_back

ASKED = (Asked("ddp", "Data parallel", 3, (("passes", 6.0, 2e6),), "passes", ("2 ranks, 3 layers, 2 batches",)),)


def book(name: str, message: str = "", state: str = "failed") -> Gradebook:
    own = Result("4 ranks", state, ("passes",) if state == "passed" else (), 5.6, 1572864.0, 3.0, 0, message)
    student = Student(name, (Score("ddp", state, own, file=name, hints=2),), (message,))
    return Gradebook(ASKED, (student,), (Refused(name, message),))


def rows(text: str) -> list[dict[str, str]]:
    assert text.startswith("\ufeff")
    return list(csv.DictReader(io.StringIO(text[1:])))


def test_a_row_for_each_student() -> None:
    (row,) = rows(csv_of(book("Ana", state="passed")))
    assert row["student"] == "Ana"
    assert (row["passed"], row["of"], row["ddp"], row["ddp goal"]) == ("1", "1", "passed", "passes")
    assert (row["ddp hidden passed"], row["ddp hidden of"], row["ddp time"]) == ("0", "1", "5.6")
    assert (row["ddp memory"], row["ddp hints"]) == ("1572864", "2")
    assert len(row) == 6 + len(COLUMNS) + 3
    assert row["feedback"].startswith("ana-")


def test_what_could_not_be_graded_is_in_the_row_of_its_student() -> None:
    unread = replace(book("Ana"), refused=(Refused("a/x.ipynb", "is cut off", "Ana"), Refused("b.ipynb", "is empty")))
    (row,) = rows(csv_of(unread))
    assert row["notes"].startswith("could not be graded: a/x.ipynb: is cut off")
    assert "b.ipynb" not in row["notes"]
    assert read_back(replace(unread, title="Exercise 3").to_json()).title == "Exercise 3"


@pytest.mark.parametrize("name", ["=1+1", "+1+1", "-1+1", "@x", "\tx", "\r=1", "=cmd|' /C calc'!A0"])
def test_no_name_is_a_formula(name: str) -> None:
    (row,) = rows(csv_of(book(name, message=name)))
    assert row["student"] == row["notes"]
    assert row["student"] in (f"'{name.strip()}", "x")


@given(name=st.text(max_size=20), message=st.text(max_size=50))
def test_every_text_is_whole_csv(name: str, message: str) -> None:
    assert len(rows(csv_of(book(name, message)))) == 1


def test_every_form_is_a_file(tmp_path: Path) -> None:
    found = book("half a character \ud800", "x")
    written = write_results(found, tmp_path / "new")
    assert [path.name for path in written] == ["scores.csv", "gradebook.json"]
    before = {path: path.read_bytes() for path in written}
    write_results(found, tmp_path / "new")
    assert {path: path.read_bytes() for path in written} == before


def test_a_schedule_is_the_same_whoever_wrote_it(tmp_path: Path) -> None:
    trace = run_of_file(reference("ddp"), "ddp")
    schedule = schedule_of(trace)
    other = replace(run_of_file(reference("ddp"), "ddp"), puzzle=None)
    assert schedule_of(other) == schedule
    stopped = [schedule_of(replace(trace, error=message)) for message in ("one", "another")]
    assert stopped[0] == stopped[1] != schedule
    traces = Traces(tmp_path / "traces")
    traces.keep(schedule)
    traces.keep(schedule)
    loaded = traces.load(schedule.digest)
    assert isinstance(loaded, Trace)
    assert schedule_of(loaded) == schedule
    assert [path.name for path in (tmp_path / "traces").iterdir()] == [f"{schedule.digest}.json.gz"]


def test_a_schedule_that_is_damaged_or_not_there_is_said(tmp_path: Path) -> None:
    from lib.errors.exceptions import NoTraceFile, TraceError

    traces = Traces(tmp_path)
    with pytest.raises(NoTraceFile, match="there is no schedule"):
        traces.load("0" * 16)
    with pytest.raises(ValueError, match="16 hexadecimal digits"):
        traces.path("../../etc/passwd")
    packed = schedule_of(run_of_file(reference("ddp"), "ddp"))
    for damage in (b"", b"x", packed.packed[:-10], packed.packed[:40] + b"\0\0\0" + packed.packed[43:]):
        (tmp_path / f"{packed.digest}.json.gz").write_bytes(damage)
        with pytest.raises(TraceError):
            traces.load(packed.digest)


@given(cut=st.integers(0, 400), noise=st.binary(max_size=30))
def test_a_journal_loses_nothing_but_the_line_that_was_cut(
    tmp_path_factory: pytest.TempPathFactory, cut: int, noise: bytes
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    score = book("Ana", "wrong").students[0].scores[0]
    journal = Journal(path)
    journal.add("k-1", Entry(score, ("walls",)))
    whole = path.stat().st_size
    journal.add("k-2", Entry(score, ()))
    journal.close()
    path.write_bytes(path.read_bytes()[: max(whole, path.stat().st_size - cut)] + noise)
    journal = Journal(path)
    try:
        known = journal.known("k-")
        assert known["k-1"] == Entry(score, ("walls",))
        journal.add("k-3", Entry(score, ()))
        assert set(journal.known("k-")) >= {"k-1", "k-3"}
        assert journal.known("other") == {}
    finally:
        journal.close()


# -- result names --------------------------------------------------------------------------------------------------

names = st.lists(st.text(st.characters(codec=None), max_size=80), max_size=12, unique=True)


@given(names)
@example(["", "../..", "CON", "李明", "a" * 300, "nul.txt", "\ud800", "\u202e", ".hidden", "-rf"])
def test_they_are_safe_on_every_system_and_differ(students: list[str]) -> None:
    found = file_names(students)
    assert len(set(found)) == len(students)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]{0,40}-[0-9a-f]{8}", name) for name in found)
    assert all(map(is_ours, found))


@given(names, st.data())
def test_a_name_follows_from_the_student_alone(students: list[str], data: st.DataObject) -> None:
    some = data.draw(st.lists(st.sampled_from(students), unique=True)) if students else []
    whole = dict(zip(students, file_names(students), strict=True))
    assert file_names(some) == [whole[name] for name in some]


def test_what_they_look_like() -> None:
    assert re.fullmatch("anna-schmidt-[0-9a-f]{8}", file_names(["Anna Schmidt"])[0])
    assert re.fullmatch("jose-nguyen-[0-9a-f]{8}", file_names(["José Nguyễn"])[0])
    assert re.fullmatch("jurgen-mussig-[0-9a-f]{8}", file_names(["Jürgen Müßig"])[0])
    assert len(set(file_names(["Anna", "anna", "ANNA", "Anna "]))) == 4


def test_digests_that_begin_alike_are_longer() -> None:
    # Found by search: their SHA-256 digests have the same first eight digits.
    first, second = "student 105881", "student 126831"
    alone = [name for student in (first, second) for name in file_names([student])]
    assert alone[0][-8:] == alone[1][-8:]
    assert [len(name) for name in file_names([first, second])] == [len("student-105881-") + 64] * 2
