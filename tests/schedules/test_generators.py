"""The one loop, and the order timer on it: published figures, closed forms, sizes that do not come out even, limits."""

import csv
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.schedules.pipelines.action import PAIR, parse, parts_of, places
from lib.schedules.pipelines.catalogue import SCHEDULES, Named
from lib.schedules.pipelines.generators import (
    breadth_first,
    gpipe,
    in_turn,
    interleaved,
    interleaved_zero_bubble,
    one_f_one_b,
    zb_h1,
    zb_h2,
)
from lib.schedules.pipelines.legality import illegal
from lib.schedules.pipelines.timing import Timed, peaks, time_order
from lib.schedules.pipelines.v_shapes import dualpipe_v, v_half, v_min, zb_v
from lib.schedules.pipelines.zero_bubble_search import EVEN, Passes
from tests.support.profiles import THOROUGH, sample

DATA = Path(__file__).parents[1] / "support" / "data"
FIGURES = {
    "GPipe": "gpipe",
    "1F1B": "one_f_one_b",
    "LoopedBFS": "breadth_first",
    "Interleaved1F1B": "interleaved",
    "InterleavedZeroBubble": "interleaved_zero_bubble",
    "ZBVZeroBubble": "zb_v",
    "DualPipeV": "dualpipe_v",
}
"""The names that the published figures have, and ours."""
ROWS = list(csv.DictReader((DATA / "pipeline_schedules.csv").read_text("utf-8").splitlines()))
SIZES = st.tuples(st.integers(1, 6), st.integers(1, 14))


def timed(row: Named, ranks: int, batches: int, chunks: int | None = None) -> Timed:
    """A schedule by name, where each pass of all stages of a rank takes 1, and messages are free."""
    chunks = row.chunks if chunks is None else chunks
    one = Fraction(1, chunks)
    return time_order(row.order(ranks, batches, chunks=chunks), forward=one, input_half=one, weight_half=one)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['schedule']}-{row['P']}x{row['M']}")
def test_end_and_peaks_are_the_published_ones(row: dict[str, str]) -> None:
    ranks, batches, chunks = int(row["P"]), int(row["M"]), int(row["v"])
    found = timed(SCHEDULES[FIGURES[row["schedule"]]], ranks, batches, chunks)
    assert found.end == float(row["makespan"])
    assert found.peaks == [float(peak) for peak in row["peaks_per_rank"].split()]
    assert found.bubble.makespan == pytest.approx(float(row["bubble"]) / float(row["makespan"]))


def test_all_of_them_are_there() -> None:
    assert {row["schedule"] for row in ROWS} == FIGURES.keys()
    assert len(ROWS) == 40


@given(SIZES)
def test_closed_forms(size: tuple[int, int]) -> None:
    """GPipe and 1F1B wait R - 1 times for a forward and a backward; stages a rank divide that, if the microbatches come
    in full groups. 1F1B holds as many microbatches as there are stages from here to the end."""
    ranks, batches = size
    wait = 3 * (ranks - 1)
    for row in (SCHEDULES["gpipe"], SCHEDULES["one_f_one_b"]):
        bubble = timed(row, ranks, batches).bubble
        assert bubble.makespan == pytest.approx(wait / (wait + 3 * batches))
    assert timed(SCHEDULES["one_f_one_b"], ranks, batches).peaks == [min(batches, ranks - r) for r in range(ranks)]
    assert timed(SCHEDULES["gpipe"], ranks, batches).peaks == [batches] * ranks
    for chunks in (2, 3):
        even = ranks * (1 + batches % 3)
        bubble = timed(SCHEDULES["interleaved"], ranks, even, chunks).bubble
        assert bubble.makespan == pytest.approx(wait / (wait + 3 * even * chunks))


def test_the_two_conventions_of_the_bubble() -> None:
    """With weight halves at the end no rank of ZB-H2 waits from its first action to its last, and yet there is time
    before the first and after the last in which it does nothing."""
    bubble = timed(SCHEDULES["zb_h2"], 4, 16).bubble
    assert bubble.span == 0
    assert bubble.makespan == pytest.approx(1 - 48 / 51)


def test_the_seven_are_places_of_four_sliders() -> None:
    assert gpipe(3, 5) == in_turn(3, 5, group=5, ahead=None)
    assert one_f_one_b(3, 5) == in_turn(3, 5)
    assert interleaved(3, 6, 2) == in_turn(3, 6, chunks=2, ahead=2)
    assert breadth_first(2, 2) == (parse("0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1"), parse("1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1"))
    assert zb_h1(2, 2) == (parse("0F0 0F1 0I0 0W0 0I1 0W1"), parse("1F0 1I0 1F1 1I1 1W0 1W1"))
    assert zb_h1(4, 8) != zb_h2(4, 8) != interleaved_zero_bubble(4, 8, 1) == zb_h1(4, 8)


@pytest.mark.parametrize("row", SCHEDULES.values(), ids=SCHEDULES.keys())
@given(size=SIZES)
def test_every_rank_does_all_of_its_stages_once(row: Named, size: tuple[int, int]) -> None:
    ranks, batches = size
    order = row.make(ranks, batches)
    place = places(order)
    loop = {stage: stage % ranks for stage in range(ranks * row.chunks)}
    vee = {stage: min(stage, 2 * ranks - 1 - stage) for stage in range(2 * ranks)}
    assert place == (loop if row.shape == "loop" else vee)
    for rank, actions in enumerate(order):
        done = [(a.stage, a.kind, a.microbatch) for a in parts_of(actions)]
        assert len(done) == len(set(done))
        mine = {(stage, m) for stage in place if place[stage] == rank for m in range(batches)}
        assert {(s, m) for s, kind, m in done if kind == "F"} == mine
        assert {(s, m) for s, kind, m in done if kind in ("B", "I")} == mine
        assert {(s, m) for s, kind, m in done if kind in ("B", "W")} == mine
    assert illegal(order, batches=batches, stages=ranks * row.chunks) is None


def test_numbers_that_do_not_come_out_even() -> None:
    """Up to 8 ranks, 4 stages each, 4 microbatches a rank: 576 sizes, in which no ranks wait for one another. With and
    without halves, and of several groups or one: by turns, for time."""
    makers = interleaved, interleaved_zero_bubble, breadth_first
    sizes = ((r, m, v) for r in range(1, 9) for m in range(1, 4 * r + 1) for v in range(1, 5))
    for number, (ranks, batches, chunks) in enumerate(sample(sizes)):
        order = makers[number % 3](ranks, batches, chunks)
        if number % 7:
            time_order(order)
        else:
            assert illegal(order, batches=batches, stages=ranks * chunks) is None


@given(SIZES, st.integers(1, 3), st.integers(0, 14), st.sampled_from([0, 1, 2, None]), st.sampled_from([None, 0, 1, 2]))
def test_wherever_the_sliders_stand_the_order_is_legal(
    size: tuple[int, int], chunks: int, more: int, ahead: int | None, late: int | None
) -> None:
    """If a group has as many microbatches as there are ranks, at least."""
    ranks, batches = size
    order = in_turn(ranks, batches, chunks=chunks, group=ranks + more, ahead=ahead, late=late)
    assert illegal(order, batches=batches, stages=ranks * chunks) is None


@given(SIZES, st.integers(1, 3), st.integers(1, 30))
def test_a_limit_of_memory_is_kept(size: tuple[int, int], chunks: int, passes: int) -> None:
    ranks, batches = size
    limit = passes / chunks
    for order in (
        lambda: interleaved(ranks, batches, chunks, limit=limit),
        lambda: interleaved_zero_bubble(ranks, batches, chunks, limit=limit),
        lambda: zb_h2(ranks, batches, limit=limit),
    ):
        try:
            made = order()
        except ValueError:
            continue
        assert max(time_order(made).peaks) <= limit


def test_what_a_limit_costs() -> None:
    ends = [time_order(zb_h2(4, 8, limit=limit)).end for limit in (2, 3, 4, 7)]
    assert ends == [53, 38, 27, 27]
    assert time_order(one_f_one_b(4, 8, limit=2)).end == 69
    assert max(time_order(interleaved(4, 8, 2, limit=2.5)).peaks) == 2.5


@pytest.mark.parametrize("row", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_a_schedule_of_the_table_is_told_what_it_takes(row: Named) -> None:
    order = row.order(4, 8, chunks=row.chunks, costs=EVEN)
    assert order == row.make(4, 8)
    most = max(peaks(order))
    assert max(peaks(row.order(4, 8, limit=most))) <= most
    with pytest.raises(ValueError, match="too few"):
        row.order(4, 8, limit=0.5)
    if "chunks" not in row.takes:
        with pytest.raises(ValueError, match=f"{row.title} has . stages? a rank; got chunks=3"):
            row.order(4, 8, chunks=3)
    if "limit" not in row.takes:
        message = f"limit=1.5 microbatches of activations are too few: {row.title} needs {most:g} for 4 ranks and 8 "
        with pytest.raises(ValueError, match=f"^{message}microbatches$"):
            row.order(4, 8, limit=1.5)


# -- in the shape of a V ------------------------------------------------------------------------------------------


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
    found = timed(SCHEDULES[name], ranks, batches)
    assert (found.end, max(found.peaks)) == (end, peak)


@pytest.mark.parametrize("ranks", range(2, 13))
def test_what_blocks_hold_grows_with_the_ranks_by_a_half_and_by_a_third(ranks: int) -> None:
    """In microbatches of activations, of which 1F1B has as many as there are ranks: with enough microbatches, and one
    pass up or down where numbers do not come out even."""
    batches = 3 * ranks
    half, third = (max(timed(SCHEDULES[name], ranks, batches).peaks) for name in ("v_half", "v_min"))
    assert ranks / 2 <= half <= ranks / 2 + 1
    assert ranks / 3 <= third <= ranks / 3 + 1.5
    assert max(timed(SCHEDULES["zb_v"], ranks, batches).peaks) == ranks


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


# -- the zero-bubble search, with the times that were measured for its published rates ------------------------------

RATES: list[dict[str, Any]] = json.loads((DATA / "zero_bubble_rates.json").read_text("utf-8"))
NAMES = {"1F1B": "one_f_one_b", "ZB-H1": "zb_h1", "ZB-H2": "zb_h2", "ZB-1p": "zb_1p", "ZB-2p": "zb_2p"}
TIMES = st.sampled_from([0.5, 1, 1.5, 2, 3])


def searched(name: str, ranks: int, batches: int, costs: Passes = EVEN, limit: float | None = None) -> Timed:
    return time_order(SCHEDULES[name].order(ranks, batches, costs=costs, limit=limit), **costs._asdict())


@pytest.mark.parametrize("row", sample(RATES), ids=lambda row: f"{row['model']}-{row['p']}x{row['m']}")
def test_published_rates(row: dict[str, Any]) -> None:
    costs = Passes(row["TF"], row["TB"], row["TW"], row["Tcomm"])
    found = {name: searched(ours, row["p"], row["m"], costs).bubble.span for name, ours in NAMES.items()}
    assert {name: round(rate, 4) for name, rate in found.items()} == row["bubble"]


def test_all_thirty_rates_are_there() -> None:
    assert sum(len(row["bubble"]) for row in RATES) == 30


@given(st.integers(1, 6), st.integers(1, 12), st.builds(Passes, TIMES, TIMES, TIMES, st.sampled_from([0, 0.3])))
def test_a_limit_is_kept_by_the_search(ranks: int, batches: int, costs: Passes) -> None:
    for limit in (1, 2.5, 4):
        for name in ("zb_1p", "zb_2p"):
            assert max(searched(name, ranks, batches, costs, limit=limit).peaks) <= limit


def test_with_even_halves_they_are_zb_h1_and_zb_h2() -> None:
    assert searched("zb_1p", 4, 8).end == searched("zb_h1", 4, 8).end == 27
    assert searched("zb_2p", 4, 8).bubble.span == searched("zb_h2", 4, 8).bubble.span == 0


def test_where_halves_are_not_even_the_search_is_better() -> None:
    costs = Passes(forward=1, input_half=1.5, weight_half=0.5, message=0.2)
    assert searched("zb_1p", 4, 12, costs).end == searched("zb_h1", 4, 12, costs).end == 44.4
    assert searched("zb_2p", 4, 12, costs).end < searched("zb_h2", 4, 12, costs).end


def test_what_a_limit_costs_the_search() -> None:
    assert [searched("zb_2p", 4, 8, limit=limit).end for limit in (1, 2, 3, 4, 8)] == [72, 51, 37, 27, 27]
