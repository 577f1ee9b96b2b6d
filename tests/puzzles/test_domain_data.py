"""Domain and data parallelism, in the figures of an independent timing model, which has no weights.

The puzzle's prices are three times that model's, and each layer has a sum and an update besides.
"""

from fractions import Fraction

import pytest

from lib import PUZZLES, Mesh, Model, Trace, check, simulate
from lib.analysis.figures import end, traffic
from lib.checker.notes import undivided
from lib.schedules.data_parallel import ddp
from tests.support.puzzles import way

LAYERS, UPDATE = 4, Fraction("0.09375")
ALL_REDUCE, ONE_RING, TWO_RINGS = Fraction("0.6975"), 73_728, 98_304
"""Of a weight's gradient, 3 x 128 x 128 elements, over four ranks; and what a rank sends in one sum or in two."""


def run(name: str, data: int, domain: int) -> Trace:
    record = PUZZLES["domain_data"]
    models = simulate(
        way("domain_data", name),
        layers=list(record.last),
        mesh=Mesh({"data": data, "domain": domain}),
        batches=64,
        costs=record.costs,
    )
    trace = Trace.of(models)
    assert check(trace).correct
    return trace


@pytest.mark.parametrize(
    ("data", "domain", "figure", "sent"),
    [(2, 2, 8.21, [32_768] * 4), (1, 4, 8.52, [65_536, 131_072, 131_072, 65_536]), (4, 1, 8.0, [0] * 4)],
)
def test_awaited_halos_take_what_another_model_says(data: int, domain: int, figure: float, sent: list[int]) -> None:
    trace = run("await_all", data, domain)
    assert end(trace) == pytest.approx(float(3 * Fraction(str(figure)) + LAYERS * (ALL_REDUCE + UPDATE)), abs=1e-8)
    assert [one - LAYERS * ONE_RING for one, _ in traffic(trace)] == sent


def test_two_sums_of_a_gradient_send_a_third_more() -> None:
    trace = run("domain_then_data", 2, 2)
    assert [one - LAYERS * TWO_RINGS for one, _ in traffic(trace)] == [32_768] * 4


def test_inner_rows_hide_the_halos() -> None:
    """What is left is the first gather and the last reduce-scatter, together as long as an all-reduce."""
    trace = run("inner_rows_first", 2, 2)
    assert end(trace) == pytest.approx(float(3 * 8 + ALL_REDUCE + UPDATE), abs=1e-8)
    part = ONE_RING // 2  # of a gather, or of a reduce-scatter
    assert [one - (2 * LAYERS - 1 + LAYERS) * part for one, _ in traffic(trace)] == [28_672] * 4


@pytest.mark.parametrize("name", ["", "whole_weights"])
def test_shards_over_both_axes_take_no_longer_than_whole_weights(name: str) -> None:
    """Seven halo exchanges are awaited, and nothing else but the first gather and the last sum, or that alone."""
    exchange = (Fraction("8.21") - 8) / 8
    expected = 3 * (8 + 7 * exchange) + ALL_REDUCE + UPDATE
    assert end(run(name, 2, 2)) == pytest.approx(float(expected), abs=1e-8)


def test_where_each_rank_has_images_of_its_own_nobody_has_to_share_them() -> None:
    assert undivided(Trace.of(simulate(ddp, puzzle="domain_data")), domain=True) is not None
    assert undivided(run("await_all", 4, 1), domain=True) is None


@pytest.mark.parametrize("whole", [False, True])
def test_a_quarter_that_is_worked_out_again_and_again_is_no_whole_batch(whole: bool) -> None:
    """And four quarters are one, on the rank that works out all of them."""

    def parts(model: Model) -> None:
        weight, _ = model.load_weights(0)
        images = model.get_activation(range(2))
        for number in range(5):
            low = 16 * min(number, 3) if whole else 16
            model.forward(0, images.cut("rows", max(low - 1, 0), min(low + 17, 64)), weight)

    last = list(PUZZLES["domain_data"].last)
    trace = Trace.of(simulate(parts, layers=last, mesh=Mesh({"data": 1, "domain": 4}), batches=4))
    said = undivided(trace, domain=True)
    assert said is None if not whole else said is not None and "rank 0 works on all of batches 0 and 1" in said
