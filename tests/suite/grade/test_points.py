"""Points: what follows from results, what being late costs, which attempt counts, and what people add by hand."""

import tempfile
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.suite.grade.assignment import AssignmentError, Config, read_config
from lib.suite.grade.gradebook import TERMS, Asked, Gradebook, Late, Mark, Result, Rules, Score, Student, of_puzzle
from lib.suite.grade.grading import grade
from lib.suite.grade.intake.collecting import collect
from lib.suite.grade.intake.roster import by_hand, moment, to_fill_in
from lib.suite.grade.intake.submission import Collected
from lib.suite.grade.results import csv_of
from tests.suite.grade.classes import HARD_CODED, alternative, read_back, solution
from tests.suite.grade.intake.trees import folder as hand_in
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


def worth(one: Score, asked: Asked = ASKED, **weights: float) -> str:
    points, of = of_puzzle(one, asked, weights)
    return f"{points:g} of {of:g}"


def late(days: int | None = None, minutes: int = 0, marked: bool = False) -> str:
    """What is left of 10 points where a day costs 10 percent, after so much time; None: at no known time."""
    at = None if days is None else DUE + timedelta(days=days, minutes=minutes)
    mark = Rules({"": {"correct": 10.0}}, late=Late(10, 15, 2)).mark(score(), ASKED, at, DUE, marked)
    return f"{mark.points:g} of {mark.of:g} {mark.late}".strip()


test_what_it_is_worth = Said(Path(__file__).with_name("said") / "points.txt").test(lambda: globals())


# -- being late -----------------------------------------------------------------------------------------------------

DUE = datetime(2026, 11, 1, 23, 59)


def test_an_extension_is_by_id_or_name_and_goes_before_the_roster() -> None:
    later, latest = DUE + timedelta(days=1), DUE + timedelta(days=7)
    rules = Rules(deadline=DUE, extensions={"4": latest, "Ben Ode": later})
    assert rules.due("4", "Ann Lee", moment("2026-12-24")) == latest
    assert rules.due("5", "Ben Ode") == later
    assert rules.due("6", "Cleo", moment("2026-12-24")) == datetime(2026, 12, 24)
    assert rules.due("6", "Cleo", moment("soon")) == DUE


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
    assert read_back(book.to_json()) == book
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
    from lib.suite.grade.intake.submission import Submission

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


def marked(*texts: str | bytes) -> str:
    """Everybody's points with those by hand, where there are these files of marks; and the problems."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"marks{number}.csv") for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        book = by_hand(BOOK, paths, RULES)
    assert book.passed == (not book.problems)
    told: list[str] = []
    for student in book.students:
        marks = [(mark, f"{mark.puzzle or 'all'} {mark.by_hand} {mark.comment!r}") for mark in student.marks]
        said = ", ".join(words for mark, words in marks if mark.comment) or "nothing by hand"
        told.append(f"{student.name}: {student.points:g}; {said}")
        assert all(line in csv_of(book) for mark, _ in marks for line in mark.comment.splitlines())
    return "\n".join([*told, *book.problems])


def row(text: str) -> str:
    """The same of one row before another one, which counts whatever the first is."""
    return marked(f"id,student,puzzle,points,comment\n{text}\n2,'=Ben,ddp,1,fine\n")


test_what_is_read_of_marks = Said(Path(__file__).with_name("said") / "marks.txt").test(lambda: globals())


def test_a_file_to_fill_in_changes_nothing_until_somebody_does(tmp_path: Path) -> None:
    to_fill_in(BOOK, tmp_path / "marks.csv")
    assert by_hand(BOOK, [tmp_path / "marks.csv"], RULES) == BOOK
    text = (tmp_path / "marks.csv").read_text("utf-8-sig")
    assert len(text.splitlines()) == 7
    assert "'=Ben" in text
