"""The published figures once more, through the interpreter, the simulator and the check."""

from __future__ import annotations

import csv
import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from lib import Activation, Costs, Model, Trace, check, simulate
from lib.analysis.figures import bubbles, end
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.program import program_of
from lib.schedules.pipelines.zero_bubble_search import Passes
from lib.trace.lifetimes import left_stores
from tests.support.profiles import sample

DATA = Path(__file__).parents[1] / "support" / "data"
NAMES = {
    "GPipe": "gpipe",
    "1F1B": "one_f_one_b",
    "LoopedBFS": "breadth_first",
    "Interleaved1F1B": "interleaved",
    "InterleavedZeroBubble": "interleaved_zero_bubble",
    "ZBVZeroBubble": "zb_v",
    "DualPipeV": "dualpipe_v",
    "ZB-H1": "zb_h1",
    "ZB-H2": "zb_h2",
    "ZB-1p": "zb_1p",
    "ZB-2p": "zb_2p",
}
TABLE = list(csv.DictReader((DATA / "pipeline_schedules.csv").read_text("utf-8").splitlines()))
ROWS = [row for row in TABLE if int(row["M"]) <= 16 or row["v"] == "1"]
"""Larger ones are for the order timer, which gives the same times."""
RATES: list[dict[str, Any]] = json.loads((DATA / "zero_bubble_rates.json").read_text("utf-8"))


def most(model: Model) -> int:
    """The most inputs of its layers that a rank held at once, each from the start of its forward to the end of what
    used it last, and until it was out of its store."""
    program, lives = model.program, model.trace.lifetimes()[model.rank]
    left, changes = left_stores(program), [0] * (len(program.events) + 2)
    for index, event in enumerate(program.events):
        if event.op == "forward":
            (number,) = (n for n in event.inputs if isinstance(program.values[n], Activation))
            changes[index] += 1
            changes[max(lives.last[number] + 1, left.get(number, 0))] -= 1
    return max(accumulate(changes))


@pytest.mark.parametrize("row", sample(ROWS), ids=lambda row: "-".join([*row.values()][:4]))
def test_end_and_peaks_are_the_published_ones(row: dict[str, str]) -> None:
    """Each stage is a layer, and a rank takes 1 for a pass over all of its stages. Messages are free, and
    posted: awaited, with room for one, some ranks would have to wait for messages before they need them."""
    ranks, batches, chunks = int(row["P"]), int(row["M"]), int(row["v"])
    one = 1 / chunks
    costs = Costs(forward=one, backward=2 * one, backward_input=one, backward_weight=one, update=0, collective=0, p2p=0)
    order = SCHEDULES[NAMES[row["schedule"]]].order(ranks, batches, chunks=chunks)
    program = program_of(order, messages="posted")
    models = simulate(program, ranks=ranks, layers=ranks * chunks, batches=batches, costs=costs)
    trace = Trace.of(models)
    assert check(trace).correct
    assert end(trace) == float(row["makespan"])
    assert [most(model) / chunks for model in models] == [float(peak) for peak in row["peaks_per_rank"].split()]
    assert bubbles(trace).makespan == pytest.approx(float(row["bubble"]) / float(row["makespan"]))


def test_all_of_them_are_there() -> None:
    assert {row["schedule"] for row in TABLE} == NAMES.keys() - RATES[0]["bubble"].keys() | {"1F1B"}
    assert len(TABLE) == 40


@pytest.mark.parametrize("row", sample(RATES[:2]), ids=lambda row: f"{row['model']}-{row['p']}x{row['m']}")
def test_rates_are_the_published_ones(row: dict[str, Any]) -> None:
    """With messages posted: each takes its time, and none of a rank's."""
    times = Passes(row["TF"], row["TB"], row["TW"], row["Tcomm"])
    costs = Costs(
        forward=row["TF"],
        backward=row["TB"] + row["TW"],
        backward_input=row["TB"],
        backward_weight=row["TW"],
        update=0,
        p2p=row["Tcomm"] / 2,
    )
    found: dict[str, float] = {}
    for name in row["bubble"]:
        order = SCHEDULES[NAMES[name]].order(row["p"], row["m"], costs=times)
        program = program_of(order, messages="posted")
        trace = Trace.of(simulate(program, ranks=row["p"], layers=row["p"], batches=row["m"], costs=costs))
        assert check(trace).correct
        found[name] = round(bubbles(trace).span, 4)
    assert found == row["bubble"]
