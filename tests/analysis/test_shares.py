"""The parts of a figure are the figure."""

import pytest

from lib import Trace, simulate
from lib.analysis import figures
from lib.analysis.difference import counts, memory_shares, sent_shares, time_shares
from tests.drawing.runs import RUNS, solved
from tests.support.puzzles import SCHEDULES


@pytest.mark.parametrize("name", [*RUNS, *(f"our {puzzle}" for puzzle in SCHEDULES)])
def test_the_parts_are_the_whole(name: str) -> None:
    trace = RUNS.get(name) or solved(name.removeprefix("our "))
    assert sum(share.amount for share in time_shares(trace)) == pytest.approx(figures.end(trace))
    assert sum(share.amount for share in memory_shares(trace)) == float(figures.peak(trace).elements)
    assert sum(share.amount for share in sent_shares(trace)) == figures.most_sent(trace)
    assert all(share.amount > 0 for share in (*time_shares(trace), *memory_shares(trace), *sent_shares(trace)))


def test_what_the_references_are_made_of() -> None:
    found = solved("wsdp")
    assert [(share.what, share.amount) for share in time_shares(found)] == [("compute", 15.0), ("collectives", 5.4)]
    assert {share.what for share in sent_shares(found)} == {"allgather", "allreduce"}
    assert counts(found) == ({"allreduce": 6, "allgather": 12}, 0)
    assert counts(solved("gpipe")) == ({}, 8)


def test_a_run_of_nothing_has_no_parts() -> None:
    empty = Trace.of(simulate(lambda model: None, ranks=2, layers=1, batches=1))
    assert time_shares(empty) == memory_shares(empty) == sent_shares(empty) == ()
