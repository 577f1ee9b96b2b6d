"""Common mistakes: the same one with other numbers is one kind, and different ones are different."""

import contextlib
import io
import re
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import PUZZLES, PuzzleError, check, simulate
from lib.suite.grade.gradebook import Asked, Gradebook, Result, Score, Student
from lib.suite.grade.patterns import Case, kind_of, mistakes
from tests.diagnosis.corpus import Case as Wrong
from tests.diagnosis.corpus import cases, function
from tests.support.profiles import sample

FAILING = [case for case in cases() if not case.message.startswith("Correct")]


def kind(case: Wrong) -> tuple[str, str]:
    return kind_of(case.message, case.puzzle or "student")


def test_few_of_the_corpus_are_taken_for_one() -> None:
    """Nearly all that are have one message: it is the same mistake, in another puzzle."""
    kinds: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for case in FAILING:
        kinds[kind(case)].append(case.name)
    assert len(kinds) > 0.88 * len(FAILING)
    assert max(map(len, kinds.values())) <= 3


@pytest.mark.parametrize("part", sample(range(6)))
def test_the_same_mistake_at_another_size_is_of_the_same_kind(part: int) -> None:
    """Where the mistake is one there at all; at some sizes it shows as something else."""
    same = others = 0
    for case in FAILING[part::18]:
        if case.puzzle is None or "NotSolved" in case.source:
            continue
        record = PUZZLES[case.puzzle]
        for size in record.hidden[:2]:
            with function(case) as student, contextlib.redirect_stdout(io.StringIO()):
                try:
                    verdict = check(simulate(student, puzzle=record.id, **size.given()))
                    text = "" if verdict.correct else verdict.text()
                except PuzzleError as error:
                    text = str(error)
                same += bool(text) and kind_of(text, record.id) == kind(case)
                others += bool(text) and kind_of(text, record.id) != kind(case)
    assert same > 15
    assert others <= 0.15 * same


PAIRS = re.split(r"^=== ", Path(__file__).with_name("kinds.txt").read_text("utf-8"), flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("pair", PAIRS)
def test_what_differs_from_student_to_student_and_what_does_not(pair: str) -> None:
    equal, _, texts = pair.strip("\n").partition("\n")
    one, other = (kind_of(text, "fsdp") for text in texts.split("\n---\n"))
    assert (one == other) == (equal == "the same")


@given(st.text(max_size=3000))
def test_any_text_is_of_some_kind(text: str) -> None:
    assert kind_of(text, "fsdp") == kind_of(text, "fsdp")


def book() -> Gradebook:
    missing = "rank {}: weights[{}] is empty\n  expected: it\n  fix:      store it\n            first"

    def score(puzzle: str, message: str = "", hidden: str = "") -> Score:
        own = Result("4 ranks", "failed" if message else "passed", message=message or "Correct!")
        at = Result(
            "2 ranks", "failed" if hidden else "passed", message=f"At 2 ranks: {hidden}" if hidden else "Correct!"
        )
        return Score(puzzle, own.state, own, (at,))

    students = (
        Student("Ana", (score("ddp", missing.format(0, 1)), score("fsdp", missing.format(1, "2, 'full'")))),
        Student("Ben", (score("ddp", hidden=missing.format(3, 0)), score("fsdp"))),
        Student("Cleo", (score("ddp", "rank 0: something else"), score("fsdp", "rank 1: something else"))),
        Student("Dan", (score("ddp"), Score("fsdp", "unsolved", Result("", "unsolved", message="not solved")))),
    )
    return Gradebook(tuple(Asked(name, "", PUZZLES[name].number) for name in ("ddp", "fsdp")), students)


def test_who_made_which_mistake() -> None:
    first, second = mistakes(book())
    assert first.words == "weights[1] is empty"
    assert first.fix == "store it\nfirst"
    assert first.example.startswith("rank 0: weights[1] is empty\n  expected")
    assert first.students == ("Ana", "Ben")
    assert first.puzzles == ("ddp", "fsdp")
    assert first.cases == (Case("Ana", "ddp", "4 ranks"), Case("Ben", "ddp", "2 ranks"), Case("Ana", "fsdp", "4 ranks"))
    assert (second.words, second.fix, second.students) == ("something else", "", ("Cleo",))


def test_the_order_of_students_plays_no_part() -> None:
    whole = book()
    turned = Gradebook(whole.asked, whole.students[::-1])
    assert mistakes(turned) == mistakes(whole)
