"""Points: what follows from results, what being late costs, which attempt counts, and what people add by hand."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.grade.assignment import AssignmentError, Config, read_config
from lib.grade.gradebook import Asked, Gradebook, Mark, Result, Score, Student
from lib.grade.grading import grade
from lib.grade.intake.collecting import collect
from lib.grade.intake.submission import Collected
from lib.grade.people.marks import by_hand, to_fill_in
from lib.grade.people.points import TERMS, Late, Rules, of_puzzle
from lib.grade.people.tables import TableError
from lib.grade.results.scores import csv_of
from tests.grade.classes import HARD_CODED, alternative, hand_in, solution
from tests.support.said import Said

ASKED = Asked("ddp", "Data parallel", 3, (("passes", 6, 2e6), ("best", 5, 1e6)), "passes", ("a size", "another"))
FUNCTION = Asked("process_map", "A map", 17)


def score(state: str = "passed", goals: tuple[str, ...] = ("passes",), hidden: str = "passed failed") -> Score:
    elsewhere = tuple(Result("there", one) for one in hidden.split())
    return Score("ddp", state, Result("here", state, goals), elsewhere)


def config(tmp_path: Path, text: str) -> Config:
    (tmp_path / "grade.toml").write_text(text, "utf-8")
    return read_config(tmp_path / "grade.toml")


# -- a sum ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("term", "of", "points"),
    [("passed", 1, 1), ("correct", 1, 1), ("hidden", 1, 0.5), ("first", 1, 1), ("best", 1, 0), ("goal", 2, 1)],
)
def test_each_term_gives_its_share(term: str, of: float, points: float) -> None:
    assert of_puzzle(score(), ASKED, {term: 1}) == (points, of)


def test_terms_add_up_and_what_is_not_there_does_not_count() -> None:
    weights = {"correct": 4.0, "hidden": 2.0, "first": 1.0, "best": 1.0, "by_hand": 2.0}
    assert of_puzzle(score(), ASKED, weights) == (6, 10)
    assert of_puzzle(Score("process_map", "passed", Result("", "passed")), FUNCTION, weights) == (4, 6)
    assert of_puzzle(score("failed", ()), ASKED, weights) == (0, 10)


@given(state=st.sampled_from(["passed", "missed", "failed", "unsolved", "absent"]), goals=st.integers(0, 2))
def test_points_are_never_more_than_there_are(state: str, goals: int) -> None:
    one = score(state, ("passes", "best")[:goals] if state in ("passed", "missed") else ())
    for term in TERMS:
        points, of = of_puzzle(one, ASKED, {term.name: 3.0})
        assert 0 <= points <= of


def test_an_option_says_the_same_as_a_file(tmp_path: Path) -> None:
    said = Config().with_options(points="correct=4 hidden=2, by_hand=1.5").rules
    assert said.weights("ddp") == config(tmp_path, "points = {correct = 4, hidden = 2, by_hand = 1.5}").rules.weights(
        "x"
    )
    for wrong in ("correct", "correct=__import__('os')", "all=1", "correct=1e9"):
        with pytest.raises(AssignmentError, match="is not understood"):
            Config().with_options(points=wrong)


def test_one_puzzle_may_be_worth_more(tmp_path: Path) -> None:
    rules = config(tmp_path, "points = {correct = 1}\n[puzzle.fsdp.points]\ncorrect = 3\n").rules
    assert [rules.weights(puzzle)["correct"] for puzzle in ("ddp", "fsdp")] == [1, 3]


# -- being late -----------------------------------------------------------------------------------------------------

DUE = datetime(2026, 11, 1, 23, 59)


@pytest.mark.parametrize(
    ("late", "points"),
    [
        (timedelta(days=-1), 10),
        (timedelta(0), 10),
        (timedelta(minutes=15), 10),
        (timedelta(minutes=16), 9),
        (timedelta(days=1), 9),
        (timedelta(days=1, seconds=1), 8),
        (timedelta(days=2, seconds=1), 0),
    ],
)
def test_each_day_that_is_begun_costs(late: timedelta, points: float) -> None:
    rules = Rules({"": {"correct": 10.0}}, late=Late(10, 15, 2))
    mark = rules.mark(score(), ASKED, DUE + late, DUE, False)
    assert (mark.points, mark.of) == (points, 10)
    assert bool(mark.late) == (points < 10)


def test_what_a_platform_marks_as_late_is_late_by_a_day() -> None:
    rules = Rules({"": {"correct": 10.0}}, late=Late(10))
    assert rules.mark(score(), ASKED, None, None, True).points == 9
    assert rules.mark(score(), ASKED, None, DUE, False).points == 10


def test_an_extension_is_by_id_or_name_and_goes_before_the_roster() -> None:
    later, latest = DUE + timedelta(days=1), DUE + timedelta(days=7)
    rules = Rules(deadline=DUE, extensions={"4": latest, "Ben Ode": later})
    assert rules.due("4", "Ann Lee", "2026-12-24") == latest
    assert rules.due("5", "Ben Ode") == later
    assert rules.due("6", "Cleo", "2026-12-24") == datetime(2026, 12, 24)
    assert rules.due("6", "Cleo", "soon") == DUE


def blackboard(name: str, day: int) -> str:
    return f"HW 1_{name}_attempt_2026-11-{day:02d}-10-00-00_ddp.py"


@pytest.mark.parametrize(("attempts", "points"), [("latest", [3.2, 4]), ("best", [4, 4])])
def test_the_best_attempt_is_the_one_that_is_worth_most(tmp_path: Path, attempts: str, points: list[float]) -> None:
    """ana's second attempt is later by two days and no better, ben's is better by more than it costs."""
    files = {
        blackboard("ana", 1): solution("ddp"),
        blackboard("ana", 3): solution("ddp"),
        blackboard("ben", 1): HARD_CODED,
        blackboard("ben", 2): alternative("ddp_overlap"),
    }
    text = f"""
attempts = "{attempts}"
deadline = 2026-11-02
hidden = 1
seed = 1
points = {{ correct = 2, hidden = 2 }}
late = {{ percent = 20 }}
"""
    assignment = config(tmp_path, text).with_options(puzzles=["ddp"]).assignment()
    book = grade(collect([hand_in(tmp_path / "gradebook", files)]), assignment, tmp_path / "out")
    assert [student.points for student in book.students] == points
    assert all("of 2 attempts counts" in student.notes[-1] for student in book.students) == (attempts == "best")
    assert Gradebook.from_json(book.to_json()) == book
    again = grade(collect([tmp_path / "gradebook"]), assignment, tmp_path / "out")
    assert again == book


def test_a_folder_that_a_student_calls_after_an_early_day_is_no_time(tmp_path: Path) -> None:
    text = "deadline = 2026-11-02\nlate = { percent = 20 }\n"
    assignment = config(tmp_path, text).with_options(puzzles=["ddp"], hidden=0).assignment()
    names = ["Ann Lee_1_assignsubmission_file_/2026-12-01/ddp.py", "Ben Ode_2_assignsubmission_file_/2026-10-01/ddp.py"]
    collected = collect([hand_in(tmp_path / "hw1", dict.fromkeys(names, solution("ddp")))])
    late = tuple(replace(one, more=(("submitted", "2026-11-03 10:00"),)) for one in collected.submissions)
    book = grade(replace(collected, submissions=late), assignment, tmp_path / "out")
    assert [student.points for student in book.students] == [0.8, 0.8]


def test_who_handed_in_nothing_has_a_row_and_no_points(tmp_path: Path) -> None:
    from lib.grade.intake.submission import Submission

    assignment = Config().with_options(puzzles=["ddp"], hidden=0).assignment()
    book = grade(Collected((Submission("Ann", (), roster_id="7"),)), assignment, tmp_path)
    (student,) = book.students
    assert (student.id, student.points, student.of, student.scores[0].state) == ("7", 0, 1, "absent")


# -- by hand --------------------------------------------------------------------------------------------------------

BOOK = Gradebook(
    (ASKED, replace(ASKED, puzzle="fsdp")),
    tuple(
        Student(name, (score(), score()), (), its_id, (Mark("ddp", 4, 6), Mark("fsdp", 1, 6)))
        for its_id, name in (("1", "Ann Lee"), ("2", "=Ben"), ("", "Cleo"))
    ),
)
RULES = Rules({"": {"correct": 4.0, "by_hand": 2.0}})


def marked(tmp_path: Path, *texts: str | bytes) -> Gradebook:
    paths: list[Path] = []
    for number, text in enumerate(texts):
        paths.append(tmp_path / f"marks{number}.csv")
        paths[-1].write_bytes(text if isinstance(text, bytes) else text.encode())
    return by_hand(BOOK, paths, RULES)


def test_marks_are_added_and_comments_kept(tmp_path: Path) -> None:
    text = 'id,student,puzzle,points,comment\n1,Ann Lee,ddp,1.5,"Good, <b>really</b>"\n,Cleo,,-1,late talk\n'
    book = marked(tmp_path, text)
    ann, _, cleo = book.students
    assert (ann.points, ann.mark("ddp").total, ann.mark("ddp").comment) == (6.5, 5.5, "Good, <b>really</b>")
    assert (cleo.points, cleo.mark().comment) == (4, "late talk")
    assert book.problems == ()
    assert book.passed == BOOK.passed
    assert "late talk" in csv_of(book)


def test_two_people_keep_a_file_each(tmp_path: Path) -> None:
    first = "id;student;puzzle;points;comment\n1;Ann Lee;ddp;1,5;A\n"
    book = marked(tmp_path, first, "id,puzzle,points,comment\n1,ddp,2,B\n2,ddp,2,C\n")
    assert book.students[0].mark("ddp").by_hand == 1.5
    assert book.students[0].mark("ddp").comment == "A\nB"
    assert book.students[1].mark("ddp").by_hand == 2
    (problem,) = book.problems
    assert problem.startswith("marks1.csv, line 2: Ann Lee has 1.5 points there by marks0.csv, line 2")


SAID = Said(Path(__file__).with_name("said") / "marks.txt")


@pytest.mark.parametrize("expression", SAID.texts)
def test_a_row_that_cannot_be_used_is_named_and_all_others_count(tmp_path: Path, expression: str) -> None:
    def row(text: str) -> str:
        book = marked(tmp_path, f"id,student,puzzle,points,comment\n{text}\n2,'=Ben,ddp,1,fine\n")
        assert book.students[0].points == 5
        assert book.students[1].mark("ddp").by_hand == 1
        return "\n".join(book.problems)

    SAID.check(expression, {"row": row})


def test_another_encoding_is_read_and_said(tmp_path: Path) -> None:
    book = marked(tmp_path, "id,puzzle,points,comment\n1,ddp,1,schön\n".encode("cp1252"))
    assert book.students[0].mark("ddp").comment == "schön"
    assert "is not UTF-8" in book.problems[0]


def test_what_is_no_file_of_marks_is_said(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="has not the columns of marks"):
        marked(tmp_path, "a,b\n1,2\n")


def test_a_file_to_fill_in_changes_nothing_until_somebody_does(tmp_path: Path) -> None:
    to_fill_in(BOOK, tmp_path / "marks.csv")
    assert by_hand(BOOK, [tmp_path / "marks.csv"], RULES) == BOOK
    text = (tmp_path / "marks.csv").read_text("utf-8-sig")
    assert len(text.splitlines()) == 7
    assert "'=Ben" in text
