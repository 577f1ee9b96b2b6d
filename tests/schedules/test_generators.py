"""The one loop, and the order timer on it: published figures, closed forms, sizes that do not come out even, limits."""

import csv
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.schedules.pipelines import generators
from lib.schedules.pipelines.action import Order, parts_of, places
from lib.schedules.pipelines.catalogue import SCHEDULES, Named
from lib.schedules.pipelines.generators import breadth_first, in_turn, interleaved, interleaved_zero_bubble, zb_h2
from lib.schedules.pipelines.legality import illegal
from lib.schedules.pipelines.timing import Timed, peaks, time_order
from tests.support.profiles import sample
from tests.support.said import Said

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


@pytest.mark.parametrize("row", SCHEDULES.values(), ids=SCHEDULES.keys())
@given(size=SIZES)
def test_every_rank_does_all_of_its_stages_once(row: Named, size: tuple[int, int]) -> None:
    ranks, batches = size
    order = row.order(ranks, batches)
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
    assert illegal(order, batches=batches) is None


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
            assert illegal(order, batches=batches) is None


@given(SIZES, st.integers(1, 3), st.integers(0, 14), st.sampled_from([0, 1, 2, None]), st.sampled_from([None, 0, 1, 2]))
def test_wherever_the_sliders_stand_the_order_is_legal(
    size: tuple[int, int], chunks: int, more: int, ahead: int | None, late: int | None
) -> None:
    """If a group has as many microbatches as there are ranks, at least."""
    ranks, batches = size
    order = in_turn(ranks, batches, chunks=chunks, group=ranks + more, ahead=ahead, late=late)
    assert illegal(order, batches=batches) is None


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


@pytest.mark.parametrize("row", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_a_schedule_of_the_table_is_told_what_it_takes(row: Named) -> None:
    order = row.order(4, 8, chunks=row.chunks)
    assert order == row.order(4, 8)
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


@pytest.mark.parametrize("ranks", range(2, 13))
def test_what_blocks_hold_grows_with_the_ranks_by_a_half_and_by_a_third(ranks: int) -> None:
    """In microbatches of activations, of which 1F1B has as many as there are ranks: with enough microbatches, and one
    pass up or down where numbers do not come out even."""
    batches = 3 * ranks
    half, third = (max(timed(SCHEDULES[name], ranks, batches).peaks) for name in ("v_half", "v_min"))
    assert ranks / 2 <= half <= ranks / 2 + 1
    assert ranks / 3 <= third <= ranks / 3 + 1.5
    assert max(timed(SCHEDULES["zb_v"], ranks, batches).peaks) == ranks


RATES: list[dict[str, Any]] = json.loads((DATA / "zero_bubble_rates.json").read_text("utf-8"))
NAMES = {"1F1B": "one_f_one_b", "ZB-H1": "zb_h1", "ZB-H2": "zb_h2"}


@pytest.mark.parametrize("row", sample(RATES), ids=lambda row: f"{row['model']}-{row['p']}x{row['m']}")
def test_published_rates(row: dict[str, Any]) -> None:
    costs = {"forward": row["TF"], "input_half": row["TB"], "weight_half": row["TW"], "message": row["Tcomm"]}
    for name, ours in NAMES.items():
        found = time_order(SCHEDULES[ours].order(row["p"], row["m"]), **costs)
        assert round(found.bubble.span, 4) == row["bubble"][name]


def words(order: Order) -> str:
    return "\n".join(" ".join(map(str, actions)) for actions in order)


def came_to(found: Timed) -> str:
    """The bubble up to the end, and from the first action of a rank to its last."""
    bubble = f"bubble {found.bubble.makespan:.4f}, between {found.bubble.span:.4f}"
    return f"end {found.end:g}, peaks {' '.join(f'{peak:g}' for peak in found.peaks)}, {bubble}"


test_figures = Said(Path(__file__).with_name("generators.txt")).test(lambda: vars(generators) | globals())
