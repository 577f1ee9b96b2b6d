"""Pipelines in the shape of a V: published figures of the squeezed blocks, and sizes that are too small."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lib.schedules.pipelines.action import PAIR, Order, parse
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.timing import Timed, time_order
from lib.schedules.pipelines.v_shapes import dualpipe_v, v_half, v_min, zb_v
from tests.support.profiles import THOROUGH

HALF = Fraction(1, 2)


def timed(order: Order) -> Timed:
    """A pass of both stages of a rank takes 1, and messages are free."""
    return time_order(order, forward=HALF, input_half=HALF, weight_half=HALF)


@pytest.mark.parametrize(
    ("name", "ranks", "batches", "end", "peak"),
    [
        ("v_half", 8, 32, 104.5, 5),
        ("v_min", 8, 32, 109.5, 4),
        ("v_half", 6, 24, 77.5, 4),
        ("v_min", 6, 24, 80.5, 3),
        ("v_half", 4, 8, 26.5, 3),
        ("v_min", 4, 8, 29.5, 2),
        ("zb_v", 4, 8, 25.5, 4),
    ],
)
def test_ends_and_peaks(name: str, ranks: int, batches: int, end: float, peak: float) -> None:
    """V-half and V-min with the squeeze of their paper; blocks alone end at 109.0, 109.5, 81.5, 82.5, 30.0 and 29.5."""
    found = timed(SCHEDULES[name].make(ranks, batches))
    assert (found.end, max(found.peaks)) == (end, peak)


@pytest.mark.parametrize("ranks", range(2, 13))
def test_what_blocks_hold_grows_with_the_ranks_by_a_half_and_by_a_third(ranks: int) -> None:
    """In microbatches of activations, of which 1F1B has as many as there are ranks: with enough microbatches, and one
    pass up or down where numbers do not come out even."""
    batches = 3 * ranks
    half, third = (max(timed(make(ranks, batches)).peaks) for make in (v_half, v_min))
    assert ranks / 2 <= half <= ranks / 2 + 1
    assert ranks / 3 <= third <= ranks / 3 + 1.5
    assert max(timed(zb_v(ranks, batches)).peaks) == ranks


def test_all_sizes_can_be_run() -> None:
    for ranks in range(1, 9 if THOROUGH else 6):
        for batches in range(1, 2 * ranks + 4):
            for make in (zb_v, v_half, v_min, dualpipe_v):
                assert time_order(make(ranks, batches)).end >= 6 * batches


def test_a_forward_and_a_backward_as_one() -> None:
    """DualPipe-V splits its backwards where there is nothing to pair them with; on the last rank, which turns round,
    the first forward of the middle stands alone."""
    order = dualpipe_v(2, 4)
    assert order[0] == parse(
        "0F0 0F1 0F2 3F0 3I0 3W0 3F1 (0F3;3B1)OVERLAP_F_B (3F2;0B0)OVERLAP_F_B 3B2 (3F3;0B1)OVERLAP_F_B "
        "3B3 0I2 0W2 0I3 0W3"
    )
    assert sum(action.kind == PAIR for action in order[1]) == 3
    small = dualpipe_v(2, 1)
    assert small == (parse("0F0 3F0 3I0 3W0 0B0"), parse("1F0 2F0 2B0 1B0"))
