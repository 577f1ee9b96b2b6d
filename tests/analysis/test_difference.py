"""Two runs in words: how far apart they are, whether their sizes are equal, and what there is to learn."""

from collections.abc import Callable
from typing import Any

from lib import Costs, Model, Trace, retime, simulate
from lib.analysis import difference
from lib.analysis.difference import lesson, unequal
from lib.schedules import data_parallel
from lib.schedules.data_parallel import ddp
from tests.drawing.runs import RUNS
from tests.support.puzzles import way
from tests.support.said import Said


def traced(function: Callable[[Model], Any], ranks: int = 4, layers: int = 6, batches: int = 4) -> Trace:
    return Trace.of(simulate(function, ranks=ranks, layers=layers, batches=batches))


def solved(puzzle: str) -> tuple[str, Trace]:
    return puzzle, traced(way(puzzle))


def updated_in(time: float) -> Trace:
    """One function where updates take longer: it does the same, for longer."""
    return retime(traced(ddp), Costs(update=time))


test_what_is_said = Said(__file__, "differences").test(lambda: vars(data_parallel) | globals() | vars(difference))


def test_runs_that_are_alike_and_runs_that_cannot_be_compared() -> None:
    one = traced(ddp)
    assert lesson([("a", one)]) is None
    assert lesson([("a", one), ("b", traced(ddp, batches=8, ranks=8))]) is None
    assert lesson([("a", RUNS["deadlock"]), ("b", RUNS["deadlock"])]) is None
    assert unequal([("a", one), ("b", one)]) is None
