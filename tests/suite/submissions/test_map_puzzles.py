"""The four puzzles of the map: their figures, what is accepted, and what each mistake is told and shown."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import PUZZLES, CheckError, PuzzleError, check_function
from lib.cluster.layouts import Grid, Holdings, grids, mesh_of
from lib.suite.isolation.isolation import answers_of
from lib.suite.submissions import function_check
from lib.suite.submissions.function_check import judge_answers, judge_of, solution_of
from lib.suite.submissions.locations import reference
from lib.suite.submissions.table import ask_here
from tests.suite.submissions.mistakes import given_in
from tests.suite.submissions.test_table import DATA

MAPS = ("local_devices", "process_map", "break_the_map", "fix_the_map")
PUBLISHED = [[[0, 1, 4, 5], [8, 9, 12, 13], [10, 11, 14, 15], [2, 3, 6, 7]]]
SMALL = [[[0, 2], [3, 4], [1, 5]]]
PAIRS = list(grids(1, 4, 2, 2))


def rows_of(grid: Grid) -> list[list[int]]:
    return [row for replica in grid for row in replica]


def test_the_published_example() -> None:
    held = given_in("break_the_map", "published")(PUBLISHED, 4, 16)
    expected = ([0, 2, 4, 6], [1, 3, 5, 7], [9, 11, 13, 15], [8, 10, 12, 14])
    for row, examples in zip(rows_of(PUBLISHED), expected, strict=True):
        assert [held[device] for device in row] == [examples] * 4


@pytest.mark.parametrize("batch", [8, 12, 16, 48])
def test_the_rule_is_wrong_for_92_of_105(batch: int) -> None:
    wrong = [grid for grid in PAIRS if solution_of("break_the_map")(grid, 2, batch) is not None]
    twice = [grid for grid in wrong if given_in("break_the_map", "is_twice")(grid, 2, batch)]
    assert (len(PAIRS), len(wrong), len(twice)) == (105, 92, 80)


def test_it_is_right_where_processes_have_the_same_rows_or_none_in_common() -> None:
    for grid in PAIRS:
        sets = [
            frozenset(n for n, row in enumerate(grid[0]) if any(device // 2 == process for device in row))
            for process in range(4)
        ]
        alike = all(one == other or not one & other for one in sets for other in sets)
        right = solution_of("break_the_map")(grid, 2, 16) is None
        assert right == (alike and len(set(map(len, sets))) == 1)


def test_the_smallest_failure() -> None:
    assert solution_of("process_map")(SMALL, 2) == {0: 0, 1: 0, 2: 1}
    for data, failing in ((1, 0), (2, 0), (3, 8)):
        meshes = list(grids(1, data, 2, 2))
        assert sum(given_in("break_the_map", "is_twice")(grid, 2, 2 * data) for grid in meshes) == failing
    assert given_in("break_the_map", "is_twice")(SMALL, 2, 6)
    assert given_in("break_the_map", "is_twice")([[[0], [2]], [[3], [1]]], 2, 8)  # and with two replicas


@pytest.mark.parametrize("sizes", [(r, d, m) for r in (1, 2, 4) for d in (1, 2, 4) for m in (1, 2, 4)])
def test_in_order_and_of_powers_of_two_it_is_right(sizes: tuple[int, int, int]) -> None:
    replicas, data, model = sizes
    devices = iter(range(replicas * data * model))
    grid = [[[next(devices) for _ in range(model)] for _ in range(data)] for _ in range(replicas)]
    for size in (1, 2, 4, 8):
        if replicas * data * model % size == 0:
            assert solution_of("break_the_map")(grid, size, 4 * replicas * data) is None


def test_the_repair_is_right_for_all_105_and_reads_no_more_than_it_must() -> None:
    reads = Counter[int]()
    for grid in PAIRS:
        answer = solution_of("fix_the_map")(grid, 2, 16)
        assert given_in("fix_the_map", "fix_the_map_fault")(answer, grid, 2, 16) == ""
        held = given_in("fix_the_map", "handed_out")(answer, grid, 2)
        assert [held[row[0]] for row in grid[0]] == [held[row[1]] for row in grid[0]]
        assert sorted(example for row in grid[0] for example in held[row[0]]) == list(range(16))
        for process, examples in answer.items():
            assert len(set(examples)) == 4 * len(
                {n for n, row in enumerate(grid[0]) if {d // 2 for d in row} & {process}}
            )
        reads[sum(map(len, answer.values()))] += 1
    assert reads == {16: 1, 24: 12, 28: 32, 32: 60}


def test_a_batch_that_the_rows_cannot_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="3 rows need equal parts of the batch: 7 examples cannot be divided so"):
        given_in("break_the_map", "published")(SMALL, 2, 7)


def test_any_example_that_goes_wrong_will_do() -> None:
    def last(grid: Grid, per_process: int, batch: int) -> int | None:
        held = given_in("break_the_map", "published")(grid, per_process, batch)
        rows = list(map(set, rows_of(grid)))
        return max((e for e in range(batch) if {d for d in held if e in held[d]} not in rows), default=None)

    assert judge_answers("break_the_map", ask_here(last)).correct


def test_any_examples_for_a_row_will_do() -> None:
    def dealt(grid: Grid, per_process: int, batch: int) -> dict[int, list[int]]:
        rows, reads = rows_of(grid), dict[int, list[int]]()
        for number, row in enumerate(rows):
            for process in {device // per_process for device in row}:
                reads.setdefault(process, []).extend(range(len(rows) - 1 - number, batch, len(rows)))
        return reads

    assert judge_answers("fix_the_map", ask_here(dealt)).correct


@pytest.mark.parametrize("puzzle", MAPS)
def test_what_is_no_answer_is_none_and_has_a_picture_all_the_same(puzzle: str) -> None:
    judge = judge_of(puzzle, reference(puzzle))
    row = PUZZLES[puzzle].table[-1]

    @given(DATA | st.dictionaries(st.integers(0, 4), st.integers(-1, 4) | st.lists(st.integers(-1, 6), max_size=4)))
    def ask(answer: Any) -> None:
        (got,) = ask_here(lambda *given: answer)([row.given])
        failure = judge.failure(row.given, got, row)
        if failure is not None:
            assert isinstance(judge.shown(failure), Holdings)

    ask()


def test_a_loop_that_never_ends_is_stopped_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_check, "PATIENCE", 0.1)
    monkeypatch.setattr(function_check, "AGAIN", 0.1)

    def local_devices(grid: Grid, per_process: int, process: int) -> None:
        while True:
            try:
                while True:
                    pass
            except Exception:
                pass

    with pytest.raises(CheckError, match=r"local_devices did not end within 0.1 seconds") as raised:
        check_function(local_devices, puzzle="local_devices")
    assert "in local_devices" in str(raised.value)
    assert raised.value.fix == "look for a loop that never ends, or one that is far too long"


def test_the_solution_of_a_puzzle_is_there_for_those_that_build_on_it() -> None:
    assert solution_of("local_devices")(PUBLISHED, 4, 1) == {0: 0, 3: 1}
    assert solution_of("local_devices") is solution_of("local_devices")
    with pytest.raises(ValueError, match="there is no puzzle 'lokal'"):
        solution_of("lokal")
    assert len(mesh_of(PUBLISHED, 4)) == 16


@pytest.mark.usefixtures("warm")
def test_our_own_solution_of_the_puzzle_that_is_asked_is_no_answer(tmp_path: Path) -> None:
    kept = solution_of("local_devices")

    def local_devices(grid: Grid, per_process: int, process: int) -> Any:
        return kept(grid, per_process, process)

    with pytest.raises(PuzzleError, match=r'solution_of\("local_devices"\) is our own answer'):
        check_function(local_devices, puzzle="local_devices")
    assert kept(PUBLISHED, 4, 1) == {0: 0, 3: 1}  # nobody is asked any more
    file = tmp_path / "mine.py"
    file.write_text(
        "from lib.suite.submissions.function_check import solution_of\n\n\n"
        "def local_devices(*given):\n    return solution_of('local_devices')(*given)\n"
    )
    sent = answers_of(file, "local_devices", [(PUBLISHED, 4, 1)])
    assert (sent.outcome, sent.answers) == ("failed", ())
    assert sent.text.startswith('solution_of("local_devices") is our own answer')
