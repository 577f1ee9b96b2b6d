"""The figures that everybody knows: the classic eight, the tables of the puzzles, and published schedules."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import PUZZLES, Activation, Costs, Mesh, Model, Trace, check, simulate
from lib.analysis import figures
from lib.checker.notes import fed
from lib.schedules.data_parallel import ddp as ddp_lean
from lib.schedules.data_parallel import fully_sharded
from lib.schedules.pipelines.action import Order
from lib.schedules.pipelines.generators import gpipe, one_f_one_b
from lib.schedules.pipelines.program import program_of
from lib.submissions.load import load_function
from lib.submissions.locations import reference
from tests.support.drivers import DRIVERS, figures_of
from tests.support.schedules import CLASSIC, EVERYTHING, HOSTS, REPLICA_SHARD, UNIT, Case, Function, ddp_of_the_tables

Generator = Callable[[int, int], Order]

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


@pytest.mark.parametrize("case", CLASSIC, ids=lambda case: case.name)
def test_the_classic_eight_are_correct_at_the_hidden_sizes(case: Case) -> None:
    for size in PUZZLES[case.name].hidden:
        run = simulate(case.function, **size._asdict())
        assert check(Trace.of(run)).faults == ()


@pytest.mark.parametrize("case", [case for case in CLASSIC if case.name in LARGER], ids=lambda case: case.name)
def test_the_solution_of_a_larger_puzzle_is_no_worse_at_the_classic_size(case: Case) -> None:
    record = PUZZLES[case.name]
    assert (record.ranks, record.layers) == (case.ranks, case.layers)
    assert record.batches > case.batches
    small = simulate(load_function(reference(case.name), case.name), puzzle=case.name, batches=case.batches)
    verdict = check(Trace.of(small))
    assert verdict.correct
    assert verdict.notes == ()
    _, time, memory = FIGURES[case.name]
    assert verdict.time < time
    assert verdict.memory <= memory


@pytest.mark.parametrize(
    ("puzzle", "function"),
    [("ddp", ddp_lean), ("gpipe", program_of(gpipe(4, 4)))],
)
def test_freeing_early_is_the_best_known(puzzle: str, function: Function) -> None:
    verdict = check(Trace.of(simulate(function, puzzle=puzzle)), puzzle)
    assert verdict.best == "as good as our reference"
    assert verdict.time == FIGURES[puzzle][1]


# -- sharding within a host ---------------------------------------------------------------------------------------

HYBRID = fully_sharded("shard", "replica")
TABLE = [
    ("hsdp", HYBRID, REPLICA_SHARD, 26.4, 22.2, 1_966_080),
    ("fsdp over 8", fully_sharded(), None, 78.0, 20.4, 1_572_864),
    ("ddp", ddp_of_the_tables, None, 57.0, 16.8, 4_849_664),
    ("hsdp transposed", HYBRID, Mesh({"shard": 2, "replica": 4}), 52.8, 22.2, 2_752_512),
    ("hsdp 4 x 2", HYBRID, Mesh({"replica": 4, "shard": 2}), 36.6, 22.2, 2_752_512),
]


@pytest.mark.parametrize(("name", "function", "mesh", "links", "unit", "memory"), TABLE, ids=lambda item: str(item)[:9])
def test_hosts_teach_hybrid_sharding(
    name: str, function: Function, mesh: Mesh | None, links: float, unit: float, memory: int
) -> None:
    for costs, end in ((HOSTS, links), (UNIT, unit)):
        models = simulate(function, layers=6, batches=8, ranks=8, mesh=mesh, costs=costs)
        assert figures_of(models)[1:] == (end, memory)
        assert check(Trace.of(models)).faults == ()


# -- pipelines ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "batches", "end", "memory"),
    [
        (gpipe, 4, 33.8, 2_883_584),
        (gpipe, 8, 53.0, 4_456_448),
        (gpipe, 16, 91.4, 7_602_176),
        (one_f_one_b, 4, 33.4, 2_490_368),
        (one_f_one_b, 8, 52.6, 2_752_512),
        (one_f_one_b, 16, 91.0, 2_752_512),
    ],
)
def test_the_table_of_pipelines(order: Generator, batches: int, end: float, memory: int) -> None:
    models = simulate(program_of(order(4, batches)), layers=8, batches=batches, ranks=4)
    assert figures_of(models)[1:] == (end, memory)


ORDERS: dict[str, Generator] = {"GPipe": gpipe, "1F1B": one_f_one_b}


def in_flight(model: Model) -> int:
    """The most microbatches of which a rank held an activation when a backward began."""
    most = 0
    for index, event in enumerate(model.program.events):
        if event.op == "backward":
            alive = [one.value for one in figures.alive_at(model.trace, model.rank, index)]
            most = max(most, len({b for value in alive if isinstance(value, Activation) for b in value.batches}))
    return most


@given(st.integers(1, 6), st.integers(1, 8), st.sampled_from(sorted(ORDERS)))
def test_the_bubble_of_a_pipeline_with_free_communication(ranks: int, batches: int, name: str) -> None:
    costs = Costs(update=0, collective=0, p2p=0)
    function = program_of(ORDERS[name](ranks, batches))
    trace = Trace.of(simulate(function, layers=ranks, batches=batches, ranks=ranks, costs=costs))
    bubble = Fraction(ranks - 1, batches + ranks - 1)
    assert figures.bubbles(trace).makespan == pytest.approx(float(bubble))
    assert figures.end(trace) == 2 * (batches + ranks - 1)


@given(st.integers(1, 6), st.integers(1, 8))
def test_1f1b_holds_as_many_microbatches_as_stages_are_left(ranks: int, batches: int) -> None:
    models = simulate(program_of(one_f_one_b(ranks, batches)), layers=ranks, batches=batches, ranks=ranks)
    assert [in_flight(model) for model in models] == [min(batches, ranks - rank) for rank in range(ranks)]
    models = simulate(program_of(gpipe(ranks, batches)), layers=ranks, batches=batches, ranks=ranks)
    assert [in_flight(model) for model in models] == [batches] * ranks


@pytest.mark.parametrize("case", EVERYTHING, ids=lambda case: case.name)
def test_every_schedule_is_one_correct_training_step(case: Case) -> None:
    trace = Trace.of(case.run(simulate))
    verdict = check(trace)
    assert verdict.faults == ()
    assert verdict.correct
    assert verdict.notes == tuple(fed(trace))
