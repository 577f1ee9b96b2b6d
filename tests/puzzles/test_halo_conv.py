"""Convolutions over rows that are shared out, in the figures of an independent timing model, which has no weights.

The puzzle's prices are three times that model's, and each layer has a sum and an update besides.
"""

from fractions import Fraction

import pytest

from lib import PUZZLES, Trace, check, simulate
from lib.analysis.figures import end
from lib.schedules.data_parallel import ddp
from lib.trace.trace import Program
from tests.support.puzzles import in_parts

FOUR, SIXTEEN, UNEVEN = [16] * 4, [4] * 16, [4, 8, 12, 40]
LAYERS, UPDATE = 4, Fraction("0.09375")
SUMS = {4: Fraction("0.6975"), 16: Fraction("2.221875")}
"""Of a weight's gradient, on so many ranks: 3 x 128 x 128 elements round a ring, twice."""


def run(name: str, sizes: list[int]) -> Trace:
    return in_parts("halo_conv", name, {"sizes": sizes}, batches=64)


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("await_all", (8.52, 2.52, 20.52)),
        ("no_way_back_for_data", (8.455, 2.455, 20.455)),
        ("alltoall", (8.68, 4.6, 20.68)),
        # That model has 13.28, 10.4 and 32.48: it does not count the rows beside its own of which the busiest rank
        # works out input gradients once again.
        ("gathered", (13.53, 10.65, 32.605)),
    ],
)
def test_awaited_exchanges_take_what_another_model_says(name: str, figures: tuple[float, float, float]) -> None:
    for sizes, figure in zip((FOUR, SIXTEEN, UNEVEN), figures, strict=True):
        learning = LAYERS * (SUMS[len(sizes)] + UPDATE)
        assert end(run(name, sizes)) == pytest.approx(float(3 * Fraction(str(figure)) + learning), abs=1e-8)


@pytest.mark.parametrize(
    ("name", "sizes", "figure"),
    [("sums_behind", FOUR, 8.455), ("sums_behind", UNEVEN, 20.455), ("", FOUR, 8.0), ("", UNEVEN, 20.0)],
)
def test_hidden_sums_leave_only_the_last_one(name: str, sizes: list[int], figure: float) -> None:
    assert end(run(name, sizes)) == pytest.approx(float(3 * Fraction(str(figure)) + SUMS[4] + UPDATE), abs=1e-8)


def sent_by_halos(program: Program) -> int:
    events = [event for event in program.events if event.op == "halo"]
    return int(sum(value.elements() for event in events for value in program.values_of(event.inputs)))


@pytest.mark.parametrize(("name", "most"), [("await_all", 131_072), ("no_way_back_for_data", 114_688), ("", 114_688)])
def test_ranks_send_their_edges_alone(name: str, most: int) -> None:
    for sizes in (FOUR, UNEVEN):
        assert [*map(sent_by_halos, run(name, sizes).programs)] == [most // 2, most, most, most // 2]


@pytest.mark.parametrize("sizes", [[22, 22, 20, 0], [2, 1, 1, 60], [4, 0, 20, 40], [3, 58, 3], [2, 2, 60], [64, 0]])
def test_parts_of_any_size_that_the_notebook_promises(sizes: list[int]) -> None:
    for name in ("", "await_all", "alltoall"):
        run(name, sizes)


@pytest.mark.parametrize("puzzle", ["halo_conv", "domain_data"])
def test_data_parallelism_alone_reaches_no_goal(puzzle: str) -> None:
    """Each rank has images of its own, so that nobody borrows a row: right, fast, and not what is asked."""
    verdict = check(simulate(ddp, puzzle=puzzle), puzzle)
    assert verdict.correct
    assert verdict.time < verdict.goals[0].time
    assert not any(goal.reached for goal in verdict.goals)
    assert "rank 0 works on all of batches 0, 4, 8," in verdict.notes[-1]


def test_every_schedule_of_this_chapter_shares_its_batches() -> None:
    records = [one for one in PUZZLES.values() if one.chapter == "domain" and not one.is_function]
    assert records
    assert all(one.domain for one in records)
