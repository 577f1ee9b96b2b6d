"""The published rates of zero-bubble schedules, with the times that were measured for them; and what a limit costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.timing import Timed, time_order
from lib.schedules.pipelines.zero_bubble_search import EVEN, Passes
from tests.support.profiles import sample

DATA = Path(__file__).parents[1] / "support" / "data" / "zero_bubble_rates.json"
RATES: list[dict[str, Any]] = json.loads(DATA.read_text("utf-8"))
NAMES = {"1F1B": "one_f_one_b", "ZB-H1": "zb_h1", "ZB-H2": "zb_h2", "ZB-1p": "zb_1p", "ZB-2p": "zb_2p"}
TIMES = st.sampled_from([0.5, 1, 1.5, 2, 3])


def timed(name: str, ranks: int, batches: int, costs: Passes = EVEN, limit: float | None = None) -> Timed:
    return time_order(SCHEDULES[name].order(ranks, batches, costs=costs, limit=limit), **costs._asdict())


@pytest.mark.parametrize("row", sample(RATES), ids=lambda row: f"{row['model']}-{row['p']}x{row['m']}")
def test_published_rates(row: dict[str, Any]) -> None:
    costs = Passes(row["TF"], row["TB"], row["TW"], row["Tcomm"])
    found = {name: timed(ours, row["p"], row["m"], costs).bubble.span for name, ours in NAMES.items()}
    assert {name: round(rate, 4) for name, rate in found.items()} == row["bubble"]


def test_all_thirty_are_there() -> None:
    assert sum(len(row["bubble"]) for row in RATES) == 30


@given(st.integers(1, 6), st.integers(1, 12), st.builds(Passes, TIMES, TIMES, TIMES, st.sampled_from([0, 0.3])))
def test_a_limit_is_kept(ranks: int, batches: int, costs: Passes) -> None:
    for limit in (1, 2.5, 4):
        for name in ("zb_1p", "zb_2p"):
            assert max(timed(name, ranks, batches, costs, limit=limit).peaks) <= limit


def test_with_even_halves_they_are_zb_h1_and_zb_h2() -> None:
    assert timed("zb_1p", 4, 8).end == timed("zb_h1", 4, 8).end == 27
    assert timed("zb_2p", 4, 8).bubble.span == timed("zb_h2", 4, 8).bubble.span == 0


def test_where_halves_are_not_even_the_search_is_better() -> None:
    costs = Passes(forward=1, input_half=1.5, weight_half=0.5, message=0.2)
    assert timed("zb_1p", 4, 12, costs).end == timed("zb_h1", 4, 12, costs).end == 44.4
    assert timed("zb_2p", 4, 12, costs).end < timed("zb_h2", 4, 12, costs).end


def test_what_a_limit_costs() -> None:
    assert [timed("zb_2p", 4, 8, limit=limit).end for limit in (1, 2, 3, 4, 8)] == [72, 51, 37, 27, 27]
