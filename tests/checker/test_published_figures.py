"""The figures that everybody knows: the classic eight, the tables of the puzzles, and published schedules."""

import pytest

from lib import PUZZLES, Trace, check, simulate
from tests.support.drivers import DRIVERS, figures_of
from tests.support.puzzles import way
from tests.support.schedules import CLASSIC, Case

FIGURES = {
    "basic": (16.5, 17.0, 2_621_440),
    "grad_accum": (16.5, 17.0, 1_966_080),
    "ddp": (5.1, 5.6, 1_835_008),
    "wsdp": (19.9, 20.4, 2_752_512),
    "fsdp": (19.9, 20.4, 2_359_296),
    "pipeline": (66.9, 67.4, 3_145_728),
    "gpipe": (33.3, 33.8, 4_194_304),
    "pipeline_fsdp": (15.5, 16.0, 966_656),
}
"""What the original prints as time, the true end, and the peak memory."""


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("case", CLASSIC, ids=lambda case: case.name)
def test_the_classic_eight(case: Case, driver: str) -> None:
    assert figures_of(case.run(DRIVERS[driver])) == FIGURES[case.name]


LARGER = ("fsdp", "pipeline_fsdp")
"""Puzzles that ask for more than the classic does: several microbatches a rank."""


@pytest.mark.parametrize("case", [case for case in CLASSIC if case.name not in LARGER], ids=lambda case: case.name)
def test_the_records_have_the_classic_sizes_and_figures(case: Case) -> None:
    record = PUZZLES[case.name]
    assert (record.ranks, record.layers, record.batches) == (case.ranks, case.layers, case.batches)
    classic = record.goals[1]
    assert (classic.time, classic.memory) == FIGURES[case.name][1:]
    verdict = check(Trace.of(case.run(simulate)), case.name)
    assert verdict.passed
    assert verdict.best == "as good as the classic"


@pytest.mark.parametrize("case", [case for case in CLASSIC if case.name in LARGER], ids=lambda case: case.name)
def test_the_solution_of_a_larger_puzzle_is_no_worse_at_the_classic_size(case: Case) -> None:
    record = PUZZLES[case.name]
    assert (record.ranks, record.layers) == (case.ranks, case.layers)
    assert record.batches > case.batches
    small = simulate(way(case.name), puzzle=case.name, batches=case.batches)
    verdict = check(Trace.of(small))
    assert verdict.correct
    assert verdict.notes == ()
    _, time, memory = FIGURES[case.name]
    assert verdict.time <= time
    assert verdict.memory <= memory
    assert (verdict.time, verdict.memory) != (time, memory)
