"""What is asked: a file that is read strictly, sizes from a seed, and goals at other sizes that are fair."""

from functools import partial
from math import ceil
from pathlib import Path

import pytest

from lib import PUZZLES
from lib.checker.verdict import check
from lib.puzzles.puzzle import AtSize
from lib.suite.course.solutions import run_of_file
from lib.suite.grade.assignment import Assignment, AssignmentError, Config, read_config
from lib.suite.grade.judging import LEEWAY, draw_sizes, figures_at, own_ways, record_at
from lib.suite.submissions.locations import reference
from tests.suite.grade.classes import asked
from tests.support.profiles import sample
from tests.support.puzzles import FUNCTIONS, SCHEDULES
from tests.support.said import Said

FIXED = ("straggler",)
"""Puzzles of which there is no other size: their costs are about this one."""


def config(folder: Path, text: str) -> Config:
    path = folder / "grade.toml"
    path.write_text(text, "utf-8")
    return read_config(path)


def assignment(folder: Path, text: str) -> Assignment:
    return config(folder, text).assignment(("ddp", "fsdp"))


def test_a_file_says_all_that_there_is_to_say(tmp_path: Path) -> None:
    found = assignment(
        tmp_path,
        """
        title = "Exercise 3"
        puzzles = ["ddp", "fsdp", "process_map"]
        need = "best"
        hidden = 3
        seed = "autumn"
        seconds = 5
        memory = 512

        [puzzle.fsdp]
        need = "keeps only shards"
        hidden = [{ ranks = 2, layers = 3, batches = 6 }, { layers = 2, batches = 8, mesh = { data = 8 } }]

        [puzzle.process_map]
        hidden = 1
        """,
    )
    ddp, fsdp, function = found.required
    assert (found.title, found.limits.seconds, found.limits.memory) == ("Exercise 3", 5.0, 512 * 2**20)
    assert (ddp.need, fsdp.need, function.need) == ("as good as our reference", "keeps only shards", None)
    assert [record.size for record in ddp.hidden] == [size[:3] for size in draw_sizes("ddp", 3, "autumn")]
    assert fsdp.sizes == ("2 ranks, 3 layers, 6 batches", "8 ranks, 2 layers, 8 batches; mesh of data 8")
    assert len(function.seeds) == 1
    assert len({one.key for one in found.required}) == 3


def test_options_go_before_a_file(tmp_path: Path) -> None:
    found = config(tmp_path, "need = 'best'\nseed = 1\n[puzzle.ddp]\nneed = 'correct'").with_options(
        puzzles=["ddp", "fsdp"], need="first", hidden=1, seconds=3.0
    )
    assert [one.need for one in found.assignment().required] == ["passes", "passes"]
    assert [len(one.hidden) for one in found.assignment().required] == [1, 1]
    assert found.assignment().limits.seconds == 3.0


def test_if_nothing_is_said_the_records_say_it() -> None:
    found = asked("ddp", "local_devices")
    assert [len(one.hidden) for one in found.required] == [len(PUZZLES["ddp"].hidden), 0]
    assert found.required[0].need == "passes"


SAID = Said(__file__, "assignments")


@pytest.mark.parametrize("expression", SAID.texts)
def test_what_makes_no_sense_is_said(tmp_path: Path, expression: str) -> None:
    SAID.check(expression, {"asked": partial(assignment, tmp_path)})


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "grade.toml").write_bytes(b"title = '\xff'")
    with pytest.raises(AssignmentError, match="not text in UTF-8"):
        read_config(tmp_path / "grade.toml")
    with pytest.raises(AssignmentError, match="is not TOML"):
        config(tmp_path, "a = " + "[" * 5000)


@pytest.mark.parametrize("puzzle", sample(SCHEDULES))
def test_our_own_ways_pass_at_every_hidden_size_of_the_record(puzzle: str) -> None:
    record = PUZZLES[puzzle]
    for size in record.hidden:
        there = record_at(puzzle, size)
        limits = [(goal.time, goal.memory) for goal in there.goals]
        assert limits == sorted(limits, reverse=True) or len(record.goals) == 1
        assert [goal.name for goal in there.goals] == [goal.name for goal in record.goals]
        for figures in figures_at(puzzle, size):
            assert there.goals[0].allows(figures.time, figures.memory)
            assert there.goals[0].sent is None or figures.sent <= there.goals[0].sent


@pytest.mark.parametrize("puzzle", ["fsdp", "checkpointing"])
def test_sizes_of_a_seed_are_other_sizes_at_which_all_that_is_ours_is_correct(puzzle: str) -> None:
    record = PUZZLES[puzzle]
    found = draw_sizes(puzzle, 2, 7)
    assert found == draw_sizes(puzzle, 2, 7)
    assert found != draw_sizes(puzzle, 2, 8)
    assert len(set(found)) == 2
    for size in found:
        assert size[:3] != record.size
        assert len(figures_at(puzzle, size)) == len(own_ways(puzzle))
        assert record_at(puzzle, size).goals[0].time >= figures_at(puzzle, size)[0].time * LEEWAY


def test_what_has_no_other_size_gets_none() -> None:
    for puzzle in FIXED:
        assert draw_sizes(puzzle, 1, 0) == ()


def test_a_goal_there_is_our_figures_times_the_slack_here() -> None:
    ours = figures_at("fsdp", AtSize(2, 3, 6))[0]
    best = record_at("fsdp", AtSize(2, 3, 6)).goals[-1]
    assert best.time == ours.time  # as fast as our reference here, and so there
    own = figures_at("fsdp", AtSize(*PUZZLES["fsdp"].size))[0]
    assert best.memory == ceil(ours.memory * PUZZLES["fsdp"].goals[-1].memory / own.memory)


def test_a_trace_is_judged_by_a_record_that_is_given() -> None:
    trace = run_of_file(reference("ddp"), "ddp")
    verdict = check(trace, record_at("ddp", AtSize(2, 3, 2)))
    assert not verdict.correct
    assert "the puzzle ddp has 2 ranks, this run has 4" in verdict.faults[0]


def test_the_inputs_of_a_plain_function_depend_on_the_seed() -> None:
    assert FUNCTIONS
    first, second = (asked("process_map", hidden=2, seed=seed).required[0].seeds for seed in (1, 2))
    assert not set(first) & set(second)
