"""All our ways to solve puzzles: their figures, and the goals they reach."""

import pytest

from lib import PUZZLES
from lib.suite.course.exercises import QUANTITIES, measured
from lib.suite.course.solutions import alternatives, files_of, run_of_file
from tests.support.profiles import sample
from tests.support.puzzles import SCHEDULES, judged, way
from tests.support.said import Said

SAID = Said(__file__, "ways")


def ways(puzzle: str) -> str:
    """A line for each way, the official one first."""
    names = ["", *(path.stem.removeprefix(f"{puzzle}_") for path in alternatives(puzzle))]
    found = {name: judged(way(puzzle, name), puzzle) for name in names}
    return "\n".join(
        f"{name or 'official'}: time {verdict.time:g}, memory {verdict.memory:,.10g}, {verdict.best or 'no goal'}"
        for name, verdict in found.items()
    )


@pytest.mark.parametrize("call", sample(SAID.texts))
def test_the_figures_of_all_ways(call: str) -> None:
    SAID.check(call, {"ways": ways})


def test_no_puzzle_is_left_out() -> None:
    asked = [f"ways({puzzle!r})" for puzzle in SCHEDULES]
    assert [*SAID.texts] == asked, "a new puzzle is a new `### ways(...)` in ways.txt: see said.py"


@pytest.mark.parametrize("puzzle", [puzzle for puzzle in SCHEDULES if PUZZLES[puzzle].predicts])
def test_one_of_our_ways_is_what_a_page_asks_to_predict(puzzle: str) -> None:
    runs = [measured(run_of_file(path, puzzle)) for path in files_of(puzzle).values()]
    for name, figure in PUZZLES[puzzle].predicts:
        assert "right" in [QUANTITIES[name].verdict(figure, run[name]) for run in runs], name
