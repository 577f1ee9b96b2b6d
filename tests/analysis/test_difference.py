"""Two runs in words: how far apart they are, and what there is to learn. The parts of a figure are the figure."""

from collections.abc import Callable
from typing import Any

import pytest

from lib import Costs, Model, Trace, retime, simulate
from lib.analysis import difference, figures
from lib.analysis.difference import counts, lesson, memory_shares, sent_shares, time_shares, unequal
from lib.schedules import data_parallel
from lib.schedules.data_parallel import ddp
from tests.drawing.runs import RUNS
from tests.drawing.runs import solved as reference
from tests.support.puzzles import SCHEDULES, way
from tests.support.said import Said
from tests.support.schedules import ddp_overlap  # noqa: F401  # a lesson in said/differences.txt names it


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


@pytest.mark.parametrize("name", [*RUNS, *(f"our {puzzle}" for puzzle in SCHEDULES)])
def test_the_parts_are_the_whole(name: str) -> None:
    trace = RUNS.get(name) or reference(name.removeprefix("our "))
    assert sum(share.amount for share in time_shares(trace)) == pytest.approx(figures.end(trace))
    assert sum(share.amount for share in memory_shares(trace)) == float(figures.peak(trace).elements)
    assert sum(share.amount for share in sent_shares(trace)) == figures.most_sent(trace)
    assert all(share.amount > 0 for share in (*time_shares(trace), *memory_shares(trace), *sent_shares(trace)))


def test_what_the_references_are_made_of() -> None:
    found = reference("wsdp")
    assert [(share.what, share.amount) for share in time_shares(found)] == [("compute", 15.0), ("collectives", 5.4)]
    assert {share.what for share in sent_shares(found)} == {"allgather", "allreduce"}
    assert counts(found) == ({"allreduce": 6, "allgather": 12}, 0)
    assert counts(reference("gpipe")) == ({}, 8)


def test_a_run_of_nothing_has_no_parts() -> None:
    empty = Trace.of(simulate(lambda model: None, ranks=2, layers=1, batches=1))
    assert time_shares(empty) == memory_shares(empty) == sent_shares(empty) == ()
